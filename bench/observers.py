"""How many observers one leader carries: the engine's own code in virtual time, in which the processor takes its time.

    python -m bench.observers                                  # 100, 1,000 and 3,000 observers; half a minute
    python -m bench.observers --observers 500 --rate 50 --linger 100 --json

One voter leads, and every observer asks again as soon as it is answered. The leader does one thing at a time: taking a
Fetch, answering one and making a topic take the times that are given (``--fetch-us``, ``--answer-us``,
``--topic-us``); what else a node does is not in it. So it says what follows from these three times and from the order
of things, for more observers than a machine has, and says the same every time.
"""

# ruff: noqa: E402 (only now may anything import kraftcore)
from __future__ import annotations

import argparse
import heapq
import json
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.paths import measure_the_installed_package

measure_the_installed_package()

from kraftcore.core.batch import RecordBatch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.executor.executor import Executor, ExecutorHooks, ExecutorLimits, size_of
from kraftcore.executor.proposals import Proposal
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.raft.events import RaftConfig, Received, Tick
from kraftcore.raft.quorum import Endpoint, static_voters
from kraftcore.raft.replica import Replica
from kraftcore.raft.snapshot_schedule import CleaningConfig
from kraftcore.state_machine import StateMachine
from kraftcore.storage.snapshots import SnapshotStore

FOLDER = "/log"
LISTENER = "CONTROLLER"
FETCH_VERSION = 18
TOPIC_BYTES = 200  # of a topic's records and a partition's
WARM_MS = 500.0


@dataclass(frozen=True)
class Times:
    """What the leader's processor is needed for, microseconds; the disk and the network for milliseconds."""

    fetch_us: float = 20.0
    answer_us: float = 20.0
    topic_us: float = 130.0
    flush_ms: float = 0.3
    network_ms: float = 0.1


class Nothing(StateMachine):
    """Applies nothing."""

    def apply(self, batch: RecordBatch) -> Sequence[Any] | None:
        """See the base class."""
        return None


