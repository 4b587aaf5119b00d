"""Leases, which end by themselves: of locks and permits, and of the items of queues.

A lease is granted by the log's time, that is by the clocks of the quorum's leaders. A program that is paused, or cut
off, learns too late that its lease ended: nothing can prevent that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

import trio

from kraftcore.errors import KraftError, LeaseLostError, LocalError
from kraftcore.node.node import Node
from kraftcore.ownership import Owned, belongs_here
from kraftcore.plugins.recipes.arguments import whole
from kraftcore.plugins.recipes.client import Recipe
from kraftcore.plugins.recipes.machine import RecipeMachine
from kraftcore.ports.nursery import open_nursery, uninterrupted

_RELEASE_S = 2.0
LATE_S = 0.1  # seconds after a lease's end, so that it is over by the leader's clock, too
_MARGIN = 0.1  # part of a lease by which the clocks of the quorum's leaders may differ


async def for_a_short_time(lease_ms: int, give_up: Callable[[], Awaitable[object]]) -> None:
    """Try to give up what a lease ends otherwise, also for a caller that was cancelled."""
    with trio.move_on_after(min(_RELEASE_S, lease_ms / 1000), shield=True), suppress(KraftError):
        await give_up()


class Lender(Recipe):
    """Base class of what is held by leases.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        lease_ms: how long a lease lasts without being renewed, > 0, also that of a holder that has died.
    """

    def __init__(self, node: Node[RecipeMachine], name: str, *, lease_ms: int) -> None:
        super().__init__(node, name)
        self.lease_ms: int = whole(f"the lease_ms of {self._kind} {name!r}", lease_ms, 1)

    async def _give_up(self, owner: bytes) -> None:
        await for_a_short_time(self.lease_ms, partial(self._call, "release", owner))


class Lease(Owned):
    """A lock held until its time is up; made by a `Lock`.

    Attributes:
        lock: the lock.
        token: the fencing token, > 0; larger than that of any earlier grant.
    """

    def __init__(self, lock: Lender, owner: bytes, token: int, since: float) -> None:
        self.lock = lock
        self.token = token
        self._owner = owner
        self._clock = trio.lowlevel.current_clock()
        self._ends_at = 0.0
        self._is_released = False
        self._prolonged(since)

    def _prolonged(self, since: float) -> None:
        self._ends_at = since + self.lock.lease_ms / 1000 * (1 - _MARGIN)

    def _end(self) -> None:
        self._ends_at = 0.0
        self._is_released = True

    def __repr__(self) -> str:
        left_s = self._ends_at - self._clock.current_time()
        end = f", {left_s:.1f} s left" if left_s > 0 else ", ended"
        return f"<{type(self).__name__} of {self.lock.name!r}, token {self.token}{end}>"

    @property
    def is_valid(self) -> bool:
        """Whether it is held, by this process's clock; it errs on the safe side by a tenth of the lease. Any thread."""
        return self._clock.current_time() < self._ends_at

    @property
    def ends_at(self) -> float:
        """When ``is_valid`` ends, in seconds of trio's clock."""
        return self._ends_at

    async def renew(self) -> None:
        """Restart the lease's time.

        Raises:
            LeaseLostError: the lease has ended, or was released meanwhile.
        """
        asked_at = trio.current_time()
        token = await self.lock._call("renew", self._owner, self.token)
        if token != self.token or self._is_released:
            self._ends_at = 0.0
            raise LeaseLostError(f"the lease of {self.lock._kind} {self.lock.name!r} with token {self.token} ended")
        self._prolonged(asked_at)

    async def release(self) -> bool:
        """End it; returns whether it was still held. Idempotent."""
        self._end()
        was_held: bool = await self.lock._call("release", self._owner)
        return was_held


Grant = TypeVar("Grant", bound=Lease)


class Held(Owned, Generic[Grant]):
    """The asynchronous context manager that ``Lock.hold`` and ``Queue.take`` return.

    Args:
        lock: of which a lease is held.
        obtain: makes the lease.

    Attributes:
        what: what is held, for messages.
    """

    def __init__(self, lock: Lender, obtain: Callable[[], Awaitable[Grant]]) -> None:
        self.what = f"the {lock._kind} {lock.name!r}"
        self._lock = lock
        self._obtain = obtain
        self._is_used = False
        self._lost: BaseException | None = None

    def _check_new(self) -> None:
        """Refuse a second block: its end would release what the first one holds.

        Raises:
            LocalError: a block has begun with this object.
        """
        if self._is_used:
            raise LocalError(f"{self.what} is held for one block: call hold, join, campaign or take for each")

    @uninterrupted
    async def __aenter__(self) -> Grant:
        self._check_new()
        self._is_used = True
        self._lease = await self._obtain()
        self._manager = open_nursery()
        self._nursery = await self._manager.__aenter__()
        self._nursery.start_soon(self._renew)
        return self._lease

    @uninterrupted
    async def _renew(self) -> None:
        lease, pause_s = self._lease, self._lock.lease_ms / 3000
        while self._lost is None:
            with trio.move_on_at(min(trio.current_time() + pause_s, lease.ends_at)):
                await trio.sleep_forever()
            lost: BaseException | None = None
            try:
                with trio.move_on_at(lease.ends_at):
                    await lease.renew()
            except KraftError as error:
                lost = error
            if lease._is_released:  # by the block itself, which need not be told
                return
            self._lost = lost if lease.is_valid else lost or TimeoutError("it was not renewed in time")
        self._nursery.cancel_scope.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not belongs_here(self):
            return
        self._nursery.cancel_scope.cancel()
        try:
            is_over = await self._manager.__aexit__(kind, error, trace)
        finally:
            self._lease._end()
            if self._lost is None:
                await self._give_up()
        if self._lost is not None and (error is None or is_over):
            raise LeaseLostError(
                f"the lease of {self._lock._kind} {self._lock.name!r} with token {self._lease.token} was lost: "
                f"{self._lost}"
            ) from self._lost

    async def _give_up(self) -> None:
        await self._lock._give_up(self._lease._owner)
