"""Conditions and changes of several objects in one record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from kraftcore.errors import LocalError
from kraftcore.node.node import Node
from kraftcore.ownership import Owned
from kraftcore.plugins.recipes.client import Client, Recipe
from kraftcore.plugins.recipes.containers import Counter, Dict, Item, Key, Set
from kraftcore.plugins.recipes.lease_states import LockState, MembersState, SemaphoreState
from kraftcore.plugins.recipes.machine import ATOMIC, RecipeMachine
from kraftcore.plugins.recipes.object_states import CounterState, DictState, ObjectState, SetState
from kraftcore.plugins.recipes.sequence_states import PriorityQueueState, QueueState
from kraftcore.plugins.recipes.sequences import PriorityQueue, Queue, Taken
from kraftcore.plugins.recipes.values import Value


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

    def __init__(self, node: Node[RecipeMachine]) -> None:
        self._client = Client.of(node)
        self._operations: list[list[Any]] = []
        self._reads: list[Callable[[Any], Any] | None] = []

    def _add(self, operation: list[Any], read: Callable[[Any], Any] | None = None) -> Self:
        self._operations.append(operation)
        self._reads.append(read)
        return self

    def check(self, target: Dict[Key, Any], key: Key, version: int) -> Self:
        """The key must be at ``version`` (`ABSENT`: must be missing)."""
        _check_kind("check", target, DictState)
        return self._add(target._operation("check", key, version))

    def check_count(self, target: Counter, expected: int) -> Self:
        """The counter must have this value."""
        _check_kind("check_count", target, CounterState)
        return self._add(target._operation("check", expected))

    def check_member(self, target: Set[Item], member: Item, *, present: bool = True) -> Self:
        """The set must hold the member, or must not."""
        _check_kind("check_member", target, SetState)
        return self._add(target._operation("check", target._values.pack(member), present))

    def check_lock(self, target: Recipe, token: int) -> Self:
        """The `Lock`, `Semaphore` or `Members` must be held, with this token: this fences its holder's writes."""
        _check_kind("check_lock", target, LockState, SemaphoreState, MembersState)
        return self._add(target._operation("check", token))

    def set(self, target: Dict[Key, Value], key: Key, value: Value) -> Self:
        """As ``Dict.set``."""
        _check_kind("set", target, DictState)
        return self._add(target._operation("set", key, target._values.pack(value)))

    def delete(self, target: Dict[Key, Any], key: Key) -> Self:
        """As ``Dict.pop``."""
        _check_kind("delete", target, DictState)
        return self._add(target._operation("pop", key), target._values.unpack)

    def add(self, target: Counter, delta: int = 1) -> Self:
        """As ``Counter.add``."""
        _check_kind("add", target, CounterState)
        return self._add(target._operation("add", delta))

    def put(self, target: Queue[Item] | PriorityQueue[Item], item: Item, priority: int = 0) -> Self:
        """Put an item into the queue, which must not be full; only a `PriorityQueue` takes another priority than 0."""
        _check_kind("put", target, QueueState, PriorityQueueState)
        if isinstance(target, PriorityQueue):
            return self._add(target._put(item, priority))
        if priority:
            raise LocalError(f"put of a transaction was given priority {priority!r} for {target!r}, which has none")
        return self._add(target._put(item))

    def get(self, target: Queue[Any] | PriorityQueue[Any]) -> Self:
        """As ``get_nowait`` of the queue."""
        _check_kind("get", target, QueueState, PriorityQueueState)
        return self._add(target._operation("get"), target._item)

    def finish(self, taken: Taken[Any]) -> Self:
        """End the block's hold of an item of ``Queue.take``: the item is dropped for good in the same record.

        It comes back, and nothing is changed, if the lease has ended: so what the work changes, it changes once.
        """
        given: object = taken
        if not isinstance(given, Taken):
            raise LocalError(f"finish of a transaction takes what a take of a queue gave, and was given {given!r}")
        return self._add(taken.lock._operation("finish", taken._owner), taken._finished)

    def insert(self, target: Set[Item], member: Item) -> Self:
        """As ``Set.add``."""
        _check_kind("insert", target, SetState)
        return self._add(target._operation("add", target._values.pack(member)))

    def discard(self, target: Set[Item], member: Item) -> Self:
        """As ``Set.discard``."""
        _check_kind("discard", target, SetState)
        return self._add(target._operation("discard", target._values.pack(member)))

    async def commit(self) -> list[Any]:
        """Do it.

        Returns:
            What each call would have returned alone, in order; None for a check.

        Raises:
            ConflictError: a condition does not hold, a queue it puts an item into is full, or an item that it finishes
                is taken no more; nothing was changed.
            LocalError: the transaction is empty, or a change is impossible; nothing was changed.
        """
        found = await self._client.call(*self._operations, version=ATOMIC)
        return [
            each if read is None or each is None else read(each) for each, read in zip(found, self._reads, strict=True)
        ]


def _check_kind(step: str, target: object, *kinds: type[ObjectState]) -> None:
    if not isinstance(target, Recipe) or target._kind not in [kind.kind for kind in kinds]:
        wanted = " or ".join(kind.kind for kind in kinds)
        raise LocalError(f"{step} of a transaction takes a {wanted}, and was given {target!r}")
