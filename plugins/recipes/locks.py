"""Locks with leases that expire, and elections by them.

A lease is granted by the log's time, that is by the clocks of the quorum's leaders. A program that is paused, or cut
off, learns too late that its lease ended: nothing can prevent that. Work that must never be done twice at a time is to
be fenced with the lease's token: each grant of a lock has a larger one. Store the token with data that you write
elsewhere and refuse smaller ones there; write to recipes in a ``Transaction`` with ``check_lock``.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from math import inf
from types import TracebackType
from typing import Any, Self

import trio
from trio.lowlevel import in_trio_run

from kraftcore.errors import KraftError, LeaseLostError
from kraftcore.node.node import Node
from kraftcore.ownership import Owned, belongs_here
from kraftcore.plugins.recipes.client import Recipe
from kraftcore.plugins.recipes.codec import pack, unpack
from kraftcore.plugins.recipes.machine import RecipeMachine
from kraftcore.plugins.recipes.object_states import LockState
from kraftcore.ports.async_library import check_trio
from kraftcore.ports.nursery import open_nursery, uninterrupted

_RELEASE_S = 2.0
_LATE_S = 0.1  # seconds after a lease's end, so that it is over by the leader's clock, too
_MARGIN = 0.1  # part of a lease by which the clocks of the quorum's leaders may differ


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock.

    Attributes:
        info: the ``info`` of the holder's `Lock`.
        token: its fencing token.
    """

    info: Any
    token: int


class Lease(Owned):
    """A lock held until its time is up; made by a `Lock`.

    Attributes:
        lock: the lock.
        token: the fencing token, > 0; larger than that of any earlier grant.
    """

    def __init__(self, lock: Lock, owner: bytes, token: int, since: float) -> None:
        self.lock = lock
        self.token = token
        self._owner = owner
        self._ends_at = 0.0
        self._is_released = False
        self._prolonged(since)

    def _prolonged(self, since: float) -> None:
        self._ends_at = since + self.lock.lease_ms / 1000 * (1 - _MARGIN)

    def __repr__(self) -> str:
        left_s = self._ends_at - trio.current_time() if in_trio_run() else None
        end = "" if left_s is None else f", {left_s:.1f} s left" if left_s > 0 else ", ended"
        return f"<Lease of {self.lock.name!r}, token {self.token}{end}>"

    @property
    def is_valid(self) -> bool:
        """Whether it is held, by this process's clock; becomes False a tenth of the lease early, to be safe."""
        return trio.current_time() < self._ends_at

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
            raise LeaseLostError(f"the lease of lock {self.lock.name!r} with token {self.token} ended")
        self._prolonged(asked_at)

    async def release(self) -> bool:
        """End the lease; returns whether it was still held. Idempotent."""
        self._ends_at = 0.0
        self._is_released = True
        was_held: bool = await self.lock._call("release", self._owner)
        return was_held


