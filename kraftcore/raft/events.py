"""What goes into a replica, and what comes out.

The driver calls ``replica.handle(event, now_ms)``, carries the returned `Effects` out **in the order of its fields**,
and reports back (`Flushed`, `Answered`, `Failed`).

``ticket`` is any value of the driver's; it comes back with the reply. ``request_id`` is the replica's; it comes back
with the answer or the failure.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, Final, NamedTuple, TypeAlias

from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.wire.struct import Struct
from kraftcore.dataclass import dataclass
from kraftcore.errors import LocalError
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.raft.ports import WriterPort
from kraftcore.raft.quorum import Endpoint, VoterSet

# --- in ---------------------------------------------------------------------------------------------------------------


class Received(NamedTuple):
    """A request from the network.

    Attributes:
        ticket: comes back with the reply.
        message: the decoded body.
        version: its api version; answers leave out what the version does not have.
        listener: name of the listener it came in on; the leader's endpoint in the answer is the one for this listener.
    """

    ticket: Any
    message: Struct
    version: int
    listener: str


class Answered(NamedTuple):
    """The answer to something the replica sent."""

    request_id: int
    message: Struct


class Failed(NamedTuple):
    """No answer will come to something the replica sent."""

    request_id: int
    failure: Failure


class Propose(NamedTuple):
    """Append one batch, if this replica leads, or several that belong together.

    Attributes:
        ticket: comes back in ``Effects.outcomes`` with the first record's offset, or the reason why not.
        batch: built by ``core.batch``; the log takes the buffer over and stamps offset and epoch in place.
        more: batches that follow directly; all are appended, or none.
    """

    ticket: Any
    batch: bytearray
    more: tuple[bytearray, ...] = ()


class Flushed(NamedTuple):
    """The log is durable below ``offset``."""

    offset: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; due when ``Effects.deadline_ms`` is reached, harmless earlier."""


class SnapshotWritten(NamedTuple):
    """The state machine's snapshot up to ``end_offset`` is complete and durable."""

    end_offset: int
    epoch: int


class SnapshotVerified(NamedTuple):
    """What `VerifySnapshot` asked for is done.

    Attributes:
        number: its number.
        damage: why the snapshot is of no use; empty: it is whole and durable.
    """

    number: int
    damage: str = ""


class SnapshotInstalled(NamedTuple):
    """What `InstallSnapshot` asked for is done.

    Attributes:
        end_offset: of the snapshot.
        epoch: of the snapshot.
        problem: why it could not be given its name; empty: it is there, and the log begins at its end or holds it.
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
        level: the new one; the present one is fine and changes nothing.
        validate_only: only say whether it would be refused.
    """

    ticket: Any
    level: int
    validate_only: bool = False


@dataclass(frozen=True, slots=True)
class Resign:
    """Give leadership up, if held."""


@dataclass(frozen=True, slots=True)
class Shutdown:
    """Stop taking part: a leader resigns, nobody starts an election any more, leader-only requests are refused."""


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

# --- out --------------------------------------------------------------------------------------------------------------


class Destination(NamedTuple):
    """Where a request goes.

    Attributes:
        node_id: the replica asked, or None for a bootstrap server of unknown identity.
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
        destination: where to.
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
        ticket: the request's.
        error: NONE; NOT_LEADER_OR_FOLLOWER before anything was appended; anything else as Kafka names it.
        offset: where the batch begins (proposal, upgrade), or the offset to apply before reading (barrier); else -1.
        message: words for people, empty without error.
    """

    ticket: Any
    error: ErrorCode
    offset: int = -1
    message: str = ""


class Leadership(NamedTuple):
    """Who leads, as far as this replica knows, whenever that changes.

    Attributes:
        epoch: leader epoch.
        leader_id: None while unknown.
        is_local: whether it is this replica; its state machine takes part once it applied ``epoch_start_offset``.
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
        part: the writer of its part file, which belongs to the driver until then.
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
        part: the writer of its part file; None: it has its name already.
    """

    end_offset: int
    epoch: int
    part: WriterPort | None


