"""Whole clusters: three processes on loopback and real disks; a commit is durable on a majority before it counts.

A round starts every peer once, in rotating order, and measures all cases of load on that cluster, so that what the
machine does meanwhile hits all of them. Failover needs a fresh cluster for each trial.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bench.harness import OURS, Effort, Missing, Outcome, Progress, Timing
from bench.peers.nodes import limits
from bench.peers.nodes.catalog import PEERS, Peer
from bench.peers.nodes.cluster import Cluster, Load
from bench.peers.nodes.control import Answer

LIMIT = "limit: fdatasync + 2 round trips"
"""Row that stands for a peer: what one commit costs at least on this machine."""
BATCH_LIMIT = "limit: 3 x append + fdatasync"
"""Likewise: three processes that only append a batch's bytes and sync, one batch at a time."""
BATCH_BYTES = 109_997
"""What `build_batch` makes of 1,000 values of 100 bytes."""
PROBERS = 4
PROBE_TIMEOUT_MS = 100
PROBE_PAUSE_S = 0.004
FAILOVER_TIMEOUT_S = 30.0
FAILOVER_TRAFFIC = 20
READS: tuple[tuple[str, Literal["asks", "alone"], str], ...] = (
    ("read", "asks", "linearizable reads on the leader, which asks a majority"),
    ("read-lease", "alone", "reads on the leader, which asks nobody: linearizable here by its lease, not so in etcd"),
)
IDLE_MIN = 1e-6
"""A node may well sleep through a short measurement; a ratio needs a number."""
SOAK_LOAD = Load(64)
SOAK_SLICE_S = 5.0
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class NodeCase:
    """A figure of a cluster.

    Attributes:
        name: as in the table.
        unit: of the figure. Rates are better when higher, everything else when lower.
        contenders: peers by name, ours among them.
        about: one sentence for ``--list``.
        load: what the leader gets; None for failover, idle and soak.
        seconds: picks from a load's answer the seconds that the figure is made of; None if it does not tell.
        on_request: left out unless it is named.
    """

    name: str
    unit: str
    contenders: dict[str, Peer]
    about: str
    load: Load | None = None
    seconds: Callable[[Answer, Load], float | None] = lambda answer, load: None
    on_request: bool = False

    @property
    def is_rate(self) -> bool:
        return self.unit.endswith("/s")

    def figure(self, seconds: float) -> float:
        """Convert seconds (of one record, call or trial; shares and factors are plain numbers) to the unit."""
        if self.is_rate:
            return 1 / seconds
        return seconds * {"ms": 1e3, "% of a core": 100, "x": 1}[self.unit]

    def outcome(self) -> Outcome:
        # The best of several failovers says little: how long it takes is drawn by lot.
        headline: Literal["best", "median"] = "median" if self.name == "failover" else "best"
        return Outcome(self.name, self.unit, self.is_rate, self.figure, headline=headline)


@dataclass(frozen=True)
class Plan:
    """How much to measure."""

    rounds: int
    trials: int
    warm_s: float
    measure_s: float
    idle_s: float
    settle_s: float
    limit_s: float
    soak_s: float


FULL = Plan(rounds=5, trials=2, warm_s=1.0, measure_s=4.0, idle_s=5.0, settle_s=2.0, limit_s=1.0, soak_s=600.0)
QUICK = Plan(rounds=2, trials=1, warm_s=0.5, measure_s=1.5, idle_s=2.0, settle_s=1.0, limit_s=0.5, soak_s=60.0)
SMOKE = Plan(rounds=1, trials=1, warm_s=0.1, measure_s=0.3, idle_s=1.2, settle_s=0.2, limit_s=0.05, soak_s=0.4)


def plan_for(effort: Effort, rounds: int | None, minutes: float | None) -> Plan:
    """Choose the plan; rounds and the soak's minutes may be set apart."""
    plan = SMOKE if effort.smoke else QUICK if effort.slice_factor < 1 else FULL
    fields = vars(plan) | ({} if rounds is None else {"rounds": rounds})
    return Plan(**fields | ({} if minutes is None else {"soak_s": minutes * 60}))


