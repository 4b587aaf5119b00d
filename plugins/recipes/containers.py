"""The objects for programs: `Dict`, `Counter`, `Queue`, `Set`, and `Transaction` over several of them.

Changes return when they are committed and applied here, reads are linearizable; ``peek...`` answers at once from this
replica, which may lag.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import trio

from kraftcore.errors import LocalError, NodeStoppedError
from kraftcore.node.node import Node
from kraftcore.ownership import Owned, belongs_here
from kraftcore.plugins.recipes.client import Client, Recipe
from kraftcore.plugins.recipes.codec import pack, unpack
from kraftcore.plugins.recipes.machine import ATOMIC, RecipeMachine
from kraftcore.plugins.recipes.object_states import CounterState, DictState, Entry, QueueState, SetState
from kraftcore.ports.async_library import check_trio

ABSENT = -1
"""The version of a missing key."""


class Versioned(NamedTuple):
    """A value, and the offset of the record that set it."""

    value: Any
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """A key was set or deleted.

    Attributes:
        key: the key.
        value: its new value; None if it was deleted.
        version: offset of the record that changed it; -1 if the deletion came with a snapshot.
        is_deleted: whether it was deleted.
    """

    key: str
    value: Any
    version: int
    is_deleted: bool


class Dict(Recipe):
    """Text keys, any packable values, a version for each."""

    _kind = DictState.kind

    def _operation(self, verb: str, *arguments: Any) -> list[Any]:
        """As in the base class.

        Raises:
            LocalError: a key is not a text.
        """
        if arguments:
            for key in arguments[0] if verb == "update" else arguments[:1]:
                self._check_key(key)
        return super()._operation(verb, *arguments)

    def _check_key(self, key: object) -> None:
        if not isinstance(key, str):
            raise LocalError(
                f"the keys of dict {self.name!r} are text, and {key!r} is {type(key).__name__}: make a str of it"
            )

    def _size(self) -> int:
        return len(self._entries)

    async def set(self, key: str, value: Any) -> int:
        """Set a key; returns its new version."""
        version: int = await self._call("set", key, pack(value))
        return version

    async def set_if(self, key: str, value: Any, version: int) -> int | None:
        """Set a key that is at ``version`` (`ABSENT`: missing); returns the new version, or None if it is not."""
        found: int | None = await self._call("set_if", key, pack(value), version)
        return found

    async def compare_and_set(self, key: str, expected: Any, value: Any) -> bool:
        """Set a key that has the expected value; returns whether it had.

        Args:
            key: the key.
            expected: compared by packed bytes; None also stands for a missing key, as in ``get``.
            value: the new value.
        """
        done: bool = await self._call("replace", key, pack(expected), pack(value))
        return done

    async def set_default(self, key: str, value: Any) -> Any:
        """Set a missing key; returns the key's value afterwards."""
        return unpack(await self._call("set_default", key, pack(value)))

    async def update(self, pairs: Mapping[str, Any]) -> int:
        """Set several keys at once; returns their version."""
        version: int = await self._call("update", {key: pack(value) for key, value in pairs.items()})
        return version

    async def pop(self, key: str, default: Any = None) -> Any:
        """Delete a key; returns its value, or the default."""
        found = await self._call("pop", key)
        return default if found is None else unpack(found)

    async def delete(self, key: str) -> bool:
        """Delete a key; returns whether it existed."""
        return await self._call("pop", key) is not None

    async def delete_if(self, key: str, version: int) -> bool:
        """Delete a key that is at ``version``; returns whether it was."""
        done: bool = await self._call("delete_if", key, version)
        return done

    async def clear(self) -> int:
        """Delete all keys; returns how many."""
        count: int = await self._call("clear")
        return count

    async def get(self, key: str, default: Any = None) -> Any:
        """A key's value."""
        await self._client.barrier()
        return self.peek(key, default)

    async def get_versioned(self, key: str) -> Versioned | None:
        """A key's value and version; None for a missing key."""
        await self._client.barrier()
        return self.peek_versioned(key)

    async def items(self, prefix: str = "") -> dict[str, Any]:
        """All keys that begin with ``prefix``, with their values, at one moment."""
        await self._client.barrier()
        return self.peek_items(prefix)

    async def size(self) -> int:
        """How many keys there are."""
        await self._client.barrier()
        return len(self._entries)

    @property
    def _entries(self) -> dict[str, Entry]:
        state = self._state
        return state.entries if isinstance(state, DictState) else {}

    def peek(self, key: str, default: Any = None) -> Any:
        """As ``get``, from this replica's present state."""
        self._check_key(key)
        entry = self._entries.get(key)
        return default if entry is None else unpack(entry.value)

    def peek_versioned(self, key: str) -> Versioned | None:
        """As ``get_versioned``, from this replica's present state."""
        self._check_key(key)
        entry = self._entries.get(key)
        return None if entry is None else Versioned(unpack(entry.value), entry.version)

    def peek_items(self, prefix: str = "") -> dict[str, Any]:
        """As ``items``, from this replica's present state."""
        return {key: unpack(entry.value) for key, entry in self._entries.items() if key.startswith(prefix)}

    def watch(self, prefix: str = "", *, max_buffered: int = 1024) -> Watch:
        """Changes from now on, as this replica applies them; an async iterator, closed with ``with`` or ``close``.

        ``peek_items`` right before or after, without an ``await`` between, returns the state before the first change.

        Args:
            prefix: of keys.
            max_buffered: when more changes wait for a slow reader, each key's older ones are dropped, never the last.
                A replica that catches up by a snapshot also reports only the last state of each key.
        """
        return Watch(self, prefix, max_buffered)


