"""What programs hold by leases that expire: locks, semaphores, elections and schedules; and barriers.

Work that must never be done twice at a time is to be fenced with the lease's token: each grant of a lock has a larger
one. Store the token with data that you write elsewhere and refuse smaller ones there; write to recipes in a
``Transaction`` with ``check_lock``.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Generic, NoReturn, Self, TypeVar

import trio

from kraftcore.errors import ConflictError, LeaseLostError, LocalError
from kraftcore.node.node import Node
from kraftcore.ownership import Owned
from kraftcore.plugins.recipes.arguments import period, seconds, whole
from kraftcore.plugins.recipes.client import Recipe, never_later
from kraftcore.plugins.recipes.codec import pack, unpack
from kraftcore.plugins.recipes.containers import Counter
from kraftcore.plugins.recipes.lease_states import (
    BarrierState,
    Claim,
    LeaseState,
    LockState,
    MembersState,
    SemaphoreState,
)
from kraftcore.plugins.recipes.leases import LATE_S, Held, Lease, Lender, for_a_short_time
from kraftcore.plugins.recipes.machine import RecipeMachine
from kraftcore.plugins.recipes.transactions import Transaction
from kraftcore.ports.async_library import check_trio

Result = TypeVar("Result")
Seen = TypeVar("Seen")
_ELSEWHERE = "see kraftcore.aio.recipes and kraftcore.blocking.recipes"


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock or of a permit, or a member.

    Attributes:
        info: the ``info`` of the holder's object.
        token: its fencing token.
    """

    info: Any
    token: int


class Leased(Lender):
    """Base class of `Lock`, `Election`, `Semaphore` and `Members`, which are held by leases.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        lease_ms: how long a lease lasts without being renewed, > 0, also that of a holder that has died.
        info: what others learn of a holder through this object; any packable value.
    """

    def __init__(self, node: Node[RecipeMachine], name: str, *, lease_ms: int = 10_000, info: Any = None) -> None:
        super().__init__(node, name, lease_ms=lease_ms)
        self.info = info

    def _acquire(self, owner: bytes, wait: bool) -> Awaitable[int]:
        return self._call("acquire", owner, self.lease_ms, pack(self.info), wait, undo=never_later)

    async def acquire(self, timeout_s: float = inf) -> Lease:
        """Wait until it is free, and take it. The lease must be renewed, or use ``hold``.

        Args:
            timeout_s: how many seconds to wait, 0 or more.

        Raises:
            LocalError: a time is out of range.
            NodeStoppedError: the node stopped.
            TimeoutError: others held it for so long.
        """
        check_trio(f"a {self._kind}", _ELSEWHERE)
        owner = os.urandom(16)
        end = trio.current_time() + seconds(f"the timeout_s of {self._kind} {self.name!r}", timeout_s)
        try:
            asked_at = trio.current_time()
            token = await self._acquire(owner, True)
            while not token:
                left_s = end - trio.current_time()
                if left_s <= 0:
                    raise TimeoutError(f"the {self._kind} {self.name!r} was held by others for {timeout_s:g} s")
                if not self._is_held_by(owner):  # the answer may be older than what is applied here
                    await self._wait_turn(min(self._left_s() + 0.01, self.lease_ms / 3000, left_s))
                asked_at = trio.current_time()
                # Also keeps our place in line, and lets the machine notice that the holder's lease has ended.
                token = await self._acquire(owner, True)
        except BaseException:
            await self._give_up(owner)
            raise
        return Lease(self, owner, token, asked_at)

    async def try_acquire(self) -> Lease | None:
        """Take it if it is free; None if not."""
        check_trio(f"a {self._kind}", _ELSEWHERE)
        owner = os.urandom(16)
        asked_at = trio.current_time()
        try:
            token = await self._acquire(owner, False)
        except BaseException:
            await self._give_up(owner)
            raise
        return Lease(self, owner, token, asked_at) if token else None

    def hold(self, timeout_s: float = inf) -> Held[Lease]:
        """Hold it for a block: acquire it, renew it in the background, release it.

            async with lock.hold() as lease:
                ...

        When the lease is lost the block is cancelled, and `LeaseLostError` raised. A block that has ``lease.release()``
        called goes on without it.

        Args:
            timeout_s: how many seconds to wait for it, 0 or more; after them `TimeoutError` is raised instead.
        """
        return Held(self, partial(self.acquire, timeout_s))

    def _claims(self) -> list[Claim]:
        """The leases that have not ended, on this replica."""
        state, now_ms = self._state, self._client.machine.now_ms
        held = state.holders.values() if isinstance(state, LeaseState) else ()
        return [claim for claim in held if claim.deadline_ms > now_ms]

    def _holders(self) -> list[Holder]:
        return [Holder(unpack(claim.info), claim.token) for claim in self._claims()]

    def _is_held_by(self, owner: bytes) -> bool:
        """Whether an owner has a lease, by what is applied here, ended or not."""
        state = self._state
        return isinstance(state, LeaseState) and owner in state.holders

    def _left_s(self) -> float:
        """Seconds until the first lease ends, at most."""
        now_ms = self._client.machine.now_ms
        return min((claim.deadline_ms - now_ms for claim in self._claims()), default=0) / 1000

    async def _wait_turn(self, timeout_s: float) -> bool:
        """Wait until a holder changes; returns whether the timeout passed before."""
        changed = trio.Event()
        watcher = self._watch(lambda _: changed.set())
        try:
            with trio.move_on_after(timeout_s) as scope:
                await self._client.wait(changed)
        finally:
            self._client.machine.unwatch(watcher)
        return scope.cancelled_caught

    async def _give_back(self, lease: Lease | None) -> None:
        """End a lease whose caller is gone."""
        if lease is not None:
            lease._end()
            await self._give_up(lease._owner)


