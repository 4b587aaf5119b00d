"""DeleteRecords: the log's start is raised, here and, before the answer, at the replicas that are alive (KIP-107).

Source: Kafka 4.3.1, ReplicaManager.deleteRecords, DelayedDeleteRecords.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from kraftcore.errors import KraftError
from kraftcore.metadata.internal_topics import INTERNAL_TOPICS
from kraftcore.node.registry import RequestContext
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.background import Background
from kraftcore.plugins.broker.disk_work import run_in_threads
from kraftcore.plugins.broker.log_changes import raise_log_start
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from kraftcore.security.acl import Operation

HIGH_WATERMARK = -1
"""As an offset: all that is committed."""
WAITING_MAX = 50
"""Requests at a time that wait for replicas; another is told REQUEST_TIMED_OUT if it would have to."""
_AGAIN_S = 0.02
_Topic = DeleteRecordsResponse.DeleteRecordsTopicResult
_Answer = _Topic.DeleteRecordsPartitionResult


class DeleteRecords:
    """Answers it.

    Args:
        replicas: our partitions.
        cache: knows who is alive.
        permits: the asker must be allowed to delete from the topic.
        background: where requests wait.
        disk: held by whoever flushes or removes parts of logs.
        now_ms: the time.
        may_delete: whether a topic's records may be deleted: it does not only compact.
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
        """Each partition's answer: the least that a replica which is alive has, when all begin where they should."""
        self._background.answer(context, lambda: self._answer(request, context))

    async def _answer(self, request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
        response = DeleteRecordsResponse()
        waiting: list[tuple[TopicPartition, int, _Answer]] = []
        for topic in request.topics:
            told = _Topic(name=topic.name)
            response.topics.append(told)
            for asked in topic.partitions:
                answer = _Answer(partition_index=asked.partition_index, low_watermark=-1)
                told.partitions.append(answer)
                name = TopicPartition(topic.name, asked.partition_index)
                try:
                    if not self._permits.may(request, context, Operation.DELETE, topic.name):
                        raise refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                    waiting.append((name, await self._delete(name, asked.offset), answer))
                except KraftError as error:
                    answer.error_code = code_of(self._replicas, name, error)
        timeout_ms = max(request.timeout_ms, 0) if self._waiting < WAITING_MAX else 0
        self._waiting += 1
        try:
            with trio.move_on_after(timeout_ms / 1000):
                while left := [each for each in waiting if not self._is_done(*each)]:
                    waiting = left
                    await trio.sleep(_AGAIN_S)
                return response
        finally:
            self._waiting -= 1
        for _, _, answer in waiting:
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
            start = partition.high_watermark if offset == HIGH_WATERMARK else offset
            if not 0 <= start <= partition.high_watermark:
                raise refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{name} is committed up to {partition.high_watermark}")
            await run_in_threads(raise_log_start(partition, start, self._now_ms()))
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
