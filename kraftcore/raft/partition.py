"""Messages about the one partition that a replica holds: built, checked and taken apart.

Every message of the consensus carries a list of topics with a list of partitions, and KRaft allows exactly one of each.
The functions here hide that, so that the rules of the consensus name only fields that matter. They decide nothing.

``state`` is always the state of this replica, and "we" is this replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.core.wire.struct import Struct
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from kraftcore.protocol.messages.vote import VoteRequest, VoteResponse
from kraftcore.raft.events import RESPONSE_OVERHEAD, Received
from kraftcore.raft.quorum import Voter
from kraftcore.raft.roles import DelayedFetch, Leader, SnapshotFetch
from kraftcore.raft.state import RaftState

API_VERSIONS_NAME = "API_VERSIONS"
PARTITION = 0
NO_LEADER = -1
NAMELESS = -1  # the id in a Fetch that no leader is to count
_FetchTopic = FetchRequest.FetchTopic
_FetchPartition = _FetchTopic.FetchPartition
_Fetched = FetchResponse.FetchableTopicResponse
_FetchedPartition = _Fetched.PartitionData
_FETCHES = (FetchRequest, FetchSnapshotRequest)
_SnapshotTopic = FetchSnapshotResponse.TopicSnapshot
_SnapshotPartition = _SnapshotTopic.PartitionSnapshot
# The first versions whose answers name the leader's endpoint. Fetch has the field from 16 on; Kafka fills it from 17.
_FETCH_ENDPOINTS = 17
_ENDPOINTS = 1
# Below this version Fetch names the replica in another field, and its directory not at all.
FETCH_MIN_VERSION = 15
# Below this version AddRaftVoter is answered only after the commit, for which the new voter itself may be needed.
JOIN_MIN_VERSION = 1


class AnswerSummary(NamedTuple):
    """What every answer of the consensus says.

    Attributes:
        error_code: of the partition.
        leader_id: the leader that the sender knows, or None.
        leader_epoch: the sender's leader epoch.
    """

    error_code: int
    leader_id: int | None
    leader_epoch: int


class Elsewhere(NamedTuple):
    """Where a replica must go before it can fetch on; exactly one attribute is set.

    Attributes:
        diverging: leader epoch and end offset of the place where its log parts from the leader's.
        snapshot: end offset and epoch of the snapshot that it must fetch.
    """

    diverging: tuple[int, int] | None = None
    snapshot: tuple[int, int] | None = None


class _Topic(Protocol):
    partitions: Sequence[Any]


# --- checks -----------------------------------------------------------------------------------------------------------


def same_cluster(state: RaftState, cluster_id: str | None) -> bool:
    """Whether a request is meant for our cluster; a request that names no cluster is."""
    return cluster_id is None or cluster_id == state.config.cluster_id


def top_level_error(state: RaftState, cluster_id: str | None, ours: bool) -> ErrorCode:
    """The top-level error of a request, or NONE."""
    if not same_cluster(state, cluster_id):
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    return ErrorCode.NONE if ours else ErrorCode.INVALID_REQUEST


def names_our_partition(state: RaftState, topics: Sequence[Any]) -> bool:
    """Whether a message names exactly our topic, by name, and partition 0."""
    return (
        len(topics) == 1
        and topics[0].topic_name == state.config.topic
        and len(topics[0].partitions) == 1
        and topics[0].partitions[0].partition_index == PARTITION
    )


def names_our_topic_id(state: RaftState, topics: Sequence[Any]) -> bool:
    """Whether a Fetch names exactly our topic, by id, and partition 0.

    Kafka 4.3.1 matches by id only, so nothing below v13 matches.
    """
    return (
        len(topics) == 1
        and topics[0].topic_id == state.config.topic_id
        and len(topics[0].partitions) == 1
        and topics[0].partitions[0].partition == PARTITION
    )


def is_for_us(state: RaftState, voter_id: int, directory_id: Uuid) -> bool:
    """Whether the voter key in a request is ours; an unknown id, or an unknown directory id, matches every replica."""
    if voter_id < 0:
        return True
    key = state.config.key
    return voter_id == key.id and directory_id in (ZERO_UUID, key.directory_id)


def fetching_replica_id(request: FetchRequest, version: int) -> int:
    """The id of the replica that fetches; from version 15 on it is in another field."""
    return request.replica_id if version < 15 else request.replica_state.replica_id


def is_fetch(message: Struct) -> bool:
    """Whether a request is a Fetch or FetchSnapshot, of which one may be in flight to a leader."""
    return isinstance(message, _FETCHES)


# --- requests ---------------------------------------------------------------------------------------------------------


def vote_request(state: RaftState, voter: ReplicaKey, pre_vote: bool) -> VoteRequest:
    """Ask a voter for its vote, or whether it would give its vote (pre-vote)."""
    key = state.config.key
    topic = VoteRequest.TopicData
    asked = topic.PartitionData(
        partition_index=PARTITION,
        replica_epoch=state.epoch,
        replica_id=key.id,
        replica_directory_id=key.directory_id,
        voter_directory_id=voter.directory_id,
        last_offset_epoch=state.last_epoch,
        last_offset=state.log.log_end_offset,
        pre_vote=pre_vote,
    )
    return VoteRequest(
        cluster_id=state.config.cluster_id,
        voter_id=voter.id,
        topics=[topic(topic_name=state.config.topic, partitions=[asked])],
    )


def begin_quorum_epoch_request(state: RaftState, voter: ReplicaKey) -> BeginQuorumEpochRequest:
    """Tell a voter that we lead, and where we listen."""
    topic = BeginQuorumEpochRequest.TopicData
    told = topic.PartitionData(
        partition_index=PARTITION,
        voter_directory_id=voter.directory_id,
        leader_id=state.config.key.id,
        leader_epoch=state.epoch,
    )
    return BeginQuorumEpochRequest(
        cluster_id=state.config.cluster_id,
        voter_id=voter.id,
        topics=[topic(topic_name=state.config.topic, partitions=[told])],
        leader_endpoints=[
            BeginQuorumEpochRequest.LeaderEndpoint(name=item.name, host=item.host, port=item.port)
            for item in state.config.listeners
        ],
        lease_ms=state.config.leader_lease_ms,
    )


def end_quorum_epoch_request(state: RaftState, preferred: Sequence[ReplicaKey]) -> EndQuorumEpochRequest:
    """Tell a voter that we have resigned, and which voters should lead next."""
    topic = EndQuorumEpochRequest.TopicData
    told = topic.PartitionData(
        partition_index=PARTITION,
        leader_id=state.config.key.id,
        leader_epoch=state.epoch,
        preferred_successors=[key.id for key in preferred],
        preferred_candidates=[
            topic.PartitionData.ReplicaInfo(candidate_id=key.id, candidate_directory_id=key.directory_id)
            for key in preferred
        ],
    )
    return EndQuorumEpochRequest(
        cluster_id=state.config.cluster_id,
        topics=[topic(topic_name=state.config.topic, partitions=[told])],
        leader_endpoints=[
            EndQuorumEpochRequest.LeaderEndpoint(name=item.name, host=item.host, port=item.port)
            for item in state.config.listeners
        ],
    )


def fetch_request(state: RaftState) -> FetchRequest:
    """Fetch from our log end offset."""
    config = state.config
    wanted = _FetchPartition(
        partition=PARTITION,
        current_leader_epoch=state.epoch,
        fetch_offset=state.log.log_end_offset,
        last_fetched_epoch=state.last_epoch,
        replica_directory_id=config.key.directory_id,
        high_watermark=-1 if state.high_watermark is None else state.high_watermark,
    )
    return FetchRequest(
        cluster_id=config.cluster_id,
        replica_state=FetchRequest.ReplicaState(replica_id=NAMELESS if state.is_nameless else config.key.id),
        max_wait_ms=config.fetch_max_wait_ms,
        max_bytes=config.fetch_max_bytes,
        topics=[_FetchTopic(topic_id=config.topic_id, partitions=[wanted])],
    )


def bounded(state: RaftState, max_bytes: int) -> int:
    """``max_bytes`` of log or snapshot, or as many bytes less as fit one frame."""
    return min(max_bytes, max(state.config.max_frame_bytes - RESPONSE_OVERHEAD, 1))


def fetch_snapshot_request(state: RaftState, snapshot: SnapshotFetch) -> FetchSnapshotRequest:
    """Ask for the next chunk of a snapshot."""
    topic = FetchSnapshotRequest.TopicSnapshot
    wanted = topic.PartitionSnapshot(
        partition=PARTITION,
        current_leader_epoch=state.epoch,
        snapshot_id=topic.PartitionSnapshot.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch),
        position=snapshot.position,
        replica_directory_id=state.config.key.directory_id,
    )
    return FetchSnapshotRequest(
        cluster_id=state.config.cluster_id,
        replica_id=NAMELESS if state.is_nameless else state.config.key.id,
        max_bytes=state.config.fetch_snapshot_max_bytes,
        topics=[topic(name=state.config.topic, partitions=[wanted])],
    )


def update_voter_request(state: RaftState, own: Voter) -> UpdateRaftVoterRequest:
    """Tell the leader our endpoints and versions."""
    feature = UpdateRaftVoterRequest.KRaftVersionFeature(
        min_supported_version=own.supported.min, max_supported_version=own.supported.max
    )
    return UpdateRaftVoterRequest(
        cluster_id=state.config.cluster_id,
        current_leader_epoch=state.epoch,
        voter_id=own.key.id,
        voter_directory_id=own.key.directory_id,
        listeners=[UpdateRaftVoterRequest.Listener(name=e.name, host=e.host, port=e.port) for e in own.endpoints],
        kraft_version_feature=feature,
    )


def add_voter_request(state: RaftState, own: Voter) -> AddRaftVoterRequest:
    """Ask the leader to make us a voter; the answer must not wait for a commit that may need us."""
    return AddRaftVoterRequest(
        cluster_id=state.config.cluster_id,
        timeout_ms=state.config.request_timeout_ms,
        voter_id=own.key.id,
        voter_directory_id=own.key.directory_id,
        listeners=[AddRaftVoterRequest.Listener(name=e.name, host=e.host, port=e.port) for e in own.endpoints],
        ack_when_committed=False,
    )


def remove_voter_request(state: RaftState, key: ReplicaKey) -> RemoveRaftVoterRequest:
    """Ask the leader to remove the voter that we were before our disk was replaced."""
    return RemoveRaftVoterRequest(
        cluster_id=state.config.cluster_id, voter_id=key.id, voter_directory_id=key.directory_id
    )


# --- answers ----------------------------------------------------------------------------------------------------------


def _endpoints(state: RaftState, kind: Any, listener: str, wanted: bool) -> list[Any]:
    leader_id = state.leader_id
    if not wanted or leader_id is None:
        return []
    return [
        kind(node_id=leader_id, host=endpoint.host, port=endpoint.port)
        for endpoint in state.leader_endpoints
        if endpoint.name == listener
    ]


def _leader_id(state: RaftState) -> int:
    leader_id = state.leader_id
    return NO_LEADER if leader_id is None else leader_id


def vote_response(state: RaftState, received: Received, error: ErrorCode, granted: bool) -> VoteResponse:
    """Our vote, epoch and leader."""
    topic = VoteResponse.TopicData
    told = topic.PartitionData(
        partition_index=PARTITION,
        error_code=error,
        leader_id=_leader_id(state),
        leader_epoch=state.epoch,
        vote_granted=granted,
    )
    return VoteResponse(
        topics=[topic(topic_name=state.config.topic, partitions=[told])],
        node_endpoints=_endpoints(state, VoteResponse.NodeEndpoint, received.listener, received.version >= _ENDPOINTS),
    )


def quorum_epoch_response(kind: Any, state: RaftState, received: Received, error: ErrorCode) -> Struct:
    """Our epoch and leader, after BeginQuorumEpoch or EndQuorumEpoch; ``kind`` is the answer's class."""
    told = kind.TopicData.PartitionData(
        partition_index=PARTITION, error_code=error, leader_id=_leader_id(state), leader_epoch=state.epoch
    )
    response: Struct = kind(
        topics=[kind.TopicData(topic_name=state.config.topic, partitions=[told])],
        node_endpoints=_endpoints(state, kind.NodeEndpoint, received.listener, received.version >= _ENDPOINTS),
    )
    return response


