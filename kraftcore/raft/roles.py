"""The roles of a replica, and the table that says which role may follow which.

Most rules of the consensus depend on what a replica is doing in its epoch, so each role has an object of its own.

* A replica is in one role at a time. The role's object holds that role's data and nothing else, and ends with the role.
  What outlives a role (epoch, vote, voter sets, high watermark) is in ``state``.
* `TRANSITIONS` has every change of role that is allowed, the first role after a start included: which role follows
  which, why, and in which epoch. Any other change raises `InvariantError`. One function, ``transitions.become``,
  changes the role.
* A message of a higher epoch is always followed: ``epochs.enter`` is the one place where that epoch is entered, before
  any role looks at the message.
* Being an observer is not a role: an observer is a replica outside the voter set in force. It is Unattached or
  Follower, unless a voter needs it for an election (``Cause.NEEDED``), or it led when it was removed.

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
DELAYED_MAX = 10_000  # Fetches that wait in one queue: several for each of these replicas, as any peer may fetch
NEVER = -(1 << 62)  # a time long ago


class Role(Enum):
    """The roles of a replica."""

    UNATTACHED = "unattached"  # knows no leader to fetch from
    FOLLOWER = "follower"  # fetches from the leader
    PROSPECTIVE = "prospective"  # asks whether it would win, without raising the epoch
    CANDIDATE = "candidate"  # asks for votes in a new epoch
    LEADER = "leader"
    RESIGNED = "resigned"  # led this epoch, and leads no more


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
            present: the epoch of the role before.
            named: the epoch that the caller of ``become`` names; None: the rule says it.

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
        role: the role before; None: the replica starts.
        cause: why that role ends.
        epoch: which epoch the next role is in.
        next_roles: the roles that may follow.
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
        election_deadline_ms: when it asks for pre-votes; None for observers.
        leader_id: the leader of this epoch, known by id only, without an endpoint to fetch from; None: unknown.
    """

    role: ClassVar[Role] = Role.UNATTACHED
    election_deadline_ms: int | None
    leader_id: int | None = None


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot that is being received.

    Attributes:
        end_offset: of the snapshot's id.
        epoch: of the snapshot's id.
        part: the writer of the part file, see ``SnapshotStore``; None: this replica has the snapshot already.
        position: bytes received so far.
        is_whole: whether all of it was received, so that it is being verified or installed.
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
        leader_id: the leader.
        leader_endpoints: where the leader listens; never empty.
        fetch_deadline_ms: when the fetch timer runs out, see ``succession.gives_up_at``.
        update_deadline_ms: when the follower next looks whether its entry in the voter set is outdated, and sends
            UpdateRaftVoter; or, as an auto-joining observer, AddRaftVoter.
        has_fetched: whether this leader has answered a Fetch without error; from then on pre-votes are refused.
        leader_updated: kraft.version 0: whether this leader has taken the follower's UpdateRaftVoter.
        leader_gone: whether the leader has resigned, or its process refused or reset the last connection; then
            pre-votes are granted.
        snapshot: the snapshot that is fetched instead of records; None: records are fetched.
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

    @property
    def installs(self) -> bool:
        """Whether a snapshot that was received whole is being verified or installed: the leader is asked nothing."""
        return self.snapshot is not None and self.snapshot.is_whole

    def is_answered(self, now_ms: int) -> bool:
        """Whether the leader has answered a Fetch, and that within the fetch timer, which an installation stops."""
        return self.has_fetched and (self.installs or now_ms < self.fetch_deadline_ms)

    def drop_snapshot(self) -> None:
        """Give the snapshot up; its part file is closed here, or when its verification has ended."""
        fetch, self.snapshot = self.snapshot, None
        if fetch is not None and not fetch.is_whole:
            fetch.part.close()