def _per_record(answer: Answer, load: Load) -> float:
    return float(answer["seconds"] / (answer["calls"] * load.batch))


def _quantile(name: str) -> Callable[[Answer, Load], float | None]:
    return lambda answer, load: answer[name] / 1e6 if name in answer else None


def cases(folder: Path, effort: Effort) -> list[NodeCase]:
    """All cases."""
    one, batches = Load(1), Load(4, 1000)
    text = "proposals of 100 bytes in flight, each awaited on its own"
    batch = f"batches of 1,000 records of 100 bytes handed over together, {batches.in_flight} in flight"
    rows: list[tuple[str, str, str, Load | None, Callable[[Answer, Load], float | None]]] = [
        ("commit-1", "commits/s", "one proposal of 100 bytes at a time", one, _per_record),
        ("commit-1-p50", "ms", "median latency of commit-1", one, _quantile("p50_us")),
        ("commit-64", "commits/s", f"64 {text}", Load(64), _per_record),
        ("commit-1024", "commits/s", f"1,024 {text}", Load(1024), _per_record),
        ("commit-batch1000", "records/s", batch, batches, _per_record),
        ("commit-batch1000-p99", "ms", "99th percentile of a batch's latency", batches, _quantile("p99_us")),
        *(
            (f"{name}-{callers}", "reads/s", f"{callers} at a time: {what}", Load(callers, read=read), _per_record)
            for name, read, what in READS
            for callers in (1, 64)
        ),
    ]
    return [
        *(NodeCase(name, unit, _contenders(name), about, load, seconds) for name, unit, about, load, seconds in rows),
        NodeCase("failover", "ms", _contenders("failover"), "from SIGKILL of the leader to the next commit; median"),
        NodeCase("idle", "% of a core", _contenders("idle"), "processor time of the busiest node, without any load"),
        NodeCase(
            "soak",
            "x",
            _contenders("soak"),
            "resident memory at the end of a long full load over that after its first fifth (--minutes)",
            on_request=True,
        ),
    ]


def _contenders(case: str) -> dict[str, Peer]:
    return {peer.name: peer for peer in PEERS if case not in peer.skips}


