"""Recipes for asyncio: all of `kraftcore.plugins.recipes`, over `kraftcore.aio`.

Written by ``pytest tests/plugins/test_recipe_facades.py --rewrite`` from trio's recipes; not to be edited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Any, Generic, NoReturn, Self, TypeVar, overload

from kraftcore.aio import Iteration, Node
from kraftcore.aio.held import Held
from kraftcore.aio.waiting import settled
from kraftcore.errors import LeaseLostError
from kraftcore.namespace import listing
from kraftcore.ownership import Owned
from kraftcore.plugins.recipes import client, containers, leases, locks, sequences, transactions
from kraftcore.plugins.recipes.containers import ABSENT, Change, Default, Item, Key, Versioned
from kraftcore.plugins.recipes.holding import Taking, as_it_is, inner_of, of_this_kind
from kraftcore.plugins.recipes.locks import Holder, Result
from kraftcore.plugins.recipes.machine import RecipeMachine
from kraftcore.plugins.recipes.values import Value

__all__ = [
    "ABSENT",
    "Barrier",
    "Change",
    "Counter",
    "Dict",
    "Election",
    "Held",
    "Holder",
    "Lease",
    "Leased",
    "List",
    "Lock",
    "Members",
    "PriorityQueue",
    "Queue",
    "Recipe",
    "RecipeMachine",
    "Scheduler",
    "Semaphore",
    "Set",
    "Taken",
    "Transaction",
    "Versioned",
]
__dir__ = listing(__all__)
Got = TypeVar("Got")


class Recipe(Owned):
    """Base class of the objects: a name, and a node through which it is reached.

    Objects of one kind and name are the same on every node, from trio, asyncio and threads.
    """

    _node: Node[RecipeMachine]
    _inner: client.Recipe

    async def _taken(
        self,
        verb: str,
        take: Callable[[], Awaitable[Any]],
        read: Callable[[Any], Awaitable[Got]],
        give_back: Callable[[Any], Awaitable[object]],
    ) -> Got:
        taking = Taking(f"{type(self).__name__}.{verb}", take, read, give_back)
        try:
            return await self._node.call(taking)
        except BaseException:
            if taking.abandon():
                await settled(asyncio.ensure_future(self._node.call(taking.give_back)))
            raise

    @property
    def name(self) -> str:
        """The object's name."""
        return self._inner.name

    def __repr__(self) -> str:
        return repr(self._inner)


