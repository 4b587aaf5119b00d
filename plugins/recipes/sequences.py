"""Objects whose items are in order: `Queue`, `PriorityQueue` and `List`.

A caller that is cancelled while it takes an item from a queue takes none: if the item was taken nevertheless, the queue
gets the item back, at the place where the item was. An item that is taken for a block comes back likewise when its
taker dies.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from math import inf
from types import TracebackType
from typing import Any, Generic, overload

import trio

from kraftcore.errors import LeaseLostError, LocalError
from kraftcore.node.node import Node
from kraftcore.ownership import belongs_here
from kraftcore.plugins.recipes.arguments import seconds, whole
from kraftcore.plugins.recipes.client import Recipe, Undo
from kraftcore.plugins.recipes.containers import Default, Item
from kraftcore.plugins.recipes.leases import LATE_S, Held, Lease, Lender
from kraftcore.plugins.recipes.machine import RecipeMachine
from kraftcore.plugins.recipes.sequence_states import LendingState, ListState, PriorityQueueState, QueueState
from kraftcore.plugins.recipes.values import Values
from kraftcore.ports.async_library import check_trio

_ELSEWHERE = "see kraftcore.aio.recipes and kraftcore.blocking.recipes"


class Taken(Lease, Generic[Item]):
    """An item that is taken for a block, by a lease; made by ``Queue.take``.

    After ``release`` the queue has the item back, and the block goes on without it.

    Attributes:
        lock: the queue.
        token: the fencing token, > 0; larger than that of any earlier taker.
        item: the item.
    """

    def __init__(self, lock: _Queue[Item], owner: bytes, token: int, since: float, item: Item) -> None:
        super().__init__(lock, owner, token, since)
        self.item = item
        self._is_finished = False

    async def finish(self) -> None:
        """Drop the item for good, as the end of the block does.

        Raises:
            LeaseLostError: the lease has ended, so that others get the item; or the item was released or finished.
        """
        if not self._finished(await self.lock._call("finish", self._owner)):
            raise LeaseLostError(f"the lease of an item of {self.lock._kind} {self.lock.name!r} ended")

    def _finished(self, is_so: bool) -> bool:
        if is_so:
            self._is_finished = True
            self._end()
        return is_so


class HeldItem(Held[Taken[Item]]):
    """The context manager that ``Queue.take`` returns; what the base class holds ends with ``finish``."""

    def __init__(self, queue: _Queue[Item], obtain: Callable[[], Awaitable[Taken[Item]]]) -> None:
        super().__init__(queue, obtain)
        self.what = f"an item of {self.what}"

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and belongs_here(self) and not self._lease._is_released:
            try:
                await self._lease.finish()
            except BaseException as raised:
                await super().__aexit__(type(raised), raised, raised.__traceback__)
                raise
        await super().__aexit__(kind, error, trace)

    async def _give_up(self) -> None:
        if not self._lease._is_finished:
            await super()._give_up()


class _Queue(Lender, Generic[Item]):
    """What both queues have."""

    def __init__(
        self, node: Node[RecipeMachine], name: str, max_size: int, lease_ms: int, model: type[Item] | None
    ) -> None:
        super().__init__(node, name, lease_ms=lease_ms)
        self.max_size: int = whole(f"the max_size of {self._kind} {name!r}", max_size, 0)
        self._values: Values[Item] = Values(f"{self._kind} {name!r}", model)

    def _size(self) -> int:
        return self.peek_size()

    def _item(self, found: Any) -> Item:
        """The item in what the operation ``get`` returned."""
        raise NotImplementedError

    def _back(self, found: list[Any]) -> list[Any] | None:
        """The operation that gives an item back."""
        raise NotImplementedError

    async def _take(self, timeout_s: float) -> Any:
        """What the operation ``get`` returns when there is an item; None if none came in time."""
        return await self._first(timeout_s, lambda: self._call("get", undo=self._back))

    async def _lend(self, timeout_s: float) -> Taken[Item]:
        """Take the first item for a time."""
        owner = os.urandom(16)
        release = self._operation("release", owner)
        asked_at = 0.0

        async def ask() -> Any:
            nonlocal asked_at
            asked_at = trio.current_time()
            undo: Undo = lambda found: None if found[0] is None else release  # noqa: E731
            return await self._call("take", owner, self.lease_ms, undo=undo)

        found = await self._first(timeout_s, ask)
        if found is None:
            raise self._in_vain(timeout_s)
        token, item = found
        try:
            return Taken(self, owner, token, asked_at, self._values.unpack(item))
        except LocalError:
            await self._client.see_to(partial(self._client.call, release))
            raise

    def _in_vain(self, timeout_s: float) -> TimeoutError:
        return TimeoutError(f"no item came to {self._kind} {self.name!r} within {timeout_s:g} s")

    async def _first(self, timeout_s: float, ask: Callable[[], Awaitable[Any]]) -> Any:
        """What an operation returns when there is an item; None if none came in time."""
        check_trio(f"a {self._kind}", _ELSEWHERE)
        end = trio.current_time() + seconds(f"the timeout_s of {self._kind} {self.name!r}", timeout_s)
        while True:
            ready = trio.Event()
            watcher = self._watch(lambda _, ready=ready: ready.set())
            try:
                found = await ask()
                if found is not None or trio.current_time() >= end:
                    return found
                if not self.peek_size():
                    # A dead taker sends nothing: another command must let the machine notice that its lease has ended.
                    with trio.move_on_at(min(end, trio.current_time() + self._left_s() + LATE_S)):
                        await self._client.wait(ready)
            finally:
                self._client.machine.unwatch(watcher)

    async def _give_back(self, found: Any) -> None:
        operation = None if found is None else self._back([found])
        if operation is not None:
            await self._client.see_to(partial(self._client.call, operation))

    async def _read(self, found: Any) -> Item:
        """The item; the queue gets back an item that cannot be read."""
        try:
            return self._item(found)
        except LocalError:
            await self._give_back(found)
            raise

    @overload
    async def get_nowait(self) -> Item | None: ...
    @overload
    async def get_nowait(self, default: Default) -> Item | Default: ...
    async def get_nowait(self, default: Any = None) -> Any:
        """Take the first item, or return the default."""
        return await self._read_or(default, await self._take(0))

    async def get(self, timeout_s: float = inf) -> Item:
        """Take the first item; waits for one.

        Args:
            timeout_s: how many seconds to wait for an item, 0 or more.

        Raises:
            LocalError: the time is out of range.
            NodeStoppedError: the node stopped.
            TimeoutError: there was no item for so long, and none was taken.
        """
        return await self._read_or_raise(timeout_s, await self._take(timeout_s))

    async def _read_or_raise(self, timeout_s: float, found: Any) -> Item:
        if found is None:
            raise self._in_vain(timeout_s)
        return await self._read(found)

    async def _read_or(self, default: Any, found: Any) -> Any:
        return default if found is None else await self._read(found)

    def take(self, timeout_s: float = inf) -> Held[Taken[Item]]:
        """Take the first item for a block. When the block ends, the item is dropped for good.

            async with jobs.take() as taken:
                await work_on(taken.item)

        When the block raises, the item is back at its place, and others get it; without a leader when its lease ends.
        The lease is renewed in the background, so it ends when the program dies, or is cut off, for ``lease_ms``.

        When the lease is lost, the block is cancelled (in threads ``taken.is_valid`` is False from then on), and
        `LeaseLostError` raised: others may have the item by then, so that the work on it is done twice. What the work
        changes in the log is changed once if ``Transaction.finish`` is part of it.

        Args:
            timeout_s: how many seconds to wait for an item, 0 or more; after them `TimeoutError` is raised.
        """
        return HeldItem(self, partial(self._lend, timeout_s))

    def _left_s(self) -> float:
        """Seconds until the first of the items that are taken for a time may be back; inf if none is taken so."""
        state, now_ms = self._state, self._client.machine.now_ms
        taken = state.taken.values() if isinstance(state, LendingState) else ()
        return min((max(loan.deadline_ms - now_ms, 0) / 1000 for loan in taken), default=inf)

    async def clear(self) -> int:
        """Drop all items; returns how many. What others have taken for a block stays theirs."""
        count: int = await self._call("clear")
        return count

    async def size(self) -> int:
        """How many items there are that nobody has taken."""
        await self._client.barrier()
        return self.peek_size()

    def peek_size(self) -> int:
        """As ``size``, from this replica's present state."""
        state = self._state
        return state.size() if isinstance(state, LendingState) else 0

    def peek_items(self) -> list[Item]:
        """The items that nobody has taken, by this replica's present state, the first one first."""
        state = self._state
        return [self._values.unpack(item) for item in state.packed()] if isinstance(state, LendingState) else []

    def __len__(self) -> int:
        """As ``peek_size``."""
        return self.peek_size()


