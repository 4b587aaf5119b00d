"""OffsetForLeaderEpoch: the end offset of a leader epoch (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from kraftcore.errors import KraftError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.turns import InTurns, Turn, in_turns
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kraftcore.security.acl import Operation

_Result = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult


class OffsetForLeaderEpoch:
    """Answers OffsetForLeaderEpoch requests.

    Args:
        replicas: the partitions of which this broker has a replica.
        permits: the asker must be allowed to act for the cluster, or to describe a topic.
    """

    def __init__(self, replicas: Replicas, permits: Permits) -> None:
        self._replicas = replicas
        self._permits = permits

    @in_turns
    def respond(
        self, request: OffsetForLeaderEpochRequest, context: RequestContext
    ) -> InTurns[OffsetForLeaderEpochResponse]:
        """The end offset of each epoch asked for; epoch -1 and offset -1 for an epoch above the leader's."""
        response, turn = OffsetForLeaderEpochResponse(), Turn()
        permits = self._permits
        is_broker = permits.may_cluster(request, context, Operation.CLUSTER_ACTION, is_logged=False)
        for topic in request.topics:
            told = _Result(topic=topic.topic)
            may_describe = is_broker or permits.may(request, context, Operation.DESCRIBE, topic.topic)
            for asked in topic.partitions:
                if turn.is_over():
                    yield
                name = TopicPartition(topic.topic, asked.partition)
                answer = _Result.EpochEndOffset(partition=asked.partition)
                try:
                    if not may_describe:
                        raise refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    partition = self._replicas.of_present_topic(name)
                    partition.check(asked.current_leader_epoch)
                    found = partition.end_of_epoch(asked.leader_epoch)
                    if found is not None:
                        answer.leader_epoch, answer.end_offset = found.epoch, found.offset
                except KraftError as error:
                    answer.error_code = code_of(self._replicas, name, error)
                told.partitions.append(answer)
            response.topics.append(told)
            if turn.is_over():
                yield
        return response