class Dict(Recipe, Generic[Key, Value]):
    """Text keys, values, and a version for each; also a mapping to read, as this replica is.

        settings = recipes.Dict(node, "settings")
        await settings.set("colour", "blue")
        settings["colour"], "colour" in settings, len(settings), list(settings)

    Args:
        node: see `Recipe`.
        name: likewise.
        model: the class of the values, one of pydantic's or msgspec's models; None: any packable values.
    """

    _inner: containers.Dict[Key, Value]

    @overload
    def __init__(self: Dict[str, Any], node: Node[RecipeMachine], name: str) -> None: ...
    @overload
    def __init__(self: Dict[str, Value], node: Node[RecipeMachine], name: str, *, model: type[Value]) -> None: ...
    def __init__(self, node: Node[RecipeMachine], name: str, *, model: type[Value] | None = None) -> None:
        make: Any = containers.Dict
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, model=model)

    async def set(self, key: Key, value: Value) -> int:
        """Set a key; returns its new version."""
        return await self._node.call(self._inner.set, key, value)

    async def set_if(self, key: Key, value: Value, version: int) -> int | None:
        """Set a key that is at ``version`` (`ABSENT`: missing); returns the new version, or None if it is not."""
        return await self._node.call(self._inner.set_if, key, value, version)

    async def compare_and_set(self, key: Key, expected: Value | None, value: Value) -> bool:
        """Set a key that has the expected value; returns whether it had.

        Args:
            key: the key.
            expected: compared by packed bytes; None also stands for a missing key, as in ``get``.
            value: the new value.
        """
        return await self._node.call(self._inner.compare_and_set, key, expected, value)

    async def set_default(self, key: Key, value: Value) -> Value:
        """Set a missing key; returns the key's value afterwards."""
        return await self._node.call(self._inner.set_default, key, value)

    async def update(self, pairs: Mapping[Key, Value] | Iterable[tuple[Key, Value]]) -> int:
        """Set several keys at once; returns their version.

        Args:
            pairs: a mapping, or pairs of a key and a value, as for Python's dicts.
        """
        return await self._node.call(self._inner.update, pairs)

    @overload
    async def pop(self, key: Key) -> Value | None: ...
    @overload
    async def pop(self, key: Key, default: Default) -> Value | Default: ...
    async def pop(self, key: Key, default: Any = None) -> Any:
        """Delete a key; returns its value, or the default."""
        return await self._node.call(self._inner.pop, key, default)

    async def delete(self, key: Key) -> bool:
        """Delete a key; returns whether it existed."""
        return await self._node.call(self._inner.delete, key)

    async def delete_if(self, key: Key, version: int) -> bool:
        """Delete a key that is at ``version``; returns whether it was."""
        return await self._node.call(self._inner.delete_if, key, version)

    async def clear(self) -> int:
        """Delete all keys; returns how many."""
        return await self._node.call(self._inner.clear)

    @overload
    async def get(self, key: Key) -> Value | None: ...
    @overload
    async def get(self, key: Key, default: Default) -> Value | Default: ...
    async def get(self, key: Key, default: Any = None) -> Any:
        """A key's value."""
        return await self._node.call(self._inner.get, key, default)

    async def get_versioned(self, key: Key) -> Versioned[Value] | None:
        """A key's value and version; None for a missing key."""
        return await self._node.call(self._inner.get_versioned, key)

    async def items(self, prefix: str = "") -> dict[Key, Value]:
        """All keys that begin with ``prefix``, with their values, at one moment."""
        return await self._node.call(self._inner.items, prefix)

    async def size(self) -> int:
        """How many keys there are."""
        return await self._node.call(self._inner.size)

    @overload
    def peek(self, key: Key) -> Value | None: ...
    @overload
    def peek(self, key: Key, default: Default) -> Value | Default: ...
    def peek(self, key: Key, default: Any = None) -> Any:
        """As ``get``, from this replica's present state."""
        return self._inner.peek(key, default)

    def peek_versioned(self, key: Key) -> Versioned[Value] | None:
        """As ``get_versioned``, from this replica's present state."""
        return self._inner.peek_versioned(key)

    def peek_items(self, prefix: str = "") -> dict[Key, Value]:
        """As ``items``, from this replica's present state."""
        return self._inner.peek_items(prefix)

    def __getitem__(self, key: Key) -> Value:
        """As ``peek``.

        Raises:
            KeyError: the key is not there.
        """
        return self._inner.__getitem__(key)

    def __contains__(self, key: object) -> bool:
        return self._inner.__contains__(key)

    def __iter__(self) -> Iterator[Key]:
        """The keys as they are now."""
        return iter(self._inner)

    def __len__(self) -> int:
        return self._inner.__len__()

    def watch(self, prefix: str = "", *, max_buffered: int = 1024) -> Iteration[Change[Key, Value]]:
        """Changes from now on, as this replica applies them; an async iterator, closed with ``with`` or ``close``.

        ``peek_items`` right before or after, without an ``await`` between, returns the state before the first change.

        Args:
            prefix: of keys.
            max_buffered: when more changes wait for a slow reader, each key's older ones are dropped, never the last;
                1 or more. A replica that catches up by a snapshot also reports only the last state of each key.

        Raises:
            LocalError: the prefix is no text, or ``max_buffered`` is out of range.
        """
        return self._node.iterate(self._inner.watch, prefix, max_buffered=max_buffered)


