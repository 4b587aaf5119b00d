"""The measuring itself: contenders of one case run in turns, so that drift of the machine hits all of them.

A *case* is a piece of work on fixed input. A *contender* does it: kraftcore, or a peer. Before anything is timed every
contender does the work once and hands in a digest of its result; contenders whose digests differ are not compared.
Then come a warm-up, a calibration (how many calls fill one slice), and ``rounds`` rounds of one slice for each
contender, in rotating order. The garbage collector rests during a slice, for Python peers and for us.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Literal

OURS = "kraftcore"
"""Name of the contender that the others are compared with."""


APPENDS_MIN = 2000
"""Fewest appends to one fresh log: the first ones create files and index pages."""


class Missing(Exception):
    """A contender cannot run here; the text says what to install, or why it does not take part."""


class DifferentResult(Exception):
    """A contender produced another result than kraftcore did: its figure would compare different work."""


@dataclass(frozen=True)
class Operation:
    """One contender's way to do the work of one case.

    Attributes:
        run: ``run(calls)`` does the work ``calls`` times and returns the seconds that took.
        digest: text that is equal for all contenders exactly when they produced the same result. Called once, untimed.
        close: frees files and helper processes.
        note: what a reader must know about this contender's figure.
        calls_max: largest number of calls in one slice; bounds what the work leaves behind (files, say).
        calls_min: fewest calls in a slice (smoke runs aside), where beginning costs something of its own.
        warm_s: seconds of warm-up before the calibration.
    """

    run: Callable[[int], float]
    digest: Callable[[], str]
    close: Callable[[], None] = lambda: None
    note: str = ""
    calls_max: int = 1 << 30
    warm_s: float = 0.02
    calls_min: int = 1


def loop(call: Callable[[], object]) -> Callable[[int], float]:
    """Make ``run`` of a function that does the work once."""

    def run(calls: int) -> float:
        clock = time.perf_counter
        begin = clock()
        for _ in repeat(None, calls):
            call()
        return clock() - begin

    return run


@dataclass(frozen=True)
class Case:
    """One line of work that contenders are compared on.

    Attributes:
        name: as in the table; ``encode-100x100`` is records x bytes.
        unit: ``M records/s`` (higher is better), ``us`` or ``ms`` (lower is better).
        contenders: name to factory. The factory raises Missing when the contender cannot run here.
        units_per_call: records handled by one call; 1 where a call is timed. A function, where only the prepared
            input tells.
        slice_s: seconds of one timed slice, before the effort's factor.
        about: one sentence for ``--list``.
    """

    name: str
    unit: Literal["M records/s", "us", "ms"]
    contenders: dict[str, Callable[[], Operation]]
    units_per_call: int | Callable[[], int] = 1
    slice_s: float = 0.06
    about: str = ""

    @property
    def higher_is_better(self) -> bool:
        return self.unit == "M records/s"

    def figure(self, seconds_per_call: float) -> float:
        """Convert seconds a call into the case's unit."""
        if self.unit == "M records/s":
            units = self.units_per_call if isinstance(self.units_per_call, int) else self.units_per_call()
            return units / seconds_per_call / 1e6
        return seconds_per_call * (1e6 if self.unit == "us" else 1e3)


@dataclass(frozen=True)
class Sum:
    """A case whose figure is the sum of other cases' times (all in the same unit of time)."""

    name: str
    parts: tuple[str, ...]
    about: str = ""


@dataclass(frozen=True)
class Effort:
    """How long to measure. ``scale`` shrinks inputs that are large (the 1 GB log) for smoke runs only."""

    name: str
    rounds: int
    slice_factor: float
    warm_factor: float = 1.0
    smoke: bool = False


FULL = Effort("full", rounds=9, slice_factor=1.0, warm_factor=2.0)
QUICK = Effort("quick", rounds=3, slice_factor=0.3, warm_factor=0.5)
SLOW_SLICES = 3
SLOW_TURNS = 3
"""A peer whose single call takes longer than three slices sits out two rounds of three."""
SMOKE = Effort("smoke", rounds=1, slice_factor=0.0, warm_factor=0.0, smoke=True)


@dataclass
class Timing:
    """What one contender needed: seconds for one call, a value for each round; and what else was measured, by name."""

    seconds: list[float] = field(default_factory=list)
    calls: int = 0
    note: str = ""
    slow: bool = False
    details: dict[str, float] = field(default_factory=dict)

    @property
    def best(self) -> float:
        return min(self.seconds)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    def headline(self, kind: Literal["best", "median"]) -> float:
        return self.best if kind == "best" else self.median


