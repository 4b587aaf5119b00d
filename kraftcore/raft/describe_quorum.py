"""DescribeQuorum: the voters, the observers, and the log end offset of each."""

from __future__ import annotations

from typing import Any

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.error_text_budget import ErrorTexts
from kraftcore.protocol.messages import describe_quorum
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftcore.raft import partition
from kraftcore.raft.events import Received
from kraftcore.raft.roles import Leader
from kraftcore.raft.state import RaftState

UNKNOWN = -1
# An observer that has not fetched for so long is forgotten. Source: Kafka 4.3.1 LeaderState.
OBSERVER_TIMEOUT_MS = 300_000


def on_describe_quorum(state: RaftState, received: Received, request: DescribeQuorumRequest) -> None:
    """Describe our partition; every other partition is unknown here."""
    role = state.role
    topic_type = DescribeQuorumResponse.TopicData
    if not partition.names_our_partition(state, request.topics):
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        texts = ErrorTexts()
        topics = [
            topic_type(
                topic_name=topic.topic_name,
                partitions=[
                    _undescribed(asked.partition_index, unknown, received, texts) for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        state.reply(received.ticket, DescribeQuorumResponse(topics=topics))
        return
    nodes: list[Any] = []
    if isinstance(role, Leader):
        value = role.watermark.value
        observers = role.observer_keys(state.voters, state.now_ms - OBSERVER_TIMEOUT_MS)
        described = topic_type.PartitionData(
            partition_index=partition.PARTITION,
            leader_id=state.config.key.id,
            leader_epoch=state.epoch,
            high_watermark=UNKNOWN if value is None else value,
            current_voters=[_described(state, role, voter.key, received.version) for voter in state.voters],
            observers=[_described(state, role, key, received.version) for key in observers],
        )
        if received.version >= 2:
            nodes = _nodes(state)
    else:
        described = _undescribed(partition.PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, received, ErrorTexts())
    topic = topic_type(topic_name=state.config.topic, partitions=[described])
    state.reply(received.ticket, DescribeQuorumResponse(topics=[topic], nodes=nodes))


def _described(state: RaftState, role: Leader, key: ReplicaKey, version: int) -> describe_quorum.ReplicaState:
    described = describe_quorum.ReplicaState(replica_id=key.id, log_end_offset=UNKNOWN)
    if version >= 2:
        described.replica_directory_id = key.directory_id
    if key.matches(state.config.key):
        described.log_end_offset = state.log.log_end_offset
        described.last_fetch_timestamp = described.last_caught_up_timestamp = state.now_ms
        return described
    progress = role.replicas.get(key)
    if progress is None:
        progress = next((seen for other, seen in role.replicas.items() if key.matches(other)), None)
    if progress is not None and progress.log_end_offset is not None:
        described.log_end_offset = progress.log_end_offset
        described.last_fetch_timestamp = progress.last_fetch_ms
        described.last_caught_up_timestamp = progress.last_caught_up_ms
    return described


def _nodes(state: RaftState) -> list[Any]:
    node = DescribeQuorumResponse.Node
    return [
        node(
            node_id=voter.key.id,
            listeners=[
                node.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                for endpoint in voter.endpoints
            ],
        )
        for voter in state.voters
    ]


def _undescribed(
    index: int, error: ErrorCode, received: Received, texts: ErrorTexts
) -> DescribeQuorumResponse.TopicData.PartitionData:
    described = DescribeQuorumResponse.TopicData.PartitionData(partition_index=index, error_code=error)
    if received.version >= 2:
        described.error_message = texts.take(error.message)
    return described