@dataclass
class Run:
    """One run: the chosen cases, and what was measured so far."""

    cases: Sequence[NodeCase]
    plan: Plan
    folder: Path
    facts: dict[str, Any]
    progress: Progress
    outcomes: dict[str, Outcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.outcomes = {case.name: case.outcome() for case in self.cases}
        self.peers = {name: peer for case in self.cases for name, peer in case.contenders.items()}

    def of(self, name: str) -> list[NodeCase]:
        """The chosen cases in which a peer takes part."""
        return [case for case in self.cases if name in case.contenders]

    def record(self, case: NodeCase, name: str, seconds: float, calls: int = 1, note: str = "") -> None:
        timing = self.outcomes[case.name].timings.setdefault(name, Timing())
        timing.seconds.append(seconds)
        timing.calls += calls
        timing.note = note or timing.note

    def give_up(self, cases: Sequence[NodeCase], name: str, reason: Exception) -> None:
        for case in cases:
            self.outcomes[case.name].missing[name] = str(reason) or type(reason).__name__

    def round(self, number: int) -> None:
        """Run every peer once."""
        self.limits()
        names = list(self.peers)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            self.say(number, f"{name}: load")
            self.loads(name)
            chosen = [case for case in self.of(name) if case.name == "idle"]
            self.attempt(chosen, name, self.idle)
            for trial in range(self.plan.trials):
                chosen = [case for case in self.of(name) if case.name == "failover"]
                if chosen:
                    self.say(number, f"{name}: failover, trial {trial + 1} of {self.plan.trials}")
                self.attempt(chosen, name, self.failover)

    def say(self, number: int, text: str) -> None:
        self.progress(f"round {number + 1} of {self.plan.rounds}: {text}")

    def attempt(self, cases: Sequence[NodeCase], name: str, measure: Callable[[NodeCase, str], None]) -> None:
        for case in cases:
            try:
                measure(case, name)
            except (Missing, OSError) as reason:
                self.give_up([case], name, reason)

    def limits(self) -> None:
        self.progress("what the machine allows")
        for case in self.cases:
            if case.name == "commit-batch1000" and case.load is not None:
                batch_s = limits.batch_s(self.folder, BATCH_BYTES, 3, self.plan.measure_s)
                note = f"{3 * BATCH_BYTES / batch_s / 1e6:.0f} MB/s for all three"
                self.record(case, BATCH_LIMIT, batch_s / case.load.batch, note=note)
            if case.name != "commit-1-p50":
                continue
            flush_s = limits.fdatasync_s(self.folder, self.plan.limit_s)
            trip_s = limits.round_trip_s(self.plan.limit_s)
            note = f"fdatasync of 4 KiB p50 {flush_s * 1e6:.0f} us, round trip p50 {trip_s * 1e6:.0f} us"
            self.record(case, LIMIT, flush_s + 2 * trip_s, note=note)
            self.facts["limits"] = f"limits, in the last round: {note}"

    def loads(self, name: str) -> None:
        """All cases of load on one cluster, those under leases on another; cases of the same load share its answer."""
        loads = {case.load for case in self.of(name) if case.load is not None}
        leased = {load for load in loads if load.read == "alone"}
        self.loads_of("load", name, loads - leased)
        self.loads_of("lease", name, leased)

    def loads_of(self, purpose: Literal["load", "lease"], name: str, loads: set[Load]) -> None:
        """These loads on one cluster."""
        if not loads:
            return
        try:
            with self.peers[name].start(purpose, self.folder) as cluster:
                for load in sorted(loads, key=lambda load: (load.batch, load.in_flight, load.read)):
                    self.load(cluster, name, load)
        except (Missing, OSError) as reason:
            self.give_up([case for case in self.of(name) if case.load in loads], name, reason)

    def load(self, cluster: Cluster, name: str, load: Load) -> None:
        chosen = [case for case in self.of(name) if case.load == load]
        try:
            answer = cluster.load(load, self.plan.warm_s, self.plan.measure_s)
        except Missing as reason:
            self.give_up(chosen, name, reason)
            return
        note = ", ".join(f"{key[:3]} {answer[key] / 1e3:.3g} ms" for key in ("p50_us", "p99_us") if key in answer)
        if answer["errors"]:
            note += f", {answer['errors']} calls failed"
        for case in chosen:
            seconds = case.seconds(answer, load)
            if seconds is not None:
                self.record(case, name, seconds, round(answer["calls"]), note)

    def idle(self, case: NodeCase, name: str) -> None:
        with self.peers[name].start("idle", self.folder) as cluster:
            cluster.ready()
            time.sleep(self.plan.settle_s)
            begin, before = time.perf_counter(), cluster.cpu_s()
            time.sleep(self.plan.idle_s)
            after, seconds = cluster.cpu_s(), time.perf_counter() - begin
        shares = [(end - start) / seconds for start, end in zip(before, after, strict=True)]
        note = "nodes: " + ", ".join(f"{share:.2%}" for share in shares)
        self.record(case, name, max(*shares, IDLE_MIN), note=note)

    def failover(self, case: NodeCase, name: str) -> None:
        with self.peers[name].start("failover", self.folder) as cluster:
            cluster.ready()
            time.sleep(self.plan.settle_s)
            leader = cluster.ready()
            commit = cluster.prober(leader, 1000)
            for _ in range(FAILOVER_TRAFFIC):
                commit()
            self.record(case, name, time_failover(cluster, leader))
        timing = self.outcomes[case.name].timings[name]
        timing.note = "trials: " + ", ".join(f"{seconds * 1e3:.0f} ms" for seconds in timing.seconds)

    def soak(self, case: NodeCase, name: str) -> None:
        """Full load in slices; memory is read between them, when no latencies are held."""
        memory: list[list[int]] = []
        slice_s = min(SOAK_SLICE_S, self.plan.soak_s / 5)
        with self.peers[name].start("load", self.folder) as cluster:
            cluster.ready()
            start = cluster.memory_bytes()
            deadline = time.monotonic() + self.plan.soak_s
            calls = 0
            while time.monotonic() < deadline or len(memory) < 5:
                self.progress(f"{name}: soak, {max(0.0, deadline - time.monotonic()):.0f} s to go")
                calls += cluster.load(SOAK_LOAD, 0.0, slice_s)["calls"]
                memory.append(cluster.memory_bytes())
        fifth = len(memory) // 5
        growths = [
            statistics.mean(node[-fifth:]) / statistics.mean(node[fifth : 2 * fifth])
            for node in zip(*memory, strict=True)
        ]
        ends = ", ".join(
            f"{first / MEBIBYTE:.0f} > {early / MEBIBYTE:.0f} > {last / MEBIBYTE:.0f}"
            for first, early, last in zip(start, memory[fifth], memory[-1], strict=True)
        )
        self.record(case, name, max(growths), calls, f"MiB of each node (start > first fifth > end): {ends}")


def time_failover(cluster: Cluster, leader: int) -> float:
    """Kill the leader while the others are asked for commits.

    Returns:
        Seconds from the signal to the first commit.
    Raises:
        Missing: none came.
    """
    done = threading.Event()
    go = threading.Event()
    commits: list[float] = []

    def probe(commit: Callable[[], bool], delay_s: float) -> None:
        go.wait()
        time.sleep(delay_s)
        while not done.is_set():
            try:
                committed = commit()
            except OSError:
                committed = False
            if committed:
                commits.append(time.perf_counter())
                done.set()
            time.sleep(PROBE_PAUSE_S)

    threads = []
    for index in (index for index in range(len(cluster.places)) if index != leader):
        for number in range(PROBERS):
            delay_s = number * PROBE_TIMEOUT_MS / 1000 / PROBERS
            arguments = (cluster.prober(index, PROBE_TIMEOUT_MS), delay_s)
            threads.append(threading.Thread(target=probe, args=arguments, daemon=True))
    for thread in threads:
        thread.start()
    begin = time.perf_counter()
    cluster.kill(leader)
    go.set()
    done.wait(FAILOVER_TIMEOUT_S)
    done.set()
    for thread in threads:
        thread.join()
    if not commits:
        raise Missing(f"no commit within {FAILOVER_TIMEOUT_S:g} s of the leader's death")
    return min(commits) - begin


def measure(
    cases: Sequence[NodeCase], plan: Plan, folder: Path, facts: dict[str, Any], progress: Progress
) -> Iterator[Outcome]:
    """Run the rounds, then the soak.

    Args:
        cases: the chosen ones, with the chosen peers.
        plan: how much.
        folder: the clusters' files go below it.
        facts: gets the peers' settings, and what the machine allows.
        progress: told what is going on.
    """
    run = Run(cases, plan, folder, facts, progress)
    facts["settings"] = {name: peer.settings for name, peer in run.peers.items()}
    if any(not case.on_request for case in cases):
        for number in range(plan.rounds):
            run.round(number)
    for case in cases:
        if case.name == "soak":
            for name in case.contenders:
                run.attempt([case], name, run.soak)
        outcome = run.outcomes[case.name]
        # A peer that failed in one round and ran in another was measured.
        outcome.missing = {name: why for name, why in outcome.missing.items() if name not in outcome.timings}
        for name in case.contenders:
            if name != OURS and name not in outcome.timings:
                outcome.missing.setdefault(name, "it does not tell this figure")
        yield outcome


def build(cases: Sequence[NodeCase], say: Callable[[str], None]) -> bool:
    """Build the peers of these cases, whatever of them is not built yet.

    Returns:
        False if one cannot be built; what is missing was said with its name.
    """
    good = True
    for name, peer in {name: peer for case in cases for name, peer in case.contenders.items()}.items():
        try:
            peer.build("load")
        except Missing as reason:
            say(f"{name}: cannot be built: {reason}")
            good = False
        else:
            say(f"{name}: ready")
    return good
