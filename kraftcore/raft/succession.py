"""When a leader resigns, and who should lead next.

Elections (``election``) say who may win. Here is what comes before one:

* **When a leader goes.** No majority of the voters fetched for 1.5 fetch timeouts (check-quorum); its own removal is
  committed; it hands over; it is asked to; it shuts down.
* **Who is asked to follow.** A leader that resigns names the other voters in EndQuorumEpoch, the most caught up first,
  or before them the one it hands over to. The first starts its election at once, the others exponentially later, a
  replica that is not named last.
* **When a follower stops waiting.** Its fetch timer ran out; the leader resigned; or the leader's process refused or
  reset a connection: then the others go one after the other, by id, so that they do not split the votes.
* **Transfer.** The leader takes no more proposals, waits until the chosen voter has everything, and resigns with that
  voter first in its list. After one election timeout the leader goes on leading instead.
* **Reluctance.** A voter that should not lead for long, as one without a controller among Kafka's, may be the only one
  with all that is committed, so it cannot refuse for good. So a reluctant replica lets the others' timers run out
  before its own counts, and as a leader hands over to the first voter that keeps up.
* **Needed.** A replica that is no voter by its own log stands when a voter whose log is behind asks for its vote:
  without that a quorum can be dead for ever with every node healthy. It waits until it is asked.

All of it is timing and advice: whoever stands too early or too late is still judged by votes.

Sources: KIP-595 (EndQuorumEpoch), KIP-853 (its candidates, removal); Kafka 4.3.1 for check-quorum and backoff; Raft
3.10 for transfer, with EndQuorumEpoch in place of TimeoutNow; Ongaro's dissertation, 4.2.2, which lets every server
stand that is not in its latest configuration. Fast failover and reluctance are ours.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from kraftcore.raft import partition
from kraftcore.raft.duties import Duties
from kraftcore.raft.events import Destination, Received, Transfer
from kraftcore.raft.quorum import VoterSet
from kraftcore.raft.roles import Cause, Follower, Leader, PendingTransfer, Resigned, Unattached

FAILOVER_STEP_MS = 50  # between two followers that notice a dead leader; several round trips, far below a timeout
# In fetch timeouts: how long a reluctant leader leaves a voter alone that it handed over to before. Without it, two
# reluctant voters and no third would pass leadership to and fro.
HAND_OVER_AGAIN = 30


class Succession:
    """Decides when a leader resigns, and which voters it names as successors.

    Attributes:
        patience_ms: added to the election and fetch timers of a reluctant replica, so that another voter's election
            comes first; 0 for any other.
    """

    def __init__(self, replica: Duties) -> None:
        self._replica = replica
        self._state = replica.state
        self._handed_over_ms: dict[ReplicaKey, int] = {}
        config = self._state.config
        self.patience_ms = config.fetch_timeout_ms + 2 * config.election_timeout_ms if config.reluctant else 0

    # --- when a leader goes -------------------------------------------------------------------------------------------

    def check_quorum_deadline(self) -> int | None:
        """When a leader gives up unless a majority fetches: 1.5 fetch timeouts from now; None for a sole voter.

        Source: Kafka 4.3.1 LeaderState.
        """
        state = self._state
        if state.voters.is_only_voter(state.config.key):
            return None
        return state.now_ms + state.config.fetch_timeout_ms * 3 // 2

    def heard_from(self, role: Leader, voter_id: int) -> None:
        """A voter fetched: put off its BeginQuorumEpoch, and count it for check-quorum."""
        state = self._state
        if voter_id == state.config.key.id:
            return  # a Fetch with our own id must not count this replica twice
        role.begin_due_ms[voter_id] = state.now_ms + state.config.fetch_timeout_ms // 2
        if role.check_quorum_deadline_ms is None:
            return
        role.heard.add(voter_id)
        present = len(role.heard & state.voters.ids) + (1 if state.is_voter else 0)
        if present >= state.voters.majority:
            role.heard.clear()
            role.check_quorum_deadline_ms = self.check_quorum_deadline()

    def voters_changed(self, role: Leader) -> None:
        """Another voter set is in force: a sole voter needs no check-quorum, any other does."""
        if role.check_quorum_deadline_ms is None or self._state.voters.is_only_voter(self._state.config.key):
            role.check_quorum_deadline_ms = self.check_quorum_deadline()

    def resign(self, cause: Cause, first: ReplicaKey | None = None) -> None:
        """Stop leading, if it does; ``first`` shall lead next, else whoever has most of the log."""
        state = self._state
        role = state.role
        if isinstance(role, Leader):
            self._replica.become(self.resigned(role.watermark.voters(), first), cause)

    def resigned(self, offsets: Mapping[int, int | None], first: ReplicaKey | None = None) -> Resigned:
        """The role of a leader that leads no more.

        Args:
            offsets: how far each voter's log goes, as far as known.
            first: who shall lead next; None: whoever has most of the log.
        """
        state = self._state
        me = state.config.key.id
        preferred = preferred_candidates(state.voters, me, offsets)
        if first is not None:
            preferred = (first, *(key for key in preferred if key != first))
        return Resigned(state.random_election_deadline(), preferred, set(state.voters.ids - {me}))

    # --- to whom it hands over ----------------------------------------------------------------------------------------

    @property
    def preferred_successor(self) -> int | None:
        """Of the voters that fetch from this leader the most caught up; None: it does not lead, or no voter fetches."""
        role = self._state.role
        if not isinstance(role, Leader):
            return None
        offsets = role.watermark.voters()
        for key in preferred_candidates(self._state.voters, self._state.config.key.id, offsets):
            if offsets.get(key.id) is not None:
                return key.id
        return None

    def transfer(self, event: Transfer) -> None:
        """Start handing over."""
        state = self._state
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

    def advance_leader(self, role: Leader) -> int | None:
        """Hand over, if there is a transfer or this leader is reluctant; when something is due."""
        if self._state.config.reluctant:
            self._hand_over(role)
        return self._advance_transfer(role)

    def _hand_over(self, role: Leader) -> None:
        state = self._state
        config = state.config
        committed = role.watermark.value
        if role.transfer is not None or committed is None or state.shutting_down:
            return
        rested_ms = state.now_ms - HAND_OVER_AGAIN * config.fetch_timeout_ms
        offsets = role.watermark.voters()
        for key in preferred_candidates(state.voters, config.key.id, offsets):
            offset = offsets.get(key.id)
            if offset is None or offset < committed:
                return  # in this order those after it lack committed records, too
            here = any(
                key.matches(seen.key) and state.now_ms - seen.last_fetch_ms < config.fetch_timeout_ms
                for seen in role.replicas.values()
            )
            if here and self._handed_over_ms.get(key, rested_ms) <= rested_ms:
                self._handed_over_ms[key] = state.now_ms
                role.transfer = PendingTransfer(None, key.id, state.now_ms + config.election_timeout_ms)
                state.note(f"leadership goes to voter {key.id}: this reluctant node leads only while nobody else can")
                return

    def _advance_transfer(self, role: Leader) -> int | None:
        transfer = role.transfer
        state = self._state
        if transfer is None:
            return None
        voter = state.voters.get(transfer.voter_id)
        reached = role.watermark.log_end_offset(transfer.voter_id) if voter is not None else None
        if reached is not None and reached >= state.log.log_end_offset and voter is not None:
            role.transfer = None
            state.finish(transfer.ticket, ErrorCode.NONE)
            self.resign(Cause.STEP_DOWN, voter.key)
            return None
        if transfer.deadline_ms <= state.now_ms or voter is None:
            role.transfer = None
            text = f"voter {transfer.voter_id} did not catch up in time"
            state.finish(transfer.ticket, ErrorCode.REQUEST_TIMED_OUT, message=text)
            return None
        return transfer.deadline_ms

    def abandon(self, role: Leader, error: ErrorCode) -> None:
        """Leadership ends: the transfer under way was not finished."""
        if role.transfer is not None:
            self._state.finish(role.transfer.ticket, error)
            role.transfer = None

    # --- a leader that resigned tells the others ----------------------------------------------------------------------

    def advance_resigned(self, role: Resigned) -> int | None:
        """Tell the voters; move to the next epoch when the timer ran out."""
        state = self._state
        if role.election_deadline_ms <= state.now_ms and not state.shutting_down:
            if not self._replica.election.is_out_of_epochs():
                deadline = state.random_election_deadline() if state.is_voter else None
                self._replica.become(Unattached(deadline), Cause.ELECTION_TIMEOUT)
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

    def on_end_quorum_epoch_answer(self, source: Destination, response: EndQuorumEpochResponse) -> None:
        """A voter knows that we resigned."""
        found = self._replica.single_partition(response, source)
        if found is None or not self._replica.learn_from_answer(found[0], response.node_endpoints, source):
            return
        if isinstance(role := self._state.role, Resigned) and source.node_id is not None:
            role.unacknowledged.discard(source.node_id)

    def on_end_quorum_epoch_failed(self, destination: Destination) -> None:
        """A replica that shuts down sends each voter EndQuorumEpoch once, and does not wait for one that fails."""
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

    # --- when a follower stops waiting --------------------------------------------------------------------------------

    def on_end_quorum_epoch(self, received: Received, request: EndQuorumEpochRequest) -> None:
        """The leader steps down: start an election soon, sooner the better we stand in its list."""
        election = self._replica.election
        error = election.hear_leader(received, request, EndQuorumEpochResponse)
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
        election.reply_to_leader(received, EndQuorumEpochResponse, error)

    def leader_unreachable(self, role: Follower) -> None:
        """The leader's process refused or reset a connection: its election need not wait for the fetch timeout."""
        state = self._state
        if not state.config.fast_failover:
            return
        role.leader_gone = True
        others = sorted(state.voters.ids - {role.leader_id})
        if state.is_voter:
            turn = others.index(state.config.key.id) if state.config.key.id in others else len(others)
            role.fetch_deadline_ms = min(role.fetch_deadline_ms, state.now_ms + turn * FAILOVER_STEP_MS)

    def is_silent(self, role: Follower) -> bool:
        """Whether its leader has not answered a Fetch yet, is gone, or has not answered for a fetch timeout."""
        state = self._state
        installs = role.snapshot is not None and role.snapshot.is_whole
        lasts = installs or not state.is_voter or state.config.reluctant  # any other would not follow any more
        return not role.has_fetched or role.leader_gone or (lasts and role.fetch_deadline_ms <= state.now_ms)

    def stand_if_needed(self) -> None:
        """A voter asked for our vote, its log is behind ours, and by our log we are no voter: become prospective.

        We may have been removed by a record that is not committed, or added by one that we do not have. The vote is
        won with a majority of the voters that our log names, without ourselves.
        """
        state = self._state
        role = state.role
        if state.is_voter or state.shutting_down or not state.config.can_become_voter or not len(state.voters):
            return
        if state.config.key.id in state.voters.ids:
            return  # the voter of our id has another directory, and votes are counted by id
        if isinstance(role, Unattached) or (isinstance(role, Follower) and self.is_silent(role)):
            state.note_seldom(
                f"runs for leader though {state.voters} are the voters: one of them lacks records that are here"
            )
            self._replica.election.become_prospective(Cause.NEEDED)


def preferred_candidates(voters: VoterSet, local_id: int, offsets: Mapping[int, int | None]) -> tuple[ReplicaKey, ...]:
    """The other voters, most caught up first, as a resigning leader names them in EndQuorumEpoch.

    Source: KIP-595, EndQuorumEpoch; ties go to the smaller id so that a run can be replayed.
    """
    others = [voter.key for voter in voters if voter.key.id != local_id]
    return tuple(sorted(others, key=lambda key: (-(_known(offsets.get(key.id))), key.id)))


def _known(offset: int | None) -> int:
    return -1 if offset is None else offset


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