class Counter(Recipe):
    """A 64-bit number that begins at 0."""

    _inner: containers.Counter

    def __init__(self, node: Node[RecipeMachine], name: str) -> None:
        make: Any = containers.Counter
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name)

    async def add(self, delta: int = 1) -> int:
        """Add; returns the sum.

        Raises:
            LocalError: the sum would exceed 64 bits; nothing was added.
        """
        return await self._node.call(self._inner.add, delta)

    async def set(self, value: int) -> int:
        """Set; returns the value before."""
        return await self._node.call(self._inner.set, value)

    async def compare_and_set(self, expected: int, value: int) -> bool:
        """Set if it has the expected value; returns whether it had."""
        return await self._node.call(self._inner.compare_and_set, expected, value)

    async def get(self) -> int:
        """Its value."""
        return await self._node.call(self._inner.get)

    def peek(self) -> int:
        """Its present value on this replica."""
        return self._inner.peek()


class Set(Recipe, Generic[Item]):
    """Members are the same if their packed bytes are: 1, 1.0 and True differ, and dicts in another order do."""

    _inner: containers.Set[Item]

    @overload
    def __init__(self: Set[Any], node: Node[RecipeMachine], name: str) -> None: ...
    @overload
    def __init__(self: Set[Item], node: Node[RecipeMachine], name: str, *, model: type[Item]) -> None: ...
    def __init__(self, node: Node[RecipeMachine], name: str, *, model: type[Item] | None = None) -> None:
        make: Any = containers.Set
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, model=model)

    async def add(self, member: Item) -> bool:
        """Add; returns whether it is new."""
        return await self._node.call(self._inner.add, member)

    async def discard(self, member: Item) -> bool:
        """Remove a member; returns whether it existed."""
        return await self._node.call(self._inner.discard, member)

    async def update(self, members: Iterable[Item]) -> int:
        """Add several at once; returns how many are new."""
        return await self._node.call(self._inner.update, members)

    @overload
    async def pop(self) -> Item | None: ...
    @overload
    async def pop(self, default: Default) -> Item | Default: ...
    async def pop(self, default: Any = None) -> Any:
        """Remove and return the oldest member, or return the default."""
        return await self._node.call(self._inner.pop, default)

    async def clear(self) -> int:
        """Remove all; returns how many."""
        return await self._node.call(self._inner.clear)

    async def contains(self, member: Item) -> bool:
        """Whether it is a member."""
        return await self._node.call(self._inner.contains, member)

    async def members(self) -> list[Item]:
        """All members, oldest first."""
        return await self._node.call(self._inner.members)

    def peek_contains(self, member: Item) -> bool:
        """As ``contains``, from this replica's present state."""
        return self._inner.peek_contains(member)

    def peek_members(self) -> list[Item]:
        """As ``members``, from this replica's present state."""
        return self._inner.peek_members()

    def __contains__(self, member: object) -> bool:
        """As ``peek_contains``."""
        return self._inner.__contains__(member)

    def __iter__(self) -> Iterator[Item]:
        """The members as they are now, oldest first."""
        return iter(self._inner)

    def __len__(self) -> int:
        """How many members there are on this replica as it is."""
        return self._inner.__len__()


class Lender(Recipe):
    """Base class of what is held by leases.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        lease_ms: how long a lease lasts without being renewed, > 0, also that of a holder that has died.
    """

    _inner: leases.Lender

    def __init__(self, node: Node[RecipeMachine], name: str, *, lease_ms: int) -> None:
        make: Any = leases.Lender
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, lease_ms=lease_ms)

    @property
    def lease_ms(self) -> int:
        """As given."""
        return self._inner.lease_ms


class Lease(Owned):
    """A lock held until its time is up; made by a `Lock`.

    Attributes:
        lock: the lock.
        token: the fencing token, > 0; larger than that of any earlier grant.
    """

    _inner: leases.Lease

    def __init__(self, lock: Lender, inner: leases.Lease) -> None:
        self.lock = lock
        self._node = lock._node
        self._inner = inner

    @property
    def token(self) -> int:
        """The fencing token, > 0; larger than that of any earlier grant."""
        return self._inner.token

    def __repr__(self) -> str:
        return repr(self._inner)

    @property
    def is_valid(self) -> bool:
        """Whether it is held, by this process's clock; it errs on the safe side by a tenth of the lease. Any thread."""
        return self._inner.is_valid

    @property
    def ends_at(self) -> float:
        """When ``is_valid`` ends, in seconds of trio's clock."""
        return self._inner.ends_at

    async def renew(self) -> None:
        """Restart the lease's time.

        Raises:
            LeaseLostError: the lease has ended, or was released meanwhile.
        """
        await self._node.call(self._inner.renew)

    async def release(self) -> bool:
        """End it; returns whether it was still held. Idempotent."""
        return await self._node.call(self._inner.release)


