"""When a leader resigns, which voter should lead next, and when a follower stops waiting for its leader.

A quorum without a leader commits nothing, so a leader that cannot lead must go soon, and the voters that follow it must
not all stand for election at once. ``election`` says who may win an election; this file says what comes before one.

When a leader resigns
    * No majority of the voters has fetched for 1.5 fetch timeouts (check-quorum): ``resign_if_quorum_lost``, with the
      deadline that ``heard_from`` puts off.
    * The voter set in force is committed, and this replica is not in it: ``resign_if_removed``.
    * The voter to which it hands over has everything (``transfer``), it is asked to (event `Resign`), or it shuts down.

Whom it asks to follow
    A leader that resigns names the other voters in EndQuorumEpoch, the most caught up first; a voter to which it hands
    over stands before these. The first voter of the list starts its election at once, the next ones exponentially
    later, and a voter that is not in the list last.

When a follower stops waiting (``gives_up_at``)
    Its fetch timer has run out. The timer is moved forward when the leader says that it has resigned, and when the
    leader's process refuses or resets a connection (fast failover). In the second case the followers stand one after
    the other, by id, so that they do not split the votes.

Transfer
    The leader takes no more proposals, waits until the chosen voter has everything, and resigns with that voter first
    in its list. If the voter needs longer than an election timeout, the leader goes on leading.

Reluctant replicas (``RaftConfig.reluctant``)
    Some voters should not lead for long, such as one without a controller among Kafka's controllers. A reluctant voter
    may be the only one with all committed records, so it cannot refuse to lead for good. Instead it lets the timers of
    the other voters run out before its own, and as a leader it hands over to the first voter that keeps up.

All of this is timing and advice, so none of it can break the log: whoever stands too early or too late still needs the
votes of a majority.

Sources: KIP-595 (EndQuorumEpoch), KIP-853 (candidates of EndQuorumEpoch, removal); Kafka 4.3.1 for check-quorum and
backoff; Raft 3.10 for transfer, with EndQuorumEpoch in place of TimeoutNow. Fast failover and reluctance are ours.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftcore.raft import epochs, leases, partition
from kraftcore.raft.events import Received, Transfer
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.roles import Cause, Follower, Leader, PendingTransfer, Resigned, Unattached
from kraftcore.raft.state import InFlight, RaftState
from kraftcore.raft.transitions import become

FAILOVER_STEP_MS = 50  # between the elections of two followers of a dead leader: several round trips
# A reluctant leader hands over to the same voter again only after so many fetch timeouts. Else two reluctant voters,
# without a third, would pass leadership to and fro.
HAND_OVER_AGAIN = 30


# --- when a leader resigns --------------------------------------------------------------------------------------------


def check_quorum_deadline(state: RaftState) -> int | None:
    """When a leader resigns unless a majority fetches: 1.5 fetch timeouts from now, ms; None for a sole voter.

    Source: Kafka 4.3.1 LeaderState.
    """
    if state.voters.is_only_voter(state.config.key):
        return None
    return state.now_ms + state.config.fetch_timeout_ms * 3 // 2


def heard_from(state: RaftState, role: Leader, voter_id: int) -> None:
    """Count a voter that fetched for check-quorum, and put off the next BeginQuorumEpoch to it."""
    if voter_id == state.config.key.id:
        return  # a Fetch with our own id must not count this replica twice
    role.begin_due_ms[voter_id] = state.now_ms + state.config.fetch_timeout_ms // 2
    if role.check_quorum_deadline_ms is None:
        return
    role.heard.add(voter_id)
    present = len(role.heard & state.voters.ids) + (1 if state.is_voter else 0)
    if present >= state.voters.majority:
        role.heard.clear()
        role.check_quorum_deadline_ms = check_quorum_deadline(state)
        state.leader_answered()


def voters_changed(state: RaftState, role: Leader) -> None:
    """Fit check-quorum and the times of BeginQuorumEpoch to the voter set in force.

    A leader that is the only voter needs no check-quorum.
    """
    me = state.config.key
    if role.check_quorum_deadline_ms is None or state.voters.is_only_voter(me):
        role.check_quorum_deadline_ms = check_quorum_deadline(state)
    role.begin_due_ms = {
        voter_id: role.begin_due_ms.get(voter_id, state.now_ms) for voter_id in state.voters.ids - {me.id}
    }


def resign_if_quorum_lost(state: RaftState, role: Leader) -> None:
    """Stop leading if no majority of the voters has fetched in time."""
    if role.check_quorum_deadline_ms is not None and role.check_quorum_deadline_ms <= state.now_ms:
        resign(state, Cause.QUORUM_LOST)


def resign_if_removed(state: RaftState, role: Leader) -> None:
    """Stop leading if the voter set in force is committed and this replica is not in it."""
    if not state.is_voter and not state.has_uncommitted_voters(role):
        resign(state, Cause.STEP_DOWN)


def resign(state: RaftState, cause: Cause, first: ReplicaKey | None = None) -> None:
    """Stop leading, if this replica leads.

    Args:
        cause: why.
        first: the voter that should lead next; None: the most caught up voter.
    """
    role = state.role
    if isinstance(role, Leader):
        become(state, resigned(state, role.watermark.voters(), first), cause)


def resigned(state: RaftState, offsets: Mapping[int, int | None], first: ReplicaKey | None = None) -> Resigned:
    """The role of a leader that has resigned.

    Args:
        offsets: log end offset by voter id; None, or no entry: unknown.
        first: the voter that should lead next; None: the most caught up voter.
    """
    me = state.config.key.id
    preferred = preferred_candidates(state.voters, me, offsets)
    if first is not None:
        preferred = (first, *(key for key in preferred if key != first))
    return Resigned(state.random_election_deadline(), preferred, set(state.voters.ids - {me}))


# --- to whom a leader hands over --------------------------------------------------------------------------------------


def preferred_successor(state: RaftState) -> int | None:
    """The most caught up voter that fetches from this leader; None: it does not lead, or no voter fetches."""
    role = state.role
    if not isinstance(role, Leader):
        return None
    offsets = role.watermark.voters()
    for key in preferred_candidates(state.voters, state.config.key.id, offsets):
        if offsets.get(key.id) is not None:
            return key.id
    return None


def transfer(state: RaftState, event: Transfer) -> None:
    """Start to hand leadership over, or say why that cannot be."""
    role = state.role
    if not isinstance(role, Leader) or state.shutting_down:
        state.finish(event.ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    elif role.transfer is not None:
        state.finish(event.ticket, ErrorCode.REQUEST_TIMED_OUT, message="another transfer is under way")
    elif event.voter_id == state.config.key.id and state.is_voter:
        state.finish(event.ticket, ErrorCode.NONE)
    elif state.voters.get(event.voter_id) is None:
        text = f"{event.voter_id} is not in the set of voters {state.voters}"
        state.finish(event.ticket, ErrorCode.VOTER_NOT_FOUND, message=text)
    else:
        deadline = state.now_ms + state.config.election_timeout_ms
        role.transfer = PendingTransfer(event.ticket, event.voter_id, deadline)


def advance_leader(state: RaftState, role: Leader) -> int | None:
    """Go on with a transfer, and begin one if this leader is reluctant; returns when something is due, ms."""
    if state.config.reluctant:
        _hand_over(state, role)
    return _advance_transfer(state, role)


def _hand_over(state: RaftState, role: Leader) -> None:
    config = state.config
    committed = role.watermark.value
    if role.transfer is not None or committed is None or state.shutting_down:
        return
    rested_ms = state.now_ms - HAND_OVER_AGAIN * config.fetch_timeout_ms
    offsets = role.watermark.voters()
    for key in preferred_candidates(state.voters, config.key.id, offsets):
        offset = offsets.get(key.id)
        if offset is None or offset < committed:
            return  # the voters after this one in the order lack committed records, too
        here = any(
            key.matches(seen.key) and state.now_ms - seen.last_fetch_ms < config.fetch_timeout_ms
            for seen in role.replicas.values()
        )
        if here and state.handed_over_ms.get(key, rested_ms) <= rested_ms:
            state.handed_over_ms[key] = state.now_ms
            role.transfer = PendingTransfer(None, key.id, state.now_ms + config.election_timeout_ms)
            state.note(f"leadership goes to voter {key.id}: this reluctant node leads only while nobody else can")
            return


def _advance_transfer(state: RaftState, role: Leader) -> int | None:
    transfer = role.transfer
    if transfer is None:
        return None
    voter = state.voters.get(transfer.voter_id)
    reached = role.watermark.log_end_offset(transfer.voter_id) if voter is not None else None
    if reached is not None and reached >= state.log.log_end_offset and voter is not None:
        role.transfer = None
        state.finish(transfer.ticket, ErrorCode.NONE)
        resign(state, Cause.STEP_DOWN, voter.key)
        return None
    if transfer.deadline_ms <= state.now_ms or voter is None:
        role.transfer = None
        text = f"voter {transfer.voter_id} did not catch up in time"
        state.finish(transfer.ticket, ErrorCode.REQUEST_TIMED_OUT, message=text)
        return None
    return transfer.deadline_ms


# --- a leader that has resigned tells the voters ----------------------------------------------------------------------


def advance_resigned(state: RaftState, role: Resigned) -> int | None:
    """Send EndQuorumEpoch to voters that have not answered; enter the next epoch when the timer has run out.

    Returns:
        When something is due next, ms; None: nothing is.
    """
    if role.election_deadline_ms <= state.now_ms and not state.shutting_down:
        if not epochs.is_out_of_epochs(state):
            deadline = state.random_election_deadline() if state.is_voter else None
            become(state, Unattached(deadline), Cause.ELECTION_TIMEOUT)
            return deadline
        role.election_deadline_ms = state.random_election_deadline()
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


def on_end_quorum_epoch_answer(state: RaftState, sent: InFlight, response: EndQuorumEpochResponse) -> None:
    """Take a voter that answered EndQuorumEpoch off the voters that are still to be told."""
    source = sent.destination
    answer = epochs.learn_from_quorum_answer(state, response, source)
    if answer is not None and isinstance(role := state.role, Resigned) and source.node_id is not None:
        role.unacknowledged.discard(source.node_id)


def on_end_quorum_epoch_failed(state: RaftState, sent: InFlight, failure: Failure) -> None:
    """While shutting down, count a voter that cannot be reached as told: each is sent EndQuorumEpoch once."""
    role = state.role
    if isinstance(role, Resigned) and state.shutting_down and sent.destination.node_id is not None:
        role.unacknowledged.discard(sent.destination.node_id)


def has_voters_to_tell(state: RaftState) -> bool:
    """Whether a voter that has an endpoint has not been told that this leader has resigned."""
    role = state.role
    return isinstance(role, Resigned) and any(
        voter.key.id in role.unacknowledged and state.destination(voter.key.id, voter.endpoints) is not None
        for voter in state.voters
    )


# --- when a follower stops waiting ------------------------------------------------------------------------------------


def on_end_quorum_epoch(state: RaftState, received: Received, request: EndQuorumEpochRequest) -> None:
    """The leader has resigned: set the fetch timer by this replica's place among the preferred candidates."""
    error = epochs.hear_leader(state, received, request, EndQuorumEpochResponse)
    if error is None:
        return
    told = request.topics[0].partitions[0]
    role = state.role
    if error is ErrorCode.NONE and isinstance(role, Follower) and role.leader_id == told.leader_id:
        keys = [ReplicaKey(item.candidate_id, item.candidate_directory_id) for item in told.preferred_candidates]
        if received.version == 0:
            keys = [ReplicaKey(replica_id) for replica_id in told.preferred_successors]
        backoff_ms = end_epoch_backoff(keys, state.config.key, state.config.election_backoff_max_ms)
        role.fetch_deadline_ms = state.now_ms + backoff_ms
        role.leader_gone = True
        leases.release(state)
    epochs.reply_to_leader(state, received, EndQuorumEpochResponse, error)


