"""The writes and answers that a shard leaves to its caller after an event, and its timers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple, Protocol

from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.error_codes import ErrorCode

_SPARE = 1000  # entries of cancelled timers that may stay beside as many live ones
Entry = tuple[bytes, bytes | None]
"""Key and value of a record; None: a tombstone."""


NEVER = -1
"""``expire_ms`` of an offset that is kept as long as the settings say."""


class Committed(NamedTuple):
    """A committed offset.

    Attributes:
        offset: the offset of the next record to consume.
        leader_epoch: the leader epoch of the last consumed record; -1: not told.
        metadata: the client's text.
        commit_ms: when the offset was committed, milliseconds since 1970.
        expire_ms: until when the client wants it kept (OffsetCommit up to version 4), else ``NEVER``.
        topic_id: the id of the topic; zero: not told.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NEVER
    topic_id: Uuid = ZERO_UUID


class Ticket(Protocol):
    """A request that waits for its answer."""

    def answer(self, response: Any, /) -> None:
        """Answer the request, once."""


class Caller(NamedTuple):
    """The client that sent a request.

    Attributes:
        ticket: takes the answer.
        version: the version of the request.
        client_id: the client id that the client gives.
        client_host: the client's address as Kafka writes it, such as ``/127.0.0.1``.
    """

    ticket: Ticket
    version: int
    client_id: str = ""
    client_host: str = "/127.0.0.1"


@dataclass(eq=False, slots=True)
class Write:
    """Records to append as one batch; they take effect together.

    Attributes:
        entries: keys and values, at least one.
        done: called once: with NONE when the records are committed, else with the reason why they may not be.
        appended: called when the records are in the log.
        afterwards: called after ``done``, in this order, with the same error.
        changes: the committed offsets in the records: (group, partition, offset or None for a tombstone).
        producer: (id, epoch) of the producer in whose transaction the records are; None: in no transaction.
        is_over: whether ``done`` was called.
        needs: earlier writes, all of which must have been appended before this one is.
        error: why the write was not appended.
    """

    entries: list[Entry]
    done: Callable[[ErrorCode, int, ShardEffects], None] | None = None
    appended: Callable[[ShardEffects], None] | None = None
    afterwards: list[Callable[[ErrorCode, int, ShardEffects], None]] = field(default_factory=list)
    changes: list[tuple[str, TopicPartition, Committed | None]] = field(default_factory=list)
    producer: tuple[int, int] | None = None
    is_over: bool = False
    needs: Sequence[Write] = ()
    error: ErrorCode = ErrorCode.NONE

    @property
    def refusal(self) -> ErrorCode:
        """Why the write is not to be appended: the first error of the writes that it needs; NONE: it may be."""
        return next((each.error for each in self.needs if each.error is not ErrorCode.NONE), ErrorCode.NONE)

    def end(self, error: ErrorCode, now_ms: int, effects: ShardEffects) -> None:
        """Call ``done`` and ``afterwards`` unless that has happened."""
        if not self.is_over:
            self.is_over = True
            if self.done is not None:
                self.done(error, now_ms, effects)
            for each in self.afterwards:
                each(error, now_ms, effects)


@dataclass(slots=True)
class ShardEffects:
    """What is to be done: first the writes in order, then the answers.

    Attributes:
        writes: records to append to the shard's partition. Then the caller calls ``committed`` or ``failed``.
        answers: who is answered, and with what.
    """

    writes: list[Write] = field(default_factory=list)
    answers: list[tuple[Ticket, Any]] = field(default_factory=list)


TimerAction = Callable[[int, ShardEffects], None]
"""The action of a timer: takes the time and the effects that it adds to."""


def _nothing(now_ms: int, effects: ShardEffects) -> None:
    pass


class Timers:
    """Actions by name, each due at a time; setting a name again moves it.

    Args:
        ahead_ms: gives by how many milliseconds the times given here are ahead of a clock that is never set.
    """

    def __init__(self, ahead_ms: Callable[[], int] = lambda: 0) -> None:
        self._ahead_ms = ahead_ms
        self._set: dict[Hashable, tuple[int, TimerAction]] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._queued: dict[Hashable, int] = {}
        self._number = count()

    def __len__(self) -> int:
        return len(self._set)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._set

    @property
    def entries(self) -> int:
        """How many entries the heap has, those of cancelled timers among them."""
        return len(self._heap)

    def set(self, name: Hashable, due_ms: int, action: TimerAction) -> None:
        """Have ``action`` done at a time, in place of what had this name; after as long, if the clock is set."""
        due_ms -= self._ahead_ms()
        self._set[name] = (due_ms, action)
        # A name's entry in the heap may be earlier than it is due: it is looked at then, and put back. So a timer that
        # is moved on and on, as a session's, has one entry.
        queued = self._queued.get(name)
        if queued is None or due_ms < queued:
            self._push(name, due_ms)

    def cancel(self, name: Hashable) -> None:
        """Cancel a timer, if there is one of this name."""
        self._set.pop(name, None)
        if len(self._heap) > 2 * len(self._set) + _SPARE:
            self._heap = []
            self._queued = {}
            for each, (due_ms, _) in self._set.items():
                self._push(each, due_ms)

    def due_ms(self) -> int | None:
        """When to call ``expire`` next, at the latest, by the clock that is never set; None: never."""
        while self._heap:
            queued_ms, _, name = self._heap[0]
            found = self._set.get(name)
            if found is not None and found[0] == queued_ms and self._queued.get(name) == queued_ms:
                return queued_ms
            heapq.heappop(self._heap)
            if self._queued.get(name) == queued_ms:
                del self._queued[name]
                if found is not None:
                    self._push(name, found[0])
        return None

    def expire(self, now_ms: int, effects: ShardEffects) -> None:
        """Do the actions that are due; a timer that they set comes with the next call."""
        names = []
        passed_ms = now_ms - self._ahead_ms()
        while (due_ms := self.due_ms()) is not None and due_ms <= passed_ms:
            names.append(heapq.heappop(self._heap)[2])
            del self._queued[names[-1]]
        for name in names:
            due_ms, action = self._set.get(name, (passed_ms + 1, _nothing))
            if due_ms <= passed_ms:  # one of the others may have cancelled or moved it
                del self._set[name]
                action(now_ms, effects)
            elif name in self._set and name not in self._queued:
                self._push(name, due_ms)

    def _push(self, name: Hashable, due_ms: int) -> None:
        self._queued[name] = due_ms
        heapq.heappush(self._heap, (due_ms, next(self._number), name))
