"""ListOffsets: the first and the last offset of a partition, and the offset of a time.

Consumers are told offsets up to the high watermark, or with ``read_committed`` up to the last stable offset; followers
up to the log end offset. A thread searches batches that decompress to many bytes (``heavy_steps``).
Source: Kafka 3.9.1 and 4.3.1, Partition.fetchOffsetForTimestamp.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial

from kraftcore.errors import KraftError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.partition import Partition, TopicPartition, View
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.heavy_steps import (
    BATCH_BYTES,
    DoAside,
    HeavySteps,
    LoopRoom,
    do_here,
    others_first,
    run_steps,
)
from kraftcore.plugins.broker.work.turns import Turn, chunks
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.security.acl import Operation

_logger = logging.getLogger("kraftcore.broker")
WAITING_MAX = 500
"""The most requests that wait for a thread; a further one breaks its connection."""
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_CONSUMER = -1
_READ_COMMITTED = 1
_DEBUGGING = -2  # a tool that reads up to the log end offset, from any replica
_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_EPOCH_SINCE = 4
_OFFSET_NOT_AVAILABLE_SINCE = 5  # older clients get LEADER_NOT_AVAILABLE, which they retry as well
_Answer = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse


class ListOffsets:
    """Answers ListOffsets requests.

    Args:
        replicas: the partitions of which this broker has a replica.
        permits: the asker must be allowed to describe a topic.
        do_aside: has a thread do work that would hold the event loop for long.
        loop_bytes: the most bytes that a batch may decompress to on the event loop.
    """

    def __init__(
        self, replicas: Replicas, permits: Permits, do_aside: DoAside = do_here, loop_bytes: int = BATCH_BYTES
    ) -> None:
        self._loop_bytes = loop_bytes
        self._replicas = replicas
        self._permits = permits
        self._do_aside = do_aside
        self._waiting = 0

    def respond(self, request: ListOffsetsRequest, context: RequestContext) -> None:
        """Answer each partition, now or later; the offset is -1 if no record has such a time."""
        if self._waiting >= WAITING_MAX:
            context.close()
            return

        is_over: list[bool] = []

        def done(response: ListOffsetsResponse) -> None:
            self._waiting -= 1
            is_over.append(True)
            context.answer(response)

        def fail(error: Exception) -> None:
            self._waiting -= 1
            is_over.append(True)
            _logger.error("%s cannot be answered", context.asker.peer, exc_info=error)
            context.close()

        self._waiting += 1
        run_steps(self._answer(request, context), self._do_aside, done, fail)
        if not is_over:
            context.wait()

    def _answer(self, request: ListOffsetsRequest, context: RequestContext) -> HeavySteps[ListOffsetsResponse]:
        room = LoopRoom(self._loop_bytes)
        response = ListOffsetsResponse()
        view = View.REPLICA
        if request.replica_id == _CONSUMER:
            view = View.COMMITTED if request.isolation_level == _READ_COMMITTED else View.CONSUMER
        counts: Counter[TopicPartition] = Counter()
        turn = Turn()
        for topic in request.topics:
            for some in chunks(topic.partitions):
                counts.update(TopicPartition(topic.name, each.partition_index) for each in some)
                if turn.is_over(1 + len(some)):
                    yield others_first
        repeated: set[TopicPartition] = set()
        for topic in request.topics:
            told = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
            may_describe = self._permits.may(request, context, Operation.DESCRIBE, topic.name)
            for asked in topic.partitions:
                if turn.is_over():
                    yield others_first
                name = TopicPartition(topic.name, asked.partition_index)
                if name in repeated:
                    continue  # a partition named twice was answered already
                if counts[name] > 1:
                    repeated.add(name)
                answer = _Answer(partition_index=asked.partition_index)
                try:
                    if not may_describe:
                        raise refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if counts[name] > 1:
                        raise refused(ErrorCode.INVALID_REQUEST, f"{name} is in the request more than once")
                    _check_timestamp(asked.timestamp, context.version)
                    partition = self._replicas.of_present_topic(name)
                    needs_leader = request.replica_id != _DEBUGGING
                    check = partial(partition.check, asked.current_leader_epoch, needs_leader=needs_leader)
                    check()
                    yield from _find(partition, asked.timestamp, answer, view, room, check)
                except KraftError as error:
                    code = code_of(self._replicas, name, error)
                    if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.version < _OFFSET_NOT_AVAILABLE_SINCE:
                        code = ErrorCode.LEADER_NOT_AVAILABLE
                    answer = _Answer(partition_index=asked.partition_index, error_code=code)
                if context.version < _EPOCH_SINCE:
                    answer.leader_epoch = -1  # this version of the answer has no field for the leader epoch
                told.partitions.append(answer)
            response.topics.append(told)
            if turn.is_over():
                yield others_first
        return response


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise refused(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} in version {version}")


def _find(
    partition: Partition, timestamp: int, answer: _Answer, view: View, room: LoopRoom, check: Callable[[], object]
) -> HeavySteps[None]:
    log = partition.log
    leading = partition.leading
    # The high watermark of a new leader may be below the one that the former leader told clients.
    is_behind = (
        view is not View.REPLICA and leading is not None and leading.epoch_start_offset > partition.high_watermark
    )
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = log.log_start_offset
        epoch = log.epoch_at(log.log_start_offset)
        answer.leader_epoch = -1 if epoch is None else epoch
        return
    if timestamp == LATEST:
        if is_behind:
            raise refused(ErrorCode.OFFSET_NOT_AVAILABLE)
        answer.offset = partition.readable_end(view)
        answer.leader_epoch = partition.leader_epoch
        return
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return  # there is no tiered storage
    if timestamp == MAX_TIMESTAMP:
        timestamp = max(segment.max_timestamp for segment in log.segment_list())
    found = yield from partition.find_timestamp(timestamp, view, room, check)
    if found is not None:
        answer.offset, answer.timestamp, answer.leader_epoch = found
    elif is_behind:
        raise refused(ErrorCode.OFFSET_NOT_AVAILABLE)
