"""The one place where a replica's role changes.

Every change of role must save the same things and answer the same waiting requests, whatever caused it.
`TRANSITIONS` in ``roles`` says which role may follow which. ``become`` looks the change up there, puts the new role and
its epoch into the state, has them saved, and then ends what belongs to the old role: a leader has promised answers that
it can no longer give, and a follower may be receiving a snapshot that only its leader would go on sending.
"""

from __future__ import annotations

from kraftcore.errors import InvariantError
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.raft import partition
from kraftcore.raft.roles import TRANSITIONS, Cause, Follower, Leader, Role, RoleState
from kraftcore.raft.state import RaftState

_LOST = ErrorCode.NOT_LEADER_OR_FOLLOWER  # what a former leader answers: its records may still be committed


def become(
    state: RaftState, role: RoleState, cause: Cause, epoch: int | None = None, vote: ReplicaKey | None = None
) -> None:
    """Change the role, and end what only the old role could finish: requests that wait, a snapshot being received.

    Args:
        state: of the replica.
        role: the new role's data.
        cause: why; (present role, cause, new role) must be in `TRANSITIONS`.
        epoch: the new epoch, where the table leaves it open; a higher one clears the vote.
        vote: whom this replica votes for in that epoch.

    Raises:
        InvariantError: the table forbids the role or its epoch.
    """
    old = state.role
    before = old.role if state.has_begun else None
    row = TRANSITIONS.get((before, cause))
    if row is None or role.role not in row.next_roles:
        raise InvariantError(
            f"{'a replica that starts' if before is None else before.value} cannot become {role.role.value}: "
            f"{cause.value}"
        )
    settled = row.epoch.settle(state.epoch, epoch)
    if settled != state.epoch:
        state.epoch = settled
        state.voted_key = None
    state.has_begun = True
    if vote is not None:
        state.voted_key = vote
    state.role = role
    # A prospective and a resigned leader need not be remembered; Kafka does not write these roles either.
    if role.role not in (Role.PROSPECTIVE, Role.RESIGNED):
        state.save_election_state()
    if isinstance(old, Leader):
        _end_leadership(state, old)
    elif isinstance(old, Follower):
        old.drop_snapshot()


def _end_leadership(state: RaftState, old: Leader) -> None:
    """Answer the delayed Fetches, the voter change, the upgrade, the read barriers and the transfer of a leader."""
    for fetch in (*old.delayed.take(), *old.delayed_observers.take()):
        state.reply(fetch.ticket, partition.fetch_error(state, fetch, state.leader_only_error(fetch.epoch)))
    if old.change is not None and old.change.ticket is not None:
        state.reply(old.change.ticket, partition.voter_change_response(old.change.kind, _LOST, ""))
    waiting = [
        *(old.upgrade[1] if old.upgrade is not None else ()),
        *old.next_barrier,
        *(old.barrier.tickets if old.barrier is not None else ()),
        *((old.transfer.ticket,) if old.transfer is not None else ()),
    ]
    for ticket in waiting:
        state.finish(ticket, _LOST)
    old.change = old.upgrade = old.barrier = old.transfer = None
    old.next_barrier = []
