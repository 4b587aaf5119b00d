"""AlterPartition: makes requests of proposed ISRs, and reads the answers; no sockets, tasks or clock.

There is one request at a time; the next one has all changes that are proposed meanwhile (KIP-497). Topics are named by
id, so a partition without a topic id keeps the ISR that it was assigned.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker.partition import IsrAnswer, IsrProposal, TopicPartition
from kraftcore.plugins.broker.partition.state import UNKNOWN_BROKER_EPOCH
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.keyed_queue import KeyedQueue
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

ISR_WITH_EPOCHS: Final = 3
"""The lowest version of AlterPartition that is sent: it names the broker epoch of each member."""
_Topic = AlterPartitionRequest.TopicData


class IsrRequest(NamedTuple):
    """An AlterPartition request, and the proposals that it was made of.

    Attributes:
        message: the request.
        proposals: the proposed ISR of each partition in it.
        ids: the topic id of each partition in it.
    """

    message: AlterPartitionRequest
    proposals: dict[TopicPartition, IsrProposal]
    ids: dict[TopicPartition, Uuid]


class IsrRequests:
    """Makes AlterPartition requests of proposed ISR changes, and reads the answers.

    Args:
        broker_id: id of this broker.
        broker_epoch: of this broker's present registration.
        replicas: the partitions of this broker.
        proposals: the ISRs that leaders propose; the newest of each partition.
        complain: called with a subject, of which few lines are logged, and a line.
        now_ms: the time in milliseconds; it never falls.
        names_incarnations: whether members have broker epochs (KIP-903); controllers of the ZooKeeper era know none.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        replicas: Replicas,
        proposals: KeyedQueue[TopicPartition, IsrProposal],
        complain: Callable[[str, str], object],
        now_ms: Callable[[], int],
        *,
        names_incarnations: bool = True,
    ) -> None:
        self._names_incarnations = names_incarnations
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._replicas = replicas
        self._complain = complain
        self._now_ms = now_ms
        self._proposals = proposals

    def take(self) -> IsrRequest | None:
        """Make a request of all proposals that wait; None if none of them can be asked for, or holds any more."""
        taken = self._proposals.take()
        proposals = {name: each for name, each in taken.items() if self._is_current(name, each)}
        ids = {name: topic_id for name in proposals if (topic_id := self._replicas.topic_id(name)) is not None}
        proposals = {name: proposals[name] for name in ids}
        return IsrRequest(self._request(proposals, ids), proposals, ids) if proposals else None

    def _is_current(self, name: TopicPartition, proposal: IsrProposal) -> bool:
        replica = self._replicas.all.get(name)
        leading = None if replica is None else replica.partition.leading
        return leading is not None and leading.isr.proposal is proposal

    def _request(
        self, proposals: dict[TopicPartition, IsrProposal], ids: dict[TopicPartition, Uuid]
    ) -> AlterPartitionRequest:
        request = AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        topics: dict[Uuid, AlterPartitionRequest.TopicData] = {}
        kind = _Topic.PartitionData
        for name, proposal in proposals.items():
            topic_id = ids[name]
            if topic_id not in topics:
                topics[topic_id] = _Topic(topic_id=topic_id)
                request.topics.append(topics[topic_id])
            topics[topic_id].partitions.append(
                kind(
                    partition_index=name.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        kind.BrokerState(broker_id=each, broker_epoch=self._epoch_of(each, epoch))
                        for each, epoch in zip(proposal.isr, proposal.broker_epochs, strict=True)
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return request

    def _epoch_of(self, broker_id: int, epoch: int) -> int:
        """The broker epoch of a proposed member: the controller refuses any but the registered one (KIP-903)."""
        if not self._names_incarnations:
            return UNKNOWN_BROKER_EPOCH
        return self._broker_epoch() if broker_id == self._broker_id else epoch

    # --- answers ------------------------------------------------------------------------------------------------------

    def answered(self, request: IsrRequest, answer: Any) -> None:
        """Read the answer to a request, or the `Failure` of it."""
        if not isinstance(answer, AlterPartitionResponse) or answer.error_code != ErrorCode.NONE:
            what = answer.name if isinstance(answer, Failure) else ErrorCode.of(answer.error_code).name
            self._complain("isr", f"the controller did not take a change of the ISR: {what}")
            self._proposals.put_back(request.proposals)
            return
        left = {(request.ids[name], name.partition): name for name in request.proposals}
        for topic in answer.topics:
            for told in topic.partitions:
                name = left.pop((topic.topic_id, told.partition_index), None)
                replica = None if name is None else self._replicas.all.get(name)
                if name is None or replica is None:
                    continue
                error = ErrorCode.of(told.error_code)
                if error is not ErrorCode.NONE:
                    self._complain(f"isr {error.name}", f"{name}: the controller answers {error.name} to a new ISR")
                found = IsrAnswer(error, told.leader_epoch, told.partition_epoch, tuple(told.isr))
                effects = replica.partition.isr_answered(request.proposals[name], found, self._now_ms())
                self._replicas.carry_out(name, effects)
        # The answer did not name these partitions: the same is asked for again.
        self._proposals.put_back({name: request.proposals[name] for name in left.values()})
