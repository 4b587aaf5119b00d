"""Elections: Vote and pre-vote, BeginQuorumEpoch, timers. Who should win them, and when: ``succession``.

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
from kraftcore.raft.quorum import Endpoint, Tally
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


class Election:
    """Vote, pre-vote, BeginQuorumEpoch, and the election timers; see the module text."""

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
        epoch = max(state.epoch, state.last_epoch)
        voted_key = state.voted_key if epoch == state.epoch else None
        leader_id = saved_leader_id if epoch == state.epoch else None
        leader = state.voters.get(leader_id) if leader_id is not None else None
        voted_for_itself = voted_key is not None and state.is_voter and voted_key.matches(me)
        if self._replica.probation.is_on:  # a crash may have come between the end of it and the first vote
            voted_for_itself = False
        wrote = voted_for_itself and state.log.last_epoch == epoch  # it won, but could not save that
        if wrote or (leader_id is not None and leader_id == me.id):
            # The epoch is ours, and what we promised in it is unknown: never lead it again.
            state.become(self._replica.succession.resigned({}), Cause.LED)
        elif voted_for_itself:
            state.become(
                Candidate(self._own_tally(), state.random_election_deadline()), Cause.VOTED_FOR_ITSELF, vote=me
            )
        elif leader is not None and state.destination(leader.key.id, leader.endpoints) is not None:
            state.become(self._follower(leader.key.id, leader.endpoints), Cause.LEADER_SAVED)
        else:
            deadline = state.random_election_deadline() if state.is_voter else None
            state.become(Unattached(deadline, leader_id), Cause.NO_LEADER_SAVED, epoch)
        state.save_election_state()
        if isinstance(state.role, Unattached | Resigned) and state.voters.is_only_voter(me):
            self.become_prospective(Cause.SOLE_VOTER)

    def enter(self, epoch: int, leader_id: int | None = None, endpoints: tuple[Endpoint, ...] = ()) -> None:
        """Take part in an epoch that is not below ours, whatever message told of it.

        Args:
            epoch: a higher one is entered here and nowhere else.
            leader_id: who leads it, as far as the message says; followed if it can be reached, else remembered.
            endpoints: where the leader listens.
        """
        state = self._state
        if leader_id is not None and state.destination(leader_id, endpoints) is not None:
            self._replica.become(self._follower(leader_id, endpoints), Cause.LEADER_FOUND, epoch)
        elif epoch > state.epoch:
            self._replica.become(Unattached(self._time_left(), leader_id), Cause.HIGHER_EPOCH, epoch)
        elif isinstance(state.role, Unattached) and leader_id is not None:
            state.role.leader_id = leader_id

    def _time_left(self) -> int | None:
        """When the election timer runs out in a higher epoch; None for observers."""
        state = self._state
        role = state.role
        # A voter that waits keeps its deadline: a stream of higher epochs must not put its election off for ever.
        if isinstance(role, Candidate | Resigned | Unattached) or (
            isinstance(role, Prospective) and not role.tally.lost
        ):
            deadline = role.election_deadline_ms
        else:
            deadline = None
        if deadline is None:
            deadline = state.random_election_deadline()
        return deadline if state.is_voter else None

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
        state.then(self._count_votes)

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
        if self.is_out_of_epochs():
            self._lose_pre_vote(role)
            return
        tally = self._own_tally()
        deadline = state.random_election_deadline()
        self._replica.become(Candidate(tally, deadline), Cause.PRE_VOTE_WON, vote=state.config.key)
        state.then(self._count_votes)

    def is_out_of_epochs(self) -> bool:
        """Whether no epoch is left to stand in; notes it.

        Only a peer that lies about its epoch can bring us here; what is committed stays, and can be read.
        """
        if self._state.epoch < EPOCH_MAX:
            return False
        self._state.note(f"no election is possible any more: {EPOCH_MAX} is the last leader epoch there is")
        return True

    def _become_leader(self, role: Candidate) -> None:
        state = self._state
        start = state.log.log_end_offset
        deadline = self._replica.succession.check_quorum_deadline()
        leader = Leader(start, Watermark(start, state.voters.ids), deadline)
        leader.begin_due_ms = dict.fromkeys(state.voters.ids - {state.config.key.id}, state.now_ms)
        self._replica.become(leader, Cause.VOTE_WON)
        self._replica.replication.open_epoch(leader, sorted(role.tally.granted))

    # --- due work, role by role ---------------------------------------------------------------------------------------

    def advance_unattached(self, role: Unattached) -> int | None:
        """Start a pre-vote when the timer ran out; else the time it will."""
        state = self._state
        if role.election_deadline_ms is None or state.shutting_down:
            return None
        due = role.election_deadline_ms + self._replica.succession.patience_ms
        if due <= state.now_ms:
            self.become_prospective(Cause.ELECTION_TIMEOUT)
        return due

    def advance_nominee(self, role: Prospective | Candidate) -> int | None:
        """Send Vote to voters that have not answered, while a majority is possible; end when the timer has run out."""
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
        # A voter that granted its vote grants it to the same candidate again without comparing logs, even after the
        # candidate crashed. So a candidate must not ask before its log is durable.
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

    def send_begin_quorum_epoch(self, role: Leader) -> int | None:
        """Send BeginQuorumEpoch to voters that do not fetch, every half fetch timeout until they do."""
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
                    continue  # a request to it is in flight: when that has been answered
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
        error = partition.top_level_error(
            state, request.cluster_id, partition.names_our_partition(state, request.topics)
        )
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
            self.enter(asked.replica_epoch)
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
            self._replica.succession.stand_if_needed()

    def _may_grant(self, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
        state = self._state
        role = state.role
        if isinstance(role, Leader):
            return False
        if not pre_vote and self._replica.probation.is_on:
            return False
        if pre_vote:
            return up_to_date and (not isinstance(role, Follower) or self._replica.succession.is_silent(role))
        if not isinstance(role, Unattached | Prospective):
            return False
        if state.voted_key is not None:
            return state.voted_key.matches(candidate)
        return role.leader_id is None and up_to_date

    def _vote_for(self, candidate: ReplicaKey) -> None:
        state = self._state
        role = state.role
        if state.voted_key is None:
            state.voted_key = candidate
            state.save_election_state()
        # A voter that just granted its vote restarts its election timer, so that its candidate has time to win.
        if isinstance(role, Unattached | Prospective) and role.election_deadline_ms is not None:
            role.election_deadline_ms = state.random_election_deadline()

    def on_begin_quorum_epoch(self, received: Received, request: BeginQuorumEpochRequest) -> None:
        """BeginQuorumEpoch: follow the leader that sends it."""
        error = self.hear_leader(received, request, BeginQuorumEpochResponse)
        if error is None:
            return
        told = request.topics[0].partitions[0]
        if error is ErrorCode.NONE and not partition.is_for_us(self._state, request.voter_id, told.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        self.reply_to_leader(received, BeginQuorumEpochResponse, error)

    def hear_leader(
        self,
        received: Received,
        request: BeginQuorumEpochRequest | EndQuorumEpochRequest,
        kind: type[BeginQuorumEpochResponse | EndQuorumEpochResponse],
    ) -> ErrorCode | None:
        """The checks both requests share; a leader that passes them is followed. None: answered at top level."""
        state = self._state
        error = partition.top_level_error(
            state, request.cluster_id, partition.names_our_partition(state, request.topics)
        )
        if error is not ErrorCode.NONE:
            state.reply(received.ticket, kind(error_code=error))
            return None
        told = request.topics[0].partitions[0]
        if told.leader_epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if told.leader_id < 0:
            return ErrorCode.INVALID_REQUEST
        endpoints = tuple(Endpoint(item.name, item.host, item.port) for item in request.leader_endpoints)
        accepted = self._replica.learn_leader(told.leader_epoch, told.leader_id, endpoints, by_itself=True)
        return ErrorCode.NONE if accepted else ErrorCode.INVALID_REQUEST

    def reply_to_leader(
        self, received: Received, kind: type[BeginQuorumEpochResponse | EndQuorumEpochResponse], error: ErrorCode
    ) -> None:
        """Answer BeginQuorumEpoch or EndQuorumEpoch."""
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
        if found is None or not self._replica.learn_from_answer(found[0], response.node_endpoints, source):
            return
        role = state.role
        if isinstance(role, Prospective | Candidate) and source.node_id is not None:
            role.tally.record(source.node_id, found[1].vote_granted)
            self._state.then(self._count_votes)

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

    def on_begin_quorum_epoch_answer(self, source: Destination, response: BeginQuorumEpochResponse) -> bool:
        """Whether a voter confirmed our epoch."""
        found = self._replica.single_partition(response, source)
        return found is not None and self._replica.learn_from_answer(found[0], response.node_endpoints, source)
