"""One simulated machine: a disk, a clock, and a process that drives a replica.

The process does what any driver does: it hands events to ``Replica.handle`` and carries the effects out in the order
that `Effects` states. It refuses effects that contradict each other, and it can be cut off between any two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.log import Log
from kraftcore.core.log_config import LogConfig
from kraftcore.core.simdisk import SimulatedDisk
from kraftcore.core.struct import Struct
from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.errors import InvariantError, StorageError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.frames import decode_request, decode_response, encode_request, encode_response
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.raft.cleaning import Cleaner, CleaningConfig, SnapshotSchedule
from kraftcore.raft.events import (
    Answered,
    Effects,
    Event,
    Failed,
    Flushed,
    Propose,
    RaftConfig,
    Received,
    Send,
    Shutdown,
    SnapshotWritten,
    Tick,
)
from kraftcore.raft.quorum import Endpoint, VoterSet
from kraftcore.raft.records import voter_entries
from kraftcore.raft.replica import Replica
from kraftcore.raft.roles import Role
from kraftcore.storage.quorum_state import QuorumStateFile
from kraftcore.storage.snapshot_batches import SnapshotReader, SnapshotWriter, verify_snapshot
from kraftcore.storage.snapshots import SnapshotId, SnapshotStore
from kraftcore.transports.simulation.machine import Machine

if TYPE_CHECKING:
    from kraftcore.transports.simulation.world import World

FOLDER = "/data/__cluster_metadata-0"
LISTENER = "CONTROLLER"
PORT = 9093
EPOCH_MS = 1_700_000_000_000  # what the clocks show at the start
# What an older peer speaks: no pre-vote, no high watermark in Fetch.
OLD_VERSIONS = {52: 1, 1: 17}
_READ_BYTES = 1 << 20


class PowerCut(Exception):
    """The machine stops here."""


@dataclass(slots=True)
class Ticket:
    """Where the answer to a received request goes."""

    source: int
    incarnation: int
    correlation_id: int
    api_key: int
    version: int
    message: Struct


@dataclass(slots=True)
class Operation:
    """A batch a client proposed.

    Attributes:
        number: unique in the run.
        offset: where it was appended, -1 before.
        epoch: in which leader epoch.
        acknowledged: whether the client was told that it is committed.
    """

    number: int
    offset: int = -1
    epoch: int = -1
    acknowledged: bool = False


class Host:
    """See the module text.

    Args:
        world: where it lives.
        number: its replica id.
        is_old: speaks older versions of the protocol.
    """

    def __init__(self, world: World, number: int, *, is_old: bool) -> None:
        options = world.options
        self.world = world
        self.number = number
        self.rng = Random(f"host-{world.seed}-{number}")
        self.versions = OLD_VERSIONS if is_old else {}
        self.endpoint = Endpoint(LISTENER, f"n{number}", PORT)
        self.drift = 1.0 + options.drift * (2 * self.rng.random() - 1)
        self.skew_ms = EPOCH_MS + self.rng.randrange(60_000)
        self.incarnation = 0
        self.is_up = False
        self.refuses = False
        self.paused_until = 0
        self.shows_epoch = 0  # the highest epoch it may have told anyone, over all its lives with this disk
        self.fuse: int | None = None
        self.install_disk()

    # --- the machine --------------------------------------------------------------------------------------------------

    def install_disk(self) -> None:
        """Put an empty disk in."""
        self.disk = SimulatedDisk(self.rng)
        self.directory_id = Uuid.random(self.rng.randbytes)
        self.key = ReplicaKey(self.number, self.directory_id)
        self.shows_epoch = 0
        self.disk.make_folder(FOLDER)

    def format(self, voters: VoterSet) -> None:
        """Write the 0-0 checkpoint of a new quorum."""
        store = SnapshotStore(self.disk, FOLDER, randbytes=self.rng.randbytes)
        with SnapshotWriter(
            store.create(SnapshotId(0, 0)), now_ms=EPOCH_MS, kraft_version=1, voters=voter_entries(voters)
        ) as writer:
            writer.freeze(EPOCH_MS)

    def clock_ms(self) -> int:
        """What this machine's clock shows."""
        return self.skew_ms + int(self.world.agenda.now * self.drift) // 1000

    def _time_of(self, clock_ms: int) -> int:
        return int((clock_ms - self.skew_ms + 1) * 1000 / self.drift)

    def start(self) -> None:
        """Start the process; if the disk does not let it, try again later."""
        if self.is_up:
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
        cleaning = CleaningConfig(options.snapshot_bytes, 30_000, options.retention_bytes, -1, 3000)
        self.schedule = SnapshotSchedule(cleaning, now_ms)
        self.cleaner = Cleaner(cleaning, self.log, self.store)
        self.machine = Machine()
        self.high_watermark = 0
        self.pending: list[Operation] = []
        self.outstanding: dict[int, tuple[int, int, int, int]] = {}
        self._timeouts_armed = False
        self._tick_at = 0
        self._flushing = False
        self._stopping = False
        saved = self.quorum_file.read()
        self.replica = Replica(
            self.world.raft_config(self), self.log, self.store, self.rng, saved, verify_snapshot=_verify
        )
        self.world.agenda.after_ms(cleaning.period_ms, self._clean, self.incarnation)

    def die(self, *, power: bool) -> None:
        """The process ends; with ``power`` the machine too, and what was not synced is as lucky as it is."""
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
        """Something happens to the process, unless it died since."""
        if incarnation != self.incarnation or not self.is_up:
            return
        if self.paused_until > self.world.agenda.now:
            self.world.agenda.at(self.paused_until, self.deliver, incarnation, event)
            return
        self.handle(event)

    def handle(self, event: Event) -> None:
        """Give an event to the replica and carry out what it wants."""
        try:
            effects = self.replica.handle(event, self.clock_ms())
            if self.log.log_end_offset > self.log.flushed_offset and not (effects.flush or self._flushing):
                raise InvariantError("records were appended, and no flush was asked for")
            self._carry_out(effects)
        except StorageError as error:
            self.world.note(self, "disk failed", str(error))
            self.world.checker.crashed(self)
            self.die(power=True)
        except PowerCut:
            self.world.checker.crashed(self)
            self.die(power=self.rng.random() < 0.7)

    def _burn(self) -> None:
        if self.fuse is not None:
            self.fuse -= 1
            if self.fuse < 0:
                raise PowerCut

    def _carry_out(self, effects: Effects) -> None:
        self._burn()
        if effects.election_state is not None:
            self.quorum_file.write(effects.election_state)
        self._burn()
        self.world.checker.before_sending(self, effects)
        for send in effects.sends:
            self._send(send)
        for reply in effects.replies:
            self._reply(reply.ticket, reply.message)
        self._burn()
        if effects.flush:
            self._begin_flush()
        if effects.restore is not None:
            self._restore(effects.restore)
        self.world.checker.after_event(self, effects)
        if effects.high_watermark is not None:
            self._apply(effects.high_watermark)
            self.world.high_watermark_moved(self)
        for outcome in effects.outcomes:
            self._finish(outcome.ticket, outcome.error, outcome.offset)
        if effects.leadership is not None or self.pending:
            self._forget_pending()
        for text in effects.notes:
            self.world.note(self, "note", text)
        self._arm(effects.deadline_ms)
        self._snapshot_if_due()

    # --- time ---------------------------------------------------------------------------------------------------------

    def _arm(self, deadline_ms: int | None) -> None:
        if deadline_ms is None:
            return
        time = max(self._time_of(deadline_ms), self.world.agenda.now + 1000)
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

    def _begin_flush(self) -> None:
        if not self._flushing:
            self._flushing = True
            self.world.agenda.after_ms(self.world.flush_delay_ms(self), self._end_flush, self.incarnation)

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
        self.deliver(incarnation, Flushed(offset))

    def _clean(self, incarnation: int) -> None:
        if incarnation != self.incarnation or not self.is_up:
            return
        self.world.agenda.after_ms(3000, self._clean, incarnation)
        if self.log.flushed_offset < self.log.log_end_offset:
            return
        try:
            if self.cleaner.clean(self.clock_ms()):
                self.world.note(self, "cleaned", f"log starts at {self.log.log_start_offset}")
        except StorageError as error:
            self.world.note(self, "disk failed", str(error))
            self.die(power=True)

    # --- requests and answers -----------------------------------------------------------------------------------------

    def _version(self, api_key: int, versions: tuple[int, int], peer: Host | None) -> int:
        top = min(versions[1], self.versions.get(api_key, versions[1]))
        return top if peer is None else min(top, peer.versions.get(api_key, top))

    def _send(self, send: Send) -> None:
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
        ticket = Ticket(source, incarnation, correlation_id, key, version, message)
        if isinstance(message, ApiVersionsRequest):
            self._answer_api_versions(ticket)
        else:
            self.deliver(self.incarnation, Received(ticket, message, version, LISTENER))

    def _answer_api_versions(self, ticket: Ticket) -> None:
        feature = ApiVersionsResponse.SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
        self._reply(ticket, ApiVersionsResponse(supported_features=[feature]))

    def _reply(self, ticket: Ticket, message: Struct) -> None:
        frame = encode_response(message, ticket.version, ticket.correlation_id)  # type: ignore[arg-type]
        self.world.note_message(self, None, message, ticket.source)
        self.world.network.respond(self.number, ticket.source, ticket.incarnation, ticket.correlation_id, frame)

    def receive_response(self, incarnation: int, correlation_id: int, frame: bytes) -> None:
        """An answer arrived; to somebody who died meanwhile, perhaps."""
        if incarnation != self.incarnation or correlation_id not in self.outstanding:
            return
        *_, api_key, version = self.outstanding.pop(correlation_id)
        _, message = decode_response(frame, api_key, version)
        self.deliver(incarnation, Answered(correlation_id, message))

    def receive_failure(self, incarnation: int, correlation_id: int, failure: Failure) -> None:
        """A connection was refused or broke."""
        if incarnation == self.incarnation and self.outstanding.pop(correlation_id, None) is not None:
            self.deliver(incarnation, Failed(correlation_id, failure))

    # --- applying -----------------------------------------------------------------------------------------------------

    def _restore(self, snapshot_id: tuple[int, int]) -> None:
        with SnapshotReader(self.store.open(snapshot_id)) as reader:
            self.machine.load(snapshot_id[0], reader.values())
        self.schedule.begun(self.clock_ms())
        self.world.note(self, "restored", f"snapshot {snapshot_id[0]}-{snapshot_id[1]}")
        self.world.checker.restored(self)

    def _apply(self, high_watermark: int) -> None:
        self.high_watermark = high_watermark
        while self.machine.offset < high_watermark:
            data = self.log.read(self.machine.offset, _READ_BYTES, up_to=high_watermark)
            if not data:
                raise InvariantError(f"nothing to apply at {self.machine.offset}, below {high_watermark}")
            for batch in iter_batches(data, verify=False):
                self.machine.apply(batch)
                self.world.checker.applied(self)
            self.schedule.applied(len(data))
        if self.pending and self.replica.role is Role.LEADER:
            self._acknowledge(high_watermark)

    def _acknowledge(self, high_watermark: int) -> None:
        waiting = []
        for operation in self.pending:
            if operation.epoch == self.replica.epoch and operation.offset < high_watermark:
                operation.acknowledged = True
                self.world.checker.acknowledged(operation)
            else:
                waiting.append(operation)
        self.pending = waiting

    def _forget_pending(self) -> None:
        if self.replica.role is not Role.LEADER:
            self.pending = []  # committed or not: the clients are told that nobody knows

    def _snapshot_if_due(self) -> None:
        if not self.schedule.is_due(self.clock_ms()):
            return
        end_offset = self.machine.offset
        epoch = self.log.epoch_at(end_offset - 1)
        self.schedule.begun(self.clock_ms())
        if epoch is None or (end_offset, epoch) in self.store:
            return
        version, voters = self.replica.state.voters_at(end_offset)
        now_ms = self.clock_ms()
        entries = voter_entries(voters) if version else None
        try:
            with SnapshotWriter(
                self.store.create(SnapshotId(end_offset, epoch)),
                now_ms=now_ms,
                last_contained_log_timestamp_ms=now_ms,
                kraft_version=version,
                voters=entries,
            ) as writer:
                writer.append(self.machine.save(), now_ms)
                writer.freeze(now_ms)
        except StorageError as error:
            self.world.note(self, "no snapshot", str(error))
            return
        self.world.note(self, "snapshot", f"{end_offset}-{epoch}")
        self.handle(SnapshotWritten(end_offset, epoch))

    # --- what clients do ----------------------------------------------------------------------------------------------

    def propose(self, operation: Operation, values: Sequence[bytes]) -> None:
        """A client wants something appended."""
        batch = build_batch(values, timestamp_ms=self.clock_ms())
        self.deliver(self.incarnation, Propose(operation, batch))

    def stop(self) -> None:
        """Begin a clean stop."""
        self._stopping = True
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

    def _finish(self, ticket: Any, error: ErrorCode, offset: int) -> None:
        if isinstance(ticket, Operation):
            if error is ErrorCode.NONE:
                ticket.offset, ticket.epoch = offset, self.replica.epoch
                self.pending.append(ticket)
                if offset < self.high_watermark and self.replica.role is Role.LEADER:
                    self._acknowledge(self.high_watermark)
        else:
            done: Callable[[ErrorCode, int], None] = ticket
            done(error, offset)


def _verify(reader: Any) -> None:
    with reader:
        verify_snapshot(reader)


TOPIC_ID = METADATA_TOPIC_ID


def raft_config(host: Host, static_voters: VoterSet, bootstrap: tuple[tuple[str, int], ...]) -> RaftConfig:
    """How a host's replica takes part."""
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
        fast_failover=options.fast_failover,
    )