def on_failure(state: RaftState, sent: InFlight, failure: Failure) -> None:
    """Set the fetch timer so that the voters stand by turns, if the leader's process refused or reset a connection."""
    role = state.role
    if (
        failure not in (Failure.REFUSED, Failure.RESET)
        or not isinstance(role, Follower)
        or sent.destination.node_id != role.leader_id
        or not state.config.fast_failover
    ):
        return
    role.leader_gone = True
    others = sorted(state.voters.ids - {role.leader_id})
    if state.is_voter:
        turn = others.index(state.config.key.id) if state.config.key.id in others else len(others)
        first_ms = max(state.now_ms, state.bound_until_ms)  # nobody stands before its promise ends
        role.fetch_deadline_ms = min(role.fetch_deadline_ms, first_ms + turn * FAILOVER_STEP_MS)


def fetched_well(state: RaftState, role: Follower) -> None:
    """The leader answered without error: restart the fetch timer, and clear the alarm."""
    role.fetch_deadline_ms = state.now_ms + state.config.fetch_timeout_ms
    role.has_fetched = True
    state.alarm_text = None
    role.leader_gone = False
    state.leader_answered()


def gives_up_at(state: RaftState, role: Follower) -> int | None:
    """When a follower asks for pre-votes itself, ms; None: it does not.

    An observer and a voter that shuts down do not. For a voter that installs a snapshot the timer, once it has run
    out, stands still. No voter stands before its promise ends (``leases``).
    """
    if not state.is_voter or state.shutting_down:
        return None
    at = max(role.fetch_deadline_ms + state.patience_ms, state.bound_until_ms)
    return None if role.installs and at <= state.now_ms else at


