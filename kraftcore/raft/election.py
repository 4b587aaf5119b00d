"""Elections: pre-votes, votes, BeginQuorumEpoch, and the election timers.

A voter that hears of no leader asks first whether it would win (a pre-vote, which binds nobody and raises no epoch),
and stands for election in the next epoch only if a majority would vote for it. So a replica that was cut off cannot
depose a leader that works. When a replica should stand is decided in ``succession``; this file holds what happens then.

A replica grants as Kafka 4.3.1 does. "Up to date" means that the asker's last record is of a later epoch than ours, or
of the same epoch and its log not shorter than ours.

    our role              pre-vote                                       vote
    Unattached,           up to date                                     asked by the replica that has our vote; or we
    Prospective                                                          have not voted in this epoch, know no leader of
                                                                         this epoch, and the asker is up to date
    Follower              up to date, and this leader has not answered   never
                          a Fetch yet, is gone or silent (*)
    Candidate, Resigned   up to date                                     never
    Leader                never                                          never

Nobody is granted anything by a replica that is bound by a promise, nor does that replica stand: see ``leases``.

(*) Ours. Granting a pre-vote promises nothing, so this is safe beside replicas that follow Kafka's rule. A leader is
gone when it has resigned or its process refused a connection, and silent when it has not answered for a fetch timeout:
a replica that was made a voter without knowing has no timer that would end its following. In Kafka 4.3.1 that replica
refuses for ever, and a voter that needs its pre-vote cannot win. A reluctant voter goes on following for longer.

A replica that is no voter by its own log stands when a voter whose log is behind asks for its vote
(``_stand_if_needed``). Without that rule a quorum can stay without a leader for ever although every node works. The
replica waits until it is asked, so removed voters disturb nobody.

A vote is in the quorum-state file before its answer leaves (the order of effects); pre-votes are not stored. Whether
either side is in the voter set is not checked (KIP-853 "Leader election").

Sources: KIP-595, KIP-853, KIP-996; Ongaro's dissertation, 4.2.2, which lets every server stand that is not in its
latest configuration.
"""

from __future__ import annotations

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftcore.protocol.messages.vote import VoteRequest, VoteResponse
from kraftcore.raft import epochs, leases, partition, probation, replication, succession
from kraftcore.raft.events import Received
from kraftcore.raft.quorum import Endpoint, Tally
from kraftcore.raft.roles import (
    Candidate,
    Cause,
    Follower,
    Leader,
    Prospective,
    Resigned,
    RoleState,
    Unattached,
)
from kraftcore.raft.state import InFlight, RaftState, Step
from kraftcore.raft.transitions import become
from kraftcore.raft.watermark import Watermark

# --- start and change of role -----------------------------------------------------------------------------------------


def start(state: RaftState, saved_leader_id: int | None) -> None:
    """Take the first role, which follows from the quorum-state file and the log.

    Args:
        saved_leader_id: the leader in the quorum-state file, or None.

    Source: Kafka 4.3.1 QuorumState.initialize.
    """
    me = state.config.key
    leases.started(state, saved_leader_id)
    epoch = max(state.epoch, state.last_epoch)
    voted_key = state.voted_key if epoch == state.epoch else None
    leader_id = saved_leader_id if epoch == state.epoch else None
    leader = state.voters.get(leader_id) if leader_id is not None else None
    voted_for_itself = voted_key is not None and state.is_voter and voted_key.matches(me)
    if probation.is_on(state):  # a crash came between the first vote and the end of probation
        voted_for_itself = False
    wrote = voted_for_itself and state.log.last_epoch == epoch  # it won, and crashed before it saved that
    if wrote or (leader_id is not None and leader_id == me.id):
        # This replica led the epoch, and what it promised then is unknown: it must not lead this epoch again.
        become(state, succession.resigned(state, {}), Cause.LED)
    elif voted_for_itself:
        candidate = Candidate(_own_tally(state), state.random_election_deadline())
        become(state, candidate, Cause.VOTED_FOR_ITSELF, vote=me)
    elif leader is not None and state.destination(leader.key.id, leader.endpoints) is not None:
        become(state, epochs.follower(state, leader.key.id, leader.endpoints), Cause.LEADER_SAVED)
    else:
        deadline = state.random_election_deadline() if state.is_voter else None
        become(state, Unattached(deadline, leader_id), Cause.NO_LEADER_SAVED, epoch)
    state.save_election_state()
    if isinstance(state.role, Unattached | Resigned) and state.voters.is_only_voter(me):
        become_prospective(state, Cause.SOLE_VOTER)


