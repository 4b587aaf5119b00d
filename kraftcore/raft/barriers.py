"""Read barriers: a leader makes sure that it still leads, so that a read is linearizable.

Reading one's own state is linearizable only if no other leader can have committed since. The leader
sends BeginQuorumEpoch to the voters and waits until a majority, itself included, has answered in its epoch: those
answers were given after the read began, so no later leader existed before it. The read may go on once everything
below the high watermark at that moment is applied. Reads that arrive meanwhile share the next round. Any KRaft
replica can answer, Kafka's too. The majority is one of the voter set in force, which may change while a round lasts:
any two sets that follow each other share a voter in every pair of majorities, and the earlier one's change was
committed by a majority that was still in this epoch.
Source: Raft 6.4, with BeginQuorumEpoch in place of the heartbeat.
"""

from __future__ import annotations

from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from kraftcore.raft import partition
from kraftcore.raft.duties import Duties
from kraftcore.raft.events import Barrier
from kraftcore.raft.roles import Leader, PendingBarrier
from kraftcore.raft.state import InFlight


class Barriers:
    """The read barriers that a leader has not answered yet."""

    def __init__(self, replica: Duties) -> None:
        self._replica = replica
        self._state = replica.state

    def advance(self, role: Leader) -> int | None:
        """Go on with rounds; when something is due."""
        self._start_round(role)
        if role.barrier is not None and self._ask(role.barrier):
            return self._state.now_ms + self._state.config.retry_backoff_ms
        return None

    def barrier(self, event: Barrier) -> None:
        """Begin a read barrier, or join the next round."""
        role = self._state.role
        if not isinstance(role, Leader) or self._state.shutting_down:
            self._state.finish(event.ticket, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            role.next_barrier.append(event.ticket)

    def _start_round(self, role: Leader) -> None:
        # Not before a record of our epoch is committed: until then the high watermark may lag behind an older leader's.
        value = role.watermark.value
        if role.barrier is None and role.next_barrier and value is not None:
            role.barrier = PendingBarrier(role.next_barrier, value)
            role.next_barrier = []
            self._confirm(role, role.barrier)

    def _ask(self, barrier: PendingBarrier) -> bool:
        """Send BeginQuorumEpoch to voters not asked yet in this round; True if one must be asked again later."""
        state = self._state
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

    def on_begin_quorum_epoch_answer(self, request_id: int, sent: InFlight, response: BeginQuorumEpochResponse) -> None:
        """A voter answered in our epoch, or told us of a newer one."""
        confirmed = self._replica.election.on_begin_quorum_epoch_answer(sent.destination, response)
        role = self._state.role
        if not isinstance(role, Leader) or role.barrier is None:
            return
        voter_id = sent.destination.node_id
        if voter_id is not None and role.barrier.asked.get(voter_id) == request_id:
            del role.barrier.asked[voter_id]
            if confirmed and sent.epoch == self._state.epoch:
                role.barrier.confirmed.add(voter_id)
                self._confirm(role, role.barrier)

    def on_begin_quorum_epoch_failed(self, request_id: int) -> None:
        """Ask that voter again."""
        role = self._state.role
        if isinstance(role, Leader) and role.barrier is not None:
            role.barrier.asked = {voter: asked for voter, asked in role.barrier.asked.items() if asked != request_id}

    def voters_changed(self, role: Leader) -> None:
        """Another voter set is in force: those who answered the round may be a majority of it."""
        if role.barrier is not None:
            self._confirm(role, role.barrier)

    def _confirm(self, role: Leader, barrier: PendingBarrier) -> None:
        state = self._state
        present = len(barrier.confirmed & state.voters.ids) + (1 if state.is_voter else 0)
        if present < state.voters.majority:
            return
        role.barrier = None
        for ticket in barrier.tickets:
            state.finish(ticket, ErrorCode.NONE, barrier.offset)

    def abandon(self, role: Leader, error: ErrorCode) -> None:
        """Leadership ends: reads were not confirmed."""
        for ticket in [*role.next_barrier, *(role.barrier.tickets if role.barrier is not None else ())]:
            self._state.finish(ticket, error)
        role.next_barrier, role.barrier = [], None
