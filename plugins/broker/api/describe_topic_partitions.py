"""DescribeTopicPartitions: partitions of topics in pages, with their eligible leader replicas (KIP-966).

Source: Kafka 4.3.1, DescribeTopicPartitionsRequestHandler, KRaftMetadataCache.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftcore.core.uuid import ZERO_UUID
from kraftcore.metadata import Image
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.work.turns import InTurns, Turn, in_turns
from kraftcore.plugins.controller.topic_names import what_is_wrong
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from kraftcore.protocol.topics import INTERNAL_TOPICS
from kraftcore.security.acl import Operation, ResourceType

_Topic = DescribeTopicPartitionsResponse.DescribeTopicPartitionsResponseTopic
_Partition = _Topic.DescribeTopicPartitionsResponsePartition
PAGE_MAX = 2000
"""The most partitions in an answer (``max.request.partition.size.limit``)."""


class DescribeTopicPartitions:
    """Answers DescribeTopicPartitions requests.

    Args:
        cache: the partitions and brokers of the cluster.
        image: gives the committed metadata image.
        permits: knows which topics the asker may describe; the answer leaves out the others.
    """

    def __init__(self, cache: MetadataCache, image: Callable[[], Image], permits: Permits) -> None:
        self._cache = cache
        self._image = image
        self._permits = permits

    @in_turns
    def respond(
        self, request: DescribeTopicPartitionsRequest, context: RequestContext
    ) -> InTurns[DescribeTopicPartitionsResponse]:
        """A page of the topics asked for, or of all topics, in the order of their names from the cursor on."""
        cursor, cache = request.cursor, self._cache
        if cursor is not None and cursor.partition_index < 0:
            invalid = [_Topic(error_code=ErrorCode.INVALID_REQUEST, name=each.name) for each in request.topics]
            return DescribeTopicPartitionsResponse(topics=invalid)
        wants_all = not request.topics
        first = "" if cursor is None else cursor.topic_name
        names = sorted({*cache.topics} if wants_all else {each.name for each in request.topics})
        names = [name for name in names if name >= first]
        hidden, turn = set(), Turn()
        for name in names:
            if not self._permits.may(request, context, Operation.DESCRIBE, name):
                hidden.add(name)
            if turn.is_over():
                yield
        response = DescribeTopicPartitionsResponse()
        left = max(min(PAGE_MAX, request.response_partition_limit), 1)
        for name in names:
            if name in hidden:
                continue
            if left == 0:
                response.next_cursor = DescribeTopicPartitionsResponse.Cursor(topic_name=name, partition_index=0)
                break
            start = cursor.partition_index if cursor is not None and name == first else 0
            told, next_partition = self._topic(name, start, left, context)
            if turn.is_over():
                yield
            if told.error_code == ErrorCode.NONE or not wants_all:
                response.topics.append(told)
            if next_partition is not None:
                kind = DescribeTopicPartitionsResponse.Cursor
                response.next_cursor = kind(topic_name=name, partition_index=next_partition)
                break
            left -= len(told.partitions)
        for told in response.topics:
            told.topic_authorized_operations = self._permits.operations(
                request, context, ResourceType.TOPIC, told.name or ""
            )
            if turn.is_over():
                yield
        if not wants_all:
            response.topics += [
                _Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name) for name in sorted(hidden)
            ]
            response.topics.sort(key=lambda told: told.name or "")
        return response

    def _topic(self, name: str, start: int, left: int, context: RequestContext) -> tuple[_Topic, int | None]:
        """A topic's partitions from ``start`` on, at most ``left``; and the next page's first partition, or None."""
        cache = self._cache
        topic_id = cache.ids.get(name, ZERO_UUID)
        told = _Topic(name=name, topic_id=topic_id, is_internal=name in INTERNAL_TOPICS)
        if name not in cache.topics:
            is_legal = what_is_wrong(name) is None
            told.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION
            return told, None
        rows = self._image().partitions
        count = cache.partition_count(name)
        end = min(count, start + left)
        for number in range(start, end):
            state, row = cache.partition(name, number), rows.get(topic_id, number)
            if state is None or row is None:
                continue
            has_leader = cache.address(state.leader, context.asker.listener) is not None
            told.partitions.append(
                _Partition(
                    partition_index=number,
                    leader_id=state.leader if has_leader else -1,
                    leader_epoch=state.leader_epoch,
                    replica_nodes=state.replicas,
                    isr_nodes=state.isr,
                    eligible_leader_replicas=list(row.elr),
                    last_known_elr=list(row.last_known_elr),
                    offline_replicas=state.offline_replicas,
                )
            )
        return told, end if end < count else None
