"""Roles, and which role may follow which.

Rules of this file:

* A replica is in one role at a time. The role's object holds that role's data and nothing else; it dies with the role.
  What outlives a role (epoch, vote, voter sets, high watermark) is in ``state.py``.
* `TRANSITIONS` has every change of role that is allowed, the first role after a start included: which role follows
  which, why, and in which epoch. Any other raises `InvariantError`. One function, ``RaftState.become``, changes the
  role.
* A message of a higher epoch is always followed: ``Election.enter`` is the one place where it is entered,
  before any role looks at the message.
* Being an observer is not a role: it is any replica outside the voter set in force. It is Unattached or Follower,
  unless a voter needs it for an election (``Cause.NEEDED``), or it led when it was removed.

Sources: KIP-595 (roles), KIP-996 (Prospective), KIP-853 (observers, removal); Kafka 4.3.1 QuorumState.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeAlias

from kraftcore.errors import InvariantError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import Endpoint, Tally, VoterSet
from kraftcore.raft.watermark import Watermark

REPLICAS_MAX = 1000  # whose progress a leader remembers
PARKED_MAX = 10_000  # Fetches that wait; several for each of those replicas, as others' Fetches are parked, too
NEVER = -(1 << 62)  # a time long ago


class Role(Enum):
    """What a replica is doing in its epoch."""

    UNATTACHED = "unattached"  # knows no leader it could fetch from
    FOLLOWER = "follower"  # fetches from the leader
    PROSPECTIVE = "prospective"  # asks whether it would win, without raising the epoch
    CANDIDATE = "candidate"  # asks for votes in a new epoch
    LEADER = "leader"
    RESIGNED = "resigned"  # led this epoch, does not any more


class Cause(Enum):
    """Why a replica takes a role, or leaves it for another."""

    LED = "it led the saved epoch, or won it and wrote"
    VOTED_FOR_ITSELF = "it voted for itself in the saved epoch"
    LEADER_SAVED = "the saved leader has an endpoint"
    NO_LEADER_SAVED = "no leader was saved, or none that can be reached"
    SOLE_VOTER = "it is the only voter"
    HIGHER_EPOCH = "a message of a higher epoch"
    LEADER_FOUND = "a leader with an endpoint became known"
    ELECTION_TIMEOUT = "the election timer ran out"
    FETCH_TIMEOUT = "the fetch timer ran out"
    LEADER_UNREACHABLE = "the leader's process refused or reset the connection"
    NEEDED = "not a voter by its own log, and a voter whose log is behind asked for its vote"
    PRE_VOTE_WON = "a majority would grant its vote, or a voter does not know pre-votes"
    PRE_VOTE_LOST = "a majority would not grant its vote, or did not say in time"
    VOTE_WON = "a majority granted its vote"
    QUORUM_LOST = "no majority fetched for 1.5 fetch timeouts"
    STEP_DOWN = "asked to resign, by shutdown, transfer, or removal from the committed voter set"


class EpochRule(Enum):
    """Which epoch a new role is in, compared with the one before."""

    SAME = ""
    NEXT = "the next epoch"
    HIGHER = "a higher epoch"
    NOT_LOWER = "the same epoch or a higher one"

    def settle(self, present: int, named: int | None) -> int:
        """The new role's epoch.

        Args:
            present: the epoch so far.
            named: by whoever changes the role; None: it follows from the rule.

        Raises:
            InvariantError: the rule forbids it.
        """
        if self is EpochRule.NEXT:
            wanted, allowed = present + 1, named in (None, present + 1)
        else:
            wanted = present if named is None else named
            allowed = wanted > present if self is EpochRule.HIGHER else wanted >= present
            allowed = allowed and (self is not EpochRule.SAME or wanted == present)
        if not allowed:
            raise InvariantError(f"epoch {present} cannot become {named}: {self.value or 'it stays the same'}")
        return wanted


class Transition(NamedTuple):
    """A row of the table of roles.

    Attributes:
        role: the one before; None: the replica starts.
        cause: why it ends.
        epoch: which epoch the next role is in.
        next_roles: what may follow.
    """

    role: Role | None
    cause: Cause
    epoch: EpochRule
    next_roles: frozenset[Role]


def _rows() -> Iterator[Transition]:
    unattached, follower, prospective, candidate, leader, resigned = Role
    same, following, higher, not_lower = EpochRule

    def row(role: Role | None, cause: Cause, epoch: EpochRule, *next_roles: Role) -> Transition:
        return Transition(role, cause, epoch, frozenset(next_roles))

    # If the log has records of a later epoch than the saved one, the saved vote and leader are ignored.
    yield row(None, Cause.LED, same, resigned)
    yield row(None, Cause.VOTED_FOR_ITSELF, same, candidate)
    yield row(None, Cause.LEADER_SAVED, same, follower)
    yield row(None, Cause.NO_LEADER_SAVED, not_lower, unattached)
    yield row(unattached, Cause.SOLE_VOTER, same, prospective)
    yield row(resigned, Cause.SOLE_VOTER, same, prospective)
    for role in Role:
        yield row(role, Cause.HIGHER_EPOCH, higher, unattached)
    # The other three roles have a leader in their epoch already, so another leader can only be of a higher epoch.
    for role in (unattached, prospective, candidate):
        yield row(role, Cause.LEADER_FOUND, not_lower, follower)
    for role in (follower, leader, resigned):
        yield row(role, Cause.LEADER_FOUND, higher, follower)
    yield row(unattached, Cause.ELECTION_TIMEOUT, same, prospective)
    yield row(unattached, Cause.NEEDED, same, prospective)
    yield row(follower, Cause.NEEDED, same, prospective)
    yield row(follower, Cause.FETCH_TIMEOUT, same, prospective)
    yield row(follower, Cause.LEADER_UNREACHABLE, same, prospective)
    yield row(prospective, Cause.PRE_VOTE_WON, following, candidate)
    yield row(prospective, Cause.PRE_VOTE_LOST, same, follower, unattached)  # back to a leader it still knows
    yield row(candidate, Cause.VOTE_WON, same, leader)
    yield row(candidate, Cause.ELECTION_TIMEOUT, same, prospective)
    yield row(leader, Cause.QUORUM_LOST, same, resigned)
    yield row(leader, Cause.STEP_DOWN, same, resigned)
    yield row(resigned, Cause.ELECTION_TIMEOUT, following, unattached)  # its own epoch can have no other leader


TRANSITIONS: Mapping[tuple[Role | None, Cause], Transition] = {(row.role, row.cause): row for row in _rows()}


@dataclass(slots=True)
class Unattached:
    """Waits for a leader, a candidate, or its own election timer.

    Attributes:
        election_deadline_ms: None for observers.
        leader_id: a leader known by id only, without an endpoint to fetch from.
    """

    role: ClassVar[Role] = Role.UNATTACHED
    election_deadline_ms: int | None
    leader_id: int | None = None


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot on its way in.

    Attributes:
        end_offset: its id's end offset.
        epoch: its id's epoch.
        part: the part file's writer, see ``SnapshotStore``; None: the snapshot is here already.
        position: bytes received so far.
        is_whole: all of it was received; it is being verified and installed.
    """

    end_offset: int
    epoch: int
    part: Any
    position: int = 0
    is_whole: bool = False