class Leader(ExecutorHooks):
    """One voter's executor, its ports, and who asks it.

    Args:
        observers: how many.
        linger_ms: ``kraftcore.observer.linger.ms``.
        times: see `Times`.

    Attributes:
        now: virtual milliseconds.
        busy_ms: that the processor was needed.
        fetches: that were answered.
        commits: when each topic was wanted, and when it was committed.
        heard: after each commit, how long until the last observer had heard of it.
    """

    def __init__(self, observers: int, linger_ms: int, times: Times) -> None:
        self.now = 0.0
        self.busy_ms = 0.0
        self.fetches = 0
        self.commits: list[tuple[float, float]] = []
        self.heard: list[float] = []
        self._times = times
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._number = 0
        self._jobs: deque[tuple[float, Callable[[], None]]] = deque()
        self._is_busy = False
        self._answers: list[Callable[[], None]] = []
        self._ends: list[int] = []  # offsets behind each commit, with those that have heard of it
        self._count: list[int] = []
        self._timer = float("inf")
        disk = SimulatedDisk(random.Random(1))
        disk.make_folder(FOLDER)
        self._log = Log.open(disk, FOLDER, LogConfig(), now_ms=0)
        store = SnapshotStore(disk, FOLDER, randbytes=random.Random(1).randbytes)
        at = Endpoint(LISTENER, "leader", 9093)
        config = RaftConfig(
            "c",
            ReplicaKey(1, Uuid(b"\1" * 16)),
            listeners=(at,),
            static_voters=static_voters([(1, at)]),
            topic_id=METADATA_TOPIC_ID,
            observer_linger_ms=linger_ms,
        )
        replica = Replica(config, self._log, store, random.Random(1))
        limits = ExecutorLimits(max_batch_bytes=1 << 20, max_bytes_in_flight=1 << 26, session_expiry_ms=1 << 30)
        self.executor = Executor(replica, self._log, store, Nothing(), self, self, limits, CleaningConfig(), 0)
        self._observers = [Observer(self, number) for number in range(observers)]

    # --- time ---------------------------------------------------------------------------------------------------------

    def later(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Do something after so long."""
        self._number += 1
        heapq.heappush(self._agenda, (self.now + delay_ms, self._number, action))

    def run_until(self, end_ms: float) -> None:
        """Let time pass."""
        while self._agenda and self._agenda[0][0] <= end_ms:
            self.now, _, action = heapq.heappop(self._agenda)
            action()
        self.now = end_ms

    def work(self, cost_us: float, job: Callable[[], None]) -> None:
        """Have the processor do something, behind what waits for it already."""
        self._jobs.append((cost_us, job))
        if not self._is_busy:
            self._next_job()

    def _next_job(self) -> None:
        self._is_busy = bool(self._jobs)
        if not self._jobs:
            return
        cost_us, job = self._jobs.popleft()
        self.busy_ms += cost_us / 1000
        self.later(cost_us / 1000, lambda: self._do(job))

    def _do(self, job: Callable[[], None]) -> None:
        job()
        executor = self.executor
        while executor.wants_batch or executor.wants_turn:
            if executor.wants_batch:
                executor.propose(self._ms)
            else:
                executor.turn(self._ms)
                if executor.on_its_way is not None:
                    break
        took_ms = 0.0
        answers, self._answers = self._answers, []
        for answer in answers:
            took_ms += self._times.answer_us / 1000
            self.later(took_ms + self._times.network_ms, answer)
        self.fetches += len(answers)
        self.busy_ms += took_ms
        self._set_timer()
        self.later(took_ms, self._next_job)

    @property
    def _ms(self) -> int:
        return int(self.now)

    def _set_timer(self) -> None:
        due = self.executor.due_ms
        if due is not None and due < self._timer:
            self._timer = float(due)
            self.later(max(due - self.now, 0.0), lambda: self._tick(float(due)))

    def _tick(self, due: float) -> None:
        if due == self._timer:
            self._timer = float("inf")
            self.work(0.0, lambda: self.executor.handle(self._ms, Tick()))

    # --- what comes ---------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Elect it, and let the observers ask."""
        self.executor.handle(0, Tick())
        self._set_timer()
        while not self.executor.accepts:
            self.run_until(self.now + 100)
        for observer in self._observers:
            observer.ask()

    def make_topic(self) -> None:
        """Somebody wants one."""
        wanted = self.now

        def propose() -> None:
            proposal = Proposal((bytes(TOPIC_BYTES),), size_of((bytes(TOPIC_BYTES),)), True)
            proposal.waiter = lambda _: self._committed(wanted)
            self.executor.add(proposal)

        self.work(self._times.topic_us, propose)

    def _committed(self, wanted: float) -> None:
        self.commits.append((wanted, self.now))
        self._ends.append(self.executor.high_watermark)
        self._count.append(0)

    def told(self, known: int, high_watermark: int) -> int:
        """An observer hears of commits from the ``known`` one on; returns how many it knows now."""
        while known < len(self._ends) and self._ends[known] <= high_watermark:
            self._count[known] += 1
            if self._count[known] == len(self._observers):
                self.heard.append(self.now - self.commits[known][1])
            known += 1
        return known

    # --- ports --------------------------------------------------------------------------------------------------------

    def save(self, state: Any) -> None:
        """Nothing is lost here."""

    keep_committed = save

    def send(self, send: Any) -> None:
        """Nobody else votes."""

    verify = install = send

    def end_probation(self) -> None:
        """It has forgotten nothing."""

    begin_flush = end_probation

    def flush(self, size: int) -> None:
        """The disk takes its time, not the processor's."""
        flushed = self._log.flush()
        self.later(self._times.flush_ms, lambda: self.work(0.0, lambda: self.executor.flushed(self._ms, flushed)))

    def answering(self, answer: Callable[[], None]) -> None:
        """An answer leaves when the processor has come to it."""
        self._answers.append(answer)


class Observer:
    """One broker's fetcher, at the end of the log; its own ticket."""

    def __init__(self, leader: Leader, number: int) -> None:
        self._leader = leader
        kind = FetchRequest.FetchTopic
        self._part = kind.FetchPartition(
            partition=0,
            last_fetched_epoch=0,
            partition_max_bytes=1 << 20,
            replica_directory_id=Uuid(number.to_bytes(16, "big")),
        )
        self._request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=1000 + number),
            max_wait_ms=500,
            topics=[kind(topic_id=METADATA_TOPIC_ID, partitions=[self._part])],
        )
        self._known = 0

    def ask(self) -> None:
        """Send a Fetch."""
        leader = self._leader
        leader.later(leader._times.network_ms, lambda: leader.work(leader._times.fetch_us, self._arrives))

    def _arrives(self) -> None:
        leader = self._leader
        self._part.current_leader_epoch = leader.executor.replica.epoch
        leader.executor.handle(leader._ms, Received(self, self._request, FETCH_VERSION, LISTENER))

    def answer(self, message: Any) -> None:
        """As a ticket: the leader answers."""
        self._leader.answering(lambda: self._take(message))

    def _take(self, message: Any) -> None:
        (part,) = message.responses[0].partitions
        if part.error_code:
            raise RuntimeError(f"a Fetch is answered with error {part.error_code}")
        data = bytes(part.records or b"")
        while data:
            batch = RecordBatch(data[: 12 + int.from_bytes(data[8:12])])
            self._part.fetch_offset, self._part.last_fetched_epoch = batch.next_offset, batch.leader_epoch
            data = data[12 + int.from_bytes(data[8:12]) :]
        self._part.high_watermark = part.high_watermark
        self._known = self._leader.told(self._known, part.high_watermark)
        self.ask()


