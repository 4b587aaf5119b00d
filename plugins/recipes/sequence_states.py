"""The states of queues, priority queues and lists, and the operations on them."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, ClassVar, NamedTuple

from sortedcontainers import SortedDict

from kraftcore.plugins.recipes.lease_states import check_lease
from kraftcore.plugins.recipes.object_states import BAD, CONFLICT, Moment, ObjectState, Operation, OperationRefusal


class Loan(NamedTuple):
    """An item that was taken for a time.

    Attributes:
        owner: the taker's own id.
        token: the fencing token.
        deadline_ms: the log's time at which the item is back, unless the lease is renewed.
        lease_ms: how long a renewal lasts.
        place: where the item was, and comes back to.
        item: the item.
    """

    owner: bytes
    token: int
    deadline_ms: int
    lease_ms: int
    place: tuple[int, ...]
    item: bytes


class LendingState(ObjectState):
    """A queue whose items are taken for good, or for a time: an item that is not finished by then is back.

    A lease ends by the log's time, which is looked at only when somebody wants an item, or has one.

    Attributes:
        taken: by owner, the items that are taken for a time.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.taken: dict[bytes, Loan] = {}

    def packed(self) -> Iterator[bytes]:
        """The items that nobody has, in order."""
        raise NotImplementedError

    def size(self) -> int:
        """How many items there are that nobody has."""
        raise NotImplementedError

    def _pop(self, at: Moment) -> tuple[tuple[int, ...], bytes] | None:
        """Remove the first item; returns its place, and the item."""
        raise NotImplementedError

    def put_back(self, place: tuple[int, ...], item: bytes) -> None:
        """Put an item where it was."""
        raise NotImplementedError

    def _pull_out(self, place: tuple[int, ...], item: bytes) -> None:
        """Take an item out that was just put back."""
        raise NotImplementedError

    def _returned(self, at: Moment, loan: Loan) -> None:
        del self.taken[loan.owner]
        self.put_back(loan.place, loan.item)
        at.reversible(self._lent_again, loan)
        self.changed(at)

    def _lent_again(self, loan: Loan) -> None:
        self._pull_out(loan.place, loan.item)
        self.taken[loan.owner] = loan

    def _pass_time(self, at: Moment) -> None:
        """Put back what was taken for a time that is over."""
        for loan in [each for each in self.taken.values() if each.deadline_ms <= at.now_ms]:
            self._returned(at, loan)

    def take(self, at: Moment, owner: bytes, lease_ms: int) -> list[Any] | None:
        """Take the first item for a time; returns its token, and the item; None if there is none."""
        check_lease(lease_ms)
        self._pass_time(at)
        loan = self.taken.get(owner)
        if loan is None:
            found = self._pop(at)
            if found is None:
                return None
            loan = self.taken[owner] = Loan(owner, at.next_token, at.now_ms + lease_ms, lease_ms, *found)
            at.next_token += 1
            self.changed(at)
        return [loan.token, loan.item]

    def renew(self, at: Moment, owner: bytes, token: int) -> int:
        """Prolong a lease; returns its token, 0 if it ended."""
        self._pass_time(at)
        loan = self.taken.get(owner)
        if loan is None or loan.token != token:
            return 0
        self.taken[owner] = loan._replace(deadline_ms=at.now_ms + loan.lease_ms)
        return token

    def release(self, at: Moment, owner: bytes) -> bool:
        """Put an item back; returns whether its lease had not ended."""
        self._pass_time(at)
        loan = self.taken.get(owner)
        if loan is None:
            return False
        self._returned(at, loan)
        return True

    def finish(self, at: Moment, owner: bytes) -> bool:
        """Drop an item for good, unless its lease ended, for which a transaction is refused; returns whether."""
        self._pass_time(at)
        loan = self.taken.pop(owner, None)
        if loan is None:
            if at.is_atomic:
                raise OperationRefusal(CONFLICT, f"the lease of an item of {self.kind} {self.name!r} ended")
            return False
        at.reversible(self.taken.__setitem__, owner, loan)
        return True

    def _loans(self) -> Iterator[list[Any]]:
        for loan in self.taken.values():
            yield list(loan)

    def _load_loan(self, row: list[Any]) -> None:
        owner, token, deadline_ms, lease_ms, place, item = row
        self.taken[owner] = Loan(owner, token, deadline_ms, lease_ms, tuple(place), item)

    operations: ClassVar[Mapping[str, Operation]] = {
        "take": (take, (bytes, int)),
        "renew": (renew, (bytes, int)),
        "release": (release, (bytes,)),
        "finish": (finish, (bytes,)),
    }