@dataclass(slots=True)
class Follower:
    """Fetches from the leader of its epoch.

    Attributes:
        leader_id: whom it follows.
        leader_endpoints: where the leader listens; never empty.
        fetch_deadline_ms: when a voter gives the leader up.
        update_deadline_ms: when it next compares the voter set with itself, to send UpdateRaftVoter if its entry is
            outdated, or as an auto-joining observer AddRaftVoter.
        has_fetched: whether this leader has answered a Fetch well; from then on pre-votes are refused.
        leader_updated: kraft.version 0: this leader has taken our UpdateRaftVoter.
        leader_gone: the leader's process refused or reset our last connection; pre-votes are granted again.
        snapshot: set while it fetches a snapshot instead of records.
    """

    role: ClassVar[Role] = Role.FOLLOWER
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...]
    fetch_deadline_ms: int
    update_deadline_ms: int
    has_fetched: bool = False
    leader_updated: bool = False
    leader_gone: bool = False
    snapshot: SnapshotFetch | None = None


@dataclass(slots=True)
class Prospective:
    """Asks the voters for a pre-vote in its present epoch.

    Attributes:
        tally: the pre-votes.
        election_deadline_ms: when it gives up.
        leader_id: the leader it still knows, or None.
        leader_endpoints: where that leader listens.
        leader_gone: see `Follower`.
    """

    role: ClassVar[Role] = Role.PROSPECTIVE
    tally: Tally
    election_deadline_ms: int
    leader_id: int | None = None
    leader_endpoints: tuple[Endpoint, ...] = ()
    leader_gone: bool = False