class Lock(Recipe):
    """A lock with one holder at a time; waiting callers get it in the order they came.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        lease_ms: how long it is held without being renewed, > 0, also by a holder that has died.
        info: returned by ``holder`` while the lock is held through this object; any packable value.
    """

    _kind = LockState.kind

    def __init__(self, node: Node[RecipeMachine], name: str, *, lease_ms: int = 10_000, info: Any = None) -> None:
        super().__init__(node, name)
        self.lease_ms = lease_ms
        self.info = info

    async def acquire(self) -> Lease:
        """Wait for the lock, and take it. The lease must be renewed, or use ``hold``.

        Raises:
            LocalError: the lease's time is out of range.
            NodeStoppedError: the node stopped.
        """
        check_trio("a lock", "take it in a trio function that node.call runs")
        owner = os.urandom(16)
        try:
            asked_at = trio.current_time()
            token = await self._call("acquire", owner, self.lease_ms, pack(self.info), True)
            while not token:
                await self._wait_turn(min(self._left_s() + 0.01, self.lease_ms / 3000))
                asked_at = trio.current_time()
                # Also keeps our place in line, and lets the machine notice that the holder's lease has ended.
                token = await self._call("acquire", owner, self.lease_ms, pack(self.info), True)
        except BaseException:
            await self._give_up(owner)
            raise
        return Lease(self, owner, token, asked_at)

    async def try_acquire(self) -> Lease | None:
        """Take the lock if it is free; None if not."""
        check_trio("a lock", "take it in a trio function that node.call runs")
        owner = os.urandom(16)
        asked_at = trio.current_time()
        try:
            token = await self._call("acquire", owner, self.lease_ms, pack(self.info), False)
        except BaseException:
            await self._give_up(owner)
            raise
        return Lease(self, owner, token, asked_at) if token else None

    def hold(self) -> Held:
        """Hold the lock for a block: acquire it, renew it in the background, release it.

            async with lock.hold() as lease:
                ...

        When the lease is lost the block is cancelled, and `LeaseLostError` raised.
        """
        return Held(self)

    async def holder(self) -> Holder | None:
        """The present holder, or None."""
        await self._call("poke")
        return self.peek_holder()

    def peek_holder(self) -> Holder | None:
        """The holder by this replica's present state, or None."""
        state = self._state
        claim = state.holder if isinstance(state, LockState) else None
        if claim is None or claim.deadline_ms <= self._client.machine.now_ms:
            return None
        return Holder(unpack(claim.info), claim.token)

    def observe(self) -> Observation:
        """The holder now, and each later one (or None) as this replica learns of it: an async iterator."""
        return Observation(self)

    def _left_s(self) -> float:
        """Seconds until the holder's lease ends, at most."""
        state = self._state
        holder = state.holder if isinstance(state, LockState) else None
        return 0.0 if holder is None else max(holder.deadline_ms - self._client.machine.now_ms, 0) / 1000

    async def _wait_turn(self, timeout_s: float) -> bool:
        """Wait until the holder changes; returns whether the timeout passed before."""
        changed = trio.Event()
        watcher = self._watch(lambda _: changed.set())
        try:
            with trio.move_on_after(timeout_s) as scope:
                await self._client.wait(changed)
        finally:
            self._client.machine.unwatch(watcher)
        return scope.cancelled_caught

    async def _give_up(self, owner: bytes) -> None:
        """Try for a short time to release a claim; otherwise its lease ends it."""
        with trio.move_on_after(min(_RELEASE_S, self.lease_ms / 1000), shield=True):
            try:
                await self._call("release", owner)
            except KraftError:
                return


class Observation(Owned):
    """The iterator that ``Lock.observe`` returns. `NodeStoppedError` ends it."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._last: tuple[Holder | None] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Holder | None:
        lock = self._lock
        if self._last is None:
            self._last = (await lock.holder(),)
            return self._last[0]
        await trio.lowlevel.checkpoint()
        while (now := lock.peek_holder()) == self._last[0]:
            # A dead holder sends nothing: another command must let the machine notice that its lease has ended.
            if await lock._wait_turn(inf if now is None else lock._left_s() + _LATE_S):
                await lock._call("poke")
        self._last = (now,)
        return now


class Held(Owned):
    """The asynchronous context manager that ``Lock.hold`` returns."""

    def __init__(self, lock: Lock) -> None:
        self._lock = lock
        self._lost: BaseException | None = None

    @uninterrupted
    async def __aenter__(self) -> Lease:
        self._lease = await self._lock.acquire()
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
            try:
                with trio.move_on_at(lease.ends_at):
                    await lease.renew()
            except KraftError as error:
                self._lost = error
            if not lease.is_valid and self._lost is None:
                self._lost = TimeoutError("it was not renewed in time")
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
            if self._lost is None:
                await self._lock._give_up(self._lease._owner)
        if self._lost is not None and (error is None or is_over):
            raise LeaseLostError(
                f"the lease of lock {self._lock.name!r} with token {self._lease.token} was lost: {self._lost}"
            ) from self._lost


class Election(Lock):
    """An election among programs: the holder of the lock of this name leads.

    async with recipes.Election(node, "scheduler", info="host-a").hold() as term:
        ...                                         # leads; fence what it writes with term.token
    """

    def campaign(self) -> Held:
        """Lead for a block, as ``hold`` holds the lock."""
        return self.hold()

    async def leader(self) -> Holder | None:
        """The leader, as ``holder`` returns it, or None."""
        return await self.holder()