class Watch(Owned):
    """The iterator that ``Dict.watch`` returns. Ends when the node stops."""

    def __init__(self, watched: Dict, prefix: str, max_buffered: int) -> None:
        self._client = watched._client
        self._prefix = prefix
        self._max = max_buffered
        self._changes: deque[tuple[str, Entry | None, int]] = deque()
        self._ready = trio.Event()
        self._is_closed = False
        self._watcher = watched._watch(self._take)

    def _take(self, detail: tuple[str, Entry | None, int]) -> None:
        if not detail[0].startswith(self._prefix):
            return
        if len(self._changes) >= self._max:
            kept: dict[str, tuple[str, Entry | None, int]] = {}
            for change in reversed(self._changes):
                kept.setdefault(change[0], change)
            self._changes = deque(reversed(kept.values()))
            self._max = max(self._max, 2 * len(kept))
        self._changes.append(detail)
        self._ready.set()

    def close(self) -> None:
        """Take no more changes. Idempotent."""
        self._client.machine.unwatch(self._watcher)
        self._is_closed = True
        self._ready.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if belongs_here(self):
            self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        check_trio("a watch", "iterate over node.iterate(settings.watch())")
        await trio.lowlevel.checkpoint()
        while not self._changes:
            if self._is_closed:
                raise StopAsyncIteration
            if self._ready.is_set():  # else another reader waits for this change
                self._ready = trio.Event()
            try:
                await self._client.wait(self._ready)
            except NodeStoppedError:
                self.close()
        key, entry, version = self._changes.popleft()
        return Change(key, None if entry is None else unpack(entry.value), version, entry is None)


class Counter(Recipe):
    """A 64-bit number that begins at 0."""

    _kind = CounterState.kind

    def _size(self) -> int:
        return self.peek()

    async def add(self, delta: int = 1) -> int:
        """Add; returns the sum.

        Raises:
            LocalError: the sum would exceed 64 bits; nothing was added.
        """
        total: int = await self._call("add", delta)
        return total

    async def set(self, value: int) -> int:
        """Set; returns the value before."""
        before: int = await self._call("set", value)
        return before

    async def compare_and_set(self, expected: int, value: int) -> bool:
        """Set if it has the expected value; returns whether it had."""
        done: bool = await self._call("replace", expected, value)
        return done

    async def get(self) -> int:
        """Its value."""
        await self._client.barrier()
        return self.peek()

    def peek(self) -> int:
        """Its present value on this replica."""
        state = self._state
        return state.value if isinstance(state, CounterState) else 0


class Queue(Recipe):
    """First in, first out. ``get`` removes the item, so its caller is responsible for it.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        max_size: the limit for ``put`` of this object; 0: no limit. Other callers may have other limits.
    """

    _kind = QueueState.kind

    def __init__(self, node: Node[RecipeMachine], name: str, *, max_size: int = 0) -> None:
        super().__init__(node, name)
        self.max_size = max_size

    def _size(self) -> int:
        return self.peek_size()

    async def put(self, item: Any) -> bool:
        """Append; returns whether there was room."""
        done: bool = await self._call("put", pack(item), self.max_size)
        return done

    async def get_nowait(self, default: Any = None) -> Any:
        """Take the oldest item, or return the default."""
        found = await self._call("get")
        return default if found is None else unpack(found)

    async def get(self) -> Any:
        """Take the oldest item; waits for one. A cancelled ``get`` may have taken one.

        Raises:
            NodeStoppedError: the node stopped.
        """
        while True:
            ready = trio.Event()
            watcher = self._watch(lambda _, ready=ready: ready.set())
            try:
                found = await self._call("get")
                if found is not None:
                    return unpack(found)
                if not self.peek_size():
                    await self._client.wait(ready)
            finally:
                self._client.machine.unwatch(watcher)

    async def clear(self) -> int:
        """Drop all items; returns how many."""
        count: int = await self._call("clear")
        return count

    async def size(self) -> int:
        """How many items there are."""
        await self._client.barrier()
        return self.peek_size()

    def peek_size(self) -> int:
        """How many items this replica has now."""
        state = self._state
        return len(state.items) if isinstance(state, QueueState) else 0

    def peek_items(self) -> list[Any]:
        """The items that this replica has now, oldest first."""
        state = self._state
        return [unpack(item) for item in state.items] if isinstance(state, QueueState) else []


