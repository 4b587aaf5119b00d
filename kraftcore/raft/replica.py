"""One replica of the consensus: it takes an event and returns the effects that the event causes.

A node or a simulator that runs a replica needs one object with one way in. `Replica` is that object: it holds the state
of one replica, hands each event to the part of the consensus that handles it, and carries out what follows. A part is a
module of functions over that state (`RaftState`).

How ``handle`` takes an event:

1. It looks the event up in a table, which names a function of one part. Requests, answers and failures have a table
   each, by the class of the message.
2. That function changes the state, and puts effects into it (``RaftState.out``). It may call functions of lower parts.
   What concerns a higher part it queues as a `Step`.
3. ``_settle`` carries queued steps out, in order, by the table of steps. When none is left, it has the role do what is
   due by now: timers that ran out, requests to be sent. It goes on until neither is left. So no event or step is
   handled in the middle of another one.
4. The time at which something is due next becomes ``Effects.deadline_ms``.

The parts, the lowest first. A part imports and calls only parts that stand before it in this list:

    state             what a replica knows beside its role
    partition         messages about the one partition, built and read
    transitions       the change of the role
    duplicate_ids     two processes that use one node id
    epochs            which epoch it is and who leads it: told by every request and answer
    floor             what must not be truncated
    probation         a voter that may have forgotten its votes
    leases            promises to elect nobody else, and what a leader makes of them
    succession        when a leader resigns and who should lead next; when a follower stops waiting for its leader
    delayed_fetches   Fetches that a leader answers later
    barriers          read barriers
    snapshot_fetch    snapshots that are served and received
    describe_quorum   what a leader tells of its voters and observers
    replication       appends, Fetches and the high watermark
    membership        changes of the voter set and of kraft.version
    election          votes and pre-votes
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import InvariantError
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from kraftcore.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftcore.protocol.messages.update_raft_voter import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from kraftcore.protocol.messages.vote import VoteRequest, VoteResponse
from kraftcore.raft import (
    barriers,
    delayed_fetches,
    describe_quorum,
    election,
    floor,
    invariants,
    membership,
    probation,
    replication,
    snapshot_fetch,
    succession,
)
from kraftcore.raft.events import (
    Answered,
    Barrier,
    Effects,
    Event,
    Failed,
    Flushed,
    Propose,
    RaftConfig,
    Received,
    Resign,
    Shutdown,
    SnapshotInstalled,
    SnapshotVerified,
    SnapshotWritten,
    Tick,
    Transfer,
    Upgrade,
)
from kraftcore.raft.installing import discard_log_behind_snapshot
from kraftcore.raft.ports import LogPort, RandomPort, SnapshotPort
from kraftcore.raft.quorum import Endpoint, VoterSet
from kraftcore.raft.roles import (
    Cause,
    FetchProgress,
    Follower,
    Leader,
    Resigned,
    Role,
    Unattached,
)
from kraftcore.raft.state import InFlight, RaftState, Step, soonest

STEPS_MAX = 100  # rounds of ``_settle`` after one event: a handful is usual, and more than these are a bug


class Replica:
    """A voter or observer of the quorum. Its only I/O reaches the page cache.

    ``handle`` appends to the log and to a snapshot that is being received, and reads both for other replicas, through
    the ports: no call waits for the disk. Making appended records durable and installing a received snapshot are
    effects. Two rare changes are made durable at once, see `Effects`: where an epoch begins, and truncation at a
    diverging epoch.

    Args:
        config: how the replica takes part.
        log: the replica's log, open and recovered.
        snapshots: the replica's snapshots.
        rng: draws timeouts and bootstrap servers; nothing else in the consensus is random.
        saved: the contents of the ``quorum-state`` file; None without that file.
        committed: the last ``Effects.committed`` that was written beside this log; see ``floor``.
        may_have_forgotten: whether the node's directory is new, though the node may have had another one before; see
            ``probation``.

    Raises:
        StorageError: the log ends before the latest snapshot, as a crash may leave it, and could not be cut.
    """

    def __init__(
        self,
        config: RaftConfig,
        log: LogPort,
        snapshots: SnapshotPort,
        rng: RandomPort,
        saved: ElectionState | None = None,
        *,
        committed: OffsetAndEpoch | None = None,
        may_have_forgotten: bool = False,
    ) -> None:
        discard_log_behind_snapshot(log, snapshots, 0)
        saved = saved or ElectionState()
        self.state = RaftState(config, log, snapshots, rng, saved, committed, may_have_forgotten)
        self._saved_leader_id = saved.leader_id
        self._started = False
        self._requests = self._request_table()
        self._answers = self._answer_table()
        self._failures = self._failure_table()
        self._events = self._event_table()
        self._steps = self._step_table()

    # --- who handles what ---------------------------------------------------------------------------------------------

    def _event_table(self) -> dict[type[Event], Callable[[RaftState, Any], None]]:
        return {
            Received: self._on_request,
            Answered: self._on_answer,
            Failed: self._on_failure,
            Propose: replication.propose,
            Flushed: lambda state, event: replication.flushed(state, event.offset),
            Tick: lambda state, event: None,
            SnapshotWritten: _on_snapshot_written,
            SnapshotVerified: snapshot_fetch.verified,
            SnapshotInstalled: snapshot_fetch.installed,
            Barrier: barriers.begin,
            Transfer: succession.transfer,
            Upgrade: membership.upgrade,
            Resign: lambda state, event: succession.resign(state, Cause.STEP_DOWN),
            Shutdown: _on_shutdown,
        }

    def _request_table(self) -> dict[type[Struct], Callable[[RaftState, Received, Any], None]]:
        return {
            VoteRequest: election.on_vote,
            BeginQuorumEpochRequest: election.on_begin_quorum_epoch,
            EndQuorumEpochRequest: succession.on_end_quorum_epoch,
            FetchRequest: replication.on_fetch,
            FetchSnapshotRequest: snapshot_fetch.on_fetch_snapshot,
            AddRaftVoterRequest: membership.on_add,
            RemoveRaftVoterRequest: membership.on_remove,
            UpdateRaftVoterRequest: membership.on_update,
            DescribeQuorumRequest: describe_quorum.on_describe_quorum,
        }

    def _answer_table(self) -> dict[type[Struct], Callable[[RaftState, InFlight, Any], None]]:
        return {
            VoteResponse: election.on_vote_answer,
            BeginQuorumEpochResponse: barriers.on_begin_quorum_epoch_answer,
            EndQuorumEpochResponse: succession.on_end_quorum_epoch_answer,
            FetchResponse: replication.on_fetch_answer,
            FetchSnapshotResponse: snapshot_fetch.on_fetch_snapshot_answer,
            ApiVersionsResponse: membership.on_api_versions,
            UpdateRaftVoterResponse: membership.on_update_answer,
            AddRaftVoterResponse: membership.on_join_answer,
            RemoveRaftVoterResponse: membership.on_join_answer,
        }

    def _failure_table(self) -> dict[type[Struct], Callable[[RaftState, InFlight, Failure], None]]:
        """By request: the function that is called when there is no answer. Other requests are sent again when due."""
        return {
            ApiVersionsRequest: membership.on_api_versions_failed,
            VoteRequest: election.on_vote_failed,
            BeginQuorumEpochRequest: barriers.on_begin_quorum_epoch_failed,
            AddRaftVoterRequest: membership.on_join_failed,
            EndQuorumEpochRequest: succession.on_end_quorum_epoch_failed,
        }

    def _step_table(self) -> dict[Step, tuple[Callable[..., None], ...]]:
        """What follows from an event: the functions that carry a step out, in order."""
        return {
            Step.FETCH_ACCEPTED: (delayed_fetches.take,),
            Step.HIGH_WATERMARK_ROSE: (
                delayed_fetches.committed,
                membership.committed,
                succession.resign_if_removed,
            ),
            Step.VOTERS_CHANGED: (
                succession.voters_changed,
                replication.voters_changed,
                barriers.voters_changed,
            ),
            Step.VOTES_CHANGED: (election.count_votes,),
        }

    # --- what a caller may look at ------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """The present role."""
        return self.state.role.role

    @property
    def epoch(self) -> int:
        """The present leader epoch."""
        return self.state.epoch

    @property
    def node_id(self) -> int:
        """This replica's node id; -1 for an observer without one."""
        return self.state.config.key.id

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch, or None while unknown."""
        return self.state.leader_id

    @property
    def answering_leader_id(self) -> int | None:
        """The leader that people are told: it has answered a Fetch of this replica within the fetch timeout.

        None: there is no such leader, whatever this replica remembers. This replica itself, if it leads.
        """
        return self.state.answering_leader_id

    def leader_silent_ms(self, now_ms: int) -> int:
        """Milliseconds since the leader last answered a Fetch of this replica; if that leads: since a majority fetched.

        Since the first event, while neither has happened. 0 for a leader that is the only voter.
        """
        role = self.state.role
        is_alone = isinstance(role, Leader) and role.check_quorum_deadline_ms is None
        return 0 if is_alone else max(now_ms - self.state.leader_answered_ms, 0)

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the known leader listens, or nothing."""
        return self.state.leader_endpoints

    @property
    def high_watermark(self) -> int | None:
        """Everything below this offset is committed; None until known. Never falls while this object lives."""
        return self.state.high_watermark

    @property
    def first_high_watermark(self) -> int | None:
        """The first high watermark since the start: told by a leader, or this replica's own as a leader. None before.

        The log may not reach that offset yet.
        """
        return self.state.first_high_watermark

    @property
    def told_high_watermark(self) -> int | None:
        """The latest high watermark that a leader told, or this replica's own as a leader. None before the first.

        The log may not reach that offset yet.
        """
        return self.state.told_high_watermark

    @property
    def voters(self) -> VoterSet:
        """The voter set in force."""
        return self.state.voters

    @property
    def kraft_version(self) -> int:
        """The kraft.version in force."""
        return self.state.version

    @property
    def listeners(self) -> tuple[Endpoint, ...]:
        """The endpoints of this replica that other replicas are told."""
        return self.state.config.listeners

    @property
    def voted_key(self) -> ReplicaKey | None:
        """Whom this replica voted for in this epoch, itself included."""
        return self.state.config.key if self.role in (Role.LEADER, Role.CANDIDATE) else self.state.voted_key

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the voter set in force."""
        return self.state.is_voter

    @property
    def last_epoch(self) -> int:
        """Leader epoch of the last record, in the log or in the latest snapshot; 0 without records."""
        return self.state.last_epoch

    @property
    def alarm(self) -> str | None:
        """Why the leader is not followed: following it would drop committed records. None: there is no such leader."""
        return self.state.alarm_text

    def refusal_of(self, host: str, port: int) -> str | None:
        """Why the last answer from an address shows that the peer there does not agree with this replica.

        None: the answer shows no disagreement, or there was none.
        """
        refusals = self.state.refusals.items()
        return next((why for at, why in refusals if (at.host, at.port) == (host, port)), None)

    @property
    def is_on_probation(self) -> bool:
        """Whether this voter must not count, because it may have forgotten its votes; see ``probation``."""
        return probation.is_on(self.state)

    @property
    def changes_voters(self) -> bool:
        """Whether this replica leads, and a voter change is not committed yet."""
        role = self.state.role
        return isinstance(role, Leader) and role.change is not None

    @property
    def snapshot_position(self) -> int | None:
        """Bytes received of the snapshot that is being fetched; None: no snapshot is being fetched."""
        role = self.state.role
        return role.snapshot.position if isinstance(role, Follower) and role.snapshot is not None else None

    def voters_at(self, end_offset: int) -> tuple[int, VoterSet]:
        """kraft.version and voter set in force below ``end_offset``: what a snapshot up to there must name."""
        return self.state.voters_at(end_offset)

    @property
    def is_leaving(self) -> bool:
        """Whether a leader that shuts down still has voters to send EndQuorumEpoch to."""
        return self.state.shutting_down and succession.has_voters_to_tell(self.state)

    @property
    def preferred_successor(self) -> int | None:
        """The voter to which this leader should hand over; None: it does not lead, or no voter fetches from it."""
        return succession.preferred_successor(self.state)

    @property
    def progress(self) -> tuple[FetchProgress, ...]:
        """How far each replica that fetches from this leader is; empty unless this replica leads."""
        role = self.state.role
        return tuple(role.replicas.values()) if isinstance(role, Leader) else ()

    def check_invariants(self) -> None:
        """Check, between two events, that the parts of the state agree with each other and with the log; for tests.

        Raises:
            InvariantError: they do not, which is a bug.
        """
        invariants.check(self.state)

    # --- events in, effects out ---------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> Effects:
        """Take one event; returns what the driver must do, in the order that `Effects` states.

        Args:
            event: what happened. The first event may be any; a `Tick` will do.
            now_ms: the driver's clock in milliseconds; an earlier time than before counts as that one.

        Raises:
            InvariantError: a bug; the replica must not be used any more.
            StorageError: the log failed; the replica must not be used any more.
        """
        state = self.state
        if now_ms > state.now_ms:
            state.now_ms = now_ms
        state.out = Effects()
        if not self._started:
            self._started = True
            self._start()
            self._settle()
        self._events[type(event)](state, event)
        state.out.deadline_ms = self._settle()
        if state.out.high_watermark is not None:
            floor.rose(state)
        if state.floor.due_ms is not None and state.floor.due_ms <= state.now_ms:
            floor.renew(state)
        if state.role is not state.announced_role:
            state.announce()
        return state.out

    def _start(self) -> None:
        state = self.state
        state.leader_answered_ms = state.now_ms
        state.load_history()
        latest = state.snapshots.latest
        if latest is not None and latest[0] > 0:
            state.out.restore = latest
            state.raise_high_watermark(latest[0])
        election.start(state, self._saved_leader_id)

    def _settle(self) -> int | None:
        """Carry out queued steps, then what the role has due, until neither is left.

        Returns:
            When something is due next, ms; None: nothing is, until an event comes.
        """
        state = self.state
        queue = state.steps
        for _ in range(STEPS_MAX):
            role = state.role
            if queue:
                step, queued_by, arguments = queue.popleft()
                if queued_by is role or step is Step.FETCH_ACCEPTED:  # a Fetch is answered in any case
                    for carry_out in self._steps[step]:
                        carry_out(state, queued_by, *arguments)
                continue
            due = _advance_role(state)
            if state.role is role and not queue:
                return due
        raise InvariantError(
            f"the replica does not come to rest at {state.now_ms} ms in epoch {state.epoch}: {state.role}"
        )

    def _on_request(self, state: RaftState, event: Received) -> None:
        handler = self._requests.get(type(event.message))
        if handler is None:
            raise InvariantError(f"{type(event.message).__name__} is no request of the consensus")
        handler(state, event, event.message)

    def _on_answer(self, state: RaftState, event: Answered) -> None:
        request = state.settle(event.request_id, failed=False)
        if request is None:
            return
        state.refused(request.destination, None)
        if state.may_have_forgotten:
            probation.heard(state, request, event.message)
        handler = self._answers.get(type(event.message))
        if handler is None:
            raise InvariantError(f"{type(event.message).__name__} is no answer of the consensus")
        handler(state, request, event.message)

    def _on_failure(self, state: RaftState, event: Failed) -> None:
        request = state.settle(event.request_id, failed=True)
        if request is None:
            return
        handler = self._failures.get(type(request.message))
        if handler is not None:
            handler(state, request, event.failure)
        succession.on_failure(state, request, event.failure)


def _advance_role(state: RaftState) -> int | None:
    role = state.role
    if isinstance(role, Leader):
        return _advance_leader(state, role)
    if isinstance(role, Follower):
        return _advance_follower(state, role)
    if isinstance(role, Unattached):
        due = election.advance_unattached(state, role)
        return due if state.role is not role else soonest(due, replication.advance_unattached(state, role))
    if isinstance(role, Resigned):
        return succession.advance_resigned(state, role)
    return election.advance_nominee(state, role)


def _advance_leader(state: RaftState, role: Leader) -> int | None:
    succession.resign_if_quorum_lost(state, role)
    if state.role is not role:
        return None
    due = delayed_fetches.expire(state, role)
    if role.change is not None:
        due = soonest(due, membership.expire(state, role))
    if role.barrier is not None or role.next_barrier:
        due = soonest(due, barriers.advance(state, role))
    if role.transfer is not None or state.config.reluctant:
        due = soonest(due, succession.advance_leader(state, role))
        if state.role is not role:
            return None
    due = soonest(due, role.check_quorum_deadline_ms)
    return soonest(due, election.send_begin_quorum_epoch(state, role))


def _advance_follower(state: RaftState, role: Follower) -> int | None:
    give_up_ms = succession.gives_up_at(state, role)
    if give_up_ms is not None and give_up_ms <= state.now_ms:
        cause = Cause.LEADER_UNREACHABLE if role.leader_gone else Cause.FETCH_TIMEOUT
        election.become_prospective(state, cause)
        return None
    silent_ms = succession.falls_silent_at(state, role)
    if silent_ms is not None and silent_ms <= state.now_ms:
        state.announced_role = silent_ms = None
    due = soonest(silent_ms, probation.advance(state)) if state.may_have_forgotten else silent_ms
    due = soonest(due, soonest(membership.advance_follower(state, role), replication.advance_follower(state, role)))
    return soonest(due, give_up_ms)


def _on_snapshot_written(state: RaftState, event: SnapshotWritten) -> None:
    snapshot_fetch.written(state, event)
    floor.hurry(state)


def _on_shutdown(state: RaftState, event: Shutdown) -> None:
    floor.hurry(state, until_the_end=True)
    state.shutting_down = True
    succession.resign(state, Cause.STEP_DOWN)
