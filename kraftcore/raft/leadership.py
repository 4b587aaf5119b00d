"""What a leader does beyond appending: read barriers, describing the quorum.

**Read barrier.** Reading one's own state is linearizable only if no other leader can have committed since. The leader
sends BeginQuorumEpoch to the voters and waits until a majority, itself included, has answered in its epoch: those
answers were given after the read began, so no later leader existed before it. The read may go on once everything
below the high watermark at that moment is applied. Reads that arrive meanwhile share the next round. Any KRaft
replica can answer, Kafka's too. The majority is one of the voter set in force, which may change while a round lasts:
any two sets that follow each other share a voter in every pair of majorities, and the earlier one's change was
committed by a majority that was still in this epoch.
Source: Raft 6.4, with BeginQuorumEpoch in place of the heartbeat.
"""

from __future__ import annotations

from typing import Any

from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochResponse
from kraftcore.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse, ReplicaState
from kraftcore.raft import partition
from kraftcore.raft.duties import Duties
from kraftcore.raft.events import Barrier, Received
from kraftcore.raft.roles import Leader, PendingBarrier
from kraftcore.raft.state import InFlight

UNKNOWN = -1
# An observer that has not fetched for this long is forgotten. Source: Kafka 4.3.1 LeaderState.
OBSERVER_TIMEOUT_MS = 300_000


class Leadership:
    """Barriers and DescribeQuorum."""

    def __init__(self, replica: Duties) -> None:
        self._replica = replica
        self._state = replica.state

    def advance(self, role: Leader) -> int | None:
        """Go on with rounds; when something is due."""
        self._start_round(role)
        if role.barrier is not None and self._ask(role.barrier):
            return self._state.now_ms + self._state.config.retry_backoff_ms
        return None

    # --- read barrier -------------------------------------------------------------------------------------------------

    def barrier(self, event: Barrier) -> None:
        """A read wants to be linearizable."""
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
        """Send what the round still lacks; True if somebody must be asked again later."""
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

    # --- DescribeQuorum -----------------------------------------------------------------------------------------------

    def on_describe_quorum(self, received: Received, request: DescribeQuorumRequest) -> None:
        """Who votes, who watches, how far everyone is. Of any other partition: each that was asked for, unknown."""
        state = self._state
        role = state.role
        topic_type = DescribeQuorumResponse.TopicData
        if not partition.names_our_partition(state, request.topics):
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            topics = [
                topic_type(
                    topic_name=topic.topic_name,
                    partitions=[_undescribed(asked.partition_index, unknown, received) for asked in topic.partitions],
                )
                for topic in request.topics
            ]
            state.reply(received.ticket, DescribeQuorumResponse(topics=topics))
            return
        nodes: list[Any] = []
        if isinstance(role, Leader):
            value = role.watermark.value
            described = topic_type.PartitionData(
                partition_index=partition.PARTITION,
                leader_id=state.config.key.id,
                leader_epoch=state.epoch,
                high_watermark=UNKNOWN if value is None else value,
                current_voters=[self._described(role, voter.key, received.version) for voter in state.voters],
                observers=[self._described(role, key, received.version) for key in self._observers(role)],
            )
            if received.version >= 2:
                nodes = self._nodes()
        else:
            described = _undescribed(partition.PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, received)
        topic = topic_type(topic_name=state.config.topic, partitions=[described])
        state.reply(received.ticket, DescribeQuorumResponse(topics=[topic], nodes=nodes))

    def _observers(self, role: Leader) -> list[ReplicaKey]:
        state = self._state
        oldest = state.now_ms - OBSERVER_TIMEOUT_MS
        observers = [(key, seen) for key, seen in role.replicas.items() if not state.voters.is_voter(key)]
        for key in [key for key, seen in observers if seen.last_fetch_ms < oldest]:
            del role.replicas[key]
        found = [key for key, _ in observers if key in role.replicas]
        return sorted(found, key=lambda key: (key.id, key.directory_id))

    def _described(self, role: Leader, key: ReplicaKey, version: int) -> ReplicaState:
        state = self._state
        described = ReplicaState(replica_id=key.id, log_end_offset=UNKNOWN)
        if version >= 2:
            described.replica_directory_id = key.directory_id
        if key.matches(state.config.key):
            described.log_end_offset = state.log.log_end_offset
            described.last_fetch_timestamp = described.last_caught_up_timestamp = state.now_ms
            return described
        progress = role.replicas.get(key)
        if progress is None:
            progress = next((seen for other, seen in role.replicas.items() if key.matches(other)), None)
        if progress is not None and progress.log_end_offset is not None:
            described.log_end_offset = progress.log_end_offset
            described.last_fetch_timestamp = progress.last_fetch_ms
            described.last_caught_up_timestamp = progress.last_caught_up_ms
        return described

    def _nodes(self) -> list[Any]:
        node = DescribeQuorumResponse.Node
        return [
            node(
                node_id=voter.key.id,
                listeners=[
                    node.Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
                    for endpoint in voter.endpoints
                ],
            )
            for voter in self._state.voters
        ]


def _undescribed(index: int, error: ErrorCode, received: Received) -> DescribeQuorumResponse.TopicData.PartitionData:
    described = DescribeQuorumResponse.TopicData.PartitionData(partition_index=index, error_code=error)
    if received.version >= 2:
        described.error_message = error.message
    return described
