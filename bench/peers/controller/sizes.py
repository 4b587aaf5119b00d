"""How much a case does, and what it found."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.peers.controller.nodes import Contender


@dataclass(frozen=True)
class Sizes:
    """Inputs of the cases.

    Attributes:
        slices: measured slices of a closed loop, and repetitions of an event.
        measure_s: seconds of a slice.
        warm_s: before each slice; twice as long before the first.
        warm_events: of a kind that are not counted, before those that are.
        bulk: requests of each kind of bulk.
        topics: in one request.
        wide: partitions of the widest topic: with the topic's own record as many records as Kafka takes at a time.
        altered: partitions in one AlterPartition.
        fenced: partitions that the fenced broker leads. Kafka 4.3.1 loses its leadership over a change of exactly
            10,000 records that may be split: this stays below.
        brokers: that send heartbeats, or observe.
        stored: partitions in the log that is started from, or taken over.
        loaded: partitions of the largest cluster.
        trials: failovers.
    """

    slices: int
    measure_s: float
    warm_s: float
    warm_events: int = 2
    bulk: int = 15
    topics: int = 1000
    wide: int = 9999
    altered: int = 1000
    fenced: int = 9998
    brokers: int = 100
    stored: int = 100_000
    loaded: int = 1_000_000
    trials: int = 3


FULL = Sizes(slices=3, measure_s=6.0, warm_s=3.0)
QUICK = Sizes(slices=1, measure_s=3.0, warm_s=2.0, bulk=5, stored=10_000, loaded=100_000)
SMOKE = Sizes(
    slices=1,
    measure_s=0.3,
    warm_s=0.1,
    warm_events=0,
    bulk=1,
    topics=20,
    wide=30,
    altered=10,
    fenced=20,
    brokers=5,
    stored=100,
    loaded=300,
    trials=1,
)


@dataclass(frozen=True)
class Sample:
    """A case's figures, one a repetition: seconds of one unit of work, or MiB; how many answers; what else to say."""

    figures: list[float]
    calls: int
    note: str


Found = Iterator[tuple[str, Sample | Exception]]
"""Names of cases, and what they gave, or why nothing."""
Scene = Callable[[Contender, Path, Sizes, set[str]], Found]
"""Cases that share a cluster: (whose, folder, sizes, the wanted cases)."""


def events(values_s: list[float], note: str) -> Sample:
    """Single events."""
    shown = ", ".join(f"{value * 1e3:.0f}" for value in values_s)
    return Sample(values_s, len(values_s), f"{note}; each: {shown} ms")


def median_ms(values_s: list[float]) -> float:
    return 1e3 * statistics.median(values_s)