def _own_tally(state: RaftState) -> Tally:
    tally = Tally(state.voters)
    if state.is_voter:
        tally.record(state.config.key.id, granted=True)
    return tally


def become_prospective(state: RaftState, cause: Cause) -> None:
    """Begin to ask for pre-votes; a sole voter has all of them already."""
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
    become(state, Prospective(_own_tally(state), deadline, leader_id, endpoints, gone), cause)
    state.then(Step.VOTES_CHANGED, state.role)


def _lose_pre_vote(state: RaftState, role: Prospective) -> None:
    if role.leader_id is not None and role.leader_endpoints:
        follower = epochs.follower(state, role.leader_id, role.leader_endpoints)
        follower.leader_gone = role.leader_gone
        become(state, follower, Cause.PRE_VOTE_LOST)
    else:
        deadline = state.random_election_deadline()
        become(state, Unattached(deadline if state.is_voter else None, role.leader_id), Cause.PRE_VOTE_LOST)


def _become_candidate(state: RaftState, role: Prospective) -> None:
    if not probation.may_run(state, role.tally):
        return
    if leases.is_bound(state) or epochs.is_out_of_epochs(state):
        _lose_pre_vote(state, role)
        return
    tally = _own_tally(state)
    deadline = state.random_election_deadline()
    become(state, Candidate(tally, deadline), Cause.PRE_VOTE_WON, vote=state.config.key)
    state.then(Step.VOTES_CHANGED, state.role)


def _become_leader(state: RaftState, role: Candidate) -> None:
    start = state.log.log_end_offset
    deadline = succession.check_quorum_deadline(state)
    leader = Leader(start, Watermark(start, state.voters.ids), deadline)
    leader.begin_due_ms = dict.fromkeys(state.voters.ids - {state.config.key.id}, state.now_ms)
    become(state, leader, Cause.VOTE_WON)
    state.leader_answered()
    replication.open_epoch(state, leader, sorted(role.tally.granted))


# --- what is due, role by role ----------------------------------------------------------------------------------------


def advance_unattached(state: RaftState, role: Unattached) -> int | None:
    """Ask for pre-votes if the election timer has run out; returns when it does, ms, or None without a timer."""
    if role.election_deadline_ms is None or state.shutting_down:
        return None
    due = max(role.election_deadline_ms + state.patience_ms, state.bound_until_ms)
    if due <= state.now_ms:
        become_prospective(state, Cause.ELECTION_TIMEOUT)
    return due


def advance_nominee(state: RaftState, role: Prospective | Candidate) -> int | None:
    """Send Vote to voters that have not answered, while a majority can still grant, until the timer runs out.

    Returns:
        When something is due next, ms; None: nothing is.
    """
    if state.shutting_down:
        return None
    if role.election_deadline_ms <= state.now_ms:
        if isinstance(role, Prospective):
            _lose_pre_vote(state, role)
        else:
            become_prospective(state, Cause.ELECTION_TIMEOUT)
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


def send_begin_quorum_epoch(state: RaftState, role: Leader) -> int | None:
    """Send BeginQuorumEpoch every half fetch timeout to voters that do not fetch; returns when the next is due."""
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
                continue  # a request to that voter is in flight; its answer brings us here again
            else:
                at = ready
            role.begin_due_ms[voter_id] = max(at, state.now_ms + 1)
            at = role.begin_due_ms[voter_id]
        due = at if due is None else min(due, at)
    return due


# --- requests ---------------------------------------------------------------------------------------------------------