@dataclass
class Outcome:
    """Result of one case: timings by contender, and the reasons of those that have none."""

    name: str
    unit: str
    higher_is_better: bool
    figure: Callable[[float], float]
    timings: dict[str, Timing] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    headline: Literal["best", "median"] = "best"
    """Which of the rounds the figure is."""


Progress = Callable[[str], None]


def measure(case: Case, effort: Effort, progress: Progress = lambda text: None) -> Outcome:
    """Run one case.

    Raises:
        Missing: kraftcore itself cannot run it.
    """
    outcome = Outcome(case.name, case.unit, case.higher_is_better, case.figure)
    operations = _prepare(case, outcome, progress)
    try:
        calls = {}
        for name, operation in operations.items():
            progress(f"{name}: warm-up")
            slice_s = case.slice_s * effort.slice_factor
            calls[name], seconds = calibrate(operation, slice_s, effort.warm_factor)
            slow = name != OURS and 0 < SLOW_SLICES * slice_s < seconds
            outcome.timings[name] = Timing(calls=calls[name], note=operation.note, slow=slow)
        names = list(operations)
        for turn in range(effort.rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                if turn % SLOW_TURNS and outcome.timings[name].slow:
                    continue
                progress(f"round {turn + 1} of {effort.rounds}: {name}")
                outcome.timings[name].seconds.append(_slice(operations[name], calls[name]))
    finally:
        for operation in operations.values():
            operation.close()
    return outcome


def _prepare(case: Case, outcome: Outcome, progress: Progress) -> dict[str, Operation]:
    operations: dict[str, Operation] = {}
    for name, factory in case.contenders.items():
        progress(f"{name}: preparing")
        try:
            operation = factory()
        except Missing as reason:
            if name == OURS:
                raise
            outcome.missing[name] = str(reason)
            continue
        operations[name] = operation
        digest = operation.digest()
        if name == OURS:
            outcome.digest = digest
        elif outcome.digest and digest != outcome.digest:
            # A missing figure is honest, one for different work is not.
            outcome.missing[name] = f"its result differs from kraftcore's: {digest} against {outcome.digest}"
            operations.pop(name).close()
    return operations


def calibrate(operation: Operation, slice_s: float, warm_factor: float) -> tuple[int, float]:
    """Warm up and find how many calls fill a slice.

    Returns:
        The number of calls, and the seconds of one (0.0 if it was not measured).
    """
    calls = 1
    if slice_s <= 0:
        return calls, 0.0
    calls = operation.calls_min
    warm_until = time.perf_counter() + operation.warm_s * warm_factor
    while True:
        seconds = _slice(operation, calls) * calls
        if time.perf_counter() < warm_until and seconds > slice_s / 8:
            continue
        if seconds > slice_s / 4 or calls >= operation.calls_max:
            break
        calls = min(calls * 4, operation.calls_max)
    return max(
        operation.calls_min, min(round(calls * slice_s / max(seconds, 1e-9)), operation.calls_max)
    ), seconds / calls


def _slice(operation: Operation, calls: int) -> float:
    gc.collect()
    gc.disable()
    try:
        return operation.run(calls) / calls
    finally:
        gc.enable()


def add_up(total: Sum, outcomes: Sequence[Outcome]) -> Outcome:
    """Build the outcome of a Sum from those of its parts, all of them among ``outcomes``."""
    parts = [outcome for outcome in outcomes if outcome.name in total.parts]
    first = parts[0]
    result = Outcome(total.name, first.unit, first.higher_is_better, first.figure)
    for part in parts:
        for name, reason in part.missing.items():
            result.missing.setdefault(name, f"{part.name}: {reason}")
    for name in first.timings:
        timings = [part.timings[name] for part in parts if name in part.timings]
        if len(timings) == len(parts):
            # Round by round, so that best and median stay those of a whole exchange.
            seconds = [sum(turn) for turn in zip(*(timing.seconds for timing in timings), strict=False)]
            notes = sorted({timing.note for timing in timings if timing.note})
            result.timings[name] = Timing(seconds, min(timing.calls for timing in timings), "; ".join(notes))
            result.missing.pop(name, None)
    result.digest = ",".join(part.digest for part in parts)
    return result
