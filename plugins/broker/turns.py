"""Requests that name very many things are answered in turns: between them others are served.

Such a handler is a generator: it yields where others may be served, and returns the response, if it does not answer by
itself. What it has not looked at yet may change meanwhile: each thing is answered for as it is at that moment, as in
Kafka, whose handlers run side by side. A few such requests alternate: of each of the others, however many come, no more
than one turn's part of an answer is in memory.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar
from weakref import WeakSet

import trio

from kraftcore.node.registry import RequestContext

ITEMS = 1000
"""Things that are answered for in a row: some 10 ms of a processor."""
AT_A_TIME = 8
"""Requests that alternate; others wait for one of them to be answered."""
SUSPENDED_MAX = 500
"""Requests that are not answered yet: one more takes all of its turns at once, which holds up those that come."""

_Self = TypeVar("_Self")
_Request = TypeVar("_Request")
_T = TypeVar("_T")
InTurns: TypeAlias = Generator[None, None, _T]


class _Suspended:
    """The requests that are not answered yet."""

    def __init__(self) -> None:
        self.all: WeakSet[InTurns[Any]] = WeakSet()  # also those that nobody goes on with, while they are there
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
    """How much of a turn is left.

    Attributes:
        is_later: it is not the first one.
    """

    __slots__ = ("_left", "is_later")

    def __init__(self) -> None:
        self._left = ITEMS
        self.is_later = False

    def is_over(self, count: int = 1) -> bool:
        """So many things more were answered for: whether others are to be served now."""
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
    """A handler (see ``Respond``) of a generator: what is done in one turn is done in the caller's.

    No more requests of the connection are taken up until one that takes longer is answered, as in Kafka.
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
    """Take all turns here."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: _T = end.value
            return found


async def finish(steps: InTurns[_T]) -> _T:
    """Take the turns that are left: one of all such requests at a time, whoever has waited longest."""
    suspended = _suspended()
    async with suspended.places:
        while True:
            async with suspended.lock:  # which lets others run in any case
                try:
                    next(steps)
                except StopIteration as end:
                    found: _T = end.value
                    return found
