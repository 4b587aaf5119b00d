"""A node's events as an async iterator."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Generic, Self, TypeVar, get_args
from weakref import WeakMethod

import trio

from kraftcore.errors import LocalError
from kraftcore.node.event_hub import EventHub
from kraftcore.node.events import Measured, Missed, NodeEvent, Stopped
from kraftcore.ownership import Owned
from kraftcore.ports.async_library import check_trio

Event = TypeVar("Event", bound=NodeEvent)
Event_co = TypeVar("Event_co", covariant=True)

_ALL = frozenset(get_args(NodeEvent)) - {Measured, Missed}


class Subscription(Owned, Generic[Event_co]):
    """The iterator that ``Node.events`` returns. ``close``, the node's end and the garbage collector close it.

    Args:
        events: the node's events.
        kinds: event classes; none: all but `Measured`.
        max_buffered: how many events wait for a slow reader, > 0; older ones are dropped.

    Raises:
        LocalError: ``max_buffered`` is below 1.
    """

    def __init__(self, events: EventHub, kinds: Iterable[type], max_buffered: int) -> None:
        if max_buffered < 1:
            raise LocalError(f"max_buffered is {max_buffered}: at least one event must wait for its reader")
        wanted = frozenset(kinds) or _ALL
        self._wanted = wanted
        self._events: deque[Any] = deque()
        self._max = max_buffered
        self._missed = 0
        self._ready = trio.Event()
        self._ended = False
        taken = WeakMethod(self._take)

        def take(event: NodeEvent) -> None:
            found = taken()
            if found is None:  # unsubscribed here, not by the garbage collector, which may run in any thread
                end()
            else:
                found(event)

        self._end = end = events.subscribe(wanted | {Stopped}, take)

    def _take(self, event: NodeEvent) -> None:
        if type(event) is Stopped:
            self._ended = True
        if type(event) in self._wanted:
            if len(self._events) >= self._max:
                self._events.popleft()
                self._missed += 1
            self._events.append(event)
        self._ready.set()

    def close(self) -> None:
        """Take no more events. Idempotent."""
        self._end()
        self._ended = True
        self._ready.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event_co:
        check_trio("what Node.events returns", "iterate over node.events(...) of kraftcore.aio or kraftcore.blocking")
        await trio.lowlevel.checkpoint()
        while True:
            if self._missed:
                count, self._missed = self._missed, 0
                missed: Any = Missed(count)
                return missed  # type: ignore[no-any-return]
            if self._events:
                return self._events.popleft()  # type: ignore[no-any-return]
            if self._ended:
                self._end()
                raise StopAsyncIteration
            if self._ready.is_set():  # else another reader waits for this event
                self._ready = trio.Event()
            await self._ready.wait()
