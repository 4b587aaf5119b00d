"""Runs seeds, and shortens runs that failed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from time import perf_counter

from kraftcore.simulation.checks import Violation
from kraftcore.simulation.counters import Counters
from kraftcore.simulation.options import FAULTS, Options, draw_options
from kraftcore.simulation.timeline import Timeline
from kraftcore.simulation.workload import Workload
from kraftcore.simulation.world import World


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a run.

    Attributes:
        seed: of the run.
        options: what it drew.
        rule: the rule that was broken, or None.
        detail: how.
        events: how many happened.
        simulated_s: seconds of simulated time.
        wall_s: seconds it took.
        commits: batches committed.
        epochs: leaders elected.
        about: what the rule is about, as the trace calls it; None: everything.
    """

    seed: int
    options: Options
    rule: str | None
    detail: str
    events: int
    simulated_s: float
    wall_s: float
    commits: int
    epochs: int
    about: str | None = None


def run_seed(
    seed: int,
    nodes: int,
    minutes: float,
    faults: Collection[str] = FAULTS,
    *,
    event_limit: int | None = None,
    timeline: Timeline | None = None,
    report: Callable[[float], None] | None = None,
    workload: type[Workload] = Counters,
) -> Result:
    """Run a seed.

    Args:
        seed: everything is drawn from it.
        nodes: voters at the start.
        minutes: of simulated time with faults.
        faults: those a seed may draw.
        event_limit: end the faults after so many events.
        timeline: remembers what happened.
        report: called with the share of time that passed.
        workload: the class of the workload.
    """
    options = workload.adapt(draw_options(seed, nodes, minutes, faults))
    started = perf_counter()
    world = World(seed, options, workload, timeline, event_limit)
    rule, detail, about = None, "", None
    try:
        world.run(report)
    except Violation as violation:
        rule, detail, about = violation.rule, violation.detail, violation.about
    if timeline is not None:
        timeline.sample(world.agenda.now, world.hosts)
    return Result(
        seed=seed,
        options=options,
        rule=rule,
        detail=detail,
        events=world.agenda.count,
        simulated_s=world.agenda.now / 1e6,
        wall_s=perf_counter() - started,
        commits=len(world.judge.history),
        epochs=len(world.judge.leaders),
        about=about,
    )


def shortest_failure(
    result: Result,
    nodes: int,
    minutes: float,
    faults: Collection[str],
    tries: int = 12,
    workload: type[Workload] = Counters,
) -> int:
    """The least number of events with faults after which the run still fails, by bisection."""
    low, high = 0, result.events
    for _ in range(tries):
        if high - low <= max(1, high // 100):
            break
        middle = (low + high) // 2
        if run_seed(result.seed, nodes, minutes, faults, event_limit=middle, workload=workload).rule is not None:
            high = middle
        else:
            low = middle
    return high
