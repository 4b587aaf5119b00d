"""Objects whose items are in order: `Queue`, `PriorityQueue` and `List`.

A caller that is cancelled while it takes an item from a queue takes none: if the item was taken nevertheless, the queue
gets the item back, at the place where the item was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import partial
from math import inf
from typing import Any, Generic, overload

import trio

from kraftcore.errors import LocalError
from kraftcore.node.node import Node
from kraftcore.plugins.recipes.arguments import seconds, whole
from kraftcore.plugins.recipes.client import Recipe
from kraftcore.plugins.recipes.containers import Default, Item
from kraftcore.plugins.recipes.machine import RecipeMachine
from kraftcore.plugins.recipes.sequence_states import ListState, PriorityQueueState, QueueState
from kraftcore.plugins.recipes.values import Values
from kraftcore.ports.async_library import check_trio

_ELSEWHERE = "see kraftcore.aio.recipes and kraftcore.blocking.recipes"


class _Queue(Recipe, Generic[Item]):
    """What both queues have."""

    def __init__(self, node: Node[RecipeMachine], name: str, max_size: int, model: type[Item] | None) -> None:
        super().__init__(node, name)
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
        check_trio(f"a {self._kind}", _ELSEWHERE)
        end = trio.current_time() + seconds(f"the timeout_s of {self._kind} {self.name!r}", timeout_s)
        while True:
            ready = trio.Event()
            watcher = self._watch(lambda _, ready=ready: ready.set())
            try:
                found = await self._call("get", undo=self._back)
                if found is not None or trio.current_time() >= end:
                    return found
                if not self.peek_size():
                    with trio.move_on_at(end):
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
            raise TimeoutError(f"no item came to {self._kind} {self.name!r} within {timeout_s:g} s")
        return await self._read(found)

    async def _read_or(self, default: Any, found: Any) -> Any:
        return default if found is None else await self._read(found)

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
        return len(self._packed())

    def peek_items(self) -> list[Item]:
        """The items that this replica has now, the first one first."""
        return [self._values.unpack(item) for item in self._packed()]

    def _packed(self) -> Collection[bytes]:
        """The items as they are kept."""
        raise NotImplementedError

    def __len__(self) -> int:
        """As ``peek_size``."""
        return self.peek_size()


class Queue(_Queue[Item]):
    """First in, first out.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        max_size: the limit for ``put`` of this object; 0: no limit. Other callers may have other limits.
        model: the class of the items, one of pydantic's or msgspec's models; None: any packable values.
    """

    _kind = QueueState.kind

    @overload
    def __init__(self: Queue[Any], node: Node[RecipeMachine], name: str, *, max_size: int = 0) -> None: ...
    @overload
    def __init__(
        self: Queue[Item], node: Node[RecipeMachine], name: str, *, max_size: int = 0, model: type[Item]
    ) -> None: ...
    def __init__(
        self, node: Node[RecipeMachine], name: str, *, max_size: int = 0, model: type[Item] | None = None
    ) -> None:
        super().__init__(node, name, max_size, model)

    async def put(self, item: Item) -> bool:
        """Append; returns whether there was room."""
        done: bool = await self._call("put", self._values.pack(item), self.max_size)
        return done

    def _item(self, found: Any) -> Item:
        return self._values.unpack(found)

    def _back(self, found: list[Any]) -> list[Any] | None:
        return None if found[0] is None else self._operation("give_back", found[0])

    def _packed(self) -> Collection[bytes]:
        state = self._state
        return state.items if isinstance(state, QueueState) else ()


class PriorityQueue(_Queue[Item]):
    """The item with the smallest priority first; of one priority the oldest first.

    Args:
        node: see `Recipe`.
        name: see `Recipe`.
        max_size: the limit for ``put`` of this object; 0: no limit. Other callers may have other limits.
        model: the class of the items, one of pydantic's or msgspec's models; None: any packable values.
    """

    _kind = PriorityQueueState.kind

    @overload
    def __init__(self: PriorityQueue[Any], node: Node[RecipeMachine], name: str, *, max_size: int = 0) -> None: ...
    @overload
    def __init__(
        self: PriorityQueue[Item], node: Node[RecipeMachine], name: str, *, max_size: int = 0, model: type[Item]
    ) -> None: ...
    def __init__(
        self, node: Node[RecipeMachine], name: str, *, max_size: int = 0, model: type[Item] | None = None
    ) -> None:
        super().__init__(node, name, max_size, model)

    async def put(self, item: Item, priority: int = 0) -> bool:
        """Put an item; returns whether there was room.

        Args:
            item: the item.
            priority: an integer of 64 bits; items with smaller ones come first.
        """
        done: bool = await self._call("put", self._values.pack(item), priority, self.max_size)
        return done

    def _item(self, found: Any) -> Item:
        return self._values.unpack(found[2])

    def _back(self, found: list[Any]) -> list[Any] | None:
        return None if found[0] is None else self._operation("give_back", *found[0])

    def _packed(self) -> Collection[bytes]:
        state = self._state
        return state.items.values() if isinstance(state, PriorityQueueState) else ()


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