def voter_change_response(
    kind: str, error: ErrorCode = ErrorCode.NONE, message: str | None = None
) -> AddRaftVoterResponse | RemoveRaftVoterResponse:
    """The result of AddRaftVoter (``kind`` is ``add``) or RemoveRaftVoter; a message of None: the error's own text."""
    text = error.message if message is None and error is not ErrorCode.NONE else message
    answer = AddRaftVoterResponse if kind == "add" else RemoveRaftVoterResponse
    return answer(error_code=error, error_message=text)


def update_voter_response(state: RaftState, received: Received, error: ErrorCode) -> UpdateRaftVoterResponse:
    """The result of UpdateRaftVoter, and who leads."""
    leader = UpdateRaftVoterResponse.CurrentLeader(leader_id=_leader_id(state), leader_epoch=state.epoch)
    for endpoint in state.leader_endpoints:
        if endpoint.name == received.listener:
            leader.host, leader.port = endpoint.host, endpoint.port
    return UpdateRaftVoterResponse(error_code=error, current_leader=leader)


def _fetched(state: RaftState, version: int, listener: str, **fields: Any) -> FetchResponse:
    told = _FetchedPartition(
        partition_index=PARTITION,
        current_leader=_FetchedPartition.LeaderIdAndEpoch(leader_id=_leader_id(state), leader_epoch=state.epoch),
        **fields,
    )
    return FetchResponse(
        responses=[_Fetched(topic_id=state.config.topic_id, partitions=[told])],
        node_endpoints=_endpoints(state, FetchResponse.NodeEndpoint, listener, version >= _FETCH_ENDPOINTS),
    )


