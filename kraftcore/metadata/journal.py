"""Rolls the parts of an image back: keeps the earlier values of changed keys while they may be asked for."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, ValuesView
from typing import Any, Generic, NamedTuple, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Change(NamedTuple, Generic[V]):
    """A value before and after; None where there was or is nothing."""

    before: V | None
    after: V | None


class Entry(NamedTuple):
    """One change. ``before`` is None where there was no value."""

    part: Part[Any, Any]
    key: Hashable
    before: Any


class Journal:
    """Changes in their order, newest last. Positions count all changes ever noted, so they stay valid when old ones go.

    Attributes:
        is_on: whether changes are noted.
    """

    def __init__(self) -> None:
        self.is_on = False
        self._entries: list[Entry] = []
        self._first = 0

    @property
    def position(self) -> int:
        """The position behind the newest change."""
        return self._first + len(self._entries)

    def note(self, part: Part[Any, Any], key: Hashable, before: Any) -> None:
        """Note a change before it is made; called only while the journal is on."""
        self._entries.append(Entry(part, key, before))

    def entries(self, start: int, end: int) -> list[Entry]:
        """The changes between two positions, oldest first."""
        return self._entries[start - self._first : end - self._first]

    def changes(self, start: int, end: int) -> dict[int, dict[Any, Change[Any]]]:
        """The differences between two positions, both of them not yet forgotten.

        Returns:
            By ``id()`` of the part, a `Change` by key.
        """
        before: dict[tuple[int, Hashable], Entry] = {}
        for entry in self.entries(start, end):
            before.setdefault((id(entry.part), entry.key), entry)
        later: dict[tuple[int, Hashable], Entry] = {}
        for entry in self.entries(end, self.position):
            later.setdefault((id(entry.part), entry.key), entry)
        found: dict[int, dict[Any, Change[Any]]] = {}
        for (part_id, key), entry in before.items():
            after = later[part_id, key].before if (part_id, key) in later else entry.part.get(key)
            if after != entry.before:
                found.setdefault(part_id, {})[key] = Change(entry.before, after)
        return found

    def undo_to(self, position: int) -> None:
        """Take back every change behind a position, newest first."""
        entries = self._entries
        for _ in range(self.position - position):
            part, key, before = entries.pop()
            part.restore_item(key, before)

    def take_back(self, position: int) -> None:
        """Take back changes as `undo_to` does, but as new changes, which can be undone in their turn."""
        for part, key, before in reversed(self.entries(position, self.position)):
            if before is None:
                part.drop(key)
            else:
                part.put(key, before)

    def forget_below(self, position: int) -> None:
        """Forget the changes below a position: they will not be taken back any more."""
        del self._entries[: position - self._first]
        self._first = max(self._first, position)

    def switch_off(self) -> None:
        """Forget everything, and note nothing."""
        self._first = self.position
        self._entries.clear()
        self.is_on = False


class Part(Mapping[K, V], Generic[K, V]):
    """A part of the image as a read-only mapping of immutable values; only records change it."""

    __slots__ = ("_items", "_journal")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._items: dict[K, V] = {}

    def __getitem__(self, key: K) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, or ``default``."""
        return self._items.get(key, default)

    def values(self) -> ValuesView[V]:
        """All values."""
        return self._items.values()

    def snapshot(self) -> dict[K, V]:
        """The present values, as a dict that does not change."""
        return self._items.copy()

    def put(self, key: K, value: V) -> None:
        """Set the value of a key."""
        if self._journal.is_on:
            self._journal.note(self, key, self._items.get(key))
        self._items[key] = value

    def drop(self, key: K) -> None:
        """Remove a key, if it exists."""
        if key in self._items:
            if self._journal.is_on:
                self._journal.note(self, key, self._items[key])
            del self._items[key]

    def restore_item(self, key: K, value: V | None) -> None:
        """Set a key to an earlier value, None for absent, without a note; for the journal alone."""
        if value is None:
            self._items.pop(key, None)
        else:
            self._items[key] = value
