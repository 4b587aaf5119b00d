"""Requests that name very many things are answered in turns, between which other requests are served.

The handler of such a request is a generator: it yields between two turns, and returns the response, unless it answers
by itself. Things may change between two turns: each thing is answered for as it is in its turn, as in Kafka, whose
handlers run side by side. `AT_A_TIME` such requests alternate; of each further one only the first turn's part of the
answer is in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

import trio

from kraftcore.node.registry import RequestContext

ITEMS = 1000
"""How many things a turn answers: some 10 ms of a processor."""
AT_A_TIME = 8
"""How many requests alternate; further ones wait until one of them is answered."""
SUSPENDED_MAX = 500
"""How many requests wait between turns; a further one takes all of its turns at once, and other requests wait."""

_Self = TypeVar("_Self")
_Request = TypeVar("_Request")
_T = TypeVar("_T")
InTurns: TypeAlias = Generator[None, None, _T]


class _Suspended:
    """The requests that are not answered yet."""

    def __init__(self) -> None:
        self.all: WeakSet[InTurns[Any]] = WeakSet()  # weak, since some are never finished
        self.places = trio.Semaphore(AT_A_TIME)
        self.lock = trio.Lock()


_of_run: trio.lowlevel.RunVar[_Suspended] = trio.lowlevel.RunVar("kraftcore.broker.turns")


def _suspended() -> _Suspended:
    try:
        return _of_run.get()
    except LookupError:
        _of_run.set(_Suspended())
        return _of_run.get()


class Turn:
    """Counts the things that a turn may still answer.

    Attributes:
        is_later: whether it is not the first turn of the request.
    """

    __slots__ = ("_left", "is_later")

    def __init__(self) -> None:
        self._left = ITEMS
        self.is_later = False

    def is_over(self, count: int = 1) -> bool:
        """Count things that were answered for; returns whether other requests are to be served now."""
        self._left -= count
        if self._left > 0:
            return False
        self._left = ITEMS
        self.is_later = True
        return True


def chunks(items: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """The items, as many at a time as a turn takes."""
    if len(items) <= ITEMS:
        yield items
    else:
        for start in range(0, len(items), ITEMS):
            yield items[start : start + ITEMS]


def in_turns(
    respond: Callable[[_Self, _Request, RequestContext], InTurns[_T]],
) -> Callable[[_Self, _Request, RequestContext], _T | Awaitable[_T]]:
    """Make a handler (see ``Respond``) of a generator. The first turn is taken in the caller's own call.

    If there are more turns, no other request of the connection is taken up until this one is answered, as in Kafka.
    """

    @wraps(respond)
    def run(self: _Self, request: _Request, context: RequestContext) -> _T | Awaitable[_T]:
        steps = respond(self, request, context)
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found
        suspended = _suspended().all
        if len(suspended) >= SUSPENDED_MAX:
            return at_once(steps)
        suspended.add(steps)
        context.wait()
        return finish(steps)

    return run


def at_once(steps: InTurns[_T]) -> _T:
    """Take all turns in this call."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found


async def finish(steps: InTurns[_T]) -> _T:
    """Take the turns that are left. One such request has its turn at a time, the one that waited longest."""
    suspended = _suspended()
    async with suspended.places:
        while True:
            async with suspended.lock:  # taking the lock lets other tasks run
                try:
                    next(steps)
                except StopIteration as end:
                    found: _T = end.value
                    return found
