"""Invariants: what is true of a replica between two events, whatever happened before.

The simulator and tests check them after every event, so that a mistake shows at the event that makes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kraftcore.errors import InvariantError
from kraftcore.raft import leases
from kraftcore.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kraftcore.raft.state import RaftState


def check(state: RaftState) -> None:
    """Check that a replica's state, log and role agree with each other.

    Raises:
        InvariantError: they do not; the text names every contradiction.
    """
    wrong = [*_of_state(state), *_of_role(state)]
    if wrong:
        raise InvariantError(
            f"{state.config.key} as {state.role.role.value} of epoch {state.epoch}: {'; '.join(wrong)}"
        )


def _of_state(state: RaftState) -> Iterator[str]:
    log = state.log
    end = log.log_end_offset
    if state.epoch < state.last_epoch:
        yield f"the last record is of epoch {state.last_epoch}"
    if state.high_watermark is not None and not state.high_watermark <= end:
        yield f"high watermark {state.high_watermark} beyond the log's end {end}"
    for name, history in (("voter sets", state.voter_sets), ("kraft.version", state.versions)):
        latest = history.latest_offset
        if latest is not None and latest >= end > 0:
            yield f"{name} known up to {latest}, the log ends at {end}"
    yield from state.requests_wrong()


def _of_role(state: RaftState) -> Iterator[str]:
    role = state.role
    me = state.config.key
    if isinstance(role, Leader):
        yield from _of_leader(state, role)
    elif isinstance(role, Follower):
        if role.leader_id == me.id:
            yield "follows itself"
        if state.destination(role.leader_id, role.leader_endpoints) is None:
            yield f"cannot reach its leader {role.leader_id} at {role.leader_endpoints}"
        told = state.answering_leader_id
        if told not in (None, role.leader_id) or (told is not None and not role.is_answered(state.now_ms)):
            yield f"tells that {told} leads, {role.leader_id} answered last at {state.leader_answered_ms}"
    elif isinstance(role, Unattached):
        if (role.election_deadline_ms is not None) != state.is_voter:
            yield f"election timer {role.election_deadline_ms}, voter: {state.is_voter}"
    elif isinstance(role, Candidate) and state.voted_key != me:
        yield f"voted for {state.voted_key}"
    if isinstance(role, Prospective | Candidate):
        if (me.id in role.tally.granted) != role.tally.voters.is_voter(me):
            yield f"counts itself: {me.id in role.tally.granted}, among {role.tally.voters}"
        if role.tally.won and not state.shutting_down and not state.may_have_forgotten:
            yield "has won, and does not go on"
    if isinstance(role, Resigned) and me.id in role.unacknowledged:
        yield "waits for itself"


def _of_leader(state: RaftState, role: Leader) -> Iterator[str]:
    voters = state.voters
    me = state.config.key
    known = role.watermark.voters()
    own = known.get(me.id)
    value = role.watermark.value
    if state.shutting_down:
        yield "shuts down and leads"
    if known.keys() != voters.ids:
        yield f"counts {sorted(known)}, the voters are {voters}"
    if state.is_voter and own is not None and own > state.log.flushed_offset:
        yield f"counts itself up to {own}, flushed is {state.log.flushed_offset}"
    if value is not None and (state.high_watermark is None or state.high_watermark < value):
        yield f"high watermark {state.high_watermark}, counted {value}"
    if (role.check_quorum_deadline_ms is None) != voters.is_only_voter(me):
        yield f"check-quorum timer {role.check_quorum_deadline_ms}, voters {voters}"
    if role.begin_due_ms.keys() != voters.ids - {me.id}:
        yield f"tells {sorted(role.begin_due_ms)} that it leads, the voters are {voters}"
    for fetch in role.delayed.fetches:
        if fetch.fetch_offset != state.log.log_end_offset:
            yield f"holds a Fetch from {fetch.fetch_offset}, the log ends at {state.log.log_end_offset}"
    for fetch in role.delayed_observers.fetches:
        if not role.round_told <= fetch.fetch_offset <= state.log.log_end_offset:
            yield (
                f"holds an observer's Fetch from {fetch.fetch_offset}, the last round told {role.round_told}, "
                f"the log ends at {state.log.log_end_offset}"
            )
        if voters.is_voter(fetch.key):
            yield f"holds the Fetch of the voter {fetch.key} as an observer's"
    told = -1 if value is None else value
    if state.config.observer_linger_ms and role.round_due_ms is None and role.round_told != told:
        yield f"told observers {role.round_told}, committed is {value}, and no round is to come"
    for held in (role.delayed, role.delayed_observers):
        if held.due_ms != min((fetch.deadline_ms for fetch in held.fetches), default=None):
            yield f"answers the Fetches it holds at {held.due_ms}, which is none of their deadlines"
    change = role.change
    if change is not None and change.offset is not None and value is not None and change.offset < value:
        yield f"waits for a voter change at {change.offset}, committed is {value}"
    if role.upgrade is not None and value is not None and role.upgrade[0] < value:
        yield f"waits for an upgrade at {role.upgrade[0]}, committed is {value}"
    if role.lease_until_ms != leases.lease_until(state, role):
        yield f"has a lease until {role.lease_until_ms}, promised is {role.promised_ms}, the voters are {voters}"
    yield from _of_barrier(state, role)


def _of_barrier(state: RaftState, role: Leader) -> Iterator[str]:
    barrier = role.barrier
    if barrier is None:
        if role.next_barrier and role.watermark.value is not None:
            yield "reads wait, and no round is under way"
        return
    confirmed = len(barrier.confirmed & state.voters.ids) + (1 if state.is_voter else 0)
    if confirmed >= state.voters.majority:
        yield f"reads wait for a round that {sorted(barrier.confirmed)} confirmed, of {state.voters}"