def measure(observers: int, rate: float, linger_ms: int, seconds: float, times: Times) -> dict[str, float]:
    """What a leader does for so many.

    Args:
        observers: that are at the end of the log.
        rate: topics wanted a second on average, by people who know nothing of each other; 0: none.
        linger_ms: ``kraftcore.observer.linger.ms``.
        seconds: of virtual time, after half a second that is not counted.
        times: see `Times`.

    Returns:
        ``busy``, the share of the processor's time; ``fetches``, answered a second; ``commit_p50`` and ``commit_p99``,
        from a topic's being wanted to its commit, ``heard_p50`` and ``heard_p99``, from there until the last observer
        knows, milliseconds (absent without topics).
    """
    leader = Leader(observers, linger_ms, times)
    leader.begin()
    begun = leader.now + WARM_MS
    draw, when = random.Random(1), 0.0
    while rate and when < WARM_MS + 1000 * seconds:
        leader.later(when, leader.make_topic)
        when += draw.expovariate(rate) * 1000
    leader.run_until(begun)
    busy, fetches, commits, heard = leader.busy_ms, leader.fetches, len(leader.commits), len(leader.heard)
    leader.run_until(begun + 1000 * seconds)
    found = {
        "observers": observers,
        "rate": rate,
        "linger_ms": linger_ms,
        "busy": round((leader.busy_ms - busy) / (1000 * seconds), 3),
        "fetches": round((leader.fetches - fetches) / seconds),
    }
    waits = sorted(done - wanted for wanted, done in leader.commits[commits:])
    for name, figures in (("commit", waits), ("heard", sorted(leader.heard[heard:]))):
        if figures:
            found[f"{name}_p50"] = round(figures[len(figures) // 2], 2)
            found[f"{name}_p99"] = round(figures[len(figures) * 99 // 100], 2)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--observers", type=int, action="append", help="may be repeated (100, 1000, 3000)")
    parser.add_argument("--rate", type=float, default=100.0, help="topics wanted a second (100)")
    parser.add_argument("--linger", type=int, default=10, help="kraftcore.observer.linger.ms (10)")
    parser.add_argument("--seconds", type=float, default=2.0, help="of virtual time (2)")
    for name, default in vars(Times()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, default=default, help=f"({default})")
    parser.add_argument("--json", action="store_true", help="an object a line")
    asked = parser.parse_args(arguments)
    times = Times(**{name: getattr(asked, name) for name in vars(Times())})
    if min(asked.observers or [1]) < 1 or asked.rate < 0 or asked.linger < 0 or asked.seconds <= 0:
        parser.error("--observers is at least 1, --rate and --linger at least 0, --seconds more than 0")
    for observers in asked.observers or (100, 1000, 3000):
        found = measure(observers, asked.rate, asked.linger, asked.seconds, times)
        if asked.json:
            print(json.dumps(found), flush=True)
        else:
            print("  ".join(f"{name} {value:,g}" for name, value in found.items()), flush=True)


if __name__ == "__main__":
    main()