class Queue(_Queue[Item]):
    """First in, first out.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        max_size: the limit for ``put`` of this object; 0: no limit. Other callers may have other limits.
        lease_ms: how long an item stays taken by ``take`` when its taker has died, > 0.
        model: the class of the items, one of pydantic's or msgspec's models; None: any packable values.
    """

    _kind = QueueState.kind

    @overload
    def __init__(
        self: Queue[Any], node: Node[RecipeMachine], name: str, *, max_size: int = 0, lease_ms: int = 10_000
    ) -> None: ...
    @overload
    def __init__(
        self: Queue[Item],
        node: Node[RecipeMachine],
        name: str,
        *,
        max_size: int = 0,
        lease_ms: int = 10_000,
        model: type[Item],
    ) -> None: ...
    def __init__(
        self,
        node: Node[RecipeMachine],
        name: str,
        *,
        max_size: int = 0,
        lease_ms: int = 10_000,
        model: type[Item] | None = None,
    ) -> None:
        super().__init__(node, name, max_size, lease_ms, model)

    async def put(self, item: Item) -> bool:
        """Append; returns whether there was room."""
        (done,) = await self._client.call(self._put(item))
        return bool(done)

    def _put(self, item: Item) -> list[Any]:
        return self._operation("put", self._values.pack(item), self.max_size)

    def _item(self, found: Any) -> Item:
        return self._values.unpack(found)

    def _back(self, found: list[Any]) -> list[Any] | None:
        return None if found[0] is None else self._operation("give_back", found[0])


