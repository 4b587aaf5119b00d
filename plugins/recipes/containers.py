"""The objects for programs: `Dict`, `Counter`, `Queue`, `Set`, and `Transaction` over several of them.

Changes return when they are committed and applied here, reads are linearizable; ``peek...`` answers at once from this
replica, which may lag.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Self, TypeVar, cast, overload

import trio

from kraftcore.errors import LocalError, NodeStoppedError
from kraftcore.node.node import Node
from kraftcore.ownership import Owned, belongs_here
from kraftcore.plugins.recipes.arguments import text, whole
from kraftcore.plugins.recipes.client import Recipe
from kraftcore.plugins.recipes.machine import RecipeMachine
from kraftcore.plugins.recipes.object_states import NIL, CounterState, DictState, Entry, SetState
from kraftcore.plugins.recipes.values import Value, Values
from kraftcore.ports.async_library import check_trio

Key = TypeVar("Key", bound=str)
Item = TypeVar("Item")
Default = TypeVar("Default")

ABSENT = -1
"""The version of a missing key."""


class Versioned(NamedTuple, Generic[Value]):
    """A value, and the offset of the record that set it."""

    value: Value
    version: int


@dataclass(frozen=True, slots=True)
class Change(Generic[Key, Value]):
    """A key was set or deleted.

    Attributes:
        key: the key.
        value: its new value; None if it was deleted.
        version: offset of the record that changed it; -1 if the deletion came with a snapshot.
        is_deleted: whether it was deleted.
    """

    key: Key
    value: Value | None
    version: int
    is_deleted: bool


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

    _kind = DictState.kind

    @overload
    def __init__(self: Dict[str, Any], node: Node[RecipeMachine], name: str) -> None: ...
    @overload
    def __init__(self: Dict[str, Value], node: Node[RecipeMachine], name: str, *, model: type[Value]) -> None: ...
    def __init__(self, node: Node[RecipeMachine], name: str, *, model: type[Value] | None = None) -> None:
        super().__init__(node, name)
        self._values = Values(f"dict {name!r}", model)

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

    async def set(self, key: Key, value: Value) -> int:
        """Set a key; returns its new version."""
        version: int = await self._call("set", key, self._values.pack(value))
        return version

    async def set_if(self, key: Key, value: Value, version: int) -> int | None:
        """Set a key that is at ``version`` (`ABSENT`: missing); returns the new version, or None if it is not."""
        found: int | None = await self._call("set_if", key, self._values.pack(value), version)
        return found

    async def compare_and_set(self, key: Key, expected: Value | None, value: Value) -> bool:
        """Set a key that has the expected value; returns whether it had.

        Args:
            key: the key.
            expected: compared by packed bytes; None also stands for a missing key, as in ``get``.
            value: the new value.
        """
        done: bool = await self._call(
            "replace", key, NIL if expected is None else self._values.pack(expected), self._values.pack(value)
        )
        return done

    async def set_default(self, key: Key, value: Value) -> Value:
        """Set a missing key; returns the key's value afterwards."""
        return self._values.unpack(await self._call("set_default", key, self._values.pack(value)))

    async def update(self, pairs: Mapping[Key, Value] | Iterable[tuple[Key, Value]]) -> int:
        """Set several keys at once; returns their version.

        Args:
            pairs: a mapping, or pairs of a key and a value, as for Python's dicts.
        """
        version: int = await self._call("update", {key: self._values.pack(value) for key, value in dict(pairs).items()})
        return version

    @overload
    async def pop(self, key: Key) -> Value | None: ...
    @overload
    async def pop(self, key: Key, default: Default) -> Value | Default: ...
    async def pop(self, key: Key, default: Any = None) -> Any:
        """Delete a key; returns its value, or the default."""
        found = await self._call("pop", key)
        return default if found is None else self._values.unpack(found)

    async def delete(self, key: Key) -> bool:
        """Delete a key; returns whether it existed."""
        return await self._call("pop", key) is not None

    async def delete_if(self, key: Key, version: int) -> bool:
        """Delete a key that is at ``version``; returns whether it was."""
        done: bool = await self._call("delete_if", key, version)
        return done

    async def clear(self) -> int:
        """Delete all keys; returns how many."""
        count: int = await self._call("clear")
        return count

    @overload
    async def get(self, key: Key) -> Value | None: ...
    @overload
    async def get(self, key: Key, default: Default) -> Value | Default: ...
    async def get(self, key: Key, default: Any = None) -> Any:
        """A key's value."""
        await self._client.barrier()
        return self.peek(key, default)

    async def get_versioned(self, key: Key) -> Versioned[Value] | None:
        """A key's value and version; None for a missing key."""
        await self._client.barrier()
        return self.peek_versioned(key)

    async def items(self, prefix: str = "") -> dict[Key, Value]:
        """All keys that begin with ``prefix``, with their values, at one moment."""
        await self._client.barrier()
        return self.peek_items(prefix)

    async def size(self) -> int:
        """How many keys there are."""
        await self._client.barrier()
        return len(self._entries)

    @property
    def _entries(self) -> dict[Key, Entry]:
        state = self._state
        return cast("dict[Key, Entry]", state.entries) if isinstance(state, DictState) else {}

    @overload
    def peek(self, key: Key) -> Value | None: ...
    @overload
    def peek(self, key: Key, default: Default) -> Value | Default: ...
    def peek(self, key: Key, default: Any = None) -> Any:
        """As ``get``, from this replica's present state."""
        self._check_key(key)
        entry = self._entries.get(key)
        return default if entry is None else self._values.unpack(entry.value)

    def peek_versioned(self, key: Key) -> Versioned[Value] | None:
        """As ``get_versioned``, from this replica's present state."""
        self._check_key(key)
        entry = self._entries.get(key)
        return None if entry is None else Versioned(self._values.unpack(entry.value), entry.version)

    def peek_items(self, prefix: str = "") -> dict[Key, Value]:
        """As ``items``, from this replica's present state."""
        start = self._prefix(prefix)
        return {key: self._values.unpack(entry.value) for key, entry in self._entries.items() if key.startswith(start)}

    def _prefix(self, prefix: str) -> str:
        return text(f"a prefix of keys of dict {self.name!r}", prefix)

    def __getitem__(self, key: Key) -> Value:
        """As ``peek``.

        Raises:
            KeyError: the key is not there.
        """
        self._check_key(key)
        return self._values.unpack(self._entries[key].value)

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __iter__(self) -> Iterator[Key]:
        """The keys as they are now."""
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def watch(self, prefix: str = "", *, max_buffered: int = 1024) -> Watch[Key, Value]:
        """Changes from now on, as this replica applies them; an async iterator, closed with ``with`` or ``close``.

        ``peek_items`` right before or after, without an ``await`` between, returns the state before the first change.

        Args:
            prefix: of keys.
            max_buffered: when more changes wait for a slow reader, each key's older ones are dropped, never the last;
                1 or more. A replica that catches up by a snapshot also reports only the last state of each key.

        Raises:
            LocalError: the prefix is no text, or ``max_buffered`` is out of range.
        """
        limit = whole(f"the max_buffered of a watch of dict {self.name!r}", max_buffered, 1)
        return Watch(self, self._prefix(prefix), limit)


