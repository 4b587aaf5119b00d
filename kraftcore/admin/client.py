"""The admin client's calls. Source of the requests: KIP-595, 584, 700, 836, 853, 919; Kafka 4.3.1's Admin client."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar

import trio

from kraftcore import __version__
from kraftcore.admin.acls import AclCalls
from kraftcore.admin.calls import PartlyRefusedError
from kraftcore.admin.cluster import ClusterCalls
from kraftcore.admin.configs import ConfigCalls
from kraftcore.admin.groups import GroupCalls
from kraftcore.admin.partitions import PartitionCalls
from kraftcore.admin.quotas import QuotaCalls
from kraftcore.admin.results import (
    FeatureDescription,
    FeatureStatus,
    QuorumDescription,
    ReplicaProgress,
)
from kraftcore.admin.router import (
    BACKOFF_MAX_MS,
    BACKOFF_MS,
    Router,
    Tries,
    raise_refusal,
    refusal,
)
from kraftcore.admin.tokens import TokenCalls
from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.errors import LocalError, RefusedError, RemoteProtocolError
from kraftcore.protocol.appending import append_answer, append_refusal, append_request
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from kraftcore.protocol.messages.produce import ProduceResponse
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftcore.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftcore.protocol.schema import Request, Response
from kraftcore.raft.quorum import Endpoint

R = TypeVar("R", bound=Response)


class UpgradeType(IntEnum):
    """The direction in which a feature level may change, with the protocol's numbers (KIP-584, KIP-778)."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdateError(PartlyRefusedError):
    """At least one feature was not updated.

    Attributes:
        results: per feature the error, or None where the update was carried out.
    """

    results: Mapping[str, RefusedError | None]

    def __init__(self, results: Mapping[str, RefusedError | None]) -> None:
        super().__init__(results)