class PriorityQueue(_Queue[Item]):
    """The item with the smallest priority first; of one priority the oldest first.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        max_size: the limit for ``put`` of this object; 0: no limit. Other callers may have other limits.
        lease_ms: how long an item stays taken by ``take`` when its taker has died, > 0.
        model: the class of the items, one of pydantic's or msgspec's models; None: any packable values.
    """

    _kind = PriorityQueueState.kind

    @overload
    def __init__(
        self: PriorityQueue[Any], node: Node[RecipeMachine], name: str, *, max_size: int = 0, lease_ms: int = 10_000
    ) -> None: ...
    @overload
    def __init__(
        self: PriorityQueue[Item],
        node: Node[RecipeMachine],
        name: str,
        *,
        max_size: int = 0,
        lease_ms: int = 10_000,
        model: type[Item],
    ) -> None: ...
    def __init__(
        self,
        node: Node[RecipeMachine],
        name: str,
        *,
        max_size: int = 0,
        lease_ms: int = 10_000,
        model: type[Item] | None = None,
    ) -> None:
        super().__init__(node, name, max_size, lease_ms, model)

    async def put(self, item: Item, priority: int = 0) -> bool:
        """Put an item; returns whether there was room.

        Args:
            item: the item.
            priority: an integer of 64 bits; items with smaller ones come first.
        """
        (done,) = await self._client.call(self._put(item, priority))
        return bool(done)

    def _put(self, item: Item, priority: int) -> list[Any]:
        return self._operation("put", self._values.pack(item), priority, self.max_size)

    def _item(self, found: Any) -> Item:
        return self._values.unpack(found[2])

    def _back(self, found: list[Any]) -> list[Any] | None:
        return None if found[0] is None else self._operation("give_back", *found[0])