def fetch_error(state: RaftState, asked: Received | DelayedFetch, error: ErrorCode) -> FetchResponse:
    """The answer to a Fetch that is refused."""
    return _fetched(
        state,
        asked.version,
        asked.listener,
        error_code=error,
        high_watermark=-1,
        log_start_offset=-1,
        records=b"",
    )


def _watermark(role: Leader) -> int:
    value = role.watermark.value
    return -1 if value is None else value


def fetch_records(state: RaftState, asked: DelayedFetch, role: Leader, data: bytes) -> FetchResponse:
    """The answer to a valid Fetch, with records or without."""
    return _fetched(
        state,
        asked.version,
        asked.listener,
        high_watermark=_watermark(role),
        log_start_offset=state.log.log_start_offset,
        records=data,
    )


def fetch_elsewhere(state: RaftState, asked: Received | DelayedFetch, role: Leader, where: Elsewhere) -> FetchResponse:
    """The answer that names a diverging epoch, or a snapshot to fetch."""
    fields: dict[str, Any] = {}
    if where.diverging is not None:
        epoch, end_offset = where.diverging
        fields["diverging_epoch"] = _FetchedPartition.EpochEndOffset(epoch=epoch, end_offset=end_offset)
    if where.snapshot is not None:
        end_offset, epoch = where.snapshot
        fields["snapshot_id"] = _FetchedPartition.SnapshotId(end_offset=end_offset, epoch=epoch)
    return _fetched(
        state,
        asked.version,
        asked.listener,
        high_watermark=_watermark(role),
        log_start_offset=state.log.log_start_offset,
        records=b"",
        **fields,
    )


