"""What a replica knows beside its role; all parts of the consensus share this state.

A role's own data is in the role's object (``roles``) and ends with the role. Everything that outlives a role is here:
epoch and vote, voter sets and kraft.version by offset, the high watermark, requests in flight, the effects of the event
that is being handled, and the steps that follow from that event. The files beside this one hold the rules.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from kraftcore.core.batch import RecordBatch
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.wire.struct import Struct
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.raft.control_records import control_batches, first_batch, voter_changes
from kraftcore.raft.events import (
    Destination,
    Effects,
    Leadership,
    Outcome,
    RaftConfig,
    Response,
    Send,
)
from kraftcore.raft.history import BOOTSTRAP_OFFSET, History
from kraftcore.raft.ports import LogPort, RandomPort, SnapshotPort
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.raft.roles import NEVER, Follower, Leader, Prospective, Role, RoleState, SnapshotFetch, Unattached

NOTE_AGAIN_MS = 60_000  # between two equal notes: a peer that refuses is asked again several times a second
NOTES_MAX = 1000  # so many notes' times are kept: peers bring texts of their own
DESTINATIONS_MAX = 1000  # so many destinations' backoffs are kept before those that have ended are dropped


class Step(IntEnum):
    """A step that follows from an event and concerns a higher part; a table in ``replica`` says who carries it out."""

    FETCH_ACCEPTED = 0  # a Fetch names a place on the leader's log: it is answered at once or later
    HIGH_WATERMARK_ROSE = 1  # the leader's
    VOTERS_CHANGED = 2  # the leader appended control records: another voter set may be in force
    VOTES_CHANGED = 3  # of a prospective or a candidate


def soonest(first: int | None, second: int | None) -> int | None:
    """The earlier of two times, None meaning never."""
    if first is None:
        return second
    return first if second is None or first <= second else second


@dataclass(slots=True)
class InFlight:
    """A request that was sent and is not answered yet.

    Attributes:
        request_id: see `Send`.
        destination: where the request went.
        message: the request.
        epoch: the leader epoch in which it was sent.
        exclusive: whether no other request is sent to the same destination meanwhile.
        sent_ms: when it was sent, or a moment before.
    """

    request_id: int
    destination: Destination
    message: Struct
    epoch: int
    exclusive: bool
    sent_ms: int


@dataclass(slots=True)
class Floor:
    """The floor, below which the log is never truncated; see ``floor``.

    Attributes:
        known: everything below the offset is committed, and the record before it is of the epoch; None: unknown.
        due_ms: when the floor is to be written next; None: there is nothing to write.
        is_eager: whether every rise of the high watermark is written at once.
    """

    known: OffsetAndEpoch | None
    due_ms: int | None = None
    is_eager: bool = False


@dataclass(slots=True)
class ReceivedSnapshots:
    """Snapshots that were received, until they are installed; see ``snapshot_fetch``.

    Attributes:
        number: of the latest `VerifySnapshot`.
        verified: by number: a snapshot that is being verified, and its sender.
        source: the sender of the snapshot that is being installed.
        damaged: how many damaged snapshots were received in a row.
    """

    number: int = 0
    verified: dict[int, tuple[SnapshotFetch, Destination]] = field(default_factory=dict)
    source: Destination | None = None
    damaged: int = 0


@dataclass(slots=True)
class BootstrapServers:
    """The servers that are asked for the leader; see ``replication``.

    Attributes:
        servers: the configured servers, or the other voters; never this replica itself.
        voters: the voter set for which ``servers`` was made.
        ask_again_ms: no server is asked before this time.
    """

    servers: list[Destination] = field(default_factory=list)
    voters: VoterSet | None = None
    ask_again_ms: int = 0


class RaftState:
    """The state that the parts of one replica share.

    Args:
        config: how the replica takes part.
        log: the replica's log, open.
        snapshots: the replica's snapshots.
        rng: draws timeouts and bootstrap servers.
        saved: the contents of the ``quorum-state`` file.
        committed: the floor that was written last; None: there is none. See ``floor``.
        may_have_forgotten: whether the node's directory is new, though the node may have had another one before; see
            ``probation``.
    """

    def __init__(
        self,
        config: RaftConfig,
        log: LogPort,
        snapshots: SnapshotPort,
        rng: RandomPort,
        saved: ElectionState,
        committed: OffsetAndEpoch | None = None,
        may_have_forgotten: bool = False,
    ) -> None:
        self.config = config
        self.log = log
        self.snapshots = snapshots
        self.rng = rng
        self.epoch = saved.epoch
        self.voted_key = saved.voted_key
        self.high_watermark: int | None = None
        # Told by a leader, perhaps beyond our log's end, or our own: the first one and the latest.
        self.first_high_watermark: int | None = None
        self.told_high_watermark: int | None = None
        self.voter_sets: History[VoterSet] = History(config.static_voters)
        self.versions: History[int] = History(0)
        self.role: RoleState = Unattached(None, saved.leader_id)  # until ``election.start``
        self.has_begun = False
        self.shutting_down = False
        self.floor = Floor(committed)
        self.received = ReceivedSnapshots()
        self.bootstrap = BootstrapServers()
        # Added to the election and fetch timers of a reluctant replica, so that other voters' elections come first.
        self.patience_ms = config.fetch_timeout_ms + 2 * config.election_timeout_ms if config.reluctant else 0
        self.handed_over_ms: dict[ReplicaKey, int] = {}  # when a reluctant leader handed over to a voter
        self.may_have_forgotten = may_have_forgotten  # its votes and acknowledgements; until ``probation`` ends
        self.is_nameless = may_have_forgotten  # it fetches without its id, so that no leader counts it
        self.told_epochs: dict[int, int] = {}  # for ``probation``, by voter id: the highest epoch that it named
        self.ask_epochs_ms = 0  # when ``probation`` asks voters for their epochs again
        self.waits_since_ms = 0  # when ``probation`` began to ask; 0: not yet
        self.bound_until_ms = NEVER  # it has promised to elect nobody until then; see ``leases``
        self.alarm_text: str | None = None
        self.now_ms = 0
        self.out = Effects()
        self.steps: deque[tuple[Step, RoleState, tuple[Any, ...]]] = deque()
        self.in_flight: dict[int, InFlight] = {}
        self._last_request_id = 0
        self._busy: dict[Destination, int] = {}
        self._backing_off: dict[Destination, int] = {}
        self._voters_checked: VoterSet | None = None
        self._is_voter = False
        self._noted_ms: dict[str, int] = {}
        self.refusals: dict[Destination, str] = {}  # why a peer does not agree with us, by its last answer
        self.leader_answered_ms = 0  # when the leader last answered, see ``Replica.leader_silent_ms``
        self._announced: Leadership | None = None
        self.announced_role: RoleState | None = None  # None: the leader is to be announced anew

    # --- voters -------------------------------------------------------------------------------------------------------

    @property
    def voters(self) -> VoterSet:
        """The voter set in force: the latest one, committed or not."""
        return self.voter_sets.latest

    @property
    def version(self) -> int:
        """The latest kraft.version, committed or not."""
        return self.versions.latest

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set in force."""
        voters = self.voter_sets.latest
        if voters is not self._voters_checked:
            self._voters_checked = voters
            self._is_voter = self.config.key.id >= 0 and voters.is_voter(self.config.key)
        return self._is_voter

    def own_entry(self) -> Voter:
        """This replica as a voter set should name it."""
        config = self.config
        return Voter(config.key, config.listeners, VersionRange(0, config.max_supported_version))

    def voters_with_own_entry(self) -> VoterSet:
        """The voter set in force, with this replica's entry brought up to date if it has one."""
        return self.voters.with_updated(self.own_entry()) if self.is_voter else self.voters

    def has_uncommitted_voters(self, leader: Leader) -> bool:
        """Whether the record of the voter set in force lies above this leader's high watermark."""
        latest = self.voter_sets.latest_offset
        value = leader.watermark.value
        return latest is not None and (value is None or latest >= value)

    def load_history(self) -> None:
        """Read voter sets and versions from the latest snapshot and the log's control batches."""
        self.voter_sets.clear()
        self.versions.clear()
        start = self.log.log_start_offset
        latest = self.snapshots.latest
        if latest is not None:
            end_offset = latest[0]
            offset = end_offset - 1 if end_offset else BOOTSTRAP_OFFSET
            self._learn(first_batch(self.snapshots, latest), offset)
            start = max(start, end_offset)
        for batch in control_batches(self.log, start):
            self._learn(batch)

    def learn_from(self, batches: Sequence[RecordBatch]) -> None:
        """Put the voter sets and versions that newly appended batches hold in force."""
        for batch in batches:
            if batch.is_control:
                self._learn(batch)

    def _learn(self, batch: RecordBatch, at: int | None = None) -> None:
        before = self.voters
        for offset, version, voters in voter_changes(batch):
            position = offset if at is None else at
            if version is not None:
                self.versions.add(position, version)
            if voters is not None:
                self.voter_sets.add(position, voters)
        if self.voters is not before:
            self.out.voters = self.voters

    def forget_history_from(self, offset: int) -> None:
        """Undo voter sets and versions from ``offset`` on, where the log was cut."""
        self.versions.truncate_to(offset)
        if self.voter_sets.truncate_to(offset):
            self.out.voters = self.voters

    # --- the end of the log -------------------------------------------------------------------------------------------

    @property
    def is_flushed(self) -> bool:
        """Whether everything in the log is durable."""
        return self.log.flushed_offset >= self.log.log_end_offset

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last record, in the log or in the latest snapshot; 0 without records.

        Source: Kafka 4.3.1 KafkaRaftLog.lastFetchedEpoch.
        """
        epoch = self.log.last_epoch
        if epoch is not None:
            return epoch
        latest = self.snapshots.latest
        return 0 if latest is None else latest[1]

    @property
    def oldest_snapshot(self) -> tuple[int, int] | None:
        """The oldest snapshot at or after the log's start; None without one; the 0-0 checkpoint does not count.

        An older snapshot says nothing about the records that stood right before the log's start, so nothing may be
        compared with it.
        """
        start = self.log.log_start_offset
        return next((found for found in self.snapshots.ids if found[0] >= start and found[0] > 0), None)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The largest known leader epoch at or below ``epoch``, and the offset at which that epoch ends.

        Source: Kafka 4.3.1 KafkaRaftLog.endOffsetForEpoch.
        """
        newest = self.log.last_epoch
        if newest is None or epoch > newest:
            return OffsetAndEpoch(self.log.log_end_offset, self.last_epoch)
        found = self.log.end_offset_for_epoch(epoch)
        oldest = self.oldest_snapshot
        if oldest is not None and found.offset == oldest[0] and found.epoch == epoch:
            return OffsetAndEpoch(*oldest)
        return OffsetAndEpoch(found.offset, found.epoch)

    def raise_high_watermark(self, value: int) -> None:
        """Everything below ``value`` is committed; a lower value than the present one changes nothing."""
        if self.high_watermark is None or value > self.high_watermark:
            self.high_watermark = value
            self.out.high_watermark = value

    def voters_at(self, end_offset: int) -> tuple[int, VoterSet]:
        """kraft.version and voter set in force below ``end_offset``: what a snapshot up to there must name."""
        return self.versions.at(end_offset - 1), self.voter_sets.at(end_offset - 1)

    # --- roles --------------------------------------------------------------------------------------------------------

    def save_election_state(self) -> None:
        """Put epoch, vote and leader into the effects: they are saved before any message of this event is sent."""
        voter_ids = tuple(sorted(self.voters.ids)) if self.version == 0 else ()
        # A leader voted for itself, so its vote is not written. Source: Kafka 4.3.1 LeaderState.election.
        voted = None if isinstance(self.role, Leader) else self.voted_key
        self.out.election_state = ElectionState(self.epoch, self.leader_id, voted, self.version, voter_ids)

    def leader_only_error(self, epoch: int) -> ErrorCode:
        """The error for a request that only a leader can serve, and that names ``epoch``; NONE: it can be served."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if self.shutting_down else ErrorCode.NONE

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch, None while unknown; a leader that has resigned is still its epoch's leader."""
        role = self.role
        if isinstance(role, Leader):
            return self.config.key.id
        if isinstance(role, Follower):
            return role.leader_id
        if isinstance(role, Unattached | Prospective):
            return role.leader_id
        return self.config.key.id if role.role is Role.RESIGNED else None

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the known leader listens, or nothing."""
        role = self.role
        if isinstance(role, Leader) or role.role is Role.RESIGNED:
            return self.config.listeners
        if isinstance(role, Follower | Prospective):
            return role.leader_endpoints
        return ()

    @property
    def answering_leader_id(self) -> int | None:
        """The leader that was announced last; None: no leader has answered for a fetch timeout."""
        return None if self._announced is None else self._announced.leader_id

    def leader_answered(self) -> None:
        """Note that the leader answered, or that a majority of the voters has fetched from this leader."""
        self.leader_answered_ms = self.now_ms
        if self.answering_leader_id is None:
            self.announced_role = None

    def announce(self) -> None:
        """Put the leader into the effects, if it is another one than was announced last, or of another epoch.

        A leader that this replica only remembers, or was told of, is none until it answers.
        """
        role = self.announced_role = self.role
        if isinstance(role, Leader):
            now = Leadership(self.epoch, self.config.key.id, True, role.epoch_start_offset)
        elif isinstance(role, Follower) and role.is_answered(self.now_ms):
            now = Leadership(self.epoch, role.leader_id)
        else:
            now = Leadership(self.epoch, None)
        if now != self._announced:
            self._announced = self.out.leadership = now

    # --- steps --------------------------------------------------------------------------------------------------------

    def then(self, step: Step, role: RoleState, *arguments: Any) -> None:
        """Queue a step: the replica carries queued steps out in order, when the present handler has returned.

        Args:
            step: what is to be done.
            role: the role in which that follows. If it has ended by then, only `Step.FETCH_ACCEPTED` is carried out.
            arguments: what the functions of that step take after the role.
        """
        self.steps.append((step, role, arguments))

    # --- time ---------------------------------------------------------------------------------------------------------

    def random_election_deadline(self) -> int:
        """Now + T + random[0, T). Source: Kafka 4.3.1 QuorumState.randomElectionTimeoutMs."""
        timeout = self.config.election_timeout_ms
        return self.now_ms + timeout + (self.rng.randrange(timeout) if timeout > 0 else 0)

    # --- requests -----------------------------------------------------------------------------------------------------

    def is_ready(self, destination: Destination) -> bool:
        """Whether a request may be sent: none is in flight to that destination, and its backoff has ended."""
        return destination not in self._busy and self._backing_off.get(destination, 0) <= self.now_ms

    def is_backing_off(self, destination: Destination) -> bool:
        """Whether a request to that destination failed, or was refused, a moment ago."""
        return self._backing_off.get(destination, 0) > self.now_ms

    def ready_at(self, destination: Destination) -> int | None:
        """When the destination's backoff ends, ms; None while a request to it is in flight."""
        return None if destination in self._busy else self._backing_off.get(destination, 0)

    def send(self, destination: Destination, message: Struct, *, min_version: int = 0, exclusive: bool = True) -> int:
        """Send a request and return its id; before an exclusive one the caller checks ``is_ready``."""
        self._last_request_id += 1
        request_id = self._last_request_id
        self.in_flight[request_id] = InFlight(request_id, destination, message, self.epoch, exclusive, self.now_ms)
        if exclusive:
            self._busy[destination] = request_id
        self.out.sends.append(Send(request_id, destination, message, self.config.request_timeout_ms, min_version))
        return request_id

    def settle(self, request_id: int, *, failed: bool) -> InFlight | None:
        """Take a request that was answered, or failed, off those in flight; None if it is not among them."""
        request = self.in_flight.pop(request_id, None)
        if request is None:
            return None
        if request.exclusive and self._busy.get(request.destination) == request_id:
            del self._busy[request.destination]
        if failed:
            self._back_off_until(request.destination, self.now_ms + self.config.retry_backoff_ms)
        else:
            self._backing_off.pop(request.destination, None)
        return request

    def requests_wrong(self) -> Iterator[str]:
        """Contradictions among the requests in flight, for `invariants`."""
        for to, request_id in self._busy.items():
            if request_id not in self.in_flight:
                yield f"waits for request {request_id} to {to}, which has ended"

    def back_off(self, destination: Destination, pause_ms: int | None = None) -> None:
        """Send a peer nothing for ``pause_ms``; None: for ``retry_backoff_ms``."""
        self._back_off_until(
            destination, self.now_ms + (self.config.retry_backoff_ms if pause_ms is None else pause_ms)
        )

    def _back_off_until(self, destination: Destination, until_ms: int) -> None:
        if len(self._backing_off) >= DESTINATIONS_MAX:  # peers name addresses, as many as they like
            self._backing_off = {each: due for each, due in self._backing_off.items() if due > self.now_ms}
        self._backing_off[destination] = until_ms

    def refused(self, destination: Destination, why: str | None) -> None:
        """Keep in ``refusals`` why a peer does not agree with us, by its last answer; None: the peer agrees."""
        self.refusals.pop(destination, None)
        if why is not None:
            if len(self.refusals) >= DESTINATIONS_MAX:
                del self.refusals[next(iter(self.refusals))]
            self.refusals[destination] = why

    def reply(self, ticket: Any, message: Struct) -> None:
        """Answer a received request."""
        self.out.replies.append(Response(ticket, message))

    def finish(self, ticket: Any, error: ErrorCode, offset: int = -1, message: str = "") -> None:
        """End a local request; ``ticket`` is None where no caller waits."""
        if ticket is not None:
            self.out.outcomes.append(Outcome(ticket, error, offset, message))

    def note(self, text: str) -> None:
        """Put a line for the operator's log into the effects."""
        self.out.notes.append(text)

    def note_seldom(self, text: str, about: str | None = None) -> None:
        """As ``note``, but at most once a minute for the same text, or for the same ``about``."""
        about = text if about is None else about
        if self._noted_ms.get(about, -NOTE_AGAIN_MS) <= self.now_ms - NOTE_AGAIN_MS:
            self._noted_now(about)
            self.note(text)

    def _noted_now(self, about: str) -> None:
        if len(self._noted_ms) >= NOTES_MAX:
            del self._noted_ms[min(self._noted_ms, key=self._noted_ms.__getitem__)]
        self._noted_ms[about] = self.now_ms

    def alarm(self, text: str) -> None:
        """Put an alarm into the effects, at most once a minute for the same text. It lasts until a Fetch succeeds."""
        if self.alarm_text is None or self._noted_ms.get(text, -NOTE_AGAIN_MS) <= self.now_ms - NOTE_AGAIN_MS:
            self._noted_now(text)
            self.out.alarms.append(text)
        self.alarm_text = text

    def destination(self, node_id: int, endpoints: Sequence[Endpoint]) -> Destination | None:
        """Where to reach a node: its endpoint with the name of our default listener; None: it has none."""
        name = self.config.listeners[0].name if self.config.listeners else None
        for endpoint in endpoints:
            if name is None or endpoint.name == name:
                return Destination(node_id, endpoint.host, endpoint.port)
        return None
