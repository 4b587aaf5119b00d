"""Cases that share a cluster: a scene gives them all, each contender on a cluster of its own.

Most scenes play with one contender after the other; in rounds (`Rounds`) all stand at the same time, and take turns.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench import report
from bench.harness import Effort, Missing, Outcome, Timing
from bench.peers.controller.nodes import Contender
from bench.peers.controller.sizes import Found, Sample
from bench.peers.controller.wire import Unexpected

FAILURES = (Missing, Unexpected, OSError, subprocess.TimeoutExpired)
"""What a contender's figure is missing for; anything else is a mistake of the benchmark."""
Scene = Callable[[Contender, Path, Any, set[str]], Found]
"""(whose, folder, how much of each, the wanted cases)."""
FoundBy = Iterator[tuple[str, str, Sample | Exception]]
"""Names of cases, whose, and what they gave, or why nothing."""


@dataclass(frozen=True)
class Rounds:
    """A scene of all contenders at the same time: whatever moves the machine meanwhile moves the figures of all.

    Attributes:
        play: (all contenders, folder, how much of each, the wanted cases, what is told what is being done).
    """

    play: Callable[[Sequence[Contender], Path, Any, set[str], Callable[[str], None]], FoundBy]


@dataclass(frozen=True)
class SceneCase:
    """A figure of a cluster.

    Attributes:
        name: as in the table.
        unit: of the figure. Rates are better when higher, everything else when lower.
        contenders: by name, ours among them.
        about: one sentence for ``--list``.
        scene: what gives it.
        folder: the clusters' files go below it.
    """

    name: str
    unit: str
    contenders: dict[str, Contender]
    about: str
    scene: Scene | Rounds
    folder: Path

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")

    def figure(self, value: float) -> float:
        """Convert what a sample holds to the unit: seconds of one unit of work, or MiB."""
        return 1 / value if self.is_rate else value * {"ms": 1e3, "s": 1, "MiB": 1}[self.unit]

    def outcome(self) -> Outcome:
        return Outcome(self.name, self.unit, self.is_rate, self.figure, headline="median")


class Sizes(Protocol):
    """How much of each case, as the scenes take it."""

    SMOKE: Any
    QUICK: Any
    FULL: Any


class Measure(Protocol):
    """A suite's ``measure``."""

    def __call__(
        self, cases: Sequence[SceneCase], effort: Effort, status: report.Status, rows: Sequence[dict[str, Any]] = ()
    ) -> Iterator[Outcome]:
        """Scene after scene, each with every contender in turn.

        Args:
            cases: the chosen ones, with the chosen contenders.
            effort: how much of each.
            status: is told what is being done.
            rows: of a saved run; such a suite takes none up.
        """


def measuring(sizes: Sizes) -> Measure:
    """The ``measure`` of a suite with these sizes."""

    def measure(
        cases: Sequence[SceneCase], effort: Effort, status: report.Status, rows: Sequence[dict[str, Any]] = ()
    ) -> Iterator[Outcome]:
        size = sizes.SMOKE if effort.smoke else sizes.QUICK if effort.slice_factor < 1 else sizes.FULL
        return _outcomes(cases, size, status)

    return measure


def _outcomes(cases: Sequence[SceneCase], size: Any, status: report.Status) -> Iterator[Outcome]:
    scenes = list(dict.fromkeys(case.scene for case in cases))
    for number, scene in enumerate(scenes, 1):
        chosen = {case.name: case for case in cases if case.scene is scene}
        outcomes = {name: case.outcome() for name, case in chosen.items()}
        some = next(iter(chosen.values()))
        told = partial(_told, status, f"[{number}/{len(scenes)}] {', '.join(chosen)}: ")
        contenders, wanted = list(some.contenders.values()), set(chosen)
        if isinstance(scene, Rounds):
            gives = _safely(scene.play(contenders, some.folder, size, wanted, told), contenders, wanted)
        else:
            gives = _one_by_one(scene, contenders, some.folder, size, wanted, told)
        for name, whose, found in gives:
            if isinstance(found, Exception):
                if whose not in {**outcomes[name].timings, **outcomes[name].missing}:
                    outcomes[name].missing[whose] = _reason(found)
            else:
                outcomes[name].timings[whose] = timing(found)
        yield from outcomes.values()


def _told(status: report.Status, prefix: str, text: str) -> None:
    status(prefix + text)


def _one_by_one(
    scene: Scene,
    contenders: Sequence[Contender],
    folder: Path,
    size: Any,
    wanted: set[str],
    told: Callable[[str], None],
) -> FoundBy:
    for contender in contenders:
        told(contender.name)
        found = ((name, contender.name, sample) for name, sample in scene(contender, folder, size, wanted))
        yield from _safely(found, [contender], wanted)


def _safely(found: FoundBy, contenders: Sequence[Contender], wanted: Iterable[str]) -> FoundBy:
    """What was found; where a cluster as a whole fails, the reason for each case, of which some may have a figure."""
    try:
        yield from found
    except FAILURES as reason:
        for name in wanted:
            for contender in contenders:
                yield name, contender.name, reason


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__


def timing(sample: Sample) -> Timing:
    return Timing(seconds=sample.figures, calls=sample.calls, note=sample.note)


def settings(cases: Sequence[SceneCase]) -> dict[str, str]:
    """What a reader must know of the contenders, as the first case that has one says."""
    found: dict[str, str] = {}
    for case in cases:
        for name, each in case.contenders.items():
            found.setdefault(name, each.settings)
    return found
