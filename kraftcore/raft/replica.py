"""One replica: events in, effects out.

Rules of this file:

* ``handle`` is the only way in. It dispatches, settles what follows, and returns the effects.
* No handler is entered while another one runs. What follows from a step (voters counted anew, news of the high
  watermark, votes counted, a Fetch answered) is queued (``RaftState.then``) and settled once, at the end of
  ``handle``; then the role does what is due.
* Epochs are compared before any role looks at a message: ``learn_leader`` for requests that name a leader,
  ``learn_from_answer`` for answers, ``check_leader_only`` for requests only a leader can serve. A higher one is entered
  in one place, ``Election.enter``, whoever tells of it: a leader, an answer, a candidate.
* A message that contradicts what is known (two leaders of one epoch, us as a leader we never were) is refused and
  noted; it changes nothing.

The duties are split: ``election``, ``succession``, ``replication``, ``parking`` (Fetches that wait), ``snapshots``,
``membership``, ``barriers``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import InvariantError
from kraftcore.protocol.election_state import ElectionState, ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
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
from kraftcore.raft import invariants, namesakes, partition
from kraftcore.raft.barriers import Barriers
from kraftcore.raft.description import DescribeQuorum
from kraftcore.raft.duties import soonest
from kraftcore.raft.election import Election
from kraftcore.raft.events import (
    Answered,
    Barrier,
    Destination,
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
from kraftcore.raft.floor import Floor
from kraftcore.raft.installing import discard_log_behind_snapshot
from kraftcore.raft.membership import Membership
from kraftcore.raft.parking import Parking
from kraftcore.raft.ports import LogPort, RandomPort, SnapshotPort
from kraftcore.raft.probation import Probation
from kraftcore.raft.quorum import Endpoint, VoterSet
from kraftcore.raft.replication import Replication
from kraftcore.raft.roles import (
    Cause,
    FetchProgress,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    RoleState,
    Unattached,
)
from kraftcore.raft.snapshots import Snapshots
from kraftcore.raft.state import InFlight, RaftState
from kraftcore.raft.succession import Succession

STEPS_MAX = 100  # after one event; a handful is usual
_REFUSALS = {  # of answers, in words, where the code does not say what to do
    ErrorCode.NONE: "it is not about our partition",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "{code}: this node belongs to cluster {config.cluster_id}, the other one does "
    "not: correct the addresses, or format the one that is wrong anew, with the other's cluster id",
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "{code}: another process uses node id {config.key.id}: "
    f"{namesakes.WHAT_TO_DO}",
}


class Replica:
    """A member or observer of the quorum, without I/O but for one exception.

    ``handle`` appends to the log and to a snapshot that it receives, and reads both to serve others: in the page cache,
    through the ports. Making durable what was appended, and installing a received snapshot, are effects. Two rare
    changes are made durable at once, see `Effects`: where an epoch begins, and truncation at a diverging epoch.

    Args:
        config: how it takes part.
        log: its log, open and recovered.
        snapshots: its snapshots.
        rng: draws timeouts; nothing else here is random.
        saved: what the ``quorum-state`` file said; None without one.
        committed: what ``Effects.committed`` said last, with this log; see ``floor``.
        may_have_forgotten: whether its directory is new, though it may have had another one; see ``probation``.

    Raises:
        StorageError: a log behind the latest snapshot, as a crash may leave it, could not be cut.
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
        self.state = RaftState(config, log, snapshots, rng, saved)
        self.floor = Floor(self.state, committed)
        self.probation = Probation(self.state, may_have_forgotten)
        self.election = Election(self)
        self.succession = Succession(self)
        self.parking = Parking(self)
        self.replication = Replication(self)
        self.snapshots = Snapshots(self)
        self.membership = Membership(self)
        self.barriers = Barriers(self)
        self.description = DescribeQuorum(self.state)
        self._saved_leader_id = saved.leader_id
        self._started = False
        self._requests: dict[type[Struct], Callable[[Received, Any], None]] = {
            VoteRequest: self.election.on_vote,
            BeginQuorumEpochRequest: self.election.on_begin_quorum_epoch,
            EndQuorumEpochRequest: self.succession.on_end_quorum_epoch,
            FetchRequest: self.replication.on_fetch,
            FetchSnapshotRequest: self.snapshots.on_fetch_snapshot,
            AddRaftVoterRequest: self.membership.on_add,
            RemoveRaftVoterRequest: self.membership.on_remove,
            UpdateRaftVoterRequest: self.membership.on_update,
            DescribeQuorumRequest: self.description.on_describe_quorum,
        }
        self._answers: dict[type[Struct], Callable[[int, InFlight, Any], None]] = {
            VoteResponse: lambda _, sent, message: self.election.on_vote_answer(sent.destination, message),
            BeginQuorumEpochResponse: self.barriers.on_begin_quorum_epoch_answer,
            EndQuorumEpochResponse: lambda _, sent, message: self.succession.on_end_quorum_epoch_answer(
                sent.destination, message
            ),
            FetchResponse: lambda _, sent, message: self.replication.on_fetch_answer(sent, message),
            FetchSnapshotResponse: lambda _, sent, message: self.snapshots.on_fetch_snapshot_answer(sent, message),
            ApiVersionsResponse: lambda request_id, _, message: self.membership.on_api_versions(request_id, message),
            UpdateRaftVoterResponse: lambda _, sent, message: self._on_update_answer(sent.destination, message),
            AddRaftVoterResponse: lambda _, sent, message: self.membership.on_join_answer("AddRaftVoter", message),
            RemoveRaftVoterResponse: lambda _, sent, message: self.membership.on_join_answer(
                "RemoveRaftVoter", message
            ),
        }
        self._events: dict[type[Event], Callable[[Any], None]] = {
            Received: self._on_request,
            Answered: self._on_answer,
            Failed: self._on_failure,
            Propose: self.replication.propose,
            Flushed: lambda event: self.replication.flushed(event.offset),
            Tick: lambda event: None,
            SnapshotWritten: self._on_snapshot_written,
            SnapshotVerified: self.snapshots.verified,
            SnapshotInstalled: self.snapshots.installed,
            Barrier: self.barriers.barrier,
            Transfer: self.succession.transfer,
            Upgrade: self.membership.upgrade,
            Resign: lambda event: self.succession.resign(Cause.STEP_DOWN),
            Shutdown: self._on_shutdown,
        }

    # --- what a driver may look at ------------------------------------------------------------------------------------

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
        """This replica's id; -1 for a nameless observer."""
        return self.state.config.key.id

    @property
    def leader_id(self) -> int | None:
        """The leader of this epoch, or None while unknown."""
        return self.state.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the known leader listens, or nothing."""
        return self.state.leader_endpoints

    @property
    def high_watermark(self) -> int | None:
        """Below it everything is committed; None until known. Never falls while this object lives."""
        return self.state.high_watermark

    @property
    def first_high_watermark(self) -> int | None:
        """The first high watermark since the start that a leader told, or that this one had as a leader; None before.

        The log may not reach it yet.
        """
        return self.state.first_high_watermark

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
        """Where this replica listens, as others are told."""
        return self.state.config.listeners

    @property
    def voted_key(self) -> ReplicaKey | None:
        """Whom this replica voted for in this epoch, itself included."""
        return self.state.config.key if self.role in (Role.LEADER, Role.CANDIDATE) else self.state.voted_key

    @property
    def is_voter(self) -> bool:
        """Whether it is in the voter set in force."""
        return self.state.is_voter

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record, in the log or in a snapshot; 0 without any."""
        return self.state.last_epoch

    @property
    def alarm(self) -> str | None:
        """Why it does not follow its leader, which would have it drop committed records; None: it does not."""
        return self.state.alarm_text

    def refusal_of(self, host: str, port: int) -> str | None:
        """Why the last answer from an address shows that the peer there does not agree with us; None: it does."""
        refusals = self.state.refusals.items()
        return next((why for at, why in refusals if (at.host, at.port) == (host, port)), None)

    @property
    def is_on_probation(self) -> bool:
        """Whether it does not count as a voter: it may have lost its votes and acknowledgements; see ``probation``."""
        return self.probation.is_on

    @property
    def changes_voters(self) -> bool:
        """Whether this replica leads, and a voter change is not committed yet."""
        role = self.state.role
        return isinstance(role, Leader) and role.change is not None

    @property
    def snapshot_position(self) -> int | None:
        """Bytes received of the snapshot that is being fetched; None: none is."""
        role = self.state.role
        return role.snapshot.position if isinstance(role, Follower) and role.snapshot is not None else None

    def voters_at(self, end_offset: int) -> tuple[int, VoterSet]:
        """kraft.version and voter set in force below ``end_offset``: what a snapshot up to there must name."""
        return self.state.voters_at(end_offset)

    @property
    def is_leaving(self) -> bool:
        """Whether a leader that shuts down still has voters to send EndQuorumEpoch to."""
        return self.state.shutting_down and self.succession.has_voters_to_tell

    @property
    def preferred_successor(self) -> int | None:
        """The voter that a leader should hand over to, see ``succession``; None: not leading, or no voter fetches."""
        return self.succession.preferred_successor

    @property
    def progress(self) -> tuple[FetchProgress, ...]:
        """How far each replica that fetches from this leader is; empty unless it leads."""
        role = self.state.role
        return tuple(role.replicas.values()) if isinstance(role, Leader) else ()

    def check_invariants(self) -> None:
        """Compare this replica's state with itself and its log; for tests, between two events.

        Raises:
            InvariantError: something does not hold: a bug.
        """
        invariants.check(self.state)

    # --- in and out ---------------------------------------------------------------------------------------------------

    def handle(self, event: Event, now_ms: int) -> Effects:
        """Take one event; returns what the driver must do, in the order `Effects` states.

        Args:
            event: what happened. The first one may be anything; `Tick` will do.
            now_ms: the driver's clock, never falling.

        Raises:
            InvariantError: a bug; the replica must not be used any more.
            StorageError: the log failed; likewise.
        """
        state = self.state
        if now_ms > state.now_ms:
            state.now_ms = now_ms
        state.out = Effects()
        if not self._started:
            self._started = True
            self._start()
            self._settle()
        self._events[type(event)](event)
        state.out.deadline_ms = self._settle()
        if self.floor.due_ms <= state.now_ms:
            self.floor.renew()
        if state.role is not state.announced_role:
            state.announce()
        return state.out

    def _start(self) -> None:
        state = self.state
        state.load_history()
        latest = state.snapshots.latest
        if latest is not None and latest[0] > 0:
            state.out.restore = latest
            self.replication.raise_high_watermark(latest[0])
        self.election.start(self._saved_leader_id)

    def _settle(self) -> int | None:
        """Run queued consequences, then the role's due work, until neither is left.

        Returns:
            When the role's next timer runs out, ms; None: no timer runs.
        """
        state = self.state
        queue = state.consequences
        for _ in range(STEPS_MAX):
            if queue:
                action, arguments = queue.popleft()
                action(*arguments)
                continue
            role = state.role
            due = self._advance_role()
            if state.role is role and not queue:
                return due
        raise InvariantError(f"it does not come to rest at {state.now_ms} ms in epoch {state.epoch}: {state.role}")

    def _advance_role(self) -> int | None:
        role = self.state.role
        if isinstance(role, Leader):
            return self._advance_leader(role)
        if isinstance(role, Follower):
            return self._advance_follower(role)
        if isinstance(role, Unattached):
            due = self.election.advance_unattached(role)
            return due if self.state.role is not role else soonest(due, self.replication.advance_unattached(role))
        if isinstance(role, Resigned):
            return self.succession.advance_resigned(role)
        return self.election.advance_nominee(role)

    def _advance_leader(self, role: Leader) -> int | None:
        state = self.state
        if role.check_quorum_deadline_ms is not None and role.check_quorum_deadline_ms <= state.now_ms:
            self.succession.resign(Cause.QUORUM_LOST)
            return None
        due = self.parking.expire(role)
        if role.change is not None:
            due = soonest(due, self.membership.expire(role))
        if role.barrier is not None or role.next_barrier:
            due = soonest(due, self.barriers.advance(role))
        if role.transfer is not None or state.config.reluctant:
            due = soonest(due, self.succession.advance_leader(role))
            if state.role is not role:
                return None
        due = soonest(due, role.check_quorum_deadline_ms)
        return soonest(due, self.election.send_begin_quorum_epoch(role))

    def _advance_follower(self, role: Follower) -> int | None:
        state = self.state
        votes = state.is_voter and not state.shutting_down
        give_up_ms = role.fetch_deadline_ms + self.succession.patience_ms
        if votes and give_up_ms <= state.now_ms and role.snapshot is not None and role.snapshot.is_whole:
            votes = False  # while it installs a snapshot its timer stands still
        elif votes and give_up_ms <= state.now_ms:
            cause = Cause.LEADER_UNREACHABLE if role.leader_gone else Cause.FETCH_TIMEOUT
            self.election.become_prospective(cause)
            return None
        due = self.probation.advance() if self.probation.is_set else None
        due = soonest(due, soonest(self.membership.advance_follower(role), self.replication.advance_follower(role)))
        return soonest(due, give_up_ms) if votes else due

    # --- events -------------------------------------------------------------------------------------------------------

    def _on_request(self, event: Received) -> None:
        handler = self._requests.get(type(event.message))
        if handler is None:
            raise InvariantError(f"{type(event.message).__name__} is no request of the consensus")
        handler(event, event.message)

    def _on_answer(self, event: Answered) -> None:
        request = self.state.settle(event.request_id, failed=False)
        if request is None:
            return
        self.state.refused(request.destination, None)
        if self.probation.is_set:
            self.probation.heard(request, event.message)
        handler = self._answers.get(type(event.message))
        if handler is None:
            raise InvariantError(f"{type(event.message).__name__} is no answer of the consensus")
        handler(event.request_id, request, event.message)

    def _on_failure(self, event: Failed) -> None:
        state = self.state
        request = state.settle(event.request_id, failed=True)
        if request is None:
            return
        if isinstance(request.message, ApiVersionsRequest):
            self.membership.on_api_versions_failed(event.request_id, event.failure)
        elif isinstance(request.message, VoteRequest):
            self.election.on_vote_failed(event.failure)
        elif isinstance(request.message, BeginQuorumEpochRequest):
            self.barriers.on_begin_quorum_epoch_failed(event.request_id)
        elif isinstance(request.message, AddRaftVoterRequest):
            self.membership.on_join_failed(event.failure)
        elif isinstance(request.message, EndQuorumEpochRequest):
            self.succession.on_end_quorum_epoch_failed(request.destination)
        role = state.role
        if (
            event.failure in (Failure.REFUSED, Failure.RESET)
            and isinstance(role, Follower)
            and request.destination.node_id == role.leader_id
        ):
            self.succession.leader_unreachable(role)

    def _on_update_answer(self, source: Destination, response: UpdateRaftVoterResponse) -> None:
        leader = response.current_leader
        if leader.leader_id >= 0:
            endpoints = self._endpoints(leader.host, leader.port)
            answer = partition.AnswerSummary(response.error_code, leader.leader_id, leader.leader_epoch)
            if not self._compare_answer(answer, endpoints, source):
                return
        self.membership.on_update_answer(source, response)

    def _on_snapshot_written(self, event: SnapshotWritten) -> None:
        self.snapshots.written(event)
        self.floor.hurry()

    def _on_shutdown(self, event: Shutdown) -> None:
        self.floor.hurry(until_the_end=True)
        self.state.shutting_down = True
        self.succession.resign(Cause.STEP_DOWN)

    def become(self, role: RoleState, cause: Cause, epoch: int | None = None, vote: ReplicaKey | None = None) -> None:
        """Change the role, then answer whoever waited on the old one; as ``RaftState.become``."""
        old = self.state.role
        self.state.become(role, cause, epoch, vote)
        if isinstance(old, Leader):
            self.parking.fail(old)
            self.membership.abandon(old, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.barriers.abandon(old, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.succession.abandon(old, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif isinstance(old, Follower):
            self.snapshots.drop(old)

    # --- epochs -------------------------------------------------------------------------------------------------------

    def check_leader_only(self, epoch: int) -> ErrorCode:
        """Whether a request with this epoch can be served by us as leader."""
        state = self.state
        if epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(state.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.BROKER_NOT_AVAILABLE if state.shutting_down else ErrorCode.NONE

    def learn_leader(
        self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], *, by_itself: bool = False
    ) -> bool:
        """A message names the leader of an epoch that is not below ours; False if that contradicts what we know.

        Args:
            epoch: that leader's.
            leader_id: who it is.
            endpoints: where it listens, as far as the message says so.
            by_itself: the message is the leader's own.
        """
        state = self.state
        if leader_id == state.config.key.id:
            if epoch == state.epoch and state.leader_id == leader_id:
                return True
            state.note_seldom(
                f"refused a message that calls us the leader of epoch {epoch}: we are {state.role.role.value}. Another "
                f"process uses node id {leader_id}, or this node led with a directory that is lost. In the first case "
                f"{namesakes.WHAT_TO_DO}"
            )
            return False
        known = state.leader_id
        if epoch == state.epoch and known is not None and known != leader_id:
            state.note_seldom(
                f"refused a message that calls {leader_id} the leader of epoch {epoch}: it is {known}. Two nodes lead "
                "an epoch only where voters (controller.quorum.voters) differ, or voters came back without their disks"
            )
            return False
        role = state.role
        if isinstance(role, Follower | Prospective) and epoch == state.epoch and role.leader_id is not None:
            self._relocate(role, role.leader_id, endpoints, by_itself)
            return True
        if not endpoints:
            entry = state.voters.get(leader_id)
            endpoints = entry.endpoints if entry is not None else ()
        self.election.enter(epoch, leader_id, endpoints)
        return True

    def _relocate(
        self, role: Follower | Prospective, leader_id: int, endpoints: tuple[Endpoint, ...], by_itself: bool
    ) -> None:
        """Take over the known leader's endpoints: from itself always, from others only while ours do not answer."""
        state = self.state
        told = state.destination(leader_id, endpoints)
        known = state.destination(leader_id, role.leader_endpoints)
        if told is None or (told == known and len(endpoints) <= len(role.leader_endpoints)):
            return
        if told == known or by_itself or known is None or state.is_backing_off(known):
            role.leader_endpoints = endpoints

    def learn_from_answer(
        self, answer: partition.AnswerSummary, node_endpoints: Sequence[Any], source: Destination
    ) -> bool:
        """Compare an answer's epoch and leader with ours; True if the answer itself still matters."""
        endpoints: tuple[Endpoint, ...] = ()
        for item in node_endpoints:
            if item.node_id == answer.leader_id:
                endpoints = self._endpoints(item.host, item.port)
        return self._compare_answer(answer, endpoints, source)

    def _compare_answer(
        self, answer: partition.AnswerSummary, endpoints: tuple[Endpoint, ...], source: Destination
    ) -> bool:
        state = self.state
        error = answer.error_code
        if error == ErrorCode.INVALID_VOTER_KEY:
            state.refused(source, f"it is not voter {source.node_id}, or has another directory than that voter")
        if error == ErrorCode.UNKNOWN_LEADER_EPOCH:  # it has yet to hear of this epoch
            state.back_off(source)
            return False
        if answer.leader_epoch < state.epoch:
            return False
        behind = answer.leader_epoch > state.epoch
        if answer.leader_id is not None:
            unknown = state.leader_id is None
            if not self.learn_leader(answer.leader_epoch, answer.leader_id, endpoints):
                state.refused(source, f"it calls node {answer.leader_id} the leader of epoch {answer.leader_epoch}")
                state.back_off(source)
                return False
            if unknown and not behind:
                return bool(error == ErrorCode.NONE)
        elif behind:
            self.election.enter(answer.leader_epoch)
        if error == ErrorCode.NONE:
            return not behind
        expected = (
            ErrorCode.FENCED_LEADER_EPOCH,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.BROKER_NOT_AVAILABLE,
            ErrorCode.INVALID_VOTER_KEY,
        )
        if not behind and error in expected:
            state.back_off(source)
        return not behind and error not in expected

    def _endpoints(self, host: str, port: int) -> tuple[Endpoint, ...]:
        if not host or not 0 < port <= 0xFFFF:  # an int32 on the wire
            return ()
        listeners = self.state.config.listeners
        return (Endpoint(listeners[0].name if listeners else "", host, port),)

    def single_partition(self, response: Any, source: Destination) -> Any:
        """The partition entry of a quorum answer; None, with a note, if it has a top-level error."""
        found = partition.quorum_answer(self.state, response)
        if found is None:
            self.refuse_answer(source, response)
            return None
        return found

    def refuse_answer(self, source: Destination, response: Any, told: Any = None) -> None:
        """Note an error that no rule expects in an answer, and back off from the peer.

        Args:
            source: whom we asked.
            response: the answer.
            told: its partition entry for our partition, if it has one.
        """
        state = self.state
        code = ErrorCode.of((response if told is None else told).error_code)
        why = _REFUSALS.get(code, "{code}").format(code=code.name, config=state.config)
        if code is ErrorCode.INVALID_REQUEST and told is None:
            why += f": it has no log of topic {state.config.topic} with id {state.config.topic_id}: set topic and "
            why += "topic_id (kraftcore.topic, kraftcore.topic.id) alike on all nodes"
        state.refused(source, why)
        state.note_seldom(f"{type(response).__name__} from {source.host}:{source.port} is refused: {why}")
        state.back_off(source)
