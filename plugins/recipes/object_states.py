"""The states of dicts, counters and sets, and the operations on them; what all replicated objects have in common.

Rules of this file, of `sequence_states.py` and of `lease_states.py`:

* Nothing here uses a clock, a node or random numbers. `Moment` has time and offset, the same on all replicas.
* An operation checks its arguments before it changes anything, and raises `OperationRefusal`.
* In a transaction every change leaves its inverse in ``Moment.undo``.
* Values are opaque bytes, so that no application's value can make a replica fail.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, TypeAlias

INT_MAX = 2**63 - 1
INT_MIN = -(2**63)

NIL = b"\xc0"
"""None, packed: what programs read from a key that is absent."""

CONFLICT = 1
BAD = 2


class OperationRefusal(Exception):
    """An operation cannot be done now; the state is unchanged.

    Attributes:
        status: `CONFLICT` or `BAD`.
        text: why.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.text = text


class Moment:
    """An operation's place in the log and its time, and the effects that it leaves.

    Attributes:
        offset: of the record.
        now_ms: the log's time: the largest timestamp of any batch so far.
        undo: inverses, latest last; None when nothing can fail after a change.
        changes: for the watchers: (kind, name) and a detail of each change.
        next_token: the next fencing token.
        is_atomic: whether an operation that cannot be done refuses the whole transaction.
    """

    __slots__ = ("changes", "is_atomic", "next_token", "now_ms", "offset", "undo")

    def __init__(self, next_token: int) -> None:
        self.offset = -1
        self.now_ms = 0
        self.undo: list[tuple[Callable[..., object], tuple[Any, ...]]] | None = None
        self.changes: list[tuple[tuple[str, str], Any]] = []
        self.next_token = next_token
        self.is_atomic = False

    def reversible(self, inverse: Callable[..., object], *arguments: Any) -> None:
        """Note how to undo a change."""
        if self.undo is not None:
            self.undo.append((inverse, arguments))


Operation: TypeAlias = tuple[Callable[..., Any], tuple[type | tuple[type, ...], ...]]


class ObjectState:
    """Base class: one named object.

    Attributes:
        name: its name among those of its kind.
    """

    kind: ClassVar[str]
    operations: ClassVar[Mapping[str, Operation]]

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def is_empty(self) -> bool:
        """Whether the state is that of an unused object, which need not be kept."""
        raise NotImplementedError

    def rows(self) -> Iterator[list[Any]]:
        """The rows that hold the state in a snapshot."""
        raise NotImplementedError

    def load(self, rows: Iterable[list[Any]]) -> None:
        """Add rows that ``rows`` returned."""
        raise NotImplementedError

    def undone(self) -> None:
        """Clean up; called once after changes were undone by their inverses."""

    def differences(self, before: ObjectState | None) -> list[Any]:
        """The details for watchers of ``before`` when this state replaces it."""
        return [None]

    def changed(self, at: Moment, detail: Any = None) -> None:
        """Tell watchers."""
        at.changes.append(((self.kind, self.name), detail))


class Entry(NamedTuple):
    """A key's packed value, and the offset of the record that set it."""

    value: bytes
    version: int