@dataclass(slots=True)
class Candidate:
    """Voted for itself in a new epoch and asks for votes."""

    role: ClassVar[Role] = Role.CANDIDATE
    tally: Tally
    election_deadline_ms: int


@dataclass(slots=True)
class FetchProgress:
    """What a leader knows of one replica that fetches from it.

    Attributes:
        key: who it is.
        log_end_offset: offset of its last valid Fetch: it has, durably, everything below.
        last_fetch_ms: when that was.
        last_caught_up_ms: when it last had everything the leader had at the time.
        leader_end_offset: the leader's log end at its last Fetch.
    """

    key: ReplicaKey
    log_end_offset: int | None = None
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_offset: int = -1


@dataclass(slots=True)
class ParkedFetch:
    """A Fetch that is answered when there are records, a new high watermark, or its time is over.

    Attributes:
        ticket: of the request.
        key: of the replica.
        epoch: the leader epoch it named.
        fetch_offset: it is answered with records from here on.
        max_bytes: how many at most, but at least one batch.
        deadline_ms: when it is answered anyway.
        version: api version.
        listener: see `Received`.
    """

    ticket: Any
    key: ReplicaKey
    epoch: int
    fetch_offset: int
    max_bytes: int
    deadline_ms: int
    version: int
    listener: str