class Lock(Leased):
    """A lock with one holder at a time; waiting callers get it in the order they came.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        lease_ms: how long it is held without being renewed, > 0, also by a holder that has died.
        info: returned by ``holder`` while the lock is held through this object; any packable value.
    """

    _kind = LockState.kind

    async def holder(self) -> Holder | None:
        """The present holder, or None."""
        await self._call("poke")
        return self.peek_holder()

    def peek_holder(self) -> Holder | None:
        """The holder by this replica's present state, or None."""
        return next(iter(self._holders()), None)

    async def contenders(self) -> list[Any]:
        """The ``info`` of the holder, and of those who wait, the first in line first."""
        await self._call("poke")
        state = self._state
        waiting = state.waiting.values() if isinstance(state, LeaseState) else ()
        return [unpack(claim.info) for claim in (*self._claims(), *waiting)]

    def observe(self) -> Observation[Holder | None]:
        """The holder now, and each later one (or None) as this replica learns of it: an async iterator."""
        return Observation(self, self.holder, self.peek_holder)


class Semaphore(Leased):
    """So many holders at a time; waiting callers get a permit in the order they came.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        permits: how many holders there may be, > 0; all programs are to say the same.
        lease_ms: how long a permit is held without being renewed, > 0, also by a holder that has died.
        info: what ``holders`` says of a permit that is held through this object; any packable value.
    """

    _kind = SemaphoreState.kind

    def __init__(
        self, node: Node[RecipeMachine], name: str, permits: int, *, lease_ms: int = 10_000, info: Any = None
    ) -> None:
        super().__init__(node, name, lease_ms=lease_ms, info=info)
        self.permits: int = whole(f"the permits of {self._kind} {name!r}", permits, 1)

    def _acquire(self, owner: bytes, wait: bool) -> Awaitable[int]:
        return self._call("acquire", owner, self.lease_ms, pack(self.info), wait, self.permits, undo=never_later)

    async def holders(self) -> list[Holder]:
        """The present holders, the oldest first."""
        await self._call("poke")
        return self.peek_holders()

    def peek_holders(self) -> list[Holder]:
        """The holders by this replica's present state, the oldest first."""
        return self._holders()


