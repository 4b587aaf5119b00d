"""Leases: while a majority has promised to elect nobody else, a leader answers reads without asking anybody.

A voter that answers a leader's BeginQuorumEpoch may promise with its answer: for so long it grants no vote and no
pre-vote, and does not stand for election. The leader counts what was promised from the moment at which it sent that
request, which lies before the promise. While the promises of a majority last, no other leader can be elected, so
nothing can be committed that this leader does not know, and it may answer a read barrier at once (``barriers``).

How long both sides count
    No clock is compared with another one; only rates matter. `SHARE` of a promise is what the leader counts. That is
    less than what is left of it if the leader's clock is a twentieth slow and the voter's a twentieth fast. Clocks are
    read in whole milliseconds: a leader's lease ends up to one early, and a voter keeps its promise for one more.

Who has promised
    The leader asks in a tagged field of its own (``lease_ms``), and the voter says in the same field of its answer how
    long it promises: as long as the leader asks, or as its own ``leader_lease_ms`` says if that is less. Kafka's nodes
    ignore the field, so they are not counted, nor are nodes without the setting.

When a promise ends
    When its time is over, or when a leader tells by EndQuorumEpoch that it has resigned: its lease has ended before. A
    voter that starts does not know what it promised before, so it waits as if it had promised at its start. A dead
    connection to the leader ends no promise, for the leader may be alive.

Why not Fetches: when a Fetch arrives says nothing about when it was sent, and a leader does not know whether its answer
arrived; the next Fetch looks the same if the answer was lost.

Source: Raft 6.4.1; Gray and Cheriton, "Leases" (1989), for the clocks. Promises and their field are ours.
"""

from __future__ import annotations

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftcore.raft.roles import NEVER, Leader
from kraftcore.raft.state import InFlight, RaftState

DRIFT = 0.05
"""No clock is faster or slower than this share; clocks that a time service corrects stay within 0.0005."""
SHARE = (9, 10)
"""What a leader counts of a promise: no more than (1 - `DRIFT`) / (1 + `DRIFT`)."""

# --- a voter promises -------------------------------------------------------------------------------------------------


def started(state: RaftState, saved_leader_id: int | None) -> None:
    """Bind a replica that starts, as if it had promised just now: what it promised before is forgotten.

    A replica that led the saved epoch had promised nothing any more, and before the first epoch there was no leader.
    """
    led = saved_leader_id == state.config.key.id
    if state.config.leader_lease_ms and not led and (state.epoch > 0 or state.may_have_forgotten):
        promise(state, state.config.leader_lease_ms)


def promise(state: RaftState, asked_ms: int) -> int:
    """Promise the leader of this epoch to elect nobody else; returns for how long, ms, 0: there is no promise."""
    given_ms = min(asked_ms, state.config.leader_lease_ms)
    if given_ms <= 0:
        return 0
    state.bound_until_ms = max(state.bound_until_ms, state.now_ms + given_ms + 1)
    return given_ms


def is_bound(state: RaftState) -> bool:
    """Whether a promise forbids this replica to vote and to stand."""
    return state.now_ms < state.bound_until_ms


def release(state: RaftState) -> None:
    """End the promise: the leader of this epoch has resigned.

    That leader was elected by a majority that was not bound, so no earlier leader has a lease either.
    """
    state.bound_until_ms = NEVER


# --- a leader counts --------------------------------------------------------------------------------------------------


def promised(state: RaftState, role: Leader, sent: InFlight, response: BeginQuorumEpochResponse) -> None:
    """Count what a voter promised in its answer to a request of this epoch."""
    request = sent.message
    if response.lease_ms <= 0 or sent.epoch != state.epoch or not isinstance(request, BeginQuorumEpochRequest):
        return
    key = ReplicaKey(request.voter_id, request.topics[0].partitions[0].voter_directory_id)
    until_ms = sent.sent_ms + min(response.lease_ms, request.lease_ms) * SHARE[0] // SHARE[1]
    role.promised_ms[key] = max(until_ms, role.promised_ms.get(key, NEVER))
    count(state, role)


def count(state: RaftState, role: Leader) -> None:
    """Compute until when the promises of a majority of the voter set in force last.

    A leader that is the only voter needs no promise, and has no lease: its barriers end at once anyway.
    """
    role.lease_until_ms = lease_until(state, role)


def lease_until(state: RaftState, role: Leader) -> int:
    """When this leader's lease ends by what was promised so far, ms; `NEVER` without a lease."""
    needed = state.voters.majority - (1 if state.is_voter else 0)
    if needed <= 0 or not role.promised_ms:
        return NEVER
    ends = sorted((role.promised_ms.get(voter.key, NEVER) for voter in state.voters), reverse=True)
    return ends[needed - 1] if needed <= len(ends) else NEVER


def holds(state: RaftState, role: Leader) -> bool:
    """Whether no other leader can have been elected yet."""
    return state.now_ms < role.lease_until_ms


def is_to_renew(state: RaftState, role: Leader) -> bool:
    """Whether less than half of the lease is left."""
    return role.lease_until_ms - state.now_ms < state.config.leader_lease_ms // 2