@dataclass(slots=True)
class Prospective:
    """Asks the voters for a pre-vote in its present epoch.

    Attributes:
        tally: the pre-votes.
        election_deadline_ms: when it stops asking.
        leader_id: the leader of this epoch, which it followed until now; None: unknown.
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
    """Voted for itself in a new epoch and asks for votes.

    Attributes:
        tally: the votes.
        election_deadline_ms: when it stops asking.
    """

    role: ClassVar[Role] = Role.CANDIDATE
    tally: Tally
    election_deadline_ms: int


@dataclass(slots=True)
class FetchProgress:
    """What a leader knows of one replica that fetches from it. Times are -1 before the first.

    Attributes:
        key: of the replica.
        log_end_offset: the offset of its last valid Fetch: it has everything below, durably; None: no valid Fetch yet.
        last_fetch_ms: when that Fetch came.
        last_caught_up_ms: when the replica last had everything that the leader had at the time.
        leader_end_offset: the leader's log end offset at the replica's last Fetch; -1 before.
    """

    key: ReplicaKey
    log_end_offset: int | None = None
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    leader_end_offset: int = -1


@dataclass(slots=True)
class DelayedFetch:
    """A Fetch that is answered when there are records or a new high watermark, or when its wait time is over.

    Attributes:
        ticket: of the request.
        key: of the replica that fetches.
        epoch: the leader epoch that the Fetch names.
        fetch_offset: the answer has records from this offset on.
        max_bytes: bytes of records in the answer, at most, but at least one batch.
        deadline_ms: when the wait time is over.
        version: the api version of the request.
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
class FetchQueue:
    """Delayed Fetches that are answered together, `DELAYED_MAX` of them at most.

    Attributes:
        fetches: in the order in which they came.
        due_ms: the earliest deadline of them; None while there are none.
    """

    fetches: list[DelayedFetch] = field(default_factory=list)
    due_ms: int | None = None

    @property
    def is_full(self) -> bool:
        """Whether the Fetches have to be answered before another one is added; their replicas fetch again."""
        return len(self.fetches) >= DELAYED_MAX

    def add(self, fetch: DelayedFetch) -> None:
        """Add a Fetch; the caller has checked ``is_full``.

        Raises:
            InvariantError: the queue is full.
        """
        if self.is_full:
            raise InvariantError(f"{len(self.fetches)} Fetches wait already: answer them first")
        self.fetches.append(fetch)
        if self.due_ms is None or fetch.deadline_ms < self.due_ms:
            self.due_ms = fetch.deadline_ms

    def take(self) -> list[DelayedFetch]:
        """Remove and return all Fetches."""
        taken, self.fetches, self.due_ms = self.fetches, [], None
        return taken

    def take_due(self, now_ms: int) -> list[DelayedFetch]:
        """Remove and return the Fetches whose deadline has come."""
        due = [fetch for fetch in self.fetches if fetch.deadline_ms <= now_ms]
        self.fetches = [fetch for fetch in self.fetches if fetch.deadline_ms > now_ms]
        self.due_ms = min((fetch.deadline_ms for fetch in self.fetches), default=None)
        return due


