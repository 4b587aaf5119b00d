"""The states of queues, priority queues and lists, and the operations on them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from sortedcontainers import SortedDict

from kraftcore.plugins.recipes.object_states import BAD, CONFLICT, Moment, ObjectState, OperationRefusal


class QueueState(ObjectState):
    """First in, first out."""

    kind = "queue"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.items: deque[bytes] = deque()

    @property
    def is_empty(self) -> bool:
        """See the base class."""
        return not self.items

    def put(self, at: Moment, item: bytes, limit: int) -> bool:
        """Append, unless there are ``limit`` items already (0: no limit), for which a transaction is refused."""
        if 0 < limit <= len(self.items):
            if at.is_atomic:
                raise OperationRefusal(CONFLICT, f"queue {self.name!r} is full: it holds {len(self.items)} items")
            return False
        at.reversible(self.items.pop)
        self.items.append(item)
        self.changed(at)
        return True

    def get(self, at: Moment) -> bytes | None:
        """Take the oldest, or None."""
        if not self.items:
            return None
        item = self.items.popleft()
        at.reversible(self.items.appendleft, item)
        self.changed(at)
        return item

    def clear(self, at: Moment) -> int:
        """Drop all; returns how many."""
        before = list(self.items)
        at.reversible(self.items.extend, before)
        self.items.clear()
        self.changed(at)
        return len(before)

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        for item in self.items:
            yield [item]

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        self.items.extend(item for (item,) in rows)

    def give_back(self, at: Moment, item: bytes) -> None:
        """Put an item in front, where ``get`` took it."""
        self.items.appendleft(item)
        self.changed(at)

    operations = {
        "put": (put, (bytes, int)),
        "get": (get, ()),
        "give_back": (give_back, (bytes,)),
        "clear": (clear, ()),
    }


class PriorityQueueState(ObjectState):
    """Items by priority, the smallest number first; of one priority the oldest first.

    Attributes:
        items: by priority, and the number of the put.
        puts: how many puts there were. It is kept, also when the queue is empty, so that an item that comes back never
            meets another one at its place.
    """

    kind = "priority queue"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.items: SortedDict[tuple[int, int], bytes] = SortedDict()
        self.puts = 0

    @property
    def is_empty(self) -> bool:
        """See the base class."""
        return not self.items and not self.puts

    def put(self, at: Moment, item: bytes, priority: int, limit: int) -> bool:
        """Put an item, unless there are ``limit`` already (0: no limit); a transaction is then refused."""
        if 0 < limit <= len(self.items):
            if at.is_atomic:
                raise OperationRefusal(CONFLICT, f"{self.kind} {self.name!r} is full: it holds {len(self.items)} items")
            return False
        self.puts += 1
        place = (priority, self.puts)
        at.reversible(self._revert_put, place)
        self.items[place] = item
        self.changed(at)
        return True

    def _revert_put(self, place: tuple[int, int]) -> None:
        del self.items[place]
        self.puts -= 1

    def get(self, at: Moment) -> list[Any] | None:
        """Take the first item; returns its priority, its number, and the item itself, or None."""
        if not self.items:
            return None
        place, item = self.items.popitem(0)
        at.reversible(self.items.__setitem__, place, item)
        self.changed(at)
        return [*place, item]

    def give_back(self, at: Moment, priority: int, number: int, item: bytes) -> None:
        """Put an item where ``get`` took it."""
        self.items[priority, number] = item
        self.changed(at)

    def clear(self, at: Moment) -> int:
        """Drop all items; returns how many."""
        before = dict(self.items)
        at.reversible(self.items.update, before)
        self.items.clear()
        self.changed(at)
        return len(before)

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        yield [self.puts]
        for place, item in self.items.items():
            yield [*place, item]

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        for row in rows:
            if len(row) == 1:
                (self.puts,) = row
            else:
                priority, number, item = row
                self.items[priority, number] = item

    operations = {
        "put": (put, (bytes, int, int)),
        "get": (get, ()),
        "give_back": (give_back, (int, int, bytes)),
        "clear": (clear, ()),
    }


class ListState(ObjectState):
    """Items in the order that programs gave them."""

    kind = "list"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.items: list[bytes] = []

    @property
    def is_empty(self) -> bool:
        """See the base class."""
        return not self.items

    def _index(self, index: int) -> int:
        size = len(self.items)
        if not -size <= index < size:
            raise OperationRefusal(BAD, f"list {self.name!r} has {size} items, and none at index {index}")
        return index % size

    def extend(self, at: Moment, items: list[Any]) -> int:
        """Append several; returns the list's length then."""
        if not all(type(item) is bytes for item in items):
            raise OperationRefusal(BAD, "extend takes packed items")
        before = len(self.items)
        at.reversible(self.items.__delitem__, slice(before, before + len(items)))
        self.items += items
        self.changed(at)
        return len(self.items)

    def insert(self, at: Moment, index: int, item: bytes) -> int:
        """Insert as Python's lists do; returns the list's length then."""
        place = slice(index, None).indices(len(self.items))[0]
        at.reversible(self.items.pop, place)
        self.items.insert(place, item)
        self.changed(at)
        return len(self.items)

    def set(self, at: Moment, index: int, item: bytes) -> bytes:
        """Replace an item; returns the one before."""
        place = self._index(index)
        before = self.items[place]
        at.reversible(self.items.__setitem__, place, before)
        self.items[place] = item
        self.changed(at)
        return before

    def replace(self, at: Moment, index: int, expected: bytes, item: bytes) -> bool:
        """Replace an item if it is the expected one."""
        size = len(self.items)
        if not -size <= index < size or self.items[index] != expected:
            return False
        self.set(at, index, item)
        return True

    def pop(self, at: Moment, index: int) -> bytes | None:
        """Remove an item; returns the item, None if the list is empty."""
        if not self.items:
            return None
        place = self._index(index)
        item = self.items.pop(place)
        at.reversible(self.items.insert, place, item)
        self.changed(at)
        return item

    def remove(self, at: Moment, item: bytes) -> bool:
        """Remove the first item that is equal; returns whether there was one."""
        if item not in self.items:
            return False
        self.pop(at, self.items.index(item))
        return True

    def clear(self, at: Moment) -> int:
        """Remove all items; returns how many."""
        before = list(self.items)
        at.reversible(self.items.extend, before)
        self.items.clear()
        self.changed(at)
        return len(before)

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        for item in self.items:
            yield [item]

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        self.items.extend(item for (item,) in rows)

    operations = {
        "extend": (extend, (list,)),
        "insert": (insert, (int, bytes)),
        "set": (set, (int, bytes)),
        "replace": (replace, (int, bytes, bytes)),
        "pop": (pop, (int,)),
        "remove": (remove, (bytes,)),
        "clear": (clear, ()),
    }
