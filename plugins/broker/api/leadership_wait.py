"""Requests for partitions that this broker is to lead, by the metadata, but does not lead yet: they wait briefly.

Clients read the leader as soon as it is committed; the leader makes or opens its logs some moments later, many at a
time. Kafka answers NOT_LEADER_OR_FOLLOWER meanwhile; clients then ask again and again, and some give up after a few
such answers. Here a request is taken up when this broker leads all partitions that the request names, or when the
request's time has passed, or when too many requests wait. Later requests of the same connection wait behind it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any, Final

from kraftcore.node.registry import RequestContext, Respond
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.deadlines import Deadline, Deadlines
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest

WAIT_MS: Final = 5000
"""The longest time that a request waits, milliseconds."""
FETCH_MS: Final = 500
"""The least time for a consumer's Fetch, milliseconds, which else waits as long as it would wait for records."""
WAITING_MAX, WAITING_BYTES_MAX = 500, 128 * 1024 * 1024
"""The most requests that wait, and the most bytes of them all; a further request is answered at once."""
_BY_ID_SINCE = 13  # version of Produce and Fetch from which topics are named by id (KIP-516)
_REPLICA_STATE = 15  # version of Fetch from which the replica's id has another field

_logger = logging.getLogger("kraftcore.broker")


class _Waiting:
    __slots__ = ("deadline", "go_on", "left", "size")

    def __init__(self, left: set[TopicPartition], size: int, go_on: Callable[[], None]) -> None:
        self.left = left
        self.size = size
        self.go_on = go_on
        self.deadline: Deadline | None = None


class LeadershipWait:
    """Holds requests until this broker leads all partitions that they name.

    Args:
        replicas: the partitions of which this broker has a replica.
        cache: what clients are told.
        deadlines: for those that wait too long.
        is_behind: whether anything is committed that did not take effect here yet. The publisher, which carries it out,
            calls ``led`` for each partition and ``settled`` at the end.
        on_taken_up: called with each request that waited, as it is taken up.
    """

    def __init__(
        self,
        replicas: Replicas,
        cache: MetadataCache,
        deadlines: Deadlines,
        is_behind: Callable[[], bool],
        on_taken_up: Callable[[Any], None] = lambda request: None,
    ) -> None:
        self._is_behind = is_behind
        self._replicas = replicas
        self._cache = cache
        self._deadlines = deadlines
        self._on_taken_up = on_taken_up
        self._waiting: dict[TopicPartition, dict[_Waiting, None]] = {}
        self._count = self._bytes = 0

    def held(self, kind: type, respond: Respond) -> Respond:
        """Wrap a handler, which returns no coroutine, so that its requests wait for partitions about to be led."""
        if kind not in _NAMES:
            return respond
        names_of = _NAMES[kind]

        @wraps(respond)
        def run(request: Any, context: RequestContext) -> Any:
            if self._is_behind():
                left = {name for name in names_of(request, context, self._cache) if self._replicas.is_coming(name)}
                if left and self._count < WAITING_MAX and self._bytes + context.size <= WAITING_BYTES_MAX:
                    context.wait()
                    self._wait(_Waiting(left, context.size, lambda: self._answer(respond, request, context)), request)
                    return None
            return respond(request, context)

        return run

    def _wait(self, waiting: _Waiting, request: Any) -> None:
        self._count += 1
        self._bytes += waiting.size
        for name in waiting.left:
            self._waiting.setdefault(name, {})[waiting] = None
        waiting.deadline = self._deadlines.after(_wait_ms(request), lambda: self._end(waiting))

    def led(self, name: TopicPartition) -> None:
        """Take up requests for a partition that is led from now on, or that cannot be led."""
        for waiting in list(self._waiting.get(name, ())):
            self._leave(waiting, name)
            if not waiting.left:
                self._end(waiting)

    def settled(self) -> None:
        """Take up requests for partitions that this broker is not about to lead: the metadata has taken effect."""
        for name in [name for name in self._waiting if not self._replicas.is_coming(name)]:
            self.led(name)

    def _leave(self, waiting: _Waiting, name: TopicPartition) -> None:
        waiting.left.discard(name)
        others = self._waiting[name]
        del others[waiting]
        if not others:
            del self._waiting[name]

    def _end(self, waiting: _Waiting) -> None:
        for name in list(waiting.left):
            self._leave(waiting, name)
        if waiting.deadline is not None:
            waiting.deadline.cancel()
        self._count -= 1
        self._bytes -= waiting.size
        waiting.go_on()

    def _answer(self, respond: Respond, request: Any, context: RequestContext) -> None:
        """Take a request up; an error breaks the client's connection and does not reach the unrelated caller."""
        try:
            self._on_taken_up(request)
            response = respond(request, context)
            if response is not None:
                context.answer(response)
        except Exception:
            _logger.exception("%s cannot be answered", context.asker.peer)
            context.close()


def _wait_ms(request: Any) -> int:
    if isinstance(request, FetchRequest):
        return min(max(request.max_wait_ms, FETCH_MS), WAIT_MS)
    return min(max(request.timeout_ms, 0), WAIT_MS) if isinstance(request, ProduceRequest) else WAIT_MS


# --- which partitions a request names


def _produced(request: ProduceRequest, context: RequestContext, cache: MetadataCache) -> Iterator[TopicPartition]:
    for topic in request.topic_data:
        name = cache.names.get(topic.topic_id) if context.version >= _BY_ID_SINCE else topic.name
        if name is not None:
            for data in topic.partition_data:
                yield TopicPartition(name, data.index)


def _fetched(request: FetchRequest, context: RequestContext, cache: MetadataCache) -> Iterator[TopicPartition]:
    """The partitions of a consumer's Fetch; a follower's does not wait, since a follower soon asks again."""
    replica_id = request.replica_state.replica_id if context.version >= _REPLICA_STATE else request.replica_id
    for topic in request.topics if replica_id < 0 else ():
        name = cache.names.get(topic.topic_id) if context.version >= _BY_ID_SINCE else topic.topic
        if name is not None:
            for asked in topic.partitions:
                yield TopicPartition(name, asked.partition)


def _listed(
    request: ListOffsetsRequest | DeleteRecordsRequest, context: RequestContext, cache: MetadataCache
) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for asked in topic.partitions:
            yield TopicPartition(topic.name, asked.partition_index)


def _ended(
    request: OffsetForLeaderEpochRequest, context: RequestContext, cache: MetadataCache
) -> Iterator[TopicPartition]:
    for topic in request.topics:
        for asked in topic.partitions:
            yield TopicPartition(topic.topic, asked.partition)


_NAMES: Final[dict[type, Callable[[Any, RequestContext, MetadataCache], Iterable[TopicPartition]]]] = {
    ProduceRequest: _produced,
    FetchRequest: _fetched,
    ListOffsetsRequest: _listed,
    DeleteRecordsRequest: _listed,
    OffsetForLeaderEpochRequest: _ended,
}