@dataclass(slots=True)
class Effects:
    """What the driver must do now, in this order.

    1. Save ``election_state``, durably. Nothing below may be seen by anyone before that.
    2. ``sends`` and ``replies``: to the network, in any order.
       ``probation_over``, if it is set, comes first: from now on a restart begins without it.
    3. ``flush``: so many bytes were appended: make the log durable to its end, without waiting; then `Flushed`. One
       flush may serve several events that are handled one right after the other. A follower's acknowledgement is
       its next Fetch, which it sends on `Flushed`; a leader counts its own log end on `Flushed`. So the disks work in
       parallel.
    4. ``snapshot``: do this with a received snapshot, off the loop that feeds the replica. `VerifySnapshot`: then
       `SnapshotVerified`; events go on meanwhile. `InstallSnapshot`: then `SnapshotInstalled`, as the very next event:
       the log is being replaced, so all others wait, and nobody reads, appends, flushes or cleans.
    5. ``restore``: the log was replaced by this snapshot: load it into the state machine before applying anything else.
    6. ``high_watermark``: rose to this; apply what is below it. Waiting appends below it are committed.
    7. ``outcomes``: answers to local requests.
    8. ``leadership``, ``voters``: tell whoever listens.
    9. ``notes``: lines for the operator's log: contradictions and refusals that should not happen. ``alarms``: a leader
       would have this replica drop committed records.
    10. ``committed``: the floor of the next start; it may be written later, and values may be skipped for a later one.
        The log is durable up to there.

    Not among them are appends, which reach the page cache inside ``handle``, and two changes of the log that ``handle``
    makes durable itself: where an epoch begins (a new leader before its LeaderChange record, a follower with the first
    batch of the epoch: the log writes its leader epoch checkpoint with either), and truncation at a diverging epoch.
    Both come with a change of leader only, and the rest of the same ``handle`` depends on them: the log end offset and
    last epoch of the next Fetch or Vote, and the voter set in force.

    Then wait for the next event, at most until ``deadline_ms`` (then `Tick`); None: no timer runs.
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
    """How a replica takes part; names and defaults are Kafka's.

    Times are in milliseconds. Without an election, fetch or request timeout no role would last and no answer count.

    Attributes:
        cluster_id: compared with every request that names one; None: unknown, only for nameless observers.
        key: id and directory id; an id of -1 makes a nameless observer.
        listeners: own endpoints, the default listener first.
        static_voters: ``controller.quorum.voters``; in force while the log and snapshots name no voters.
        bootstrap_servers: asked for the leader while it is unknown; without any, the voters in force are.
        can_become_voter: whether it has the controller role.
        auto_join: ``controller.quorum.auto.join.enable``.
        reluctant: votes and acknowledges, but leads only while no other voter can; see ``succession``.
        topic: name of the partition's topic.
        supported_versions: kraft.version levels spoken.
        discovery_pause_ms: between two questions to bootstrap servers that did not help.
        max_frame_bytes: longest frame of the transport: an answer holds no more of log or snapshot.
        high_watermark_linger_ms: how long a Fetch is held back that would be answered with a new high watermark and no
            records; 0: not at all, as Kafka does.
        observer_linger_ms: observers hear of what is committed, all together, at most once in this time; 0: they are
            answered as voters are, as Kafka does.
        fast_failover: start a pre-vote when the leader's connection is refused or reset.

    Raises:
        LocalError: one of those three timeouts is below 1.
    """

    cluster_id: str | None
    key: ReplicaKey
    listeners: tuple[Endpoint, ...] = ()
    static_voters: VoterSet = field(default_factory=VoterSet)
    bootstrap_servers: tuple[tuple[str, int], ...] = ()
    can_become_voter: bool = True
    auto_join: bool = False
    reluctant: bool = False
    topic: str = "__cluster_metadata"
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

    def __post_init__(self) -> None:
        for name in ("election_timeout_ms", "fetch_timeout_ms", "request_timeout_ms"):
            if getattr(self, name) < 1:
                raise LocalError(f"{name} is {getattr(self, name)}, it must be at least 1")