class Taken(Lease, Generic[Item]):
    """An item that is taken for a block, by a lease; made by ``Queue.take``.

    After ``release`` the queue has the item back, and the block goes on without it.

    Attributes:
        lock: the queue.
        token: the fencing token, > 0; larger than that of any earlier taker.
        item: the item.
    """

    _inner: sequences.Taken[Item]

    def __init__(self, lock: _Queue[Item], inner: sequences.Taken[Item]) -> None:
        self.lock = lock
        self._node = lock._node
        self._inner = inner

    @property
    def item(self) -> Item:
        """The item."""
        return self._inner.item

    def __repr__(self) -> str:
        return repr(self._inner)

    async def finish(self) -> None:
        """Drop the item for good, as the end of the block does.

        Raises:
            LeaseLostError: the lease has ended, so that others get the item; or the item was released or finished.
        """
        await self._node.call(self._inner.finish)


class _Queue(Lender, Generic[Item]):
    """What both queues have."""

    _inner: sequences._Queue[Item]

    @overload
    async def get_nowait(self) -> Item | None: ...
    @overload
    async def get_nowait(self, default: Default) -> Item | Default: ...
    async def get_nowait(self, default: Any = None) -> Any:
        """Take the first item, or return the default."""
        inner = self._inner
        return await self._taken(
            "get_nowait", partial(inner._take, 0), partial(inner._read_or, default), inner._give_back
        )

    async def get(self, timeout_s: float = inf) -> Item:
        """Take the first item; waits for one.

        Args:
            timeout_s: how many seconds to wait for an item, 0 or more.

        Raises:
            LocalError: the time is out of range.
            NodeStoppedError: the node stopped.
            TimeoutError: there was no item for so long, and none was taken.
        """
        inner = self._inner
        return await self._taken(
            "get", partial(inner._take, timeout_s), partial(inner._read_or_raise, timeout_s), inner._give_back
        )

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
        return Held(self._node, self._inner.take(timeout_s), partial(Taken, self))

    async def clear(self) -> int:
        """Drop all items; returns how many. What others have taken for a block stays theirs."""
        return await self._node.call(self._inner.clear)

    async def size(self) -> int:
        """How many items there are that nobody has taken."""
        return await self._node.call(self._inner.size)

    def peek_size(self) -> int:
        """As ``size``, from this replica's present state."""
        return self._inner.peek_size()

    def peek_items(self) -> list[Item]:
        """The items that nobody has taken, by this replica's present state, the first one first."""
        return self._inner.peek_items()

    def __len__(self) -> int:
        """As ``peek_size``."""
        return self._inner.__len__()


class Queue(_Queue[Item]):
    """First in, first out.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        max_size: the limit for ``put`` of this object; 0: no limit. Other callers may have other limits.
        lease_ms: how long an item stays taken by ``take`` when its taker has died, > 0.
        model: the class of the items, one of pydantic's or msgspec's models; None: any packable values.
    """

    _inner: sequences.Queue[Item]

    @overload
    def __init__(
        self: Queue[Any], node: Node[RecipeMachine], name: str, *, max_size: int = 0, lease_ms: int = 10000
    ) -> None: ...
    @overload
    def __init__(
        self: Queue[Item],
        node: Node[RecipeMachine],
        name: str,
        *,
        max_size: int = 0,
        lease_ms: int = 10000,
        model: type[Item],
    ) -> None: ...
    def __init__(
        self,
        node: Node[RecipeMachine],
        name: str,
        *,
        max_size: int = 0,
        lease_ms: int = 10000,
        model: type[Item] | None = None,
    ) -> None:
        make: Any = sequences.Queue
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, max_size=max_size, lease_ms=lease_ms, model=model)

    @property
    def max_size(self) -> int:
        """As given."""
        return self._inner.max_size

    @property
    def lease_ms(self) -> int:
        """As given."""
        return self._inner.lease_ms

    async def put(self, item: Item) -> bool:
        """Append; returns whether there was room."""
        return await self._node.call(self._inner.put, item)


