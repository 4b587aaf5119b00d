"""What tasks of the node's loop do for callers elsewhere: hold a lease for a block, take something and give it back."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import Any, Generic, TypeVar

import trio

from kraftcore.errors import LocalError
from kraftcore.ownership import Owned
from kraftcore.plugins.recipes.client import refusal
from kraftcore.plugins.recipes.leases import Grant, Held

T = TypeVar("T")


def of_this_kind(node: T, kind: type[T]) -> T:
    """The node, which must be of the async library that these recipes are for.

    Raises:
        LocalError: the node is of another async library.
    """
    if not isinstance(node, kind):
        raise refusal(node, kind.__module__)
    return node


def check_plain(function: object, method: str) -> None:
    """Refuse an asynchronous function where a thread calls it: nobody would await what it returns.

    Raises:
        LocalError: it is one.
    """
    if iscoroutinefunction(function):
        name = getattr(function, "__qualname__", repr(function))
        raise LocalError(
            f"{method} of kraftcore.blocking calls a plain function, and {name} is asynchronous: write it with `def`, "
            "or use the recipes of kraftcore.aio or of kraftcore itself"
        )


def inner_of(given: Any) -> Any:
    """Trio's object in one of these recipes; what is none is refused where it is used."""
    return getattr(given, "_inner", given)


class Taking(Owned, Generic[T]):
    """A call in the node's loop that takes something for a caller elsewhere, who may be gone when the thing is there.

    Args:
        name: of the call, for messages.
        take: takes the thing.
        read: makes of the thing what the caller gets.
        give_back: gives the thing back, also in a task that was cancelled.
    """

    def __init__(
        self,
        name: str,
        take: Callable[[], Awaitable[Any]],
        read: Callable[[Any], Awaitable[T]],
        give_back: Callable[[Any], Awaitable[object]],
    ) -> None:
        self.__qualname__ = name
        self._take = take
        self._read = read
        self._give_back = give_back
        self._is_abandoned = False
        self._taken: deque[Any] = deque()  # the thread that pops the thing gives it back: the caller's, or the node's

    async def __call__(self) -> T:
        """Take the thing; returns what the caller gets."""
        found = await self._take()
        got = await self._read(found)
        self._taken.append(found)
        if self._is_abandoned:
            await self.give_back()
        return got

    def abandon(self) -> bool:
        """The caller is gone; returns whether ``give_back`` has something to do."""
        self._is_abandoned = True
        return bool(self._taken)

    async def give_back(self) -> None:
        """Give back what was taken, once."""
        with suppress(IndexError):
            await self._give_back(self._taken.popleft())


async def as_it_is(found: T) -> T:
    """What a caller gets of a thing that needs no reading."""
    return found


class _BlockFailed(Exception):
    """The block elsewhere raised something."""


class Holding(Owned, Generic[Grant]):
    """The lease's task in the node's loop.

    Attributes:
        what: what is held, for messages.
        lease: the lease, when it is held; None before, and if it cannot be had.
    """

    def __init__(self, held: Held[Grant]) -> None:
        self.what = held.what
        self._held = held
        self._taken = trio.Event()
        self._left = trio.Event()
        self._has_failed = False
        self.lease: Grant | None = None

    def check_new(self) -> None:
        """Refuse a second block."""
        self._held._check_new()

    async def run(self) -> None:
        """Take the lease, and hold it until ``leave``, or until it is lost."""
        try:
            with suppress(_BlockFailed):
                async with self._held as self.lease:
                    self._taken.set()
                    await self._left.wait()
                    if self._has_failed:
                        raise _BlockFailed
        finally:
            self._taken.set()

    async def taken(self) -> None:
        """Wait until the lease is held, or cannot be had."""
        await self._taken.wait()

    def leave(self, has_failed: bool) -> None:
        """Have ``run`` end the lease, as a block that ended so does."""
        self._has_failed = has_failed
        self._left.set()
