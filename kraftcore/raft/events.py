"""The events that a replica takes, the effects that it returns, and how it is configured.

The consensus does no I/O of its own, so that it can be run by seed, step by step. A driver calls
``replica.handle(event, now_ms)``, carries the returned `Effects` out **in the order that they state**, and reports the
results as further events (`Flushed`, `Answered`, `Failed`).

``ticket`` is a value of the driver's choice, which comes back with the reply or the outcome. ``request_id`` is the
replica's number of a request that it sends, and comes back with the answer or the failure.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import LocalError
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.topics import METADATA_TOPIC
from kraftcore.raft.ports import WriterPort
from kraftcore.raft.quorum import Endpoint, VoterSet

# --- events -----------------------------------------------------------------------------------------------------------


class Received(NamedTuple):
    """A request from the network.

    Attributes:
        ticket: comes back with the reply.
        message: the decoded body.
        version: the request's api version; the answer leaves out what that version does not have.
        listener: name of the listener on which the request came; the answer names the leader's endpoint of that name.
    """

    ticket: Any
    message: Struct
    version: int
    listener: str


class Answered(NamedTuple):
    """The answer to a request that the replica sent."""

    request_id: int
    message: Struct


class Failed(NamedTuple):
    """A request that the replica sent gets no answer."""

    request_id: int
    failure: Failure


class Propose(NamedTuple):
    """Append one batch, if this replica leads, or several that belong together.

    Attributes:
        ticket: comes back in ``Effects.outcomes`` with the first record's offset, or with the reason for the refusal.
        batch: built by ``core.batch``; the log takes the buffer over and stamps offset and epoch in place.
        more: batches that follow directly; either all batches are appended or none is.
    """

    ticket: Any
    batch: bytearray
    more: tuple[bytearray, ...] = ()


class Flushed(NamedTuple):
    """The log is durable below ``offset``."""

    offset: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed. A `Tick` is due when ``Effects.deadline_ms`` is reached; an earlier one does no harm."""


class SnapshotWritten(NamedTuple):
    """The state machine's snapshot up to ``end_offset`` is complete and durable."""

    end_offset: int
    epoch: int


class SnapshotVerified(NamedTuple):
    """The driver has done what `VerifySnapshot` asks for.

    Attributes:
        number: of the `VerifySnapshot`.
        damage: why the snapshot is of no use; empty: the snapshot is whole and durable.
    """

    number: int
    damage: str = ""


class SnapshotInstalled(NamedTuple):
    """The driver has done what `InstallSnapshot` asks for.

    Attributes:
        end_offset: of the snapshot.
        epoch: of the snapshot.
        problem: why the snapshot could not be given its name; empty: the snapshot is there, and the log begins at its
            end, or holds its last record.
    """

    end_offset: int
    epoch: int
    problem: str = ""


class Barrier(NamedTuple):
    """Confirm with a majority that this replica still leads, for a linearizable read; see ``barriers``."""

    ticket: Any


class Transfer(NamedTuple):
    """Hand leadership to a voter once its log reaches the log end offset; see ``succession``."""

    ticket: Any
    voter_id: int


class Upgrade(NamedTuple):
    """Raise kraft.version.

    Attributes:
        ticket: comes back with the outcome, when the new version is committed or refused.
        level: the new version; the present one is accepted and changes nothing.
        validate_only: only say whether the change would be refused.
    """

    ticket: Any
    level: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Resign:
    """Resign, if this replica leads."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop taking part: a leader resigns; the replica starts no election and refuses requests to a leader."""


Event: TypeAlias = (
    Received
    | Answered
    | Failed
    | Propose
    | Flushed
    | Tick
    | SnapshotWritten
    | SnapshotVerified
    | SnapshotInstalled
    | Barrier
    | Transfer
    | Upgrade
    | Resign
    | Shutdown
)

# --- effects ----------------------------------------------------------------------------------------------------------


class Destination(NamedTuple):
    """Where a request goes.

    Attributes:
        node_id: of the replica; None for a bootstrap server, whose id is not known.
        host: host name or address.
        port: 1 to 65535.
    """

    node_id: int | None
    host: str
    port: int