class AdminClient(GroupCalls, ConfigCalls, PartitionCalls, AclCalls, QuotaCalls, TokenCalls, ClusterCalls):
    """Talks to a quorum, Kafka's or ours; made by ``kraftcore.admin.connect``.

    Every method raises, besides the errors in its own text:
        RefusedError: a node refused; name and text are Kafka's.
        UnreachableError: no node answered within the call's timeout.
        UnsupportedVersionError: the node does not know the request, or is a broker where a controller is needed or
            the other way round.
        RemoteProtocolError: the answer cannot be read, or belongs to another request.
    """

    def __init__(self, router: Router, *, topic: str) -> None:
        super().__init__(router)
        self._topic = topic

    async def describe_quorum(self) -> QuorumDescription:
        """Ask the leader for the quorum's state. Repeats while there is no leader."""
        topics = DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(
            topics=[topics(topic_name=self._topic, partitions=[topics.PartitionData(partition_index=0)])]
        )

        def check(response: DescribeQuorumResponse) -> None:
            raise_refusal(response.error_code, response.error_message)
            partition = self._partition(response)
            raise_refusal(partition.error_code, partition.error_message)

        response = await self._router.call(
            "describeMetadataQuorum", request, DescribeQuorumResponse, check, retry_refusals=True
        )
        partition = self._partition(response)
        self._router.note_voters(voter.replica_id for voter in partition.current_voters)
        return QuorumDescription(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            tuple(map(_progress, partition.current_voters)),
            tuple(map(_progress, partition.observers)),
            {
                node.node_id: tuple(Endpoint(each.name, each.host, each.port) for each in node.listeners)
                for node in response.nodes
            },
        )

    def _partition(self, response: DescribeQuorumResponse) -> DescribeQuorumResponse.TopicData.PartitionData:
        topics = response.topics
        found = [part for topic in topics if topic.topic_name == self._topic for part in topic.partitions]
        if len(topics) != 1 or len(found) != 1 or found[0].partition_index != 0:
            raise RemoteProtocolError(f"the answer is not about {self._topic}, partition 0, alone")
        return found[0]

    async def add_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        endpoints: Sequence[Endpoint],
        *,
        cluster_id: str | None = None,
        ack_when_committed: bool = True,
        timeout_ms: int = 60_000,
    ) -> None:
        """Make a controller that already fetches a voter (KIP-853).

        A try is repeated when its answer got lost, when the leader lost its leadership, and while the change is in
        flight; the call succeeds once the change is committed, whichever try made it.

        Args:
            voter_id: its node id, >= 0.
            directory_id: of the directory with its metadata log.
            endpoints: its controller listeners; the leader's default listener must be among them.
            cluster_id: refuse unless the quorum has this id; None: do not check.
            ack_when_committed: answer when the change is committed; False: when it is in the leader's log.
            timeout_ms: sent along. Kafka 4.3.1 ignores it and waits for controller.quorum.request.timeout.ms.

        Raises:
            RefusedError: DUPLICATE_VOTER: the id is a voter. REQUEST_TIMED_OUT: the controller lags, or another change
                is in flight; nothing was changed. UNSUPPORTED_VERSION: kraft.version is 0. INCONSISTENT_CLUSTER_ID.
                INVALID_REQUEST: endpoints or versions do not fit.
            UnreachableError: its ``outcome_unknown`` says whether the change may be made all the same.
        """
        request = AddRaftVoterRequest(
            cluster_id=cluster_id,
            timeout_ms=timeout_ms,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[AddRaftVoterRequest.Listener(name=at.name, host=at.host, port=at.port) for at in endpoints],
            ack_when_committed=ack_when_committed,
        )

        async def is_made() -> bool:
            return await self._is_voter(ReplicaKey(voter_id, directory_id))

        await self._change_voters(
            "addRaftVoter",
            request,
            AddRaftVoterResponse,
            0 if ack_when_committed else 1,
            ErrorCode.DUPLICATE_VOTER,
            is_made,
        )

    async def remove_voter(self, voter_id: int, directory_id: Uuid, *, cluster_id: str | None = None) -> None:
        """Take a voter out of the quorum; answered when the change is committed (KIP-853). Repeated as ``add_voter``.

        Args:
            voter_id: its node id.
            directory_id: its directory id; both must match.
            cluster_id: refuse unless the quorum has this id; None: do not check.

        Raises:
            RefusedError: VOTER_NOT_FOUND: no such voter, or it is the last one. REQUEST_TIMED_OUT: another change is in
                flight; nothing was changed. UNSUPPORTED_VERSION: kraft.version is 0. INCONSISTENT_CLUSTER_ID.
            UnreachableError: see ``add_voter``.
        """
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id)

        async def is_made() -> bool:
            return not await self._is_voter(ReplicaKey(voter_id, directory_id))

        await self._change_voters(
            "removeRaftVoter", request, RemoveRaftVoterResponse, 0, ErrorCode.VOTER_NOT_FOUND, is_made
        )

    async def _change_voters(
        self,
        name: str,
        request: Request,
        response_type: type[AddRaftVoterResponse] | type[RemoveRaftVoterResponse],
        min_version: int,
        settled: ErrorCode,
        is_made: Callable[[], Awaitable[bool]],
    ) -> None:
        """Ask until the change is committed, or certainly is not made.

        A leader looks for changes in flight before it looks whether a change is needed. So ``settled``, its refusal of
        a change that is not needed, says that no change is in flight, and the voters in force are committed.
        """
        tries = Tries()
        backoff_ms = BACKOFF_MS
        with trio.move_on_after(self._router.call_timeout_ms / 1000):
            while True:
                try:
                    await self._router.call(
                        name,
                        request,
                        response_type,
                        lambda response: raise_refusal(response.error_code, response.error_message),
                        min_version=min_version,
                        doubtful=(ErrorCode.NOT_LEADER_OR_FOLLOWER,),
                        tries=tries,
                    )
                    return
                except RefusedError as error:
                    in_doubt = tries.outcome_unknown
                    if error.error == settled.name and in_doubt and await is_made():
                        return
                    if error.error != ErrorCode.REQUEST_TIMED_OUT.name:
                        raise
                    tries.doubtful += 1  # unless the voter set shows the outcome
                    tries.last_failure = str(error)
                    if not in_doubt and not await is_made():
                        raise
                await trio.sleep(backoff_ms / 1000)
                backoff_ms = min(backoff_ms * 2, BACKOFF_MAX_MS)
        raise tries.timed_out(name)

    async def _is_voter(self, key: ReplicaKey) -> bool:
        return any(voter.key == key for voter in (await self.describe_quorum()).voters)

    async def append(
        self,
        values: Sequence[bytes],
        *,
        client_id: int,
        sequence: int,
        client_epoch: int = 0,
        topic_id: Uuid = METADATA_TOPIC_ID,
    ) -> int:
        """Append records to a quorum of kraftcore nodes; returns when they are committed. Kafka's controllers refuse.

        The request is repeated until it is answered, and applied once, by ``client_id`` and ``sequence``, see
        ``Node.append_many``. A client that has lost its last number begins a later epoch with 0.

        Args:
            values: none of them empty; all go into one batch.
            client_id: the client's number, 0 to 2**63 - 1 (``kraftcore.executor.sessions.producer_id_of`` makes one of
                a name); a client has one append in flight at a time.
            sequence: of the first record, 0 to 2**31 - 1; each of the client's new appends begins where its last one
                ended.
            client_epoch: 0 to 32767.
            topic_id: of the log.

        Returns:
            The first record's offset.

        Raises:
            LocalError: the quorum's topic is another, or ``client_id`` or ``sequence`` is out of range.
            RefusedError: the records are not valid (INVALID_RECORD).
            SequenceError: ``sequence`` was used for other records, or is too high; nothing was applied.
        """
        request = append_request(
            values,
            topic=self._topic,
            topic_id=topic_id,
            client_id=client_id,
            client_epoch=client_epoch,
            sequence=sequence,
            timestamp_ms=time.time_ns() // 1_000_000,
            timeout_ms=self._router.request_timeout_ms,
        )

        def check(response: ProduceResponse) -> None:
            found = append_answer(response)
            if found.error_code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
                raise LocalError(f"the quorum's log is another topic than {self._topic} with id {topic_id}")
            if found.error_code != ErrorCode.NONE:
                raise append_refusal(found)

        response = await self._router.call(
            "append",
            request,
            ProduceResponse,
            check,
            retry_refusals=True,
            doubtful=(ErrorCode.REQUEST_TIMED_OUT,),
        )
        offset: int = append_answer(response).base_offset
        return offset

    async def ask_controller(self, name: str, request: Request, response_type: type[R], *, min_version: int = 0) -> R:
        """Send a request that has no method here to the active controller, until it is answered.

        Args:
            name: of the call, for messages.
            request: its body; repeated unchanged when an answer is lost.
            response_type: class of its response.
            min_version: lowest version that has all fields that the request sets.

        Returns:
            The response; the caller checks errors of single items in it.

        Raises:
            RefusedError: the response has an error for the whole request.
        """

        def check(response: Any) -> None:
            raise_refusal(getattr(response, "error_code", 0), getattr(response, "error_message", None))

        return await self._router.call(name, request, response_type, check, min_version=min_version)

    async def describe_features(self, *, node_id: int | None = None) -> FeatureDescription:
        """Ask which feature levels a node supports, and which are in force.

        Args:
            node_id: the node to ask; None: the active controller, or any broker.

        Raises:
            LocalError: there is no such node.
        """
        if node_id is not None and node_id < 0:
            raise LocalError(f"Invalid node id {node_id}: must be non-negative.")
        response = await self._router.call(
            "describeFeatures",
            ApiVersionsRequest(client_software_name="kraftcore", client_software_version=__version__),
            ApiVersionsResponse,
            lambda response: raise_refusal(response.error_code, None),
            node_id=node_id,
        )
        finalized = {each.name: each.max_version_level for each in response.finalized_features}
        features = {
            each.name: FeatureStatus(each.name, each.min_version, each.max_version, finalized.get(each.name, 0))
            for each in response.supported_features
        }
        epoch = response.finalized_features_epoch
        return FeatureDescription(features, epoch if epoch >= 0 else None)

    async def update_features(
        self,
        levels: Mapping[str, int],
        *,
        upgrade_type: UpgradeType = UpgradeType.UPGRADE,
        validate_only: bool = False,
        timeout_ms: int = 60_000,
    ) -> None:
        """Change finalized feature levels, all of them or none.

        Args:
            levels: wanted level by feature; 0 switches a feature off, which is a downgrade.
            upgrade_type: which way the levels may move; asking for the present level always succeeds.
            validate_only: check, change nothing.
            timeout_ms: how long the controller may take.

        Raises:
            LocalError: no feature, an empty name, or a level that does not fit the direction.
            FeatureUpdateError: refused; ``results`` has each feature's error.
        """
        check_levels(levels, upgrade_type)
        update = UpdateFeaturesRequest.FeatureUpdateKey
        request = UpdateFeaturesRequest(
            timeout_ms=timeout_ms,
            feature_updates=[
                update(feature=name, max_version_level=level, upgrade_type=upgrade_type)
                for name, level in levels.items()
            ],
            validate_only=validate_only,
        )
        response = await self._router.call(
            "updateFeatures",
            request,
            UpdateFeaturesResponse,
            _check_moved,
            min_version=1,
            doubtful=(ErrorCode.NOT_CONTROLLER,),
        )
        top = refusal(response.error_code, response.error_message)
        results: dict[str, RefusedError | None] = dict.fromkeys(levels, top)
        told = {each.feature for each in response.results}  # up to version 1
        if top is None and told and not told >= levels.keys():
            raise RemoteProtocolError(f"the answer does not say what became of {', '.join(levels.keys() - told)}")
        for each in response.results:
            if top is None and each.feature in results:
                results[each.feature] = refusal(each.error_code, each.error_message)
        if any(results.values()):
            raise FeatureUpdateError(results)