class PriorityQueue(_Queue[Item]):
    """The item with the smallest priority first; of one priority the oldest first.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        max_size: the limit for ``put`` of this object; 0: no limit. Other callers may have other limits.
        lease_ms: how long an item stays taken by ``take`` when its taker has died, > 0.
        model: the class of the items, one of pydantic's or msgspec's models; None: any packable values.
    """

    _inner: sequences.PriorityQueue[Item]

    @overload
    def __init__(
        self: PriorityQueue[Any], node: Node[RecipeMachine], name: str, *, max_size: int = 0, lease_ms: int = 10000
    ) -> None: ...
    @overload
    def __init__(
        self: PriorityQueue[Item],
        node: Node[RecipeMachine],
        name: str,
        *,
        max_size: int = 0,
        lease_ms: int = 10000,
        model: type[Item],
    ) -> None: ...
    def __init__(
        self,
        node: Node[RecipeMachine],
        name: str,
        *,
        max_size: int = 0,
        lease_ms: int = 10000,
        model: type[Item] | None = None,
    ) -> None:
        make: Any = sequences.PriorityQueue
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, max_size=max_size, lease_ms=lease_ms, model=model)

    @property
    def max_size(self) -> int:
        """As given."""
        return self._inner.max_size

    @property
    def lease_ms(self) -> int:
        """As given."""
        return self._inner.lease_ms

    async def put(self, item: Item, priority: int = 0) -> bool:
        """Put an item; returns whether there was room.

        Args:
            item: the item.
            priority: an integer of 64 bits; items with smaller ones come first.
        """
        return await self._node.call(self._inner.put, item, priority)


class List(Recipe, Generic[Item]):
    """Items in the order that programs give them; also a sequence to read, as this replica is.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        model: the class of the items, one of pydantic's or msgspec's models; None: any packable values.
    """

    _inner: sequences.List[Item]

    @overload
    def __init__(self: List[Any], node: Node[RecipeMachine], name: str) -> None: ...
    @overload
    def __init__(self: List[Item], node: Node[RecipeMachine], name: str, *, model: type[Item]) -> None: ...
    def __init__(self, node: Node[RecipeMachine], name: str, *, model: type[Item] | None = None) -> None:
        make: Any = sequences.List
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, model=model)

    async def append(self, item: Item) -> int:
        """Append an item; returns the list's length then."""
        return await self._node.call(self._inner.append, item)

    async def extend(self, items: Iterable[Item]) -> int:
        """Append several items at once; returns the list's length then."""
        return await self._node.call(self._inner.extend, items)

    async def insert(self, index: int, item: Item) -> int:
        """Insert an item before that index, as Python's lists do; returns the list's length then."""
        return await self._node.call(self._inner.insert, index, item)

    async def set(self, index: int, item: Item) -> Item:
        """Replace the item at an index; returns the one before.

        Raises:
            LocalError: there is no item at that index.
        """
        return await self._node.call(self._inner.set, index, item)

    async def compare_and_set(self, index: int, expected: Item, item: Item) -> bool:
        """Replace the item at an index if it is the expected one; returns whether it was. Packed bytes are compared."""
        return await self._node.call(self._inner.compare_and_set, index, expected, item)

    async def pop(self, index: int = -1) -> Item | None:
        """Remove the item at an index, the last one by default; returns the item, None if the list is empty.

        Raises:
            LocalError: the list is not empty, and there is no item at that index.
        """
        return await self._node.call(self._inner.pop, index)

    async def remove(self, item: Item) -> bool:
        """Remove the first item that is equal; returns whether there was one. Packed bytes are compared."""
        return await self._node.call(self._inner.remove, item)

    async def clear(self) -> int:
        """Remove all items; returns how many."""
        return await self._node.call(self._inner.clear)

    async def items(self) -> list[Item]:
        """All items, at one moment."""
        return await self._node.call(self._inner.items)

    async def size(self) -> int:
        """How many items there are."""
        return await self._node.call(self._inner.size)

    def peek_items(self) -> list[Item]:
        """As ``items``, from this replica's present state."""
        return self._inner.peek_items()

    def __getitem__(self, index: int) -> Item:
        """The item at an index, from this replica's present state.

        Raises:
            IndexError: there is none.
            LocalError: the index is a slice.
        """
        return self._inner.__getitem__(index)

    def __iter__(self) -> Iterator[Item]:
        """The items as they are now."""
        return iter(self._inner)

    def __len__(self) -> int:
        """How many items there are on this replica as it is."""
        return self._inner.__len__()