class Watch(Owned, Generic[Key, Value]):
    """The iterator that ``Dict.watch`` returns. Ends when the node stops."""

    def __init__(self, watched: Dict[Key, Value], prefix: str, max_buffered: int) -> None:
        self._client = watched._client
        self._values = watched._values
        self._prefix = prefix
        self._max = max_buffered
        self._changes: deque[tuple[Key, Entry | None, int]] = deque()
        self._ready = trio.Event()
        self._is_closed = False
        self._watcher = watched._watch(self._take)

    def _take(self, detail: tuple[Key, Entry | None, int]) -> None:
        if not detail[0].startswith(self._prefix):
            return
        if len(self._changes) >= self._max:
            kept: dict[Key, tuple[Key, Entry | None, int]] = {}
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

    async def __anext__(self) -> Change[Key, Value]:
        check_trio("a watch", "iterate over node.iterate(settings.watch)")
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
        return Change(key, None if entry is None else self._values.unpack(entry.value), version, entry is None)


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


class Set(Recipe, Generic[Item]):
    """Members are the same if their packed bytes are: 1, 1.0 and True differ, and dicts in another order do."""

    _kind = SetState.kind

    @overload
    def __init__(self: Set[Any], node: Node[RecipeMachine], name: str) -> None: ...
    @overload
    def __init__(self: Set[Item], node: Node[RecipeMachine], name: str, *, model: type[Item]) -> None: ...
    def __init__(self, node: Node[RecipeMachine], name: str, *, model: type[Item] | None = None) -> None:
        super().__init__(node, name)
        self._values = Values(f"set {name!r}", model)

    def _size(self) -> int:
        return len(self._members)

    async def add(self, member: Item) -> bool:
        """Add; returns whether it is new."""
        done: bool = await self._call("add", self._values.pack(member))
        return done

    async def discard(self, member: Item) -> bool:
        """Remove a member; returns whether it existed."""
        done: bool = await self._call("discard", self._values.pack(member))
        return done

    async def update(self, members: Iterable[Item]) -> int:
        """Add several at once; returns how many are new."""
        count: int = await self._call("update", [self._values.pack(member) for member in members])
        return count

    @overload
    async def pop(self) -> Item | None: ...
    @overload
    async def pop(self, default: Default) -> Item | Default: ...
    async def pop(self, default: Any = None) -> Any:
        """Remove and return the oldest member, or return the default."""
        found = await self._call("pop")
        return default if found is None else self._values.unpack(found)

    async def clear(self) -> int:
        """Remove all; returns how many."""
        count: int = await self._call("clear")
        return count

    async def contains(self, member: Item) -> bool:
        """Whether it is a member."""
        await self._client.barrier()
        return self.peek_contains(member)

    async def members(self) -> list[Item]:
        """All members, oldest first."""
        await self._client.barrier()
        return self.peek_members()

    @property
    def _members(self) -> dict[bytes, int]:
        state = self._state
        return state.members if isinstance(state, SetState) else {}

    def peek_contains(self, member: Item) -> bool:
        """As ``contains``, from this replica's present state."""
        return self._values.pack(member) in self._members

    def peek_members(self) -> list[Item]:
        """As ``members``, from this replica's present state."""
        return [self._values.unpack(member) for member in self._members]

    def __contains__(self, member: object) -> bool:
        """As ``peek_contains``."""
        return self.peek_contains(cast("Item", member))

    def __iter__(self) -> Iterator[Item]:
        """The members as they are now, oldest first."""
        return iter(self.peek_members())

    def __len__(self) -> int:
        """How many members there are on this replica as it is."""
        return len(self._members)