class Send(NamedTuple):
    """A request to send; the driver picks the highest version both sides speak.

    Attributes:
        request_id: comes back in `Answered` or `Failed`.
        destination: where the request goes.
        message: the request's body.
        timeout_ms: after this the driver reports `Failure.TIMED_OUT`.
        min_version: below this version the request would lose its meaning (a pre-vote below Vote v2).
    """

    request_id: int
    destination: Destination
    message: Struct
    timeout_ms: int
    min_version: int = 0


class Response(NamedTuple):
    """The answer to a received request."""

    ticket: Any
    message: Struct


class Outcome(NamedTuple):
    """How a local request (proposal, barrier, transfer, upgrade) ended.

    Attributes:
        ticket: of the local request.
        error: NONE: the request succeeded. NOT_LEADER_OR_FOLLOWER: nothing was appended. Others have Kafka's meaning.
        offset: of the first record (proposal, upgrade); the read goes on when everything below is applied (barrier);
            else -1.
        message: words for people; may be empty.
    """

    ticket: Any
    error: ErrorCode
    offset: int = -1
    message: str = ""


class Leadership(NamedTuple):
    """Who leads, as far as this replica knows; returned whenever that changes.

    Attributes:
        epoch: the leader epoch.
        leader_id: of the leader; None while unknown, and while it has not answered for a fetch timeout.
        is_local: whether this replica leads; its state machine takes part once ``epoch_start_offset`` is applied.
        epoch_start_offset: where the local leader's epoch begins; -1 otherwise.
    """

    epoch: int
    leader_id: int | None
    is_local: bool = False
    epoch_start_offset: int = -1


class VerifySnapshot(NamedTuple):
    """Verify a received snapshot to its end, and make it durable; see ``installing.verifying``.

    Attributes:
        number: comes back in `SnapshotVerified`.
        end_offset: of the snapshot.
        epoch: of the snapshot.
        part: the writer of the part file, which belongs to the driver until `SnapshotVerified`.
    """

    number: int
    end_offset: int
    epoch: int
    part: WriterPort


class InstallSnapshot(NamedTuple):
    """Give a verified snapshot its name, and have the log begin at its end; see ``installing.installing``.

    Attributes:
        end_offset: of the snapshot.
        epoch: of the snapshot.
        part: the writer of the part file; None: the snapshot has its name already.
    """

    end_offset: int
    epoch: int
    part: WriterPort | None


@dataclass(slots=True)
class Effects:
    """What the driver must do now, in this order.

    1. Save ``election_state``, durably. Nothing below may be seen by anyone before that.
    2. ``sends`` and ``replies``: to the network, in any order.
       ``probation_over``, if it is set, comes first: make durable that later starts are not on probation.
    3. ``flush``: so many bytes were appended. Make the log durable to its end, without waiting; then hand `Flushed`
       in. One flush may serve several events that are handled one right after the other. A follower acknowledges with
       its next Fetch, which it sends on `Flushed`, and a leader counts its own log end on `Flushed`. So the disks of
       leader and followers work at the same time.
    4. ``snapshot``: verify or install a received snapshot, off the loop that feeds the replica. On `VerifySnapshot`
       follows `SnapshotVerified`, and events are handed in meanwhile. On `InstallSnapshot` follows `SnapshotInstalled`
       as the very next event: the log is being replaced, so all other events wait, and nobody reads the log, appends
       to it, flushes it or deletes from it.
    5. ``restore``: the log was replaced by this snapshot: load it into the state machine before applying anything else.
    6. ``high_watermark``: the high watermark rose to this offset: everything below is committed and may be applied.
    7. ``outcomes``: answers to local requests.
    8. ``leadership``, ``voters``: another leader, or another voter set, to be told to the application.
    9. ``notes``: lines for the operator's log: contradictions, and refusals that should not happen. ``alarms``: a
       leader would have this replica drop committed records.
    10. ``committed``: the floor for the next start (``floor``); it may be written later, and an older value may be
        skipped for a newer one. The log is durable up to it.

    Then wait for the next event, at most until ``deadline_ms``, when a `Tick` is due; None: no timer runs.

    Appends are no effects: they reach the page cache inside ``handle``. Nor are two changes of the log that ``handle``
    makes durable itself: where an epoch begins (a new leader before its LeaderChange record, a follower with the first
    batch of the epoch; the log writes its leader epoch checkpoint then), and truncation at a diverging epoch. Both come
    with a change of leader only, and the rest of the same ``handle`` depends on them: the log end offset and last epoch
    of the next Fetch or Vote, and the voter set in force.
    """

    election_state: ElectionState | None = None
    probation_over: bool = False
    sends: list[Send] = field(default_factory=list)
    replies: list[Response] = field(default_factory=list)
    flush: int = 0
    snapshot: VerifySnapshot | InstallSnapshot | None = None
    restore: tuple[int, int] | None = None
    high_watermark: int | None = None
    outcomes: list[Outcome] = field(default_factory=list)
    leadership: Leadership | None = None
    voters: VoterSet | None = None
    notes: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    committed: OffsetAndEpoch | None = None
    deadline_ms: int | None = None


