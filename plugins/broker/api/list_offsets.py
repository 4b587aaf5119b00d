"""ListOffsets: the first and last offsets, and those of times.

Clients are told of what is committed, with ``read_committed`` of transactions, too, followers of all there is.
Source: Kafka 3.9.1 and 4.3.1, Partition.fetchOffsetForTimestamp.
"""

from __future__ import annotations

from collections import Counter

from kraftcore.errors import KraftError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.partition import Partition, TopicPartition, View
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftcore.security.acl import Operation

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6
_CONSUMER = -1
_READ_COMMITTED = 1
_DEBUGGING = -2  # reads as a replica, from any of them
_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_EPOCH_SINCE = 4
_OFFSET_NOT_AVAILABLE_SINCE = 5  # older clients are told LEADER_NOT_AVAILABLE, which they retry, too
_Answer = ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse


class ListOffsets:
    """Answers it.

    Args:
        replicas: our partitions.
        permits: the asker must be allowed to describe a topic.
    """

    def __init__(self, replicas: Replicas, permits: Permits) -> None:
        self._replicas = replicas
        self._permits = permits

    def respond(self, request: ListOffsetsRequest, context: RequestContext) -> ListOffsetsResponse:
        """Each partition's answer; offset -1 if nothing was found."""
        response = ListOffsetsResponse()
        view = View.REPLICA
        if request.replica_id == _CONSUMER:
            view = View.COMMITTED if request.isolation_level == _READ_COMMITTED else View.CONSUMER
        counts = Counter(
            TopicPartition(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
        )
        repeated: set[TopicPartition] = set()
        for topic in request.topics:
            told = ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name)
            may_describe = self._permits.may(request, context, Operation.DESCRIBE, topic.name)
            for asked in topic.partitions:
                name = TopicPartition(topic.name, asked.partition_index)
                if name in repeated:
                    continue  # it was answered for already
                if counts[name] > 1:
                    repeated.add(name)
                answer = _Answer(partition_index=asked.partition_index)
                try:
                    if not may_describe:
                        raise refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    if counts[name] > 1:
                        raise refused(ErrorCode.INVALID_REQUEST, f"{name} is in the request more than once")
                    _check_timestamp(asked.timestamp, context.version)
                    partition = self._replicas.find(name)
                    partition.check(asked.current_leader_epoch, needs_leader=request.replica_id != _DEBUGGING)
                    _find(partition, asked.timestamp, answer, view)
                except KraftError as error:
                    code = code_of(self._replicas, name, error)
                    if code is ErrorCode.OFFSET_NOT_AVAILABLE and context.version < _OFFSET_NOT_AVAILABLE_SINCE:
                        code = ErrorCode.LEADER_NOT_AVAILABLE
                    answer.error_code = code
                if context.version < _EPOCH_SINCE:
                    answer.leader_epoch = -1  # the answer has no place for it
                told.partitions.append(answer)
            response.topics.append(told)
        return response


def _check_timestamp(timestamp: int, version: int) -> None:
    if timestamp < 0 and version < _SINCE.get(timestamp, version + 1):
        raise refused(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} in version {version}")


def _find(partition: Partition, timestamp: int, answer: _Answer, view: View) -> None:
    log = partition.log
    leading = partition.leading
    # The high watermark of a new leader may be behind what clients were told by the one before.
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
        return  # nothing is tiered
    if timestamp == MAX_TIMESTAMP:
        timestamp = max(segment.max_timestamp for segment in log.segment_list())
    found = partition.find_timestamp(timestamp, view)
    if found is not None:
        answer.offset, answer.timestamp = found
        epoch = log.epoch_at(answer.offset)
        answer.leader_epoch = -1 if epoch is None else epoch
    elif is_behind:
        raise refused(ErrorCode.OFFSET_NOT_AVAILABLE)
