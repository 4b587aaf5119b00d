"""Is a recorded history of concurrent operations linearizable? The search of Wing and Gong with Lowe's memory.

Sources: Wing and Gong, Testing and Verifying Concurrent Objects (1993); Lowe, Testing for Linearizability (2017), from
which the memory of (operations done, state) comes; the same algorithm is in Porcupine and Knossos. Objects that do not
share state are checked apart (Herlihy and Wing: linearizability is local).

A history is the operations with the moment each was called and answered. One without an answer may have happened at
any moment after its call, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any

UNKNOWN = object()
"""The result of an operation whose caller never learned it."""

Step = Callable[[Any, str, tuple], tuple[Any, Any]]
"""(state, operation, arguments) -> (state after it, its result). States are hashable values."""


@dataclass(frozen=True)
class Operation:
    """``called`` and ``answered`` are moments on one clock, unequal; ``answered`` is inf without an answer."""

    name: str
    arguments: tuple
    result: Any
    called: float
    answered: float
    process: Any = None


@dataclass
class Recorder:
    """Takes down a history. Its clock is a count: what matters is the order alone."""

    operations: list[Operation] = field(default_factory=list)
    _ticks: Any = field(default_factory=count)

    def tick(self) -> float:
        """This moment."""
        return next(self._ticks)

    @contextmanager
    def operation(self, name: str, *arguments: Hashable, process: Any = None):
        """Yields a list to put the result in; left empty, or left by an exception, the outcome is unknown."""
        called, found = self.tick(), []
        try:
            yield found
        finally:
            known = bool(found)
            self.operations.append(
                Operation(
                    name,
                    arguments,
                    found[0] if known else UNKNOWN,
                    called,
                    self.tick() if known else inf,
                    process,
                )
            )


def linearization(history: Iterable[Operation], step: Step, initial: Hashable) -> list[Operation] | None:
    """An order in which the operations could have happened one at a time, or None: there is none."""
    operations = sorted(history, key=lambda operation: operation.called)
    wanted = sum(1 << at for at, operation in enumerate(operations) if operation.result is not UNKNOWN)
    seen: set[tuple[int, Hashable]] = {(0, initial)}
    order: list[int] = []
    # A frame is what is done, the state then, and the candidates to come next that are still untried.
    frames = [(0, initial, iter(_candidates(operations, 0)))]
    while frames:
        done, state, candidates = frames[-1]
        if done & wanted == wanted:
            return [operations[at] for at in order]
        for at in candidates:
            operation = operations[at]
            after, result = step(state, operation.name, operation.arguments)
            if operation.result is not UNKNOWN and result != operation.result:
                continue
            reached = (done | 1 << at, after)
            if reached not in seen:
                seen.add(reached)
                order.append(at)
                frames.append((*reached, iter(_candidates(operations, reached[0]))))
                break
        else:
            frames.pop()
            if order:
                order.pop()
    return None


def _candidates(operations: list[Operation], done: int) -> list[int]:
    """Who may be next: called before any operation that is not done was answered."""
    found, soonest = [], inf
    for at, operation in enumerate(operations):
        if operation.called > soonest:
            break
        if not done >> at & 1:
            found.append(at)
            soonest = min(soonest, operation.answered)
    return found


def check(
    history: Iterable[Operation],
    step: Step,
    initial: Hashable,
    *,
    partition: Callable[[Operation], Hashable] | None = None,
) -> None:
    """Fail unless the history is linearizable.

    Args:
        history: in any order.
        step: the object's sequential meaning.
        initial: its state at the start.
        partition: tells objects apart; None: all operations are on one.

    Raises:
        AssertionError: it is not; the message holds the shortest prefix (by answers) that has no order.
    """
    parts: dict[Hashable, list[Operation]] = {}
    for operation in history:
        parts.setdefault(partition(operation) if partition else None, []).append(operation)
    for part, operations in parts.items():
        if linearization(operations, step, initial) is not None:
            continue
        answers = sorted(operation.answered for operation in operations if operation.answered < inf)
        for moment in answers:
            prefix = [_until(operation, moment) for operation in operations if operation.called <= moment]
            if linearization(prefix, step, initial) is None:
                break
        lines = "\n".join(map(str, sorted(prefix, key=lambda operation: operation.called)))
        raise AssertionError(f"not linearizable{'' if part is None else f', part {part!r}'}:\n{lines}")


def _until(operation: Operation, moment: float) -> Operation:
    if operation.answered <= moment:
        return operation
    return Operation(operation.name, operation.arguments, UNKNOWN, operation.called, inf, operation.process)


# --- sequential meanings ----------------------------------------------------------------------------------------------


def register_step(state: Any, name: str, arguments: tuple) -> tuple[Any, Any]:
    """A key of a dict: ``get(key)``, ``set(key, value)``, ``cas(key, expected, value)``; absent is None."""
    if name == "get":
        return state, state
    if name == "set":
        return arguments[1], None
    if name == "cas":
        _, expected, value = arguments
        return (value, True) if state == expected else (state, False)
    raise ValueError(name)


def counter_step(state: int, name: str, arguments: tuple) -> tuple[int, int]:
    """``add(delta)`` returns the sum; ``get()``."""
    if name == "add":
        return state + arguments[0], state + arguments[0]
    if name == "get":
        return state, state
    raise ValueError(name)


def queue_step(state: tuple, name: str, arguments: tuple) -> tuple[tuple, Any]:
    """``put(item)``, ``get()``; an empty queue gives None."""
    if name == "put":
        return (*state, arguments[0]), None
    if name == "get":
        return (state[1:], state[0]) if state else (state, None)
    raise ValueError(name)


def taking_step(state: tuple, name: str, arguments: tuple) -> tuple[tuple, Any]:
    """A queue whose items are taken for a time; the state is all items in order, each with its taker or None.

    ``put(item)``; ``take(taker)`` gives the first item that nobody has, or None; ``finish(taker)`` tells whether the
    taker still had one, which is gone then; ``back(taker)`` likewise, which is at its place again then.
    """
    who = arguments[0]
    if name == "put":
        return (*state, (who, None)), None
    if name == "take":
        free = next((at for at, (_, taker) in enumerate(state) if taker is None), None)
        if free is None:
            return state, None
        item = state[free][0]
        return (*state[:free], (item, who), *state[free + 1 :]), item
    has = any(taker == who for _, taker in state)
    if name == "finish":
        return tuple(each for each in state if each[1] != who), has
    if name == "back":
        return tuple((item, None if taker == who else taker) for item, taker in state), has
    raise ValueError(name)


def members_step(state: tuple, name: str, arguments: tuple) -> tuple[tuple, Any]:
    """A group: ``join(member)``, ``leave(member)``, and ``present()``, the members in the order they joined."""
    if name == "join":
        return (*state, *arguments), None
    if name == "leave":
        return tuple(each for each in state if each not in arguments), None
    if name == "present":
        return state, state
    raise ValueError(name)


def lock_step(state: Any, name: str, arguments: tuple) -> tuple[Any, bool]:
    """``acquire(lock, owner)`` and ``release(lock, owner)`` return whether it worked; the state is the owner."""
    _, owner = arguments
    if name == "acquire":
        return (owner, True) if state is None else (state, False)
    if name == "release":
        return (None, True) if state == owner else (state, False)
    raise ValueError(name)