def on_vote(state: RaftState, received: Received, request: VoteRequest) -> None:
    """Grant or refuse a vote or pre-vote, by the module's table; the checks are in Kafka's order."""
    error = partition.top_level_error(state, request.cluster_id, partition.names_our_partition(state, request.topics))
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
        epochs.enter(state, asked.replica_epoch)
        if not partition.is_for_us(state, request.voter_id, asked.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
        else:
            ours = (state.last_epoch, state.log.log_end_offset)
            up_to_date = (asked.last_offset_epoch, asked.last_offset) >= ours
            granted = _may_grant(state, candidate, up_to_date, asked.pre_vote)
            if granted and not asked.pre_vote:
                _vote_for(state, candidate)
    state.reply(received.ticket, partition.vote_response(state, received, error, granted))
    if error is ErrorCode.NONE and not up_to_date and request.voter_id >= 0:
        _stand_if_needed(state)


def _stand_if_needed(state: RaftState) -> None:
    """Stand for election although this replica is no voter by its own log: a voter with a shorter log asked.

    The replica may have been removed by a record that is not committed, or added by a record that it does not have.
    It wins with a majority of the voters that its log names, without itself.
    """
    role = state.role
    if leases.is_bound(state):
        return
    if state.is_voter or state.shutting_down or not state.config.can_become_voter or not len(state.voters):
        return
    if state.config.key.id in state.voters.ids:
        return  # the voter of our id has another directory, and votes are counted by id
    if isinstance(role, Unattached) or (isinstance(role, Follower) and succession.is_silent(state, role)):
        state.note_seldom(
            f"runs for leader though {state.voters} are the voters: one of them lacks records that are here"
        )
        become_prospective(state, Cause.NEEDED)


def _may_grant(state: RaftState, candidate: ReplicaKey, up_to_date: bool, pre_vote: bool) -> bool:
    role = state.role
    if isinstance(role, Leader) or leases.is_bound(state):
        return False
    if not pre_vote and probation.is_on(state):
        return False
    if pre_vote:
        return up_to_date and (not isinstance(role, Follower) or succession.is_silent(state, role))
    if not isinstance(role, Unattached | Prospective):
        return False
    if state.voted_key is not None:
        return state.voted_key.matches(candidate)
    return role.leader_id is None and up_to_date


def _vote_for(state: RaftState, candidate: ReplicaKey) -> None:
    role = state.role
    if state.voted_key is None:
        state.voted_key = candidate
        state.save_election_state()
    # A voter that just granted its vote restarts its election timer, so that its candidate has time to win.
    if isinstance(role, Unattached | Prospective) and role.election_deadline_ms is not None:
        role.election_deadline_ms = state.random_election_deadline()


def on_begin_quorum_epoch(state: RaftState, received: Received, request: BeginQuorumEpochRequest) -> None:
    """Follow the leader that sends BeginQuorumEpoch."""
    error = epochs.hear_leader(state, received, request, BeginQuorumEpochResponse)
    if error is None:
        return
    told = request.topics[0].partitions[0]
    if error is ErrorCode.NONE and not partition.is_for_us(state, request.voter_id, told.voter_directory_id):
        error = ErrorCode.INVALID_VOTER_KEY
    lease_ms = leases.promise(state, request.lease_ms) if error is ErrorCode.NONE else 0
    epochs.reply_to_leader(state, received, BeginQuorumEpochResponse, error, lease_ms)


# --- answers ----------------------------------------------------------------------------------------------------------


def on_vote_answer(state: RaftState, sent: InFlight, response: VoteResponse) -> None:
    """Count a vote or pre-vote, if the election in which it was asked for still lasts."""
    role = state.role
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION and isinstance(role, Prospective):
        _become_candidate(state, role)
        return
    source = sent.destination
    answer = epochs.learn_from_quorum_answer(state, response, source)
    role = state.role
    if answer is not None and isinstance(role, Prospective | Candidate) and source.node_id is not None:
        role.tally.record(source.node_id, answer.vote_granted)
        state.then(Step.VOTES_CHANGED, state.role)


def count_votes(state: RaftState, role: RoleState) -> None:
    """End an election in which a majority has granted, or no majority can grant any more."""
    if state.shutting_down:
        return
    if isinstance(role, Prospective):
        if role.tally.won:
            _become_candidate(state, role)
        elif role.tally.lost:
            _lose_pre_vote(state, role)
    elif isinstance(role, Candidate) and role.tally.won:
        _become_leader(state, role)


def on_vote_failed(state: RaftState, sent: InFlight, failure: Failure) -> None:
    """Go straight to the vote if a voter is too old to know pre-votes (KIP-996)."""
    role = state.role
    if failure is Failure.UNSUPPORTED_VERSION and isinstance(role, Prospective):
        _become_candidate(state, role)
