"""Executors over simulated disks that talk to each other, with every port in the test's hands."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

from scenario_node import FOLDER, Fixed, directory

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import METADATA_TOPIC_ID
from kraftcore.executor.driver import Probe
from kraftcore.executor.executor import Executor, ExecutorHooks, ExecutorLimits
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.events import Answered, RaftConfig, Received, Tick
from kraftcore.raft.installing import completed, installing, verifying
from kraftcore.raft.quorum import Endpoint, static_voters
from kraftcore.raft.replica import Replica
from kraftcore.raft.snapshot_schedule import CleaningConfig
from kraftcore.storage.snapshot_batches import verify_and_close
from kraftcore.storage.snapshots import SnapshotStore

LIMITS = ExecutorLimits(max_batch_bytes=1000, max_bytes_in_flight=1 << 20, session_expiry_ms=60_000)


class Member(ExecutorHooks, Probe):
    """Ports, probe and listener of one executor."""

    def __init__(self, quorum, number, size, machine, limits, cleaning, may_have_forgotten):
        self.quorum, self.number = quorum, number
        endpoints = {n: Endpoint("CONTROLLER", f"n{n}", 9093) for n in range(1, size + 1)}
        self.disk = SimulatedDisk(random.Random(number))
        self.disk.make_folder(FOLDER)
        self.log = Log.open(self.disk, FOLDER, LogConfig(), now_ms=0)
        self.store = SnapshotStore(self.disk, FOLDER, randbytes=random.Random(1).randbytes)
        config = RaftConfig(
            "c",
            ReplicaKey(number, directory(number)),
            listeners=(endpoints[number],),
            static_voters=static_voters(endpoints.items()),
            topic_id=METADATA_TOPIC_ID,
        )
        self.done: list[tuple] = []
        self.machine = machine
        self.replica = Replica(config, self.log, self.store, Fixed(number), may_have_forgotten=may_have_forgotten)
        self.executor = Executor(
            self.replica, self.log, self.store, machine, self, self, limits, cleaning, 0, probe=self
        )
        self.flush_is_inline = True
        self.flush_wanted = False
        self.raises: dict[str, BaseException] = {}

    def does(self, what: str, *details: Any) -> None:
        self.done.append((what, *details))
        if what in self.raises:
            raise self.raises.pop(what)

    # --- ports

    def save(self, state):
        self.does("save", state.epoch)

    def send(self, send):
        self.does("send", type(send.message).__name__)
        self.quorum.queue.append((self.number, send))

    def end_probation(self):
        self.does("end probation")

    def keep_committed(self, known):
        self.does("keep", known.offset, known.epoch)

    def begin_flush(self):
        self.does("begin flush")

    def flush(self, size):
        self.does("flush")
        if self.flush_is_inline:
            self.end_flush()
        else:
            self.flush_wanted = True

    def verify(self, wanted):
        self.does("verify", wanted.end_offset)
        self.executor.verified(self.quorum.now, completed(verifying(wanted, verify_and_close)))

    def install(self, wanted):
        self.does("install", wanted.end_offset)
        self.executor.installed(self.quorum.now, completed(installing(wanted, self.log, self.store, self.quorum.now)))

    def end_flush(self):
        self.flush_wanted = False
        self.executor.flushed(self.quorum.now, self.log.flush())

    # --- probe

    def handled(self, event, effects):
        self.does("handled", type(event).__name__)

    def sent(self, effects):
        self.does("sent")

    # --- listener

    def committed(self, high_watermark):
        self.does("committed", high_watermark)

    def leading(self, epoch):
        self.does("leading", epoch)

    def leading_ended(self, epoch):
        self.does("leading ended", epoch)

    def leader_changed(self, found):
        self.does("leader", found.leader_id)

    def restored(self, end_offset, epoch):
        self.does("restored", end_offset)

    # --- what a shell does

    def handle(self, *events):
        self.executor.handle(self.quorum.now, *events)
        self.executor.check_invariants()

    def settle(self):
        """Give it the batches and turns it wants."""
        while self.executor.wants_batch or self.executor.wants_turn:
            if self.executor.wants_batch:
                self.executor.propose(self.quorum.now)
            else:
                self.executor.turn(self.quorum.now)
                if self.executor.on_its_way is not None:
                    break
        self.executor.check_invariants()

    def told(self, *kinds):
        return [entry for entry in self.done if entry[0] in kinds]


class Quorum:
    """Voters with ids from 1 on; messages arrive when the test says so."""

    def __init__(self, size, make_machine, limits=LIMITS, cleaning=None, *, may_have_forgotten=False):
        self.now = 1_000
        self.queue: deque = deque()
        self.cut: set[int] = set()
        cleaning = cleaning or CleaningConfig()
        self.members = {
            n: Member(self, n, size, make_machine(), limits, cleaning, may_have_forgotten) for n in range(1, size + 1)
        }
        for member in self.members.values():
            member.handle(Tick())

    def __getitem__(self, number):
        return self.members[number]

    def deliver(self):
        """Let everything that is on its way arrive, until nothing is."""
        for _ in range(1000):
            if not self.queue:
                return
            number, item = self.queue.popleft()
            if isinstance(item, Answered):
                target, event = number, item
            else:
                target = int(item.destination.host[1:])
                schema = type(item.message).schema
                ticket = Answer(self, number, item.request_id, self.members[target])
                event = Received(ticket, item.message, schema.versions[1], "CONTROLLER")
            if not {number, target} & self.cut:
                self.members[target].handle(event)
        raise AssertionError("it does not come to rest")

    def pass_ms(self, ms):
        """Let time pass, timer by timer."""
        end = self.now + ms
        while self.now < end:
            self.now = min(self.now + 50, end)
            for number, member in self.members.items():
                due = member.executor.due_ms
                if number not in self.cut and due is not None and due <= self.now:
                    member.handle(Tick())
            self.deliver()

    def elect(self):
        """Until somebody leads and takes decisions."""
        for _ in range(200):
            for member in self.members.values():
                if member.executor.leading_epoch is not None and member.number not in self.cut:
                    return member
            self.pass_ms(100)
        raise AssertionError("nobody leads")


class Answer:
    """Where the answer to a member's request goes."""

    def __init__(self, quorum, source, request_id, member):
        self.quorum, self.source, self.request_id, self.member = quorum, source, request_id, member

    def answer(self, message):
        self.member.does("answer", type(message).__name__)
        self.quorum.queue.append((self.source, Answered(self.request_id, message)))