@dataclass(slots=True)
class Parked:
    """Parked Fetches that are answered together, `PARKED_MAX` of them at most.

    Attributes:
        fetches: in the order in which they came.
        due_ms: the earliest deadline of them; None while there are none.
    """

    fetches: list[ParkedFetch] = field(default_factory=list)
    due_ms: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether all are to be answered before another one is added: their replicas fetch again."""
        return len(self.fetches) >= PARKED_MAX

    def add(self, fetch: ParkedFetch) -> None:
        """Park one more; there is room, see ``is_full``.

        Raises:
            InvariantError: there is none.
        """
        if self.is_full:
            raise InvariantError(f"{len(self.fetches)} Fetches are parked: answer them first")
        self.fetches.append(fetch)
        if self.due_ms is None or fetch.deadline_ms < self.due_ms:
            self.due_ms = fetch.deadline_ms

    def take(self) -> list[ParkedFetch]:
        """Remove and return all of them."""
        taken, self.fetches, self.due_ms = self.fetches, [], None
        return taken

    def take_due(self, now_ms: int) -> list[ParkedFetch]:
        """Remove and return those whose deadline has come."""
        due = [fetch for fetch in self.fetches if fetch.deadline_ms <= now_ms]
        self.fetches = [fetch for fetch in self.fetches if fetch.deadline_ms > now_ms]
        self.due_ms = min((fetch.deadline_ms for fetch in self.fetches), default=None)
        return due


@dataclass(slots=True)
class VoterChange:
    """The one voter change in flight.

    Attributes:
        kind: ``add`` or ``remove``.
        ticket: of the request.
        key: who is added or removed.
        deadline_ms: when the request is answered REQUEST_TIMED_OUT; the record may still commit.
        endpoints: of the new voter.
        ack_when_committed: answer on commit, or on append.
        offset: of the KRaftVoters record, or None while the new voter is asked what it supports.
        request_id: of the ApiVersions request to the new voter, while it is out.
    """

    kind: str
    ticket: Any
    key: ReplicaKey
    deadline_ms: int
    endpoints: tuple[Endpoint, ...] = ()
    ack_when_committed: bool = True
    offset: int | None = None
    request_id: int | None = None


@dataclass(slots=True)
class PendingBarrier:
    """Reads that wait for one confirmation round.

    Attributes:
        tickets: of the reads.
        offset: what must be applied before they read.
        confirmed: voters that answered in this epoch, after the round began.
        asked: voters the round's requests went to.
    """

    tickets: list[Any]
    offset: int
    confirmed: set[int] = field(default_factory=set)
    asked: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class PendingTransfer:
    """A leader that hands over: no proposals until it is done or given up.

    Attributes:
        ticket: of the request; None: nobody asked.
        voter_id: who shall lead.
        deadline_ms: when it goes on leading instead.
    """

    ticket: Any
    voter_id: int
    deadline_ms: int


@dataclass(slots=True)
class Leader:
    """Leads its epoch.

    Attributes:
        epoch_start_offset: its log end when elected; the LeaderChange record stands there.
        watermark: log end offsets of the voters in force.
        replicas: everyone who fetches, voters and observers, by key; observers in the order of their last Fetch.
        begin_due_ms: per voter, when BeginQuorumEpoch is due unless it fetches.
        served: by id of those that fetch, the directory that fetched last and was served, and one that was refused
            because of that; see ``namesakes``.
        check_quorum_deadline_ms: when it resigns unless a majority fetched; None for a sole voter.
        heard: voters heard since that timer last restarted.
        parked: fetches waiting; see ``parking``.
        news_due_ms: when they are answered without records, to tell a new high watermark; None: nothing new to tell.
        parked_observers: those of observers, which are answered in rounds.
        round_due_ms: when the next round is; None: there is nothing new to tell.
        round_ended_ms: when the last one was.
        round_told: the high watermark that it told, or would have if anybody had waited; -1: none is known yet.
        change: the voter change in flight.
        upgrade: offset of a kraft.version record not yet committed, this leader's or an earlier one's, and the tickets
            that wait for it.
        updated_voters: kraft.version 0: what voters told with UpdateRaftVoter.
        barrier: the confirmation round under way, and the next one's reads.
        transfer: see `PendingTransfer`.
    """

    role: ClassVar[Role] = Role.LEADER
    epoch_start_offset: int
    watermark: Watermark
    check_quorum_deadline_ms: int | None
    replicas: dict[ReplicaKey, FetchProgress] = field(default_factory=dict)
    served: dict[int, tuple[ReplicaKey, ReplicaKey | None]] = field(default_factory=dict)
    begin_due_ms: dict[int, int] = field(default_factory=dict)
    heard: set[int] = field(default_factory=set)
    parked: Parked = field(default_factory=Parked)
    news_due_ms: int | None = None
    parked_observers: Parked = field(default_factory=Parked)
    round_due_ms: int | None = None
    round_ended_ms: int = NEVER
    round_told: int = -1
    change: VoterChange | None = None
    upgrade: tuple[int, list[Any]] | None = None
    updated_voters: VoterSet | None = None
    barrier: PendingBarrier | None = None
    next_barrier: list[Any] = field(default_factory=list)
    transfer: PendingTransfer | None = None

    def progress_of(self, key: ReplicaKey, voters: VoterSet) -> FetchProgress:
        """The progress of a replica that fetches, remembered from now on.

        Of `REPLICAS_MAX` replicas at most: beyond that, so that peers which make up keys do not fill our memory, the
        observer whose last Fetch is the oldest is forgotten. Voters are not.
        """
        found = self.replicas.get(key)
        if found is None:
            if len(self.replicas) >= REPLICAS_MAX:
                oldest = next((other for other in self.replicas if not voters.is_voter(other)), None)
                if oldest is not None:
                    del self.replicas[oldest]
            found = self.replicas[key] = FetchProgress(key)
        elif not voters.is_voter(key):
            self.replicas[key] = self.replicas.pop(key)
        return found

    def observer_keys(self, voters: VoterSet, since_ms: int) -> list[ReplicaKey]:
        """The observers whose last Fetch is not older than ``since_ms``, in order; forgets all others."""
        found = [key for key in self.replicas if not voters.is_voter(key)]
        for key in found:
            if self.replicas[key].last_fetch_ms < since_ms:
                del self.replicas[key]
        return sorted((key for key in found if key in self.replicas), key=lambda key: (key.id, key.directory_id))


@dataclass(slots=True)
class Resigned:
    """Was the leader of this epoch, and tells the voters that it no longer is.

    Attributes:
        election_deadline_ms: when it moves to the next epoch.
        preferred: who should lead next, best first.
        unacknowledged: voters that have not answered EndQuorumEpoch.
    """

    role: ClassVar[Role] = Role.RESIGNED
    election_deadline_ms: int
    preferred: tuple[ReplicaKey, ...]
    unacknowledged: set[int]


RoleState: TypeAlias = Unattached | Follower | Prospective | Candidate | Leader | Resigned


def draw_transitions() -> str:
    """The table of roles as a Mermaid state diagram, for the documentation: an arrow for each row and next role."""
    lines = ["stateDiagram-v2"]
    for role, cause, epoch, next_roles in TRANSITIONS.values():
        name = "[*]" if role is None else role.value
        why = f"{cause.value} ({epoch.value})" if epoch.value and cause is not Cause.HIGHER_EPOCH else cause.value
        lines += [f"    {name} --> {found.value}: {why}" for found in sorted(next_roles, key=str)]
    return "\n".join(lines)
