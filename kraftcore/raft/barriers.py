"""Read barriers: a leader makes sure that it still leads, so that a read of its state is linearizable.

A leader's own state may be outdated: another leader may have been elected, and have committed records, without its
knowing. So before a linearizable read the leader sends BeginQuorumEpoch to the voters, and waits until a majority,
itself included, has answered in its epoch. These answers were given after the read began, so no later leader existed
before the read began. The read may go on when everything below the high watermark of that moment is applied.

Reads that arrive during such a round share the next one. Every KRaft replica can answer, Kafka's too. The majority is
one of the voter set in force, which may change during the round: two voter sets that follow each other share a voter in
every pair of majorities, and the change itself was committed by a majority that was still in this epoch.

With ``leader_lease_ms`` voters promise with these answers to elect nobody else for a while. So long a leader answers
reads at once and asks nobody (``leases``); a read that comes when half of that time is over begins a round for later
ones.

Source: Raft 6.4, with BeginQuorumEpoch in place of the heartbeat.
"""

from __future__ import annotations

from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from kraftcore.raft import epochs, leases, partition
from kraftcore.raft.events import Barrier
from kraftcore.raft.roles import Leader, PendingBarrier
from kraftcore.raft.state import InFlight, RaftState


def advance(state: RaftState, role: Leader) -> int | None:
    """Begin a round, or go on with one; returns when a voter is to be asked again, ms, or None."""
    _start_round(state, role)
    if role.barrier is not None and _ask(state, role.barrier):
        return state.now_ms + state.config.retry_backoff_ms
    return None


def begin(state: RaftState, event: Barrier) -> None:
    """Have a read wait for the next round, or go on at once while a lease holds."""
    role = state.role
    if not isinstance(role, Leader) or state.shutting_down:
        state.finish(event.ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return
    value = role.watermark.value
    if value is None or not leases.holds(state, role):
        role.next_barrier.append(event.ticket)
        return
    state.finish(event.ticket, ErrorCode.NONE, value)
    if role.barrier is None and leases.is_to_renew(state, role):
        role.barrier = PendingBarrier([], value)


def _start_round(state: RaftState, role: Leader) -> None:
    # A round waits for the first commit of this epoch: until then an earlier leader may have committed more records
    # than this one's high watermark shows.
    value = role.watermark.value
    if role.barrier is None and role.next_barrier and value is not None:
        role.barrier = PendingBarrier(role.next_barrier, value)
        role.next_barrier = []
        _confirm(state, role, role.barrier)


def _ask(state: RaftState, barrier: PendingBarrier) -> bool:
    """Send BeginQuorumEpoch to voters not asked yet in this round; True if one cannot be asked now."""
    waiting = False
    for voter in state.voters:
        voter_id = voter.key.id
        if voter_id == state.config.key.id or voter_id in barrier.confirmed or voter_id in barrier.asked:
            continue
        to = state.destination(voter_id, voter.endpoints)
        if to is None or state.is_backing_off(to):
            waiting = True
            continue
        request = partition.begin_quorum_epoch_request(state, voter.key)
        barrier.asked[voter_id] = state.send(to, request, exclusive=False)
    return waiting


def on_begin_quorum_epoch_answer(state: RaftState, sent: InFlight, response: BeginQuorumEpochResponse) -> None:
    """Take the answer to a BeginQuorumEpoch, of a barrier's round or not; it may name a higher epoch."""
    confirmed = epochs.learn_from_quorum_answer(state, response, sent.destination) is not None
    role = state.role
    if not isinstance(role, Leader):
        return
    if confirmed:
        leases.promised(state, role, sent, response)
    voter_id = sent.destination.node_id
    if role.barrier is None:
        return
    if voter_id is not None and role.barrier.asked.get(voter_id) == sent.request_id:
        del role.barrier.asked[voter_id]
        if confirmed and sent.epoch == state.epoch:
            role.barrier.confirmed.add(voter_id)
            _confirm(state, role, role.barrier)


def on_begin_quorum_epoch_failed(state: RaftState, sent: InFlight, failure: Failure) -> None:
    """Have the voter that did not answer this request asked again."""
    role = state.role
    if isinstance(role, Leader) and role.barrier is not None:
        role.barrier.asked = {voter: asked for voter, asked in role.barrier.asked.items() if asked != sent.request_id}


def voters_changed(state: RaftState, role: Leader) -> None:
    """Count the voter set in force: whether those that have answered are a majority, and those that have promised."""
    leases.count(state, role)
    if role.barrier is not None:
        _confirm(state, role, role.barrier)


def _confirm(state: RaftState, role: Leader, barrier: PendingBarrier) -> None:
    present = len(barrier.confirmed & state.voters.ids) + (1 if state.is_voter else 0)
    if present < state.voters.majority:
        return
    role.barrier = None
    for ticket in barrier.tickets:
        state.finish(ticket, ErrorCode.NONE, barrier.offset)