class Transaction(Owned):
    """Conditions and changes of several objects in one record: all changes are made, or none.

    Fill it, then ``await commit()``, once. The ``check`` methods name the state that it relies on; it reads nothing. An
    object of another kind than a method takes is a `LocalError`.

        transaction = recipes.Transaction(node)
        transaction.check(accounts, "alice", version)
        transaction.set(accounts, "alice", 90).set(accounts, "bob", 110).put(log, "alice pays bob 10")
        await transaction.commit()

    ``commit`` returns what each call would have returned alone. So a worker can take an item and say so in one step:

        item, _ = await recipes.Transaction(node).get(jobs).set(taken, "worker 7", True).commit()
    """

    _inner: transactions.Transaction

    def __init__(self, node: Node[RecipeMachine]) -> None:
        make: Any = transactions.Transaction
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node)

    def check(self, target: Dict[Key, Any], key: Key, version: int) -> Self:
        """The key must be at ``version`` (`ABSENT`: must be missing)."""
        self._inner.check(inner_of(target), key, version)
        return self

    def check_count(self, target: Counter, expected: int) -> Self:
        """The counter must have this value."""
        self._inner.check_count(inner_of(target), expected)
        return self

    def check_member(self, target: Set[Item], member: Item, *, present: bool = True) -> Self:
        """The set must hold the member, or must not."""
        self._inner.check_member(inner_of(target), member, present=present)
        return self

    def check_lock(self, target: Recipe, token: int) -> Self:
        """The `Lock`, `Semaphore` or `Members` must be held, with this token: this fences its holder's writes."""
        self._inner.check_lock(inner_of(target), token)
        return self

    def set(self, target: Dict[Key, Value], key: Key, value: Value) -> Self:
        """As ``Dict.set``."""
        self._inner.set(inner_of(target), key, value)
        return self

    def delete(self, target: Dict[Key, Any], key: Key) -> Self:
        """As ``Dict.pop``."""
        self._inner.delete(inner_of(target), key)
        return self

    def add(self, target: Counter, delta: int = 1) -> Self:
        """As ``Counter.add``."""
        self._inner.add(inner_of(target), delta)
        return self

    def put(self, target: Queue[Item] | PriorityQueue[Item], item: Item, priority: int = 0) -> Self:
        """Put an item into the queue, which must not be full; only a `PriorityQueue` takes another priority than 0."""
        self._inner.put(inner_of(target), item, priority)
        return self

    def get(self, target: Queue[Any] | PriorityQueue[Any]) -> Self:
        """As ``get_nowait`` of the queue."""
        self._inner.get(inner_of(target))
        return self

    def finish(self, taken: Taken[Any]) -> Self:
        """End the block's hold of an item of ``Queue.take``: the item is dropped for good in the same record.

        It comes back, and nothing is changed, if the lease has ended: so what the work changes, it changes once.
        """
        self._inner.finish(inner_of(taken))
        return self

    def insert(self, target: Set[Item], member: Item) -> Self:
        """As ``Set.add``."""
        self._inner.insert(inner_of(target), member)
        return self

    def discard(self, target: Set[Item], member: Item) -> Self:
        """As ``Set.discard``."""
        self._inner.discard(inner_of(target), member)
        return self

    async def commit(self) -> list[Any]:
        """Do it.

        Returns:
            What each call would have returned alone, in order; None for a check.

        Raises:
            ConflictError: a condition does not hold, a queue it puts an item into is full, or an item that it finishes
                is taken no more; nothing was changed.
            LocalError: the transaction is empty, or a change is impossible; nothing was changed.
        """
        return await self._node.call(self._inner.commit)