def fetch_snapshot_response(
    state: RaftState, received: Received, error: ErrorCode, topic: str | None = None, **fields: Any
) -> FetchSnapshotResponse:
    """A chunk of a snapshot, or a partition-level error with empty records.

    Kafka 4.3.1 cannot serialise such an error, for it leaves the records out.
    """
    told = _SnapshotPartition(
        index=PARTITION,
        error_code=error,
        current_leader=_SnapshotPartition.LeaderIdAndEpoch(leader_id=_leader_id(state), leader_epoch=state.epoch),
        **fields,
    )
    return FetchSnapshotResponse(
        topics=[_SnapshotTopic(name=topic or state.config.topic, partitions=[told])],
        node_endpoints=_endpoints(
            state, FetchSnapshotResponse.NodeEndpoint, received.listener, received.version >= _ENDPOINTS
        ),
    )


def snapshot_id(asked: Any) -> Any:
    """The snapshot id of a request, in the class that answers have for it."""
    return _SnapshotPartition.SnapshotId(end_offset=asked.end_offset, epoch=asked.epoch)


# --- answers to us ----------------------------------------------------------------------------------------------------


def _leader_or_none(leader_id: int) -> int | None:
    return None if leader_id < 0 else leader_id


def quorum_answer(state: RaftState, response: Any) -> tuple[AnswerSummary, Any] | None:
    """Our partition in an answer to Vote, BeginQuorumEpoch or EndQuorumEpoch, and its summary.

    None if the answer has a top-level error or is about another partition.
    """
    if response.error_code != ErrorCode.NONE or not names_our_partition(state, response.topics):
        return None
    told = response.topics[0].partitions[0]
    return AnswerSummary(told.error_code, _leader_or_none(told.leader_id), told.leader_epoch), told


def fetch_answer(state: RaftState, response: FetchResponse) -> Any:
    """Our partition in an answer to Fetch; None if the answer has a top-level error or is about another partition."""
    topics = response.responses
    if response.error_code != ErrorCode.NONE or len(topics) != 1 or topics[0].topic_id != state.config.topic_id:
        return None
    partitions = topics[0].partitions
    return partitions[0] if len(partitions) == 1 and partitions[0].partition_index == PARTITION else None


def fetch_snapshot_answer(state: RaftState, response: FetchSnapshotResponse) -> Any:
    """Our partition in an answer to FetchSnapshot; None after a top-level error, or if it is about another one."""
    topics = response.topics
    if response.error_code != ErrorCode.NONE or len(topics) != 1 or topics[0].name != state.config.topic:
        return None
    partitions = topics[0].partitions
    return partitions[0] if len(partitions) == 1 and partitions[0].index == PARTITION else None


def summary_of(told: Any) -> AnswerSummary:
    """Leader and epoch that a partition in an answer to Fetch or FetchSnapshot names."""
    leader = told.current_leader
    return AnswerSummary(told.error_code, _leader_or_none(leader.leader_id), leader.leader_epoch)