class List(Recipe, Generic[Item]):
    """Items in the order that programs give them; also a sequence to read, as this replica is.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        model: the class of the items, one of pydantic's or msgspec's models; None: any packable values.
    """

    _kind = ListState.kind

    @overload
    def __init__(self: List[Any], node: Node[RecipeMachine], name: str) -> None: ...
    @overload
    def __init__(self: List[Item], node: Node[RecipeMachine], name: str, *, model: type[Item]) -> None: ...
    def __init__(self, node: Node[RecipeMachine], name: str, *, model: type[Item] | None = None) -> None:
        super().__init__(node, name)
        self._values: Values[Item] = Values(f"list {name!r}", model)

    def _size(self) -> int:
        return len(self._packed)

    async def append(self, item: Item) -> int:
        """Append an item; returns the list's length then."""
        return await self.extend([item])

    async def extend(self, items: Iterable[Item]) -> int:
        """Append several items at once; returns the list's length then."""
        size: int = await self._call("extend", [self._values.pack(item) for item in items])
        return size

    async def insert(self, index: int, item: Item) -> int:
        """Insert an item before that index, as Python's lists do; returns the list's length then."""
        size: int = await self._call("insert", index, self._values.pack(item))
        return size

    async def set(self, index: int, item: Item) -> Item:
        """Replace the item at an index; returns the one before.

        Raises:
            LocalError: there is no item at that index.
        """
        return self._values.unpack(await self._call("set", index, self._values.pack(item)))

    async def compare_and_set(self, index: int, expected: Item, item: Item) -> bool:
        """Replace the item at an index if it is the expected one; returns whether it was. Packed bytes are compared."""
        done: bool = await self._call("replace", index, self._values.pack(expected), self._values.pack(item))
        return done

    async def pop(self, index: int = -1) -> Item | None:
        """Remove the item at an index, the last one by default; returns the item, None if the list is empty.

        Raises:
            LocalError: the list is not empty, and there is no item at that index.
        """
        found = await self._call("pop", index)
        return None if found is None else self._values.unpack(found)

    async def remove(self, item: Item) -> bool:
        """Remove the first item that is equal; returns whether there was one. Packed bytes are compared."""
        done: bool = await self._call("remove", self._values.pack(item))
        return done

    async def clear(self) -> int:
        """Remove all items; returns how many."""
        count: int = await self._call("clear")
        return count

    async def items(self) -> list[Item]:
        """All items, at one moment."""
        await self._client.barrier()
        return self.peek_items()

    async def size(self) -> int:
        """How many items there are."""
        await self._client.barrier()
        return len(self._packed)

    @property
    def _packed(self) -> list[bytes]:
        state = self._state
        return state.items if isinstance(state, ListState) else []

    def peek_items(self) -> list[Item]:
        """As ``items``, from this replica's present state."""
        return [self._values.unpack(item) for item in self._packed]

    def __getitem__(self, index: int) -> Item:
        """The item at an index, from this replica's present state.

        Raises:
            IndexError: there is none.
            LocalError: the index is a slice.
        """
        given: object = index
        if isinstance(given, slice):
            raise LocalError(f"{self._kind} {self.name!r} gives one item at a time: take the slice of peek_items()")
        return self._values.unpack(self._packed[index])

    def __iter__(self) -> Iterator[Item]:
        """The items as they are now."""
        return iter(self.peek_items())

    def __len__(self) -> int:
        """How many items there are on this replica as it is."""
        return len(self._packed)
