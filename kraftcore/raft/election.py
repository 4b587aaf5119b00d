"""Elections: Vote and pre-vote, BeginQuorumEpoch, EndQuorumEpoch, timers, resignation.

Who may grant what (Kafka 4.3.1; "up to date": the asker's (last epoch, log end offset) is not behind ours):

    our role              pre-vote                                       vote
    Unattached            up to date                                     our earlier choice again; or, without one: no
    Prospective           up to date                                     leader known in this epoch, and up to date
    Follower              up to date, and this leader has not answered   never
                          a Fetch yet, is gone or silent (*)
    Candidate, Resigned   up to date                                     never
    Leader                never                                          never

(*) Ours: granting a pre-vote promises nothing, so this is safe beside replicas that do not know it. Gone: fast
failover. Silent for a fetch timeout: a replica that does not know yet that it was made a voter has no timer that would
end its following; in Kafka 4.3.1 it refuses for ever, and the one that needs its pre-vote cannot win. A reluctant voter
goes on following for longer.

A replica that is no voter by its own log stands when a voter whose log is behind asks for its vote (`Cause.NEEDED`):
without that a quorum can be dead for ever with every node healthy. Source: Ongaro's dissertation, 4.2.2, which lets
every server stand that is not in its latest configuration; here it waits until it is asked.

A vote is in the quorum-state file before the answer leaves (effects order); pre-votes are never stored. Membership of
either side is not checked (KIP-853 "Leader election"). The leader of an epoch is whoever won it; that two claim the
same epoch is a contradiction that is refused and noted, never followed.

Sources: KIP-595, KIP-853, KIP-996.
"""

from __future__ import annotations

from kraftcore.protocol.election_state import EPOCH_MAX, ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftcore.protocol.messages.vote import VoteRequest, VoteResponse
from kraftcore.raft import partition
from kraftcore.raft.duties import Duties
from kraftcore.raft.events import Destination, Received
from kraftcore.raft.quorum import Endpoint, Tally, preferred_candidates
from kraftcore.raft.roles import (
    Candidate,
    Cause,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Unattached,
)
from kraftcore.raft.watermark import Watermark

FAILOVER_STEP_MS = 50  # between two followers that notice a dead leader; several round trips, far below a timeout


