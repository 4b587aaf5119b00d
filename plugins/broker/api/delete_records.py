"""DeleteRecords: the leader raises its log start, and answers when all live replicas have done so too (KIP-107).

Source: Kafka 4.3.1, ReplicaManager.deleteRecords, DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraftcore.errors import CorruptDataError, KraftError
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.log_changes import raise_log_start
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_threads import run_in_threads
from kraftcore.plugins.broker.work.tasks import Background
from kraftcore.plugins.broker.work.turns import Turn
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kraftcore.protocol.topics import INTERNAL_TOPICS
from kraftcore.security.acl import Operation

HIGH_WATERMARK = -1
"""The offset in a request that stands for the high watermark: delete all committed records."""
WAITING_MAX = 50
"""How many requests may wait for replicas at a time; a further one is REQUEST_TIMED_OUT if it has to wait."""
_AGAIN_S = 0.02
_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Answer = _Topic.DeleteRecordsPartitionResult


class DeleteRecords:
    """Answers DeleteRecords requests.

    Args:
        replicas: the partitions of which this broker has a replica.
        cache: knows which brokers are alive.
        permits: the asker must be allowed to delete from the topic.
        background: runs the tasks that wait for the disk and for replicas.
        disk: the lock that is held while logs are flushed or parts of them are removed.
        now_ms: the time, milliseconds since 1970.
        may_delete: whether a topic's records may be deleted: not if its cleanup.policy is ``compact`` alone.
    """

    def __init__(
        self,
        replicas: Replicas,
        cache: MetadataCache,
        permits: Permits,
        background: Background,
        disk: trio.Lock,
        now_ms: Callable[[], int],
        may_delete: Callable[[str], bool],
    ) -> None:
        self._may_delete = may_delete
        self._replicas = replicas
        self._cache = cache
        self._permits = permits
        self._background = background
        self._disk = disk
        self._now_ms = now_ms
        self._waiting = 0

    def respond(self, request: DeleteRecordsRequest, context: RequestContext) -> None:
        """Raise log starts; answer the least log start of the live replicas once all have reached the offset."""
        self._background.answer(context, lambda: self._answer(request, context))

    async def _answer(self, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
        response = DeleteRecordsResponse()
        waiting: list[tuple[TopicPartition, int, _Answer]] = []
        # Each partition is answered once; the last offset counts for a partition named twice, as in Kafka.
        wanted: dict[str, dict[int, int]] = {}
        for asked in request.topics:
            wanted.setdefault(asked.name, {}).update({each.partition_index: each.offset for each in asked.partitions})
        turn = Turn()
        for topic, offsets in wanted.items():
            told = _Topic(name=topic)
            response.topics.append(told)
            may = self._permits.may(request, context, Operation.DELETE, topic)
            for number, offset in offsets.items():
                if turn.is_over():
                    await trio.lowlevel.checkpoint()
                answer = _Answer(partition_index=number, low_watermark=-1)
                told.partitions.append(answer)
                name = TopicPartition(topic, number)
                try:
                    if not may:
                        raise refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    waiting.append((name, await self._delete(name, offset), answer))
                except KraftError as error:
                    answer.error_code = code_of(self._replicas, name, error)
        timeout_ms = max(request.timeout_ms, 0) if self._waiting < WAITING_MAX else 0
        self._waiting += 1
        done = 0
        try:
            with trio.move_on_after(timeout_ms / 1000):
                while done < len(waiting):  # in order: later ones are not checked again and again
                    if self._is_done(*waiting[done]):
                        done += 1
                        if turn.is_over():
                            await trio.lowlevel.checkpoint()
                    else:
                        await trio.sleep(_AGAIN_S)
        finally:
            self._waiting -= 1
        for each in waiting[done:]:
            if not self._is_done(*each):
                answer = each[2]
                answer.error_code, answer.low_watermark = ErrorCode.REQUEST_TIMED_OUT, -1
        return response

    async def _delete(self, name: TopicPartition, offset: int) -> int:
        self._replicas.check_announced(name)
        if name.topic in INTERNAL_TOPICS:
            raise refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name.topic} is an internal topic")
        async with self._disk:
            partition = self._replicas.find(name)
            partition.check(-1)
            if not self._may_delete(name.topic):
                raise refused(ErrorCode.POLICY_VIOLATION, f"{name.topic} is compacted alone (cleanup.policy)")
            start = start_after(partition, offset)
            try:
                await run_in_threads(raise_log_start(partition, start, self._now_ms()))
            except CorruptDataError as error:
                raise refused(self._replicas.cannot_write(name, error), str(error)) from error
        self._replicas.changed([name])
        return start

    def _is_done(self, name: TopicPartition, start: int, answer: _Answer) -> bool:
        try:
            partition = self._replicas.find(name)
            partition.check(-1)
        except KraftError as error:
            answer.error_code = code_of(self._replicas, name, error)
            return True
        answer.low_watermark = partition.low_watermark(self._cache.is_alive)
        return answer.low_watermark >= start


def start_after(partition: Partition, offset: int) -> int:
    """The log start of a leader's partition once the records below an offset are deleted; -1: the high watermark.

    Raises:
        RefusedError: OFFSET_OUT_OF_RANGE.
    """
    end = partition.high_watermark
    start = end if offset == HIGH_WATERMARK else offset
    if not 0 <= start <= end:
        raise refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.name} is committed up to {end}")
    return start