class Leased(Lender):
    """Base class of `Lock`, `Election`, `Semaphore` and `Members`, which are held by leases.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        lease_ms: how long a lease lasts without being renewed, > 0, also that of a holder that has died.
        info: what others learn of a holder through this object; any packable value.
    """

    _inner: locks.Leased

    def __init__(self, node: Node[RecipeMachine], name: str, *, lease_ms: int = 10000, info: Any = None) -> None:
        make: Any = locks.Leased
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, lease_ms=lease_ms, info=info)

    @property
    def lease_ms(self) -> int:
        """As given."""
        return self._inner.lease_ms

    @property
    def info(self) -> Any:
        """As given."""
        return self._inner.info

    async def acquire(self, timeout_s: float = inf) -> Lease:
        """Wait until it is free, and take it. The lease must be renewed, or use ``hold``.

        Args:
            timeout_s: how many seconds to wait, 0 or more.

        Raises:
            LocalError: a time is out of range.
            NodeStoppedError: the node stopped.
            TimeoutError: others held it for so long.
        """
        inner = self._inner
        return Lease(self, await self._taken("acquire", partial(inner.acquire, timeout_s), as_it_is, inner._give_back))

    async def try_acquire(self) -> Lease | None:
        """Take it if it is free; None if not."""
        inner = self._inner
        found = await self._taken("try_acquire", inner.try_acquire, as_it_is, inner._give_back)
        return None if found is None else Lease(self, found)

    def hold(self, timeout_s: float = inf) -> Held[Lease]:
        """Hold it for a block: acquire it, renew it in the background, release it.

            async with lock.hold() as lease:
                ...

        When the lease is lost the block is cancelled, and `LeaseLostError` raised. A block that has ``lease.release()``
        called goes on without it.

        Args:
            timeout_s: how many seconds to wait for it, 0 or more; after them `TimeoutError` is raised instead.
        """
        return Held(self._node, self._inner.hold(timeout_s), partial(Lease, self))


class Lock(Leased):
    """A lock with one holder at a time; waiting callers get it in the order they came.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        lease_ms: how long it is held without being renewed, > 0, also by a holder that has died.
        info: returned by ``holder`` while the lock is held through this object; any packable value.
    """

    _inner: locks.Lock

    def __init__(self, node: Node[RecipeMachine], name: str, *, lease_ms: int = 10000, info: Any = None) -> None:
        make: Any = locks.Lock
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, lease_ms=lease_ms, info=info)

    async def holder(self) -> Holder | None:
        """The present holder, or None."""
        return await self._node.call(self._inner.holder)

    def peek_holder(self) -> Holder | None:
        """The holder by this replica's present state, or None."""
        return self._inner.peek_holder()

    async def contenders(self) -> list[Any]:
        """The ``info`` of the holder, and of those who wait, the first in line first."""
        return await self._node.call(self._inner.contenders)

    def observe(self) -> Iteration[Holder | None]:
        """The holder now, and each later one (or None) as this replica learns of it: an async iterator."""
        return self._node.iterate(self._inner.observe)