class DictState(ObjectState):
    """Keys and values, each with a version."""

    kind = "dict"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.entries: dict[str, Entry] = {}

    @property
    def is_empty(self) -> bool:
        """See the base class."""
        return not self.entries

    def _put(self, at: Moment, key: str, entry: Entry | None) -> None:
        before = self.entries.get(key)
        at.reversible(self._revert, key, before)
        self._revert(key, entry)
        self.changed(at, (key, entry, at.offset))

    def _revert(self, key: str, entry: Entry | None) -> None:
        if entry is None:
            self.entries.pop(key, None)
        else:
            self.entries[key] = entry

    def _version(self, key: str) -> int:
        entry = self.entries.get(key)
        return -1 if entry is None else entry.version

    def set(self, at: Moment, key: str, value: bytes) -> int:
        """Set a key; returns the new version."""
        self._put(at, key, Entry(value, at.offset))
        return at.offset

    def set_if(self, at: Moment, key: str, value: bytes, version: int) -> int | None:
        """Set a key only if it is at ``version`` (-1: absent); returns the new version, or None."""
        if self._version(key) != version:
            return None
        return self.set(at, key, value)

    def replace(self, at: Moment, key: str, expected: bytes | None, value: bytes) -> bool:
        """Set a key only if it has the expected value (None: is absent; `NIL`: None or absent); returns whether."""
        entry = self.entries.get(key)
        if expected != (None if entry is None else entry.value) and not (entry is None and expected == NIL):
            return False
        self.set(at, key, value)
        return True

    def set_default(self, at: Moment, key: str, value: bytes) -> bytes:
        """Set an absent key; returns the key's value afterwards."""
        entry = self.entries.get(key)
        if entry is not None:
            return entry.value
        self.set(at, key, value)
        return value

    def pop(self, at: Moment, key: str) -> bytes | None:
        """Delete a key; returns its value, or None."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        self._put(at, key, None)
        return entry.value

    def delete_if(self, at: Moment, key: str, version: int) -> bool:
        """Delete only at this version."""
        if key not in self.entries or self._version(key) != version:
            return False
        self._put(at, key, None)
        return True

    def update(self, at: Moment, pairs: dict[Any, Any]) -> int:
        """Set several; returns their version."""
        if not all(type(key) is str and type(value) is bytes for key, value in pairs.items()):
            raise OperationRefusal(BAD, "update takes packed values by text keys")
        for key, value in pairs.items():
            self._put(at, key, Entry(value, at.offset))
        return at.offset

    def clear(self, at: Moment) -> int:
        """Delete all; returns how many."""
        keys = list(self.entries)
        for key in keys:
            self._put(at, key, None)
        return len(keys)

    def check(self, at: Moment, key: str, version: int) -> None:
        """Refuse unless the key is at ``version`` (-1: absent)."""
        found = self._version(key)
        if found != version:
            raise OperationRefusal(CONFLICT, f"{key!r} in {self.name!r} is at version {found}, not {version}")

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        for key, entry in self.entries.items():
            yield [key, entry.value, entry.version]

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        for key, value, version in rows:
            self.entries[key] = Entry(value, version)

    def differences(self, before: ObjectState | None) -> list[Any]:
        """See the base class."""
        old = before.entries if isinstance(before, DictState) else {}
        gone = [(key, None, -1) for key in old if key not in self.entries]
        return gone + [(key, entry, entry.version) for key, entry in self.entries.items() if old.get(key) != entry]

    operations = {
        "set": (set, (str, bytes)),
        "set_if": (set_if, (str, bytes, int)),
        "replace": (replace, (str, (bytes, type(None)), bytes)),
        "set_default": (set_default, (str, bytes)),
        "pop": (pop, (str,)),
        "delete_if": (delete_if, (str, int)),
        "update": (update, (dict,)),
        "clear": (clear, ()),
        "check": (check, (str, int)),
    }


class CounterState(ObjectState):
    """A 64-bit number."""

    kind = "counter"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.value = 0

    @property
    def is_empty(self) -> bool:
        """See the base class."""
        return self.value == 0

    def _restore(self, value: int) -> None:
        self.value = value

    def set(self, at: Moment, value: int) -> int:
        """Set the number; returns the value before."""
        before = self.value
        at.reversible(self._restore, before)
        self.value = value
        self.changed(at)
        return before

    def add(self, at: Moment, delta: int) -> int:
        """Add to the number; returns the sum."""
        total = self.value + delta
        if not INT_MIN <= total <= INT_MAX:
            raise OperationRefusal(BAD, f"counter {self.name!r} would leave 64 bits")
        self.set(at, total)
        return total

    def replace(self, at: Moment, expected: int, value: int) -> bool:
        """Set the number only if it has the expected value; returns whether it had."""
        if self.value != expected:
            return False
        self.set(at, value)
        return True

    def check(self, at: Moment, expected: int) -> None:
        """Refuse unless it has this value."""
        if self.value != expected:
            raise OperationRefusal(CONFLICT, f"counter {self.name!r} is {self.value}, not {expected}")

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        yield [self.value]

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        for (value,) in rows:
            self.value = value

    operations = {
        "set": (set, (int,)),
        "add": (add, (int,)),
        "replace": (replace, (int, int)),
        "check": (check, (int,)),
    }


class SetState(ObjectState):
    """Members, told apart by their packed bytes, in the order they came."""

    kind = "set"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        # Member -> number of its insertion, ascending. A dict would look for its first key among all deleted ones.
        self.members: OrderedDict[bytes, int] = OrderedDict()
        self._inserted = 0
        self._is_sorted = True

    @property
    def is_empty(self) -> bool:
        """See the base class."""
        return not self.members

    def _insert(self, member: bytes) -> None:
        self._inserted += 1
        self.members[member] = self._inserted

    def _put_back(self, member: bytes, number: int) -> None:
        self.members[member] = number
        self._is_sorted = False

    def undone(self) -> None:
        """Sort members that came back into their places; sorting for each would hold up the node."""
        if not self._is_sorted:
            self.members = OrderedDict(sorted(self.members.items(), key=lambda item: item[1]))
            self._is_sorted = True

    def _take_out(self, member: bytes) -> None:
        del self.members[member]

    def add(self, at: Moment, member: bytes) -> bool:
        """Add a member; returns whether it was new."""
        if member in self.members:
            return False
        at.reversible(self._take_out, member)
        self._insert(member)
        self.changed(at)
        return True

    def discard(self, at: Moment, member: bytes) -> bool:
        """Remove a member; returns whether it existed."""
        if member not in self.members:
            return False
        at.reversible(self._put_back, member, self.members[member])
        del self.members[member]
        self.changed(at)
        return True

    def update(self, at: Moment, members: list[Any]) -> int:
        """Add several; returns how many were new."""
        if not all(type(member) is bytes for member in members):
            raise OperationRefusal(BAD, "update takes packed members")
        return sum(self.add(at, member) for member in members)

    def pop(self, at: Moment) -> bytes | None:
        """Take the oldest member, or None."""
        member = next(iter(self.members), None)
        if member is not None:
            self.discard(at, member)
        return member

    def clear(self, at: Moment) -> int:
        """Drop all; returns how many."""
        members = list(self.members)
        for member in members:
            self.discard(at, member)
        return len(members)

    def check(self, at: Moment, member: bytes, present: bool) -> None:
        """Refuse unless the member is present, or, if ``present`` is False, absent."""
        if (member in self.members) != present:
            raise OperationRefusal(CONFLICT, f"the set {self.name!r} {'lacks' if present else 'holds'} the member")

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        for member in self.members:
            yield [member]

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        for (member,) in rows:
            self._insert(member)

    operations = {
        "add": (add, (bytes,)),
        "discard": (discard, (bytes,)),
        "update": (update, (list,)),
        "pop": (pop, ()),
        "clear": (clear, ()),
        "check": (check, (bytes, bool)),
    }
