"""Controllers from outside: admin requests and scripted brokers on the controller's own port, Kafka's beside ours.

Cases that share a cluster are a scene. Each scene starts a fresh one of every contender, one after the other.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import report
from bench.harness import Effort, Missing, Outcome, Timing
from bench.peers.controller import loops, moments, sizes
from bench.peers.controller.nodes import CONTENDERS, Contender
from bench.peers.controller.sizes import Sample, Scene
from bench.peers.controller.wire import Unexpected


@dataclass(frozen=True)
class ControllerCase:
    """A figure of a controller.

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
    scene: Scene
    folder: Path

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")

    def figure(self, value: float) -> float:
        """Convert what a sample holds to the unit: seconds of one unit of work, or MiB."""
        return 1 / value if self.is_rate else value * {"ms": 1e3, "s": 1, "MiB": 1}[self.unit]

    def outcome(self) -> Outcome:
        return Outcome(self.name, self.unit, self.is_rate, self.figure, headline="median")


def cases(folder: Path, effort: Effort) -> list[ControllerCase]:
    """All cases."""
    one = "CreateTopics of one topic of one partition, a connection with one request in flight each: "
    rows: list[tuple[str, str, Scene, str]] = [
        ("create-topic-1/1", "topics/s", loops.create_topics, f"{one}one connection"),
        ("create-topic-1/16", "topics/s", loops.create_topics, f"{one}16 connections"),
        ("create-topic-1/64", "topics/s", loops.create_topics, f"{one}64 connections"),
        ("create-topics-1000", "topics/s", moments.bulk, "1,000 such topics in a request, one request at a time"),
        ("create-topic-9999p", "partitions/s", moments.bulk, "a topic of 9,999 partitions, placed by the controller"),
        ("alter-partition/16", "partitions/s", loops.alter_partitions, "one ISR changed a request, 16 in flight"),
        ("alter-partition-1000", "partitions/s", loops.alter_partitions, "1,000 ISRs changed a request, one in flight"),
        ("configs/16", "requests/s", loops.set_configs, "one topic's retention.ms set a request, 16 in flight"),
        (
            "heartbeats",
            "heartbeats/s",
            loops.heartbeats,
            "100 brokers, one heartbeat in flight each; nothing written",
        ),
        (
            "observers-100",
            "topics/s",
            loops.observed,
            "create-topic-1/16 while 100 observers read the log's end",
        ),
        (
            "fence",
            "ms",
            moments.fence,
            "the leader of 9,998 partitions is fenced, to the last change read",
        ),
        ("fence-return", "ms", moments.fence, "it is unfenced, gets into all ISRs, and is elected everywhere again"),
        ("fence-elect", "ms", moments.fence, "the election in fence-return"),
        (
            "restart-log/100k",
            "ms",
            moments.restart,
            "start with 100,000 partitions, to the first topic made",
        ),
        ("failover/100k", "ms", moments.failover, "SIGKILL of the active one of three, to the first topic made"),
        ("load-1m", "s", moments.load, "a million partitions made, 9,000 a request"),
        ("load-1m-memory", "MiB", moments.load, "memory resident after that"),
    ]
    contenders = {contender.name: contender for contender in CONTENDERS}
    return [ControllerCase(name, unit, contenders, about, scene, folder) for name, unit, scene, about in rows]


def measure(
    cases: Sequence[ControllerCase], effort: Effort, status: report.Status, rows: Sequence[dict[str, Any]] = ()
) -> Iterator[Outcome]:
    """Scene after scene, each with every contender in turn.

    Args:
        cases: the chosen ones, with the chosen contenders.
        effort: how much of each.
        status: is told what is being done.
        rows: of a saved run; this suite takes none up.
    """
    size = sizes.SMOKE if effort.smoke else sizes.QUICK if effort.slice_factor < 1 else sizes.FULL
    scenes = list(dict.fromkeys(case.scene for case in cases))
    for number, scene in enumerate(scenes, 1):
        chosen = {case.name: case for case in cases if case.scene is scene}
        outcomes = {name: case.outcome() for name, case in chosen.items()}
        some = next(iter(chosen.values()))
        for name, contender in some.contenders.items():
            status(f"[{number}/{len(scenes)}] {', '.join(chosen)}: {name}")
            try:
                for case, sample in scene(contender, some.folder, size, set(chosen)):
                    outcomes[case].timings[name] = timing(sample)
            except (Missing, Unexpected, OSError, subprocess.TimeoutExpired) as reason:
                for outcome in outcomes.values():
                    if name not in outcome.timings:
                        outcome.missing[name] = str(reason) or type(reason).__name__
        yield from outcomes.values()


def timing(sample: Sample) -> Timing:
    return Timing(seconds=sample.figures, calls=sample.calls, note=sample.note)


def settings(cases: Sequence[ControllerCase]) -> dict[str, str]:
    """What a reader must know of the contenders."""
    return {name: each.settings for case in cases for name, each in case.contenders.items()}
