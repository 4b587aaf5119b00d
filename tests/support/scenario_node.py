"""A node of a scenario: a replica's executor, with every port in the scenario's hands and shown in its transcript."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.executor.driver import Probe
from kraftcore.executor.executor import Executor, ExecutorHooks, ExecutorLimits
from kraftcore.raft import events
from kraftcore.raft.installing import completed, installing, verifying
from kraftcore.raft.quorum import Endpoint
from kraftcore.raft.replica import Replica
from kraftcore.raft.snapshot_schedule import CleaningConfig
from kraftcore.state_machine import StateMachine
from kraftcore.storage.snapshot_batches import verify_and_close
from kraftcore.storage.snapshots import SnapshotStore

if TYPE_CHECKING:
    from scenario import Stage

FOLDER = "/n/__cluster_metadata-0"
LIMITS = ExecutorLimits(max_batch_bytes=1 << 20, max_bytes_in_flight=1 << 20, session_expiry_ms=60_000)


class Fixed:
    """No randomness: the random part of a timeout is 100 ms times the node's id, every choice is the first."""

    def __init__(self, number):
        self.number = number

    def randrange(self, stop):
        return min(100 * self.number, stop - 1)

    def choice(self, values):
        return values[0]


def directory(number: int) -> Uuid:
    return Uuid(bytes(15) + bytes([number + 16]))


def second(number: int, name: str) -> tuple[Endpoint, ...]:
    """Another listener of a node, if there is to be one of this name."""
    return (Endpoint(name, f"n{number}", 9094),) if name else ()


class State(StateMachine):
    """Counts what it is given; scenarios are about how it gets there."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, batch):
        self.count += batch.count

    def snapshot(self, sink):
        sink.append([b"state"])

    def restore(self, values):
        self.count = 0


class Node(ExecutorHooks, Probe):
    """A machine: its disk, and what its executor asks of it, written down."""

    def __init__(self, stage: Stage, number: int, config: events.RaftConfig) -> None:
        self.stage = stage
        self.number = number
        self.config = config
        self.disk = SimulatedDisk(random.Random(number))
        self.disk.make_folder(FOLDER)
        self.state = None
        self.up = False
        self.hold_flush = False
        self.flush_wanted = False
        self.holds_snapshots = False
        self.wanted = None  # of a snapshot, while it holds them
        self.sent_requests: dict[int, tuple[int, int]] = {}
        self.life = 0
        self.supports = "0-1"
        self.known = None
        self.may_have_forgotten = False

    def open(self, now: int) -> None:
        self.log = Log.open(self.disk, FOLDER, LogConfig(), now_ms=now)
        self.store = SnapshotStore(self.disk, FOLDER, randbytes=random.Random(1).randbytes)
        self.replica = Replica(
            self.config,
            self.log,
            self.store,
            Fixed(self.number),
            self.state,
            committed=self.known,
            may_have_forgotten=self.may_have_forgotten,
        )
        self.executor = Executor(
            self.replica, self.log, self.store, State(), self, self, LIMITS, CleaningConfig(), now, probe=self
        )
        self.flush_wanted = False
        self.sent_requests = {}
        self.life += 1
        self.shown: tuple | None = None
        self.up = True

    @property
    def deadline(self) -> int | None:
        return self.executor.due_ms

    def say(self, text: str) -> None:
        self.stage.say(f"{self.number}: {text}")

    def handle(self, event) -> None:
        self.executor.handle(self.stage.now, event)
        self.executor.check_invariants()

    # --- probe, ports and listener of the executor

    def handled(self, event, effects) -> None:
        replica = self.replica
        now = (replica.role, replica.epoch, replica.leader_id)
        if now != self.shown:
            self.shown = now
            self.say(f"{now[0].value} epoch={now[1]} leader={'-' if now[2] is None else now[2]}")

    def save(self, state) -> None:
        self.state = state
        vote, leader = state.voted_key, state.leader_id
        vote_text, leader_text = "-" if vote is None else vote.id, "-" if leader is None else leader
        self.say(f"saved epoch={state.epoch} vote={vote_text} leader={leader_text}")

    def send(self, send) -> None:
        self.stage.send(self, send)

    def end_probation(self) -> None:
        self.may_have_forgotten = False
        self.say("probation over")

    def keep_committed(self, known) -> None:
        self.known = known

    def begin_flush(self) -> None:
        self.say(f"flush to {self.log.log_end_offset}")

    def flush(self, size) -> None:
        self.flush_wanted = True

    def verify(self, wanted) -> None:
        self.wanted = wanted
        if not self.holds_snapshots:
            self.go_on()

    install = verify

    def go_on(self) -> None:
        """Do with a snapshot what was wanted."""
        wanted, self.wanted = self.wanted, None
        if isinstance(wanted, events.VerifySnapshot):
            self.executor.verified(self.stage.now, completed(verifying(wanted, verify_and_close)))
        else:
            steps = installing(wanted, self.log, self.store, self.stage.now)
            self.executor.installed(self.stage.now, completed(steps))

    def restored(self, end_offset, epoch) -> None:
        self.say(f"restore snapshot {end_offset}-{epoch}")

    def committed(self, high_watermark) -> None:
        self.say(f"high watermark {high_watermark}")

    def voters_changed(self, voters) -> None:
        self.say(f"voters {sorted(voters.ids)}")

    def noted(self, text) -> None:
        self.say(f"note: {text}")

    def alarmed(self, text) -> None:
        self.say(f"alarm: {text}")

    def outcome_ticket(self, name: str) -> Callable[[events.Outcome], None]:
        """A ticket that shows how a request of this name ended."""

        def ended(outcome: events.Outcome) -> None:
            words = f" {outcome.message}" if outcome.message else ""
            self.say(f"{name} {outcome.error.name} offset={outcome.offset}{words}")

        return ended


class Ticket(NamedTuple):
    """Where the answer to a received request goes."""

    node: Node
    source: int
    life: int
    correlation: int
    version: int

    def answer(self, message) -> None:
        self.node.stage.reply(self, message)