class Members(Leased):
    """The programs of a group that are alive, each with a value.

        async with recipes.Members(node, "workers", info="host-a").join():
            ...                                 # others see this program

    A member that has died is one for ``lease_ms`` more.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        lease_ms: how long a member that is not heard of is kept, > 0.
        info: what ``present`` says of a member that joins through this object; any packable value.
    """

    _kind = MembersState.kind

    def join(self) -> Held[Lease]:
        """Be a member for a block, as ``hold`` holds a lock. Who joins twice is there twice."""
        return self.hold()

    async def present(self) -> list[Holder]:
        """The members, the oldest first."""
        await self._call("poke")
        return self.peek_present()

    def peek_present(self) -> list[Holder]:
        """The members by this replica's present state, the oldest first."""
        return self._holders()

    def observe(self) -> Observation[list[Holder]]:
        """The members now, and after changes, as this replica learns of them: an async iterator."""
        return Observation(self, self.present, self.peek_present)


class Barrier(Recipe):
    """Where so many programs wait for each other, again and again.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        parties: how many are to come, > 0; all programs are to say the same.
        lease_ms: how long the place of a program that has died is kept, > 0.
    """

    _kind = BarrierState.kind

    def __init__(self, node: Node[RecipeMachine], name: str, parties: int, *, lease_ms: int = 10_000) -> None:
        super().__init__(node, name)
        self.parties: int = whole(f"the parties of {self._kind} {name!r}", parties, 1)
        self.lease_ms: int = whole(f"the lease_ms of {self._kind} {name!r}", lease_ms, 1)

    async def wait(self, timeout_s: float = inf) -> None:
        """Wait until so many programs wait.

        Args:
            timeout_s: how many seconds to wait, 0 or more.

        Raises:
            LocalError: a time is out of range.
            NodeStoppedError: the node stopped.
            TimeoutError: fewer programs came within that time; this one waits no longer.
        """
        check_trio("a barrier", _ELSEWHERE)
        owner = os.urandom(16)
        end = trio.current_time() + seconds(f"the timeout_s of barrier {self.name!r}", timeout_s)
        joined = -1
        try:
            while True:
                changed = trio.Event()
                watcher = self._watch(lambda _, changed=changed: changed.set())
                try:
                    arrival = (owner, joined, self.parties, self.lease_ms)
                    joined, have_come = await self._call("arrive", *arrival, undo=never_later)
                    left_s = end - trio.current_time()
                    if not have_come and left_s <= 0:
                        have_come = await self._call("leave", owner)
                        if not have_come:
                            raise TimeoutError(f"barrier {self.name!r} still waits for programs after {timeout_s:g} s")
                    if have_come:
                        return
                    with trio.move_on_after(min(left_s, self.lease_ms / 3000)):
                        await self._client.wait(changed)
                finally:
                    self._client.machine.unwatch(watcher)
        except TimeoutError:
            raise
        except BaseException:
            await for_a_short_time(self.lease_ms, partial(self._call, "leave", owner))
            raise


class Observation(Owned, Generic[Seen]):
    """The iterator that ``observe`` returns. `NodeStoppedError` ends it.

    Args:
        lock: whose holders are observed.
        ask: returns what is seen at first.
        peek: returns what is to be seen now.
    """

    def __init__(self, lock: Leased, ask: Callable[[], Awaitable[Seen]], peek: Callable[[], Seen]) -> None:
        self._lock = lock
        self._ask = ask
        self._peek = peek
        self._last: tuple[Seen] | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Seen:
        lock = self._lock
        if self._last is None:
            self._last = (await self._ask(),)
            return self._last[0]
        await trio.lowlevel.checkpoint()
        while (now := self._peek()) == self._last[0]:
            # A dead holder sends nothing: another command must let the machine notice that its lease has ended.
            if await lock._wait_turn(lock._left_s() + LATE_S if now else inf):
                await lock._call("poke")
        self._last = (now,)
        return now