RESPONSE_OVERHEAD: Final = 4096
"""Bytes, at most, of a Fetch or FetchSnapshot response around its records."""


@dataclass(frozen=True, slots=True)
class RaftConfig:
    """How a replica takes part; names and defaults are Kafka's. Times are in milliseconds.

    Attributes:
        cluster_id: compared with every request that names a cluster id; None: unknown, only for observers without id.
        key: id and directory id of this replica; an id of -1 makes an observer without id.
        listeners: endpoints of this replica, the default listener first.
        static_voters: ``controller.quorum.voters``; in force while the log and snapshots name no voters.
        bootstrap_servers: asked for the leader while it is unknown; without any, the voters in force are.
        can_become_voter: whether it has the controller role.
        auto_join: ``controller.quorum.auto.join.enable``.
        reluctant: whether this voter leads only while no other voter can; see ``succession``.
        topic: name of the partition's topic.
        topic_id: of that topic.
        election_timeout_ms: ``controller.quorum.election.timeout.ms``, at least 1.
        fetch_timeout_ms: ``controller.quorum.fetch.timeout.ms``, at least 1.
        election_backoff_max_ms: ``controller.quorum.election.backoff.max.ms``.
        request_timeout_ms: ``controller.quorum.request.timeout.ms``, at least 1.
        retry_backoff_ms: ``controller.quorum.retry.backoff.ms``.
        discovery_pause_ms: between two Fetches to bootstrap servers.
        fetch_max_wait_ms: how long a leader may keep this replica's Fetch.
        fetch_max_bytes: of records in the answer to a Fetch.
        fetch_snapshot_max_bytes: of a snapshot in the answer to a FetchSnapshot.
        max_frame_bytes: longest frame of the transport: no answer holds more of log or snapshot.
        max_supported_version: the highest kraft.version that this replica supports.
        high_watermark_linger_ms: how long a Fetch is kept that would be answered with a new high watermark and no
            records; 0: not at all, as in Kafka.
        observer_linger_ms: observers hear of commits, all together, at most once in this time; 0: they are answered as
            voters are, as in Kafka.
        fast_failover: ask for pre-votes when the leader's process refuses or resets a connection.
        leader_lease_ms: for how long a voter promises its leader to elect nobody else, and a leader asks for that
            promise; 0: neither. See ``leases``.

    Raises:
        LocalError: election, fetch or request timeout is below 1: no role would last, and no answer would count.
    """

    cluster_id: str | None
    key: ReplicaKey
    listeners: tuple[Endpoint, ...] = ()
    static_voters: VoterSet = field(default_factory=VoterSet)
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    can_become_voter: bool = True
    auto_join: bool = False
    reluctant: bool = False
    topic: str = METADATA_TOPIC
    topic_id: Any = None
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    discovery_pause_ms: int = 100
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    max_frame_bytes: int = 100 << 20
    max_supported_version: int = 1
    high_watermark_linger_ms: int = 0
    observer_linger_ms: int = 0
    fast_failover: bool = True
    leader_lease_ms: int = 0

    def __post_init__(self) -> None:
        for name in ("election_timeout_ms", "fetch_timeout_ms", "request_timeout_ms"):
            if getattr(self, name) < 1:
                raise LocalError(f"{name} is {getattr(self, name)}, it must be at least 1")
