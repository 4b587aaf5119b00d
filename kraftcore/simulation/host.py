"""One simulated machine: a disk, a clock, and a process that runs a replica.

The process is the executor that nodes run, with virtual time around it: what the executor asks of disk and network
happens when the world lets it. After every event the executor's own invariants are checked, and it can be cut off
between any two steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import InvariantError, LocalError, SnapshotLaterError, StateMachineError, StorageError
from kraftcore.executor.driver import Probe
from kraftcore.executor.executor import Executor, ExecutorHooks, ExecutorLimits
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_request, decode_response, encode_request, encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.raft.control_records import voter_entries
from kraftcore.raft.events import (
    Answered,
    Effects,
    Event,
    Failed,
    InstallSnapshot,
    RaftConfig,
    Received,
    Send,
    Shutdown,
    Tick,
    VerifySnapshot,
)
from kraftcore.raft.installing import installing, verifying
from kraftcore.raft.leases import DRIFT
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.raft.replica import Replica
from kraftcore.raft.snapshot_schedule import CleaningConfig
from kraftcore.simulation.agenda import Agenda
from kraftcore.simulation.forming import join_or_begin
from kraftcore.simulation.machine import Replicated
from kraftcore.simulation.network import Network
from kraftcore.simulation.options import Options
from kraftcore.storage.committed import CommittedFile
from kraftcore.storage.meta_properties import METADATA_PARTITION
from kraftcore.storage.probation_mark import ProbationMark
from kraftcore.storage.quorum_state import QuorumStateFile
from kraftcore.storage.snapshot_batches import SnapshotWriter, verify_and_close
from kraftcore.storage.snapshots import SnapshotId, SnapshotStore

DIRECTORY = "/data"
FOLDER = f"{DIRECTORY}/{METADATA_PARTITION}"
LISTENER = "CONTROLLER"
PORT = 9093
EPOCH_MS = 1_700_000_000_000  # time of the clocks at the start
# What an older peer speaks: no pre-vote, no high watermark in Fetch.
OLD_VERSIONS = {52: 1, 1: 17}
CLEANING_MS = 3000
NEVER_FULL = 1 << 40
SESSION_EXPIRY_MS = 3_600_000  # longer than any run
TURN_MS = 0.05  # until whoever else runs on the machine has had its turn


class PowerCut(Exception):
    """The machine stops here."""


@dataclass(slots=True)
class Ticket:
    """Takes the answer to a received request."""

    host: Host
    source: int
    incarnation: int
    correlation_id: int
    api_key: int
    version: int
    message: Struct

    def answer(self, message: Struct) -> None:
        """Encode and send the answer."""
        self.host.answer(self, message)


class Application(Protocol):
    """The workload of the hosts; see ``workload.Workload``."""

    # ruff: noqa: D102

    def make_machine(self, host: Host) -> Replicated: ...
    def started(self, host: Host) -> None: ...
    def handled(self, host: Host) -> None: ...
    def leading(self, host: Host, epoch: int) -> None: ...
    def leading_ended(self, host: Host) -> None: ...
    def serves(self, message: Struct) -> bool: ...
    def received(self, host: Host, ticket: Ticket) -> None: ...


class Watcher(Protocol):
    """Checks the hosts; see ``checks.Checker``."""

    def started(self, host: Host) -> None: ...
    def crashed(self, host: Host) -> None: ...
    def before_sending(self, host: Host, effects: Effects) -> None: ...
    def after_event(self, host: Host, effects: Effects) -> None: ...
    def applied(self, host: Host, offset: int, digest: bytes | None) -> None: ...
    def restored(self, host: Host) -> None: ...


class Surroundings(Protocol):
    """The world around a host; see ``world.World``."""

    seed: int
    options: Options
    agenda: Agenda
    network: Network
    hosts: list[Host]
    first_voters: VoterSet
    is_static: bool

    @property
    def checker(self) -> Watcher: ...
    @property
    def workload(self) -> Application: ...
    def raft_config(self, host: Host) -> RaftConfig: ...
    def host_at(self, name: str) -> Host: ...
    def flush_delay_ms(self, host: Host) -> float: ...
    def cuts_power_while_installing(self, host: Host) -> bool: ...
    def connections_broke(self, host: Host) -> None: ...
    def down(self, host: Host) -> None: ...
    def note(self, host: Host | None, kind: str, text: str) -> None: ...
    def note_message(self, source: Host, target: Host | None, message: Struct, number: int = 0) -> None: ...
    def high_watermark_moved(self, host: Host) -> None: ...
    def role_changed(self, host: Host) -> None: ...


class Host(ExecutorHooks, Probe):
    """A simulated machine with a disk, a clock, and a process that runs a replica.

    Args:
        world: the simulated world.
        number: its replica id.
        is_old: whether it speaks older versions of the protocol.
    """

    def __init__(self, world: Surroundings, number: int, *, is_old: bool) -> None:
        options = world.options
        self.world = world
        self.number = number
        self.rng = Random(f"host-{world.seed}-{number}")
        self.versions = OLD_VERSIONS if is_old else {}
        self.endpoint = Endpoint(LISTENER, f"n{number}", PORT)
        self.drift = 1.0 + options.drift * (2 * self.rng.random() - 1)
        if options.leader_lease_ms:
            self.drift = 1.0 + math.copysign(DRIFT, self.drift - 1.0 or self.number % 2 - 0.5)
        self.skew_ms = EPOCH_MS + self.rng.randrange(60_000)
        self.incarnation = 0
        self.is_up = False
        self.refuses = False
        self.paused_until = 0
        self.shows_epoch = 0  # the highest epoch it may have told anyone, over all its lives with this disk
        self.fuse: int | None = None
        self.not_before = 0
        self.is_to_begin = False  # a quorum, when it next starts
        self.install_disk()

    # --- the machine --------------------------------------------------------------------------------------------------

    def install_disk(self) -> None:
        """Put an empty disk in."""
        self.disk = SimulatedDisk(self.rng)
        self.directory_id = Uuid.random(self.rng.randbytes)
        self.key = ReplicaKey(self.number, self.directory_id)
        self.shows_epoch = 0
        self.disk.make_folder(FOLDER)
        self.is_to_begin = False

    def lose_disk(self, *, is_static: bool, after_us: int) -> None:
        """Stop the machine and give it an empty disk; when it starts again its node formats itself.

        Args:
            is_static: whether it is a static voter; else it is told to begin a quorum.
            after_us: least time until the start, microseconds; no message is on its way for as long.
        """
        self.not_before = self.world.agenda.now + after_us
        self.die(power=True)
        self.install_disk()
        if is_static:
            ProbationMark(self.disk, DIRECTORY).set()
        else:
            self.is_to_begin = True

    @property
    def has_forgotten(self) -> bool:
        """Whether it is, or will be, on probation."""
        return ProbationMark(self.disk, DIRECTORY).is_set()

    def format(self, voters: VoterSet) -> None:
        """Write the 0-0 checkpoint of a new quorum."""
        store = SnapshotStore(self.disk, FOLDER, randbytes=self.rng.randbytes)
        with SnapshotWriter(
            store.create(SnapshotId(0, 0)), now_ms=EPOCH_MS, kraft_version=1, voters=voter_entries(voters)
        ) as writer:
            writer.freeze(EPOCH_MS)

    def begin_quorum(self) -> None:
        """Begin a new quorum with this host as the only voter."""
        self.is_to_begin = False
        self.format(VoterSet((Voter(self.key, (self.endpoint,), VersionRange(0, 1)),)))

    def format_alone(self, epoch: int) -> None:
        """Begin a quorum of one in an epoch after ``epoch``, for the old one may have had elections."""
        self.begin_quorum()
        QuorumStateFile(self.disk, f"{FOLDER}/quorum-state").write(ElectionState(epoch, kraft_version=1))

    def clock_ms(self) -> int:
        """The time of this machine's clock."""
        return self.skew_ms + int(self.world.agenda.now * self.drift) // 1000

    def time_of(self, clock_ms: int) -> int:
        """The world's time at which this machine's clock shows ``clock_ms``."""
        return int((clock_ms - self.skew_ms + 1) * 1000 / self.drift)

    def start(self) -> None:
        """Start the process; if the disk fails, try again later."""
        if self.is_up:
            return
        if self.world.agenda.now < self.not_before or (
            self.is_to_begin and not join_or_begin(self, self.world.hosts, blocked=self.world.network.blocked)
        ):
            self.world.down(self)
            return
        self.incarnation += 1
        self.is_up = True
        try:
            self._open()
            self.world.checker.started(self)
            self.handle(Tick())
        except StorageError as error:
            self.world.note(self, "cannot start", str(error))
            self.die(power=self.rng.random() < 0.5)

    def _open(self) -> None:
        options = self.world.options
        now_ms = self.clock_ms()
        config = LogConfig(
            segment_bytes=options.segment_bytes,
            index_interval_bytes=512,
            file_delete_delay_ms=1000,
            tail_bytes=20_000,
        )
        self.log = Log.open(self.disk, FOLDER, config, now_ms=now_ms)
        self.store = SnapshotStore(self.disk, FOLDER, delete_delay_ms=1000, randbytes=self.rng.randbytes)
        self.quorum_file = QuorumStateFile(self.disk, f"{FOLDER}/quorum-state")
        self.committed_file = CommittedFile(self.disk, FOLDER)
        self.probation = ProbationMark(self.disk, DIRECTORY)
        cleaning = CleaningConfig(options.snapshot_bytes, 30_000, options.retention_bytes, -1, CLEANING_MS)
        self.machine = self.world.workload.make_machine(self)
        self.outstanding: dict[int, tuple[int, int, int, int]] = {}
        self._timeouts_armed = False
        self._tick_at = 0
        self._flushing = False
        saved = self.quorum_file.read()
        self.replica = Replica(
            self.world.raft_config(self),
            self.log,
            self.store,
            self.rng,
            saved,
            committed=self.committed_file.read(),
            may_have_forgotten=self.probation.is_set(),
        )
        limits = ExecutorLimits(
            options.max_batch_bytes, NEVER_FULL, SESSION_EXPIRY_MS, options.gathers, apply_bytes=options.apply_bytes
        )
        self.executor = Executor(
            self.replica, self.log, self.store, self.machine, self, self, limits, cleaning, now_ms, probe=self
        )
        self._turn_planned = False
        self.world.workload.started(self)
        self.world.agenda.after_ms(cleaning.period_ms, self._clean, self.incarnation)

    def die(self, *, power: bool) -> None:
        """End the process; with ``power`` also the machine, and a random part of the unsynced writes is lost."""
        if not self.is_up:
            return
        self.is_up = False
        self.fuse = None
        self.refuses = not power
        capacity = self.disk.capacity
        self.disk = self.disk.crash("mixed" if power else "kept")
        self.disk.capacity = capacity
        if not power:
            self.world.connections_broke(self)
        self.world.note(self, "down", "power cut" if power else "process died")
        self.world.down(self)

    # --- the process --------------------------------------------------------------------------------------------------

    def deliver(self, incarnation: int, event: Event) -> None:
        """Hand an event to the process, unless it has died since."""
        self.perform(incarnation, self._handle, event)

    def perform(self, incarnation: int, action: Callable[..., None], *arguments: Any) -> None:
        """Have the process call ``action`` as soon as it is not paused, unless it has died since."""
        if incarnation != self.incarnation or not self.is_up:
            return
        if self.paused_until > self.world.agenda.now:
            self.world.agenda.at(self.paused_until, self.perform, incarnation, action, *arguments)
            return
        self._run(action, *arguments)

    def handle(self, event: Event) -> None:
        """Give an event to the executor now."""
        self._run(self._handle, event)

    def _handle(self, event: Event) -> None:
        self.executor.handle(self.clock_ms(), event)

    def _run(self, action: Callable[..., None], *arguments: Any) -> None:
        try:
            action(*arguments)
            executor = self.executor
            if executor.wants_batch:
                executor.propose(self.clock_ms())
            executor.check_invariants()
            self.world.workload.handled(self)
            self._arm(executor.due_ms)
            if executor.wants_turn and not self._turn_planned:
                self._turn_planned = True
                self.world.agenda.after_ms(TURN_MS, self.perform, self.incarnation, self._take_turn)
            self._snapshot_if_due()
        except StorageError as error:
            self.world.note(self, "disk failed", str(error))
            self.world.checker.crashed(self)
            self.die(power=True)
        except PowerCut:
            self.world.checker.crashed(self)
            self.die(power=self.rng.random() < 0.7)

    def _take_turn(self) -> None:
        self._turn_planned = False
        self.executor.turn(self.clock_ms())

    def _burn(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise PowerCut

    # --- ports and hooks of the executor ------------------------------------------------------------------------------

    def handled(self, event: Event, effects: Effects) -> None:
        """See `Probe`."""
        self._burn()

    def save(self, state: ElectionState) -> None:
        """See `Ports`."""
        self.quorum_file.write(state)

    def saved(self, effects: Effects) -> None:
        """See `Probe`."""
        self._burn()
        self.world.checker.before_sending(self, effects)
        self.world.checker.after_event(self, effects)

    def sent(self, effects: Effects) -> None:
        """See `Probe`."""
        self._burn()

    def end_probation(self) -> None:
        """See `Ports`."""
        self.probation.clear()

    def keep_committed(self, known: OffsetAndEpoch) -> None:
        """See `Ports`."""
        self.committed_file.write(known)

    def begin_flush(self) -> None:
        """See `Ports`."""

    def verify(self, wanted: VerifySnapshot) -> None:
        """See `Ports`."""
        self._go_on(self.incarnation, verifying(wanted, verify_and_close), self.executor.verified)

    def install(self, wanted: InstallSnapshot) -> None:
        """See `Ports`."""
        self._go_on(
            self.incarnation, installing(wanted, self.log, self.store, self.clock_ms()), self.executor.installed
        )

    def _go_on(self, incarnation: int, steps: Generator[str, None, Any], done: Callable[[int, Any], None]) -> None:
        """Go on with a received snapshot, a step at a time; the power may be cut between any two steps."""
        self.world.agenda.after_ms(self.world.flush_delay_ms(self), self.perform, incarnation, self._step, steps, done)

    def _step(self, steps: Generator[str, None, Any], done: Callable[[int, Any], None]) -> None:
        try:
            found = next(steps)
        except StopIteration as end:
            done(self.clock_ms(), end.value)
            return
        self._burn()
        if self.world.cuts_power_while_installing(self):
            self.world.note(self, "installing", f"a snapshot is {found}, and the power is cut")
            raise PowerCut
        self._go_on(self.incarnation, steps, done)

    def flush(self, size: int) -> None:
        """See `Ports`."""
        if not self._flushing:
            self._flushing = True
            self.world.agenda.after_ms(self.world.flush_delay_ms(self), self._end_flush, self.incarnation)

    def restored(self, end_offset: int, epoch: int) -> None:
        """See `ExecutorHooks`."""
        self.world.note(self, "restored", f"snapshot {end_offset}-{epoch}")
        self.world.checker.restored(self)

    def leading(self, epoch: int) -> None:
        """See `ExecutorHooks`."""
        self.world.workload.leading(self, epoch)

    def leading_ended(self, epoch: int) -> None:
        """See `ExecutorHooks`."""
        self.world.workload.leading_ended(self)

    def applied(self, offset: int) -> None:
        """See `ExecutorHooks`."""
        self.world.checker.applied(self, offset, self.machine.digest)

    def committed(self, high_watermark: int) -> None:
        """See `ExecutorHooks`."""
        self.world.high_watermark_moved(self)

    def noted(self, text: str) -> None:
        """See `ExecutorHooks`."""
        self.world.note(self, "note", text)

    def alarmed(self, text: str) -> None:
        """See `ExecutorHooks`."""
        self.world.note(self, "alarm", text)

    @property
    def high_watermark(self) -> int:
        """The process's high watermark."""
        return self.executor.high_watermark

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self, deadline_ms: int | None) -> None:
        if deadline_ms is None:
            return
        time = max(self.time_of(deadline_ms), self.world.agenda.now + 1000)
        if self._tick_at <= self.world.agenda.now or time < self._tick_at:
            self._tick_at = time
            self.world.agenda.at(time, self._tick, self.incarnation, time)

    def _tick(self, incarnation: int, time: int) -> None:
        if incarnation != self.incarnation or time != self._tick_at:
            return
        if self.paused_until > self.world.agenda.now:
            self._tick_at = self.paused_until
            self.world.agenda.at(self.paused_until, self._tick, incarnation, self._tick_at)
            return
        self._tick_at = 0
        self.deliver(incarnation, Tick())

    def _end_flush(self, incarnation: int) -> None:
        if incarnation != self.incarnation or not self.is_up:
            return
        self._flushing = False
        try:
            offset = self.log.flush()
        except StorageError as error:
            self.world.note(self, "disk failed", str(error))
            self.world.checker.crashed(self)
            self.die(power=True)
            return
        self.perform(incarnation, self._flushed, offset)

    def _flushed(self, offset: int) -> None:
        self.executor.flushed(self.clock_ms(), offset)

    def _clean(self, incarnation: int) -> None:
        if incarnation != self.incarnation or not self.is_up:
            return
        self.world.agenda.after_ms(CLEANING_MS, self._clean, incarnation)
        if self.log.flushed_offset < self.log.log_end_offset or self.executor.is_installing:
            return
        try:
            if self.executor.clean(self.clock_ms()):
                self.world.note(self, "cleaned", f"log starts at {self.log.log_start_offset}")
        except StorageError as error:
            self.world.note(self, "disk failed", str(error))
            self.die(power=True)

    # --- requests and answers -----------------------------------------------------------------------------------------

    def _version(self, api_key: int, versions: tuple[int, int], peer: Host | None) -> int:
        top = min(versions[1], self.versions.get(api_key, versions[1]))
        return top if peer is None else min(top, peer.versions.get(api_key, top))

    def send(self, send: Send) -> None:
        """See `Ports`."""
        world = self.world
        peer = world.host_at(send.destination.host)
        schema = type(send.message).schema  # type: ignore[attr-defined]
        version = self._version(schema.api_key, schema.versions, peer)
        if version < send.min_version:
            world.agenda.after_ms(
                1, self.deliver, self.incarnation, Failed(send.request_id, Failure.UNSUPPORTED_VERSION)
            )
            return
        frame = encode_request(send.message, version, send.request_id)  # type: ignore[arg-type]
        deadline = world.agenda.now + send.timeout_ms * 1000
        self.outstanding[send.request_id] = (deadline, peer.number, schema.api_key, version)
        if not self._timeouts_armed:
            self._timeouts_armed = True
            world.agenda.at(deadline, self._time_out, self.incarnation)
        world.note_message(self, peer, send.message)
        world.network.request(self.number, peer.number, self.incarnation, send.request_id, frame)

    def _time_out(self, incarnation: int) -> None:
        if incarnation != self.incarnation or not self.is_up:
            return
        self._timeouts_armed = False
        now = self.world.agenda.now
        for request_id, (deadline, *_) in list(self.outstanding.items()):
            if deadline > now:
                self._timeouts_armed = True
                self.world.agenda.at(deadline, self._time_out, incarnation)
                break
            del self.outstanding[request_id]
            self.deliver(incarnation, Failed(request_id, Failure.TIMED_OUT))
            if self._went_down():
                break

    def _went_down(self) -> bool:
        return not self.is_up  # asked anew: handling an event may end the process

    def receive_request(self, source: int, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """A frame arrived."""
        header, message = decode_request(frame)
        if message is None:
            raise InvariantError(f"host {self.number} cannot read a request of host {source}")
        key, version = header.request_api_key, header.request_api_version
        ticket = Ticket(self, source, incarnation, correlation_id, key, version, message)
        if isinstance(message, ApiVersionsRequest):
            self._answer_api_versions(ticket)
        elif self.world.workload.serves(message):
            self.perform(self.incarnation, self.world.workload.received, self, ticket)
        else:
            self.deliver(self.incarnation, Received(ticket, message, version, LISTENER))

    def _answer_api_versions(self, ticket: Ticket) -> None:
        feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
        self.answer(ticket, ApiVersionsResponse(supported_features=[feature]))

    def answer(self, ticket: Ticket, message: Struct) -> None:
        """Send the answer to a request."""
        frame = encode_response(message, ticket.version, ticket.correlation_id)  # type: ignore[arg-type]
        self.world.note_message(self, None, message, ticket.source)
        self.world.network.respond(self.number, ticket.source, ticket.incarnation, ticket.correlation_id, frame)

    def receive_response(self, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """Take an answer, unless the process that asked has died."""
        if incarnation != self.incarnation or correlation_id not in self.outstanding:
            return
        *_, api_key, version = self.outstanding.pop(correlation_id)
        _, message = decode_response(frame, api_key, version)
        self.deliver(incarnation, Answered(correlation_id, message))

    def receive_failure(self, incarnation: int, correlation_id: int, failure: Failure) -> None:
        """A connection was refused or broke."""
        if incarnation == self.incarnation and self.outstanding.pop(correlation_id, None) is not None:
            self.deliver(incarnation, Failed(correlation_id, failure))

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def _snapshot_if_due(self) -> None:
        now_ms = self.clock_ms()
        if self.executor.is_installing or not self.executor.snapshot_is_due(now_ms):
            return
        try:
            contents = self.executor.gather_snapshot(now_ms)
        except SnapshotLaterError:
            return
        except StateMachineError as error:
            if not isinstance(error.__cause__, LocalError):
                raise
            self.world.note(self, "no snapshot", str(error))
            return
        if contents is None:
            return
        try:
            contents.write(self.store)
        except StorageError as error:
            self.world.note(self, "no snapshot", str(error))
            return
        self.world.note(self, "snapshot", f"{contents.end_offset}-{contents.epoch}")
        self._run(self.executor.snapshot_written, now_ms, contents)

    # --- a clean stop -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Begin a clean stop."""
        self.deliver(self.incarnation, Shutdown())

    def close(self) -> None:
        """End a clean stop: the log is closed, so that the next start trusts it."""
        if not self.is_up:
            return
        try:
            self.log.close()
        except StorageError as error:
            self.world.note(self, "disk failed", str(error))
        self.world.checker.crashed(self)
        self.die(power=False)


TOPIC_ID = METADATA_TOPIC_ID


def raft_config(host: Host, static_voters: VoterSet, bootstrap: tuple[tuple[str, int], ...]) -> RaftConfig:
    """The configuration of a host's replica."""
    options = host.world.options
    return RaftConfig(
        cluster_id="simulated",
        key=host.key,
        listeners=(host.endpoint,),
        static_voters=static_voters,
        bootstrap_servers=bootstrap,
        auto_join=options.auto_join,
        reluctant=host.key.id <= options.reluctant_hosts,
        topic_id=TOPIC_ID,
        election_timeout_ms=options.election_timeout_ms,
        fetch_timeout_ms=options.fetch_timeout_ms,
        election_backoff_max_ms=options.election_timeout_ms,
        request_timeout_ms=options.fetch_timeout_ms,
        fetch_max_wait_ms=min(500, options.fetch_timeout_ms // 4),
        fetch_max_bytes=options.chunk_bytes,
        fetch_snapshot_max_bytes=options.chunk_bytes,
        high_watermark_linger_ms=options.high_watermark_linger_ms,
        observer_linger_ms=options.observer_linger_ms,
        fast_failover=options.fast_failover,
        leader_lease_ms=options.leader_lease_ms if host.key.id % 3 else options.lease_of_some_ms,
    )