class Semaphore(Leased):
    """So many holders at a time; waiting callers get a permit in the order they came.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        permits: how many holders there may be, > 0; all programs are to say the same.
        lease_ms: how long a permit is held without being renewed, > 0, also by a holder that has died.
        info: what ``holders`` says of a permit that is held through this object; any packable value.
    """

    _inner: locks.Semaphore

    def __init__(
        self, node: Node[RecipeMachine], name: str, permits: int, *, lease_ms: int = 10000, info: Any = None
    ) -> None:
        make: Any = locks.Semaphore
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, permits, lease_ms=lease_ms, info=info)

    @property
    def lease_ms(self) -> int:
        """As given."""
        return self._inner.lease_ms

    @property
    def permits(self) -> int:
        """As given."""
        return self._inner.permits

    @property
    def info(self) -> Any:
        """As given."""
        return self._inner.info

    async def holders(self) -> list[Holder]:
        """The present holders, the oldest first."""
        return await self._node.call(self._inner.holders)

    def peek_holders(self) -> list[Holder]:
        """The holders by this replica's present state, the oldest first."""
        return self._inner.peek_holders()


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

    _inner: locks.Members

    def __init__(self, node: Node[RecipeMachine], name: str, *, lease_ms: int = 10000, info: Any = None) -> None:
        make: Any = locks.Members
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, lease_ms=lease_ms, info=info)

    def join(self) -> Held[Lease]:
        """Be a member for a block, as ``hold`` holds a lock. Who joins twice is there twice."""
        return Held(self._node, self._inner.join(), partial(Lease, self))

    async def present(self) -> list[Holder]:
        """The members, the oldest first."""
        return await self._node.call(self._inner.present)

    def peek_present(self) -> list[Holder]:
        """The members by this replica's present state, the oldest first."""
        return self._inner.peek_present()

    def observe(self) -> Iteration[list[Holder]]:
        """The members now, and after changes, as this replica learns of them: an async iterator."""
        return self._node.iterate(self._inner.observe)


class Barrier(Recipe):
    """Where so many programs wait for each other, again and again.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        parties: how many are to come, > 0; all programs are to say the same.
        lease_ms: how long the place of a program that has died is kept, > 0.
    """

    _inner: locks.Barrier

    def __init__(self, node: Node[RecipeMachine], name: str, parties: int, *, lease_ms: int = 10000) -> None:
        make: Any = locks.Barrier
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, parties, lease_ms=lease_ms)

    @property
    def lease_ms(self) -> int:
        """As given."""
        return self._inner.lease_ms

    @property
    def parties(self) -> int:
        """As given."""
        return self._inner.parties

    async def wait(self, timeout_s: float = inf) -> None:
        """Wait until so many programs wait.

        Args:
            timeout_s: how many seconds to wait, 0 or more.

        Raises:
            LocalError: a time is out of range.
            NodeStoppedError: the node stopped.
            TimeoutError: fewer programs came within that time; this one waits no longer.
        """
        await self._node.call(self._inner.wait, timeout_s)


class Election(Lock):
    """An election among programs: the holder of the lock of this name leads.

    async with recipes.Election(node, "scheduler", info="host-a").campaign() as term:
        ...                                     # leads; fence what it writes with term.token
    """

    _inner: locks.Election

    def __init__(self, node: Node[RecipeMachine], name: str, *, lease_ms: int = 10000, info: Any = None) -> None:
        make: Any = locks.Election
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, lease_ms=lease_ms, info=info)

    def campaign(self, timeout_s: float = inf) -> Held[Lease]:
        """Lead for a block, as ``hold`` holds the lock."""
        return Held(self._node, self._inner.campaign(timeout_s), partial(Lease, self))

    async def leader(self) -> Holder | None:
        """The leader, as ``holder`` returns it, or None."""
        return await self._node.call(self._inner.leader)

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
                        raised = error if term.is_valid else None
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

    _inner: locks.Scheduler

    def __init__(
        self, node: Node[RecipeMachine], name: str, every_s: float, *, lease_ms: int = 10000, info: Any = None
    ) -> None:
        make: Any = locks.Scheduler
        self._node = of_this_kind(node, Node)
        self._inner = make(node.trio_node, name, every_s, lease_ms=lease_ms, info=info)

    @property
    def lease_ms(self) -> int:
        """As given."""
        return self._inner.lease_ms

    @property
    def every_s(self) -> float:
        """As given."""
        return self._inner.every_s

    @property
    def info(self) -> Any:
        """As given."""
        return self._inner.info

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
        return await self._node.call(self._inner.next_run, inner_of(term))