def falls_silent_at(state: RaftState, role: Follower) -> int | None:
    """When the announced leader is announced no more because it does not answer, ms; None: there is none."""
    return None if role.installs or state.answering_leader_id is None else role.fetch_deadline_ms


def is_silent(state: RaftState, role: Follower) -> bool:
    """Whether the leader has not answered a Fetch yet, is gone, or has not answered for a fetch timeout."""
    lasts = role.installs or not state.is_voter or state.config.reluctant  # any other follower has given up by then
    return not role.has_fetched or role.leader_gone or (lasts and role.fetch_deadline_ms <= state.now_ms)


def preferred_candidates(voters: VoterSet, local_id: int, offsets: Mapping[int, int | None]) -> tuple[ReplicaKey, ...]:
    """The voters but this one, most caught up first, as a leader that resigns names them in EndQuorumEpoch.

    Source: KIP-595, EndQuorumEpoch; ties go to the smaller id so that a run can be replayed.
    """
    others = [voter.key for voter in voters if voter.key.id != local_id]
    return tuple(sorted(others, key=lambda key: (-(_known(offsets.get(key.id))), key.id)))


def _known(offset: int | None) -> int:
    return -1 if offset is None else offset


def end_epoch_backoff(preferred: list[ReplicaKey], own: ReplicaKey, max_ms: int) -> int:
    """How long a follower waits after EndQuorumEpoch before it stands for election, ms, 0 to ``max_ms``.

    The first voter of the list does not wait, the next ones wait exponentially longer, a voter not in the list longest.
    Source: Kafka 4.3.1 KafkaRaftClient.endEpochElectionBackoff.
    """
    for position, key in enumerate(preferred):
        if key.matches(own):
            if position == 0:
                return 0
            return min(max_ms, (max_ms >> (len(preferred) - 1)) << (position - 1))
    return max_ms