class Set(Recipe):
    """Members are the same if their packed bytes are: 1, 1.0 and True differ, and dicts in another order do."""

    _kind = SetState.kind

    def _size(self) -> int:
        return len(self._members)

    async def add(self, member: Any) -> bool:
        """Add; returns whether it is new."""
        done: bool = await self._call("add", pack(member))
        return done

    async def discard(self, member: Any) -> bool:
        """Remove a member; returns whether it existed."""
        done: bool = await self._call("discard", pack(member))
        return done

    async def update(self, members: Iterable[Any]) -> int:
        """Add several at once; returns how many are new."""
        count: int = await self._call("update", [pack(member) for member in members])
        return count

    async def pop(self, default: Any = None) -> Any:
        """Remove and return the oldest member, or return the default."""
        found = await self._call("pop")
        return default if found is None else unpack(found)

    async def clear(self) -> int:
        """Remove all; returns how many."""
        count: int = await self._call("clear")
        return count

    async def contains(self, member: Any) -> bool:
        """Whether it is a member."""
        await self._client.barrier()
        return self.peek_contains(member)

    async def members(self) -> list[Any]:
        """All members, oldest first."""
        await self._client.barrier()
        return self.peek_members()

    @property
    def _members(self) -> dict[bytes, int]:
        state = self._state
        return state.members if isinstance(state, SetState) else {}

    def peek_contains(self, member: Any) -> bool:
        """As ``contains``, from this replica's present state."""
        return pack(member) in self._members

    def peek_members(self) -> list[Any]:
        """As ``members``, from this replica's present state."""
        return [unpack(member) for member in self._members]


class Transaction(Owned):
    """Conditions and changes of several objects in one record: all changes are made, or none.

    Fill it, then ``await commit()``, once. The ``check`` methods name the state that it relies on; it reads nothing.

        transaction = recipes.Transaction(node)
        transaction.check(accounts, "alice", version)
        transaction.set(accounts, "alice", 90).set(accounts, "bob", 110).put(log, "alice pays bob 10")
        await transaction.commit()
    """

    def __init__(self, node: Node[RecipeMachine]) -> None:
        self._client = Client.of(node)
        self._operations: list[list[Any]] = []

    def _add(self, operation: list[Any]) -> Self:
        self._operations.append(operation)
        return self

    def check(self, target: Dict, key: str, version: int) -> Self:
        """The key must be at ``version`` (`ABSENT`: must be missing)."""
        return self._add(target._operation("check", key, version))

    def check_count(self, target: Counter, expected: int) -> Self:
        """The counter must have this value."""
        return self._add(target._operation("check", expected))

    def check_member(self, target: Set, member: Any, *, present: bool = True) -> Self:
        """The set must hold the member, or must not."""
        return self._add(target._operation("check", pack(member), present))

    def check_lock(self, target: Recipe, token: int) -> Self:
        """The `Lock` must be held, with this token: this fences its holder's writes."""
        return self._add(["lock", target.name, "check", token])

    def set(self, target: Dict, key: str, value: Any) -> Self:
        """As ``Dict.set``."""
        return self._add(target._operation("set", key, pack(value)))

    def delete(self, target: Dict, key: str) -> Self:
        """As ``Dict.delete``."""
        return self._add(target._operation("pop", key))

    def add(self, target: Counter, delta: int = 1) -> Self:
        """As ``Counter.add``."""
        return self._add(target._operation("add", delta))

    def put(self, target: Queue, item: Any) -> Self:
        """Put an item into the queue, which must not be full."""
        return self._add(target._operation("put", pack(item), target.max_size))

    def get(self, target: Queue) -> Self:
        """As ``Queue.get_nowait``."""
        return self._add(target._operation("get"))

    def insert(self, target: Set, member: Any) -> Self:
        """As ``Set.add``."""
        return self._add(target._operation("add", pack(member)))

    def discard(self, target: Set, member: Any) -> Self:
        """As ``Set.discard``."""
        return self._add(target._operation("discard", pack(member)))

    async def commit(self) -> None:
        """Commit the transaction.

        Raises:
            ConflictError: a condition does not hold, or a queue it puts an item into is full; nothing was changed.
            LocalError: the transaction is empty, or a change is impossible; nothing was changed.
        """
        await self._client.call(*self._operations, version=ATOMIC)