class QueueState(LendingState):
    """First in, first out.

    Attributes:
        returned: items that were taken and came back, before all others; each with the token of its first taker, by
            which they are in order.
        items: the others.
    """

    kind = "queue"

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.returned: list[tuple[int, bytes]] = []
        self.items: deque[bytes] = deque()

    @property
    def is_empty(self) -> bool:
        """See the base class."""
        return not self.items and not self.returned and not self.taken

    def packed(self) -> Iterator[bytes]:
        """See the base class."""
        return chain((item for _, item in self.returned), self.items)

    def size(self) -> int:
        """See the base class."""
        return len(self.items) + len(self.returned)

    def _pop(self, at: Moment) -> tuple[tuple[int, ...], bytes] | None:
        if self.returned:
            number, item = first = self.returned.pop(0)
            at.reversible(self.returned.insert, 0, first)
            return (number,), item
        if not self.items:
            return None
        item = self.items.popleft()
        at.reversible(self.items.appendleft, item)
        return (at.next_token,), item

    def put_back(self, place: tuple[int, ...], item: bytes) -> None:
        """See the base class."""
        insort(self.returned, (place[0], item), key=lambda each: each[0])

    def _pull_out(self, place: tuple[int, ...], item: bytes) -> None:
        self.returned.remove((place[0], item))

    def put(self, at: Moment, item: bytes, limit: int) -> bool:
        """Append, unless there are ``limit`` items already (0: no limit), for which a transaction is refused."""
        if 0 < limit <= self.size():
            if at.is_atomic:
                raise OperationRefusal(CONFLICT, f"queue {self.name!r} is full: it holds {self.size()} items")
            return False
        at.reversible(self.items.pop)
        self.items.append(item)
        self.changed(at)
        return True

    def get(self, at: Moment) -> bytes | None:
        """Take the oldest, or None."""
        self._pass_time(at)
        found = self._pop(at)
        if found is None:
            return None
        self.changed(at)
        return found[1]

    def clear(self, at: Moment) -> int:
        """Drop all; returns how many. What is taken for a time stays so."""
        before, returned = list(self.items), list(self.returned)
        at.reversible(self.items.extend, before)
        at.reversible(self.returned.extend, returned)
        self.items.clear()
        self.returned.clear()
        self.changed(at)
        return len(before) + len(returned)

    def rows(self) -> Iterator[list[Any]]:
        """See the base class."""
        for item in self.items:
            yield [item]
        for number, item in self.returned:
            yield [number, item]
        yield from self._loans()

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        for row in rows:
            if len(row) == 1:
                self.items.append(row[0])
            elif len(row) == 2:
                self.returned.append((row[0], row[1]))
            else:
                self._load_loan(row)

    def give_back(self, at: Moment, item: bytes) -> None:
        """Put an item in front, where ``get`` took it."""
        if self.returned:
            self.returned.insert(0, (self.returned[0][0], item))
        else:
            self.items.appendleft(item)
        self.changed(at)

    operations = {
        **LendingState.operations,
        "put": (put, (bytes, int)),
        "get": (get, ()),
        "give_back": (give_back, (bytes,)),
        "clear": (clear, ()),
    }


class PriorityQueueState(LendingState):
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

    def packed(self) -> Iterator[bytes]:
        """See the base class."""
        return iter(self.items.values())

    def size(self) -> int:
        """See the base class."""
        return len(self.items)

    def _pop(self, at: Moment) -> tuple[tuple[int, ...], bytes] | None:
        if not self.items:
            return None
        place, item = self.items.popitem(0)
        at.reversible(self.items.__setitem__, place, item)
        return place, item

    def put_back(self, place: tuple[int, ...], item: bytes) -> None:
        """See the base class."""
        priority, number = place
        self.items[priority, number] = item

    def _pull_out(self, place: tuple[int, ...], item: bytes) -> None:
        priority, number = place
        del self.items[priority, number]

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
        self._pass_time(at)
        found = self._pop(at)
        if found is None:
            return None
        place, item = found
        self.changed(at)
        return [*place, item]

    def give_back(self, at: Moment, priority: int, number: int, item: bytes) -> None:
        """Put an item where ``get`` took it."""
        self.items[priority, number] = item
        self.changed(at)

    def clear(self, at: Moment) -> int:
        """Drop all items; returns how many. What is taken for a time stays so."""
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
        yield from self._loans()

    def load(self, rows: Iterable[list[Any]]) -> None:
        """See the base class."""
        for row in rows:
            if len(row) == 1:
                (self.puts,) = row
            elif len(row) == 3:
                priority, number, item = row
                self.items[priority, number] = item
            else:
                self._load_loan(row)

    operations = {
        **LendingState.operations,
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