class Election:
    """Everything about who leads."""

    def __init__(self, replica: Duties) -> None:
        self._replica = replica
        self._state = replica.state

    # --- start and change of role -------------------------------------------------------------------------------------

    def start(self, saved_leader_id: int | None) -> None:
        """Choose the first role from what was saved.

        Source: Kafka 4.3.1 QuorumState.initialize.
        """
        state = self._state
        me = state.config.key
        if state.last_epoch > state.epoch:
            state.epoch, state.voted_key = state.last_epoch, None
            saved_leader_id = None
        deadline = state.random_election_deadline()
        voted_for_itself = state.voted_key is not None and state.is_voter and state.voted_key.matches(me)
        if self._replica.probation.is_on:  # a crash may have come between the end of it and the first vote
            voted_for_itself = False
        led = voted_for_itself and state.log.last_epoch == state.epoch  # it won and wrote, but could not save that
        if led or (saved_leader_id is not None and saved_leader_id == me.id):
            # The epoch is ours, and what we promised in it is unknown: never lead it again.
            others = state.voters.ids - {me.id}
            state.role = Resigned(deadline, preferred_candidates(state.voters, me.id, {}), set(others))
        elif voted_for_itself:
            state.voted_key = me
            state.role = Candidate(self._own_tally(), deadline)
        else:
            voter = state.voters.get(saved_leader_id) if saved_leader_id is not None else None
            if voter is not None and state.destination(voter.key.id, voter.endpoints) is not None:
                state.role = self._follower(voter.key.id, voter.endpoints)
            else:
                state.role = Unattached(deadline if state.is_voter else None, saved_leader_id)
        state.save_election_state()
        if isinstance(state.role, Unattached | Follower | Resigned) and state.voters.is_only_voter(me):
            self.become_prospective(Cause.ELECTION_TIMEOUT)

    def follow(self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...]) -> None:
        """Follow a leader, or remember its id when it cannot be reached by any known endpoint."""
        state = self._state
        if state.destination(leader_id, endpoints) is None:
            if epoch > state.epoch:
                self.unattach(epoch, leader_id)
            elif isinstance(state.role, Unattached):
                state.role.leader_id = leader_id
            return
        self._replica.become(self._follower(leader_id, endpoints), Cause.LEADER_FOUND, epoch)

    def unattach(self, epoch: int, leader_id: int | None = None) -> None:
        """Enter a higher epoch without a leader to follow."""
        state = self._state
        role = state.role
        # A waiting voter keeps waiting the rest of its time: a stream of higher epochs must not starve it.
        if isinstance(role, Candidate | Resigned | Unattached) or (
            isinstance(role, Prospective) and not role.tally.lost
        ):
            deadline = role.election_deadline_ms
        else:
            deadline = None
        if deadline is None:
            deadline = state.random_election_deadline()
        self._replica.become(Unattached(deadline if state.is_voter else None, leader_id), Cause.HIGHER_EPOCH, epoch)

    def _follower(self, leader_id: int, endpoints: tuple[Endpoint, ...]) -> Follower:
        state = self._state
        fetch_timeout = state.config.fetch_timeout_ms
        return Follower(leader_id, endpoints, state.now_ms + fetch_timeout, state.now_ms + fetch_timeout)

    def _own_tally(self) -> Tally:
        tally = Tally(self._state.voters)
        if self._state.is_voter:
            tally.record(self._state.config.key.id, granted=True)
        return tally

    def become_prospective(self, cause: Cause) -> None:
        """Ask for pre-votes; a sole voter goes straight on."""
        state = self._state
        role = state.role
        leader_id: int | None = None
        endpoints: tuple[Endpoint, ...] = ()
        gone = cause is Cause.LEADER_UNREACHABLE
        if isinstance(role, Follower):
            leader_id, endpoints = role.leader_id, role.leader_endpoints
            gone = gone or role.leader_gone
        elif isinstance(role, Unattached):
            leader_id = role.leader_id
        deadline = state.random_election_deadline()
        self._replica.become(Prospective(self._own_tally(), deadline, leader_id, endpoints, gone), cause)
        self._count_votes()

    def _lose_pre_vote(self, role: Prospective) -> None:
        state = self._state
        if role.leader_id is not None and role.leader_endpoints:
            follower = self._follower(role.leader_id, role.leader_endpoints)
            follower.leader_gone = role.leader_gone
            self._replica.become(follower, Cause.PRE_VOTE_LOST)
        else:
            deadline = state.random_election_deadline()
            self._replica.become(Unattached(deadline if state.is_voter else None, role.leader_id), Cause.PRE_VOTE_LOST)

    def _become_candidate(self, role: Prospective) -> None:
        state = self._state
        if not self._replica.probation.may_run(role.tally):
            return
        if self._out_of_epochs():
            self._lose_pre_vote(role)
            return
        tally = self._own_tally()
        deadline = state.random_election_deadline()
        self._replica.become(Candidate(tally, deadline), Cause.PRE_VOTE_WON, state.epoch + 1, vote=state.config.key)
        self._count_votes()

    def _out_of_epochs(self) -> bool:
        # Only a peer that lies about its epoch can bring us here; what is committed stays, and can be read.
        if self._state.epoch < EPOCH_MAX:
            return False
        self._state.note(f"no election is possible any more: {EPOCH_MAX} is the last leader epoch there is")
        return True

    def _become_leader(self, role: Candidate) -> None:
        state = self._state
        start = state.log.log_end_offset
        deadline = None if state.voters.is_only_voter(state.config.key) else self.check_quorum_deadline()
        leader = Leader(start, Watermark(start, state.voters.ids), deadline)
        leader.begin_due_ms = dict.fromkeys(state.voters.ids - {state.config.key.id}, state.now_ms)
        self._replica.become(leader, Cause.VOTE_WON)
        self._replica.replication.open_epoch(leader, sorted(role.tally.granted))

    def check_quorum_deadline(self) -> int:
        """When a leader gives up unless a majority fetches: 1.5 fetch timeouts from now. Source: Kafka 4.3.1."""
        state = self._state
        return state.now_ms + state.config.fetch_timeout_ms * 3 // 2

    def resign(self, cause: Cause, first: ReplicaKey | None = None) -> None:
        """Stop leading; ``first`` shall lead next, else whoever has most of the log."""
        state = self._state
        role = state.role
        if not isinstance(role, Leader):
            return
        me = state.config.key.id
        preferred = preferred_candidates(state.voters, me, role.watermark.voters())
        if first is not None:
            preferred = (first, *(key for key in preferred if key != first))
        deadline = state.random_election_deadline()
        self._replica.become(Resigned(deadline, preferred, set(state.voters.ids - {me})), cause)

    # --- due work, role by role ---------------------------------------------------------------------------------------

    def advance_unattached(self, role: Unattached) -> int | None:
        """Start a pre-vote when the timer ran out; else the time it will."""
        state = self._state
        if role.election_deadline_ms is None or state.shutting_down:
            return None
        due = role.election_deadline_ms + state.patience_ms
        if due <= state.now_ms:
            self.become_prospective(Cause.ELECTION_TIMEOUT)
        return due

    def advance_nominee(self, role: Prospective | Candidate) -> int | None:
        """Ask the voters that have not answered, while winning is possible; give up when the timer ran out."""
        state = self._state
        if state.shutting_down:
            return None
        if role.election_deadline_ms <= state.now_ms:
            if isinstance(role, Prospective):
                self._lose_pre_vote(role)
            else:
                self.become_prospective(Cause.ELECTION_TIMEOUT)
            return None
        due = role.election_deadline_ms
        # A voter that granted once grants the same candidate again without another look at its log, also after this
        # one crashed: so it must not ask with records it could still lose.
        if role.tally.lost or (isinstance(role, Candidate) and not state.is_flushed):
            return due
        for voter_id in role.tally.unanswered:
            voter = role.tally.voters.get(voter_id)
            to = state.destination(voter_id, voter.endpoints) if voter is not None else None
            if to is None:
                continue
            if state.is_ready(to):
                pre_vote = isinstance(role, Prospective)
                key = voter.key if voter is not None else ReplicaKey(voter_id)
                state.send(to, partition.vote_request(state, key, pre_vote), min_version=2 if pre_vote else 0)
            elif (at := state.ready_at(to)) is not None:
                due = min(due, at)
        return due

    def advance_resigned(self, role: Resigned) -> int | None:
        """Tell the voters; move to the next epoch when the timer ran out."""
        state = self._state
        if role.election_deadline_ms <= state.now_ms and not state.shutting_down and self._out_of_epochs():
            role.election_deadline_ms = state.random_election_deadline()
        elif role.election_deadline_ms <= state.now_ms and not state.shutting_down:
            deadline = state.random_election_deadline() if state.is_voter else None
            self._replica.become(Unattached(deadline), Cause.ELECTION_TIMEOUT, state.epoch + 1)
            return deadline
        due = role.election_deadline_ms if not state.shutting_down else None
        for voter in state.voters:
            to = state.destination(voter.key.id, voter.endpoints)
            if to is None or voter.key.id not in role.unacknowledged:
                continue
            if state.is_ready(to):
                state.send(to, partition.end_quorum_epoch_request(state, role.preferred))
            elif (at := state.ready_at(to)) is not None:
                due = at if due is None else min(due, at)
        return due

    def send_begin_quorum_epoch(self, role: Leader) -> int | None:
        """Tell voters that do not fetch who leads; again every half fetch timeout until they do."""
        state = self._state
        due: int | None = None
        me = state.config.key.id
        period = state.config.fetch_timeout_ms // 2
        for voter in state.voters:
            voter_id = voter.key.id
            if voter_id == me:
                continue
            at = role.begin_due_ms.get(voter_id, state.now_ms)
            if at <= state.now_ms:
                to = state.destination(voter_id, voter.endpoints)
                if to is None:
                    at = state.now_ms + period
                elif state.is_ready(to):
                    state.send(to, partition.begin_quorum_epoch_request(state, voter.key))
                    at = state.now_ms + period
                elif (ready := state.ready_at(to)) is None:
                    continue  # as soon as its vote, or whatever is under way, has been answered
                else:
                    at = ready
                role.begin_due_ms[voter_id] = max(at, state.now_ms + 1)
                at = role.begin_due_ms[voter_id]
            due = at if due is None else min(due, at)
        return due

    # --- requests -----------------------------------------------------------------------------------------------------

    def on_vote(self, received: Received, request: VoteRequest) -> None:
        """Grant or refuse. Checks in Kafka's order; see the table in the module text."""
        state = self._state
        error = partition.check(state, request.cluster_id, partition.names_our_partition(state, request.topics))
        if error is not ErrorCode.NONE:
            state.reply(received.ticket, VoteResponse(error_code=error))
            return
        asked = request.topics[0].partitions[0]
        candidate = ReplicaKey(asked.replica_id, asked.replica_directory_id)
        illegal = (
            asked.last_offset_epoch > asked.replica_epoch
            if asked.pre_vote
            else asked.last_offset_epoch >= asked.replica_epoch
        )
        granted = up_to_date = False
        if asked.last_offset < 0 or asked.last_offset_epoch < 0 or illegal:
            error = ErrorCode.INVALID_REQUEST
        elif asked.replica_epoch < state.epoch:
            error = ErrorCode.FENCED_LEADER_EPOCH
        elif asked.replica_id < 0:
            error = ErrorCode.INVALID_REQUEST
        else:
            if asked.replica_epoch > state.epoch:
                self.unattach(asked.replica_epoch)
            if not partition.is_for_us(state, request.voter_id, asked.voter_directory_id):
                error = ErrorCode.INVALID_VOTER_KEY
            else:
                ours = (state.last_epoch, state.log.log_end_offset)
                up_to_date = (asked.last_offset_epoch, asked.last_offset) >= ours
                granted = self._may_grant(candidate, up_to_date, asked.pre_vote)
                if granted and not asked.pre_vote:
                    self._vote_for(candidate)
        state.reply(received.ticket, partition.vote_response(state, received, error, granted))
        if error is ErrorCode.NONE and not up_to_date and request.voter_id >= 0:
            self._stand_if_needed()

    def _stand_if_needed(self) -> None:
        """A voter cannot win without us, because our log is ahead of its, and by our log we are no voter: stand.

        We may have been removed by a record that is not committed, or made a voter by one that we do not have. Not
        counting ourselves we need a majority of the voters that our log names, as every candidate does.
        """
        state = self._state
        role = state.role
        if state.is_voter or state.shutting_down or not state.config.can_become_voter or not len(state.voters):
            return
        if state.config.key.id in state.voters.ids:
            return  # with another directory; votes and offsets are counted by id
        if isinstance(role, Unattached) or (isinstance(role, Follower) and self._is_silent(role)):
            state.note_seldom(
                f"runs for leader though {state.voters} are the voters: one of them lacks records that are here"
            )
            self.become_prospective(Cause.NEEDED)

    def _may_grant(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        state = self._state
        role = state.role
        if isinstance(role, Leader):
            return False
        if not pre_vote and self._replica.probation.is_on:
            return False
        if pre_vote:
            return up_to_date and (not isinstance(role, Follower) or self._is_silent(role))
        if not isinstance(role, Unattached | Prospective):
            return False
        if state.voted_key is not None:
            return state.voted_key.matches(candidate)
        return role.leader_id is None and up_to_date

    def _is_silent(self, role: Follower) -> bool:
        """Whether its leader has not answered a Fetch yet, is gone, or has not answered for a fetch timeout."""
        state = self._state
        lasts = not state.is_voter or state.config.reluctant  # a voter that is not would not follow any more
        return not role.has_fetched or role.leader_gone or (lasts and role.fetch_deadline_ms <= state.now_ms)

    def _vote_for(self, candidate: ReplicaKey) -> None:
        state = self._state
        role = state.role
        if state.voted_key is None:
            state.voted_key = candidate
            state.save_election_state()
        # Whoever just voted gives its candidate time before it runs itself.
        if isinstance(role, Unattached | Prospective) and role.election_deadline_ms is not None:
            role.election_deadline_ms = state.random_election_deadline()

    def on_begin_quorum_epoch(self, received: Received, request: BeginQuorumEpochRequest) -> None:
        """A leader presents itself."""
        error = self._hear_leader(received, request, BeginQuorumEpochResponse)
        if error is None:
            return
        told = request.topics[0].partitions[0]
        if error is ErrorCode.NONE and not partition.is_for_us(self._state, request.voter_id, told.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        self._reply_to_leader(received, BeginQuorumEpochResponse, error)

    def on_end_quorum_epoch(self, received: Received, request: EndQuorumEpochRequest) -> None:
        """The leader steps down: start an election soon, sooner the better we stand in its list."""
        error = self._hear_leader(received, request, EndQuorumEpochResponse)
        if error is None:
            return
        state = self._state
        told = request.topics[0].partitions[0]
        role = state.role
        if error is ErrorCode.NONE and isinstance(role, Follower) and role.leader_id == told.leader_id:
            keys = [ReplicaKey(item.candidate_id, item.candidate_directory_id) for item in told.preferred_candidates]
            if received.version == 0:
                keys = [ReplicaKey(replica_id) for replica_id in told.preferred_successors]
            backoff_ms = end_epoch_backoff(keys, state.config.key, state.config.election_backoff_max_ms)
            role.fetch_deadline_ms = state.now_ms + backoff_ms
            role.leader_gone = True
        self._reply_to_leader(received, EndQuorumEpochResponse, error)

    def _hear_leader(
        self,
        received: Received,
        request: BeginQuorumEpochRequest | EndQuorumEpochRequest,
        kind: type[BeginQuorumEpochResponse | EndQuorumEpochResponse],
    ) -> ErrorCode | None:
        """The checks both requests share; a leader that passes them is followed. None: answered at top level."""
        state = self._state
        error = partition.check(state, request.cluster_id, partition.names_our_partition(state, request.topics))
        if error is not ErrorCode.NONE:
            state.reply(received.ticket, kind(error_code=error))
            return None
        told = request.topics[0].partitions[0]
        if told.leader_epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if told.leader_id < 0:
            return ErrorCode.INVALID_REQUEST
        endpoints = tuple(Endpoint(item.name, item.host, item.port) for item in request.leader_endpoints)
        met = self._replica.meet_leader(told.leader_epoch, told.leader_id, endpoints, by_itself=True)
        return ErrorCode.NONE if met else ErrorCode.INVALID_REQUEST

    def _reply_to_leader(
        self, received: Received, kind: type[BeginQuorumEpochResponse | EndQuorumEpochResponse], error: ErrorCode
    ) -> None:
        state = self._state
        state.reply(received.ticket, partition.quorum_epoch_response(kind, state, received, error))

    # --- answers ------------------------------------------------------------------------------------------------------

    def on_vote_answer(self, source: Destination, response: VoteResponse) -> None:
        """Count a vote, if it still matters."""
        state = self._state
        role = state.role
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
            self._become_candidate(role)
            return
        found = self._replica.single_partition(response, source)
        if found is None or not self._replica.meet_answer(found[0], response.node_endpoints, source):
            return
        role = state.role
        if isinstance(role, Prospective | Candidate) and source.node_id is not None:
            role.tally.record(source.node_id, found[1].vote_granted)
            self._count_votes()

    def _count_votes(self) -> None:
        role = self._state.role
        if self._state.shutting_down:
            return
        if isinstance(role, Prospective):
            if role.tally.won:
                self._become_candidate(role)
            elif role.tally.lost:
                self._lose_pre_vote(role)
        elif isinstance(role, Candidate) and role.tally.won:
            self._become_leader(role)

    def on_vote_failed(self, failure: Failure) -> None:
        """A voter that cannot be asked for a pre-vote does not know them: KIP-996 then goes straight to the vote."""
        role = self._state.role
        if failure is Failure.UNSUPPORTED_VERSION and isinstance(role, Prospective):
            self._become_candidate(role)

    def leader_unreachable(self, role: Follower) -> None:
        """The leader's process refused or reset a connection: its election need not wait for the fetch timeout.

        Followers go one after the other, by id, so that they do not split the votes.
        """
        state = self._state
        if not state.config.fast_failover:
            return
        role.leader_gone = True
        others = sorted(state.voters.ids - {role.leader_id})
        if state.is_voter:
            turn = others.index(state.config.key.id) if state.config.key.id in others else len(others)
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, state.now_ms + turn * FAILOVER_STEP_MS)

    def on_begin_quorum_epoch_answer(self, source: Destination, response: BeginQuorumEpochResponse) -> bool:
        """Whether a voter confirmed our epoch."""
        found = self._replica.single_partition(response, source)
        return found is not None and self._replica.meet_answer(found[0], response.node_endpoints, source)

    def on_end_quorum_epoch_answer(self, source: Destination, response: EndQuorumEpochResponse) -> None:
        """A voter knows that we resigned."""
        found = self._replica.single_partition(response, source)
        if found is None or not self._replica.meet_answer(found[0], response.node_endpoints, source):
            return
        if isinstance(role := self._state.role, Resigned) and source.node_id is not None:
            role.unacknowledged.discard(source.node_id)

    def on_end_quorum_epoch_failed(self, destination: Destination) -> None:
        """Shutting down does not wait for the dead: every voter is told once."""
        role = self._state.role
        if isinstance(role, Resigned) and self._state.shutting_down and destination.node_id is not None:
            role.unacknowledged.discard(destination.node_id)

    @property
    def has_voters_to_tell(self) -> bool:
        """Whether a voter that can be reached has not heard of our resignation."""
        state = self._state
        role = state.role
        return isinstance(role, Resigned) and any(
            voter.key.id in role.unacknowledged and state.destination(voter.key.id, voter.endpoints) is not None
            for voter in state.voters
        )


def end_epoch_backoff(preferred: list[ReplicaKey], own: ReplicaKey, max_ms: int) -> int:
    """How long a follower waits before it runs after EndQuorumEpoch, ms.

    The first of the list starts at once, the others exponentially later, a replica that is not listed last.
    Source: Kafka 4.3.1 KafkaRaftClient.endEpochElectionBackoff.
    """
    for position, key in enumerate(preferred):
        if key.matches(own):
            if position == 0:
                return 0
            return min(max_ms, (max_ms >> (len(preferred) - 1)) << (position - 1))
    return max_ms