class Election(Lock):
    """An election among programs: the holder of the lock of this name leads.

    async with recipes.Election(node, "scheduler", info="host-a").campaign() as term:
        ...                                     # leads; fence what it writes with term.token
    """

    def campaign(self, timeout_s: float = inf) -> Held[Lease]:
        """Lead for a block, as ``hold`` holds the lock."""
        return self.hold(timeout_s)

    async def leader(self) -> Holder | None:
        """The leader, as ``holder`` returns it, or None."""
        return await self.holder()

    async def run(self, lead: Callable[[Lease], Awaitable[Result]]) -> Result:
        """Have a function called when this program leads, and again after each lease that was lost.

        Args:
            lead: is given the lease; cancelled when the lease is lost. In threads nothing can be cancelled: there the
                function looks at ``is_valid`` of the lease, and ``with_timeout`` of the node limits each wait for the
                leadership, not the function.

        Returns:
            What the function returned while it led.

        Raises:
            LocalError: in threads, the function is asynchronous.
            NodeStoppedError: the node stopped.
        """
        raised: LeaseLostError | None = None
        while True:
            try:
                async with self.campaign() as term:
                    try:
                        return await lead(term)
                    except LeaseLostError as error:
                        raised = error if term.is_valid else None  # of another lock: the function's own error
                        raise
            except LeaseLostError as error:
                if error is raised:
                    raise


class Scheduler(Election):
    """Runs a function again and again, in one of the programs that share the name.

    A run is noted in the log before it begins, so that no run takes place twice; a run whose program dies is not made
    up for. Runs that nobody was there for are skipped.

        await recipes.Scheduler(node, "nightly", every_s=86_400).run_each(clean_up)

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        every_s: seconds from the beginning of one run to that of the next, by the log's time, > 0.
        lease_ms: see `Lock`.
        info: see `Lock`.
    """

    def __init__(
        self, node: Node[RecipeMachine], name: str, every_s: float, *, lease_ms: int = 10_000, info: Any = None
    ) -> None:
        super().__init__(node, name, lease_ms=lease_ms, info=info)
        self.every_s = period(f"the every_s of scheduler {name!r}", every_s)

    async def run_each(self, function: Callable[[], Awaitable[object]]) -> NoReturn:
        """Call a function at each time that is due, while this program leads; campaigns otherwise.

        Args:
            function: what it raises ends the call; cancelled when the lease is lost, except in threads. There
                ``with_timeout`` of the node limits each wait for the leadership or for a run, not the function.

        Raises:
            LocalError: in threads, the function is asynchronous.
            NodeStoppedError: the node stopped.
        """

        async def lead(term: Lease) -> NoReturn:
            while True:
                await self.next_run(term)
                await function()

        await self.run(lead)

    async def next_run(self, term: Lease) -> int:
        """Wait until a run is due, and note it.

        Args:
            term: the lease of this scheduler under which the run takes place.

        Returns:
            The time at which the run was due, in milliseconds since 1970, by the log's time.

        Raises:
            LeaseLostError: another program leads by now; nothing was noted.
            LocalError: ``term`` is no lease.
        """
        given: object = term
        if not isinstance(given, Lease):
            raise LocalError(f"next_run of scheduler {self.name!r} takes the lease of its term, not {given!r}")
        node = self._client.node
        last, every_ms = Counter(node, f"scheduler {self.name}"), max(int(self.every_s * 1000), 1)
        while True:
            await self._call("poke")
            now_ms, last_ms = self._client.machine.now_ms, last.peek()
            passed_ms = now_ms - last_ms
            if passed_ms < every_ms:
                await trio.sleep((every_ms - passed_ms) / 1000)
                continue
            due_ms = last_ms + passed_ms // every_ms * every_ms if last_ms else now_ms
            note = Transaction(node).check_lock(self, term.token).check_count(last, last_ms)
            try:
                await note.add(last, due_ms - last_ms).commit()
            except ConflictError as error:
                term._end()
                raise LeaseLostError(f"the lease of {self.name!r} with token {term.token} ended: {error}") from error
            return due_ms