def check_levels(levels: Mapping[str, int], upgrade_type: UpgradeType) -> None:
    """Refuse levels that no server would accept; the texts are those of Kafka's client.

    Raises:
        LocalError: see ``AdminClient.update_features``.
    """
    if not levels:
        raise LocalError("Feature updates can not be null or empty.")
    for name, level in levels.items():
        if not name.strip():
            raise LocalError("Provided feature can not be empty.")
        if level == 0 and upgrade_type == UpgradeType.UPGRADE:
            raise LocalError(
                "The upgradeType flag should be set to SAFE_DOWNGRADE or UNSAFE_DOWNGRADE when the provided "
                f"maxVersionLevel:{level} is < 1."
            )
        if level < 0:
            raise LocalError("Cannot specify a negative version level.")
        if level > 0x7FFF:
            raise LocalError(f"{name}={level}: levels are at most 32767")


def _check_moved(response: UpdateFeaturesResponse) -> None:
    if response.error_code == ErrorCode.NOT_CONTROLLER:
        raise_refusal(response.error_code, response.error_message)


def _progress(state: ReplicaState) -> ReplicaProgress:
    return ReplicaProgress(
        ReplicaKey(state.replica_id, state.replica_directory_id),
        state.log_end_offset,
        None if state.last_fetch_timestamp == -1 else state.last_fetch_timestamp,
        None if state.last_caught_up_timestamp == -1 else state.last_caught_up_timestamp,
    )