@dataclass(slots=True)
class VoterChange:
    """The one voter change that is under way.

    Attributes:
        kind: ``add`` or ``remove``.
        ticket: of the request; None once it was answered.
        key: of the voter that is added or removed.
        deadline_ms: when the request is answered REQUEST_TIMED_OUT; the record may still be committed.
        endpoints: of the new voter.
        ack_when_committed: whether the request is answered when the record is committed; else when it is appended.
        offset: of the KRaftVoters record; None while the new voter is asked which versions it supports.
        request_id: of the ApiVersions request to the new voter, while that is in flight.
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
    """A round of a read barrier, and the reads that wait for it.

    Attributes:
        tickets: of the reads.
        offset: the reads go on when everything below is applied.
        confirmed: ids of the voters that answered in this epoch after the round began.
        asked: by voter id: the request of this round that is in flight.
    """

    tickets: list[Any]
    offset: int
    confirmed: set[int] = field(default_factory=set)
    asked: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class PendingTransfer:
    """A transfer of leadership that is under way; the leader takes no proposals meanwhile.

    Attributes:
        ticket: of the request; None: a reluctant leader began the transfer itself.
        voter_id: the voter that should lead next.
        deadline_ms: when the leader stops trying and goes on leading.
    """

    ticket: Any
    voter_id: int
    deadline_ms: int


@dataclass(slots=True)
class Leader:
    """Leads its epoch.

    Attributes:
        epoch_start_offset: the log end offset at the election; the epoch's LeaderChange record stands there.
        watermark: counts the log end offsets of the voters in force.
        check_quorum_deadline_ms: when the leader resigns unless a majority has fetched; None for a sole voter.
        replicas: by key: the replicas that fetch, voters and observers; observers in the order of their last Fetch.
        served: by id of a replica that fetches: the key that fetched last and was served, and a key that was refused
            because of it; see ``duplicate_ids``.
        begin_due_ms: by voter id: when BeginQuorumEpoch is sent unless that voter fetches.
        heard: ids of the voters that have fetched since the check-quorum timer last restarted.
        delayed: Fetches of voters, or without rounds of all replicas, that are answered later; see ``delayed_fetches``.
        news_due_ms: when ``delayed`` is answered without records, to tell a new high watermark; None: there is none.
        delayed_observers: Fetches of observers, which are answered in rounds.
        round_due_ms: when the next round is; None: there is nothing new to tell.
        round_ended_ms: when the last round was.
        round_told: the high watermark that the last round told, or would have told if an observer had waited; -1: none
            is known yet.
        change: the voter change that is under way.
        upgrade: the offset of a kraft.version record that is not committed yet, this leader's or an earlier one's, and
            the tickets that wait for it.
        updated_voters: kraft.version 0: the voter set with the entries that voters told in UpdateRaftVoter.
        barrier: the read barrier's round that is under way.
        next_barrier: tickets of the reads that wait for the next round.
        promised_ms: by key of a voter: until when it elects nobody else, as far as this leader counts on that.
        lease_until_ms: until when no other leader can be elected; `NEVER`: there is no lease, see ``leases``.
        transfer: the transfer that is under way.
    """

    role: ClassVar[Role] = Role.LEADER
    epoch_start_offset: int
    watermark: Watermark
    check_quorum_deadline_ms: int | None
    replicas: dict[ReplicaKey, FetchProgress] = field(default_factory=dict)
    served: dict[int, tuple[ReplicaKey, ReplicaKey | None]] = field(default_factory=dict)
    begin_due_ms: dict[int, int] = field(default_factory=dict)
    heard: set[int] = field(default_factory=set)
    delayed: FetchQueue = field(default_factory=FetchQueue)
    news_due_ms: int | None = None
    delayed_observers: FetchQueue = field(default_factory=FetchQueue)
    round_due_ms: int | None = None
    round_ended_ms: int = NEVER
    round_told: int = -1
    change: VoterChange | None = None
    upgrade: tuple[int, list[Any]] | None = None
    updated_voters: VoterSet | None = None
    barrier: PendingBarrier | None = None
    next_barrier: list[Any] = field(default_factory=list)
    promised_ms: dict[ReplicaKey, int] = field(default_factory=dict)
    lease_until_ms: int = NEVER
    transfer: PendingTransfer | None = None

    def progress_of(self, key: ReplicaKey, voters: VoterSet) -> FetchProgress:
        """The progress of a replica that fetches; it is kept from now on.

        The progress of at most `REPLICAS_MAX` replicas is kept, so that peers which make up keys do not fill the
        memory. Beyond that the observer whose last Fetch is the oldest is forgotten; voters are not.
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
        """The observers whose last Fetch is not older than ``since_ms``, by id; forgets older observers."""
        found = [key for key in self.replicas if not voters.is_voter(key)]
        for key in found:
            if self.replicas[key].last_fetch_ms < since_ms:
                del self.replicas[key]
        return sorted((key for key in found if key in self.replicas), key=lambda key: (key.id, key.directory_id))


@dataclass(slots=True)
class Resigned:
    """Led this epoch, has resigned, and tells the voters that it has.

    Attributes:
        election_deadline_ms: when it enters the next epoch.
        preferred: the voters that should lead next, best first.
        unacknowledged: ids of the voters that have not answered EndQuorumEpoch.
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
