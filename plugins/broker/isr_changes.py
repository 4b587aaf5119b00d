"""Changes of the ISR on their way to the controller: AlterPartition, one request at a time (KIP-497).

Topics are named by id, so a partition without one keeps the ISR that it was assigned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker.controller_channel import ControllerChannel
from kraftcore.plugins.broker.metadata_cache import UNKNOWN_EPOCH
from kraftcore.plugins.broker.partition import IsrAnswer, IsrProposal, TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.ports.complaints import Complaints
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

_ISR_WITH_EPOCHS = 3
_RETRY_S = 0.05
_TIMEOUT_MS = 30_000
_logger = logging.getLogger("kraftcore.broker")
_Topic = AlterPartitionRequest.TopicData


class IsrChanges:
    """See the module text.

    Args:
        broker_id: ours.
        broker_epoch: ours at the moment.
        replicas: our partitions.
        controllers: the way to the controller.
        now_ms: the time.
        names_incarnations: tell the broker epoch of each member (KIP-903); controllers of the ZooKeeper era know none.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        replicas: Replicas,
        controllers: ControllerChannel,
        now_ms: Callable[[], int],
        *,
        names_incarnations: bool = True,
    ) -> None:
        self._names_incarnations = names_incarnations
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._replicas = replicas
        self._controllers = controllers
        self._now_ms = now_ms
        self._complain = Complaints(_logger.warning, trio.current_time)
        self._proposals: dict[TopicPartition, IsrProposal] = {}
        self._wake = trio.Event()

    def propose(self, name: TopicPartition, proposal: IsrProposal) -> None:
        """Send it soon; a later one of the partition takes its place."""
        if self._replicas.topic_id(name) is not None:
            self._proposals[name] = proposal
            self._wake.set()

    async def run(self) -> None:
        """Send what is proposed, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            taken, self._proposals = self._proposals, {}
            sent = {name: each for name, each in taken.items() if self._is_current(name, each)}
            if sent and not await self._send(sent):
                for name, proposal in sent.items():
                    self._again(name, proposal)
            if self._wake.is_set():
                await trio.sleep(_RETRY_S)

    def _is_current(self, name: TopicPartition, proposal: IsrProposal) -> bool:
        replica = self._replicas.all.get(name)
        leading = None if replica is None else replica.partition.leading
        return leading is not None and leading.isr.proposal is proposal

    def _again(self, name: TopicPartition, proposal: IsrProposal) -> None:
        self._proposals.setdefault(name, proposal)
        self._wake.set()

    async def _send(self, proposals: dict[TopicPartition, IsrProposal]) -> bool:
        """Ask the controller; False: there is no answer, and it is to be asked again."""
        ids = {name: self._replicas.topic_id(name) for name in proposals}
        request = self._request(proposals, ids)
        answer = await self._controllers.ask(request, _TIMEOUT_MS, min_version=_ISR_WITH_EPOCHS)
        if not isinstance(answer, AlterPartitionResponse) or answer.error_code != ErrorCode.NONE:
            what = answer.name if isinstance(answer, Failure) else ErrorCode.of(answer.error_code).name
            self._complain("isr", f"the controller did not take a change of the ISR: {what}")
            return False
        self._take(answer, proposals, ids)
        return True

    def _request(
        self, proposals: dict[TopicPartition, IsrProposal], ids: dict[TopicPartition, Uuid | None]
    ) -> AlterPartitionRequest:
        request = AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
        topics: dict[Uuid, AlterPartitionRequest.TopicData] = {}
        kind = _Topic.PartitionData
        for name, proposal in proposals.items():
            topic_id = ids[name]
            if topic_id is None:
                continue  # it was deleted meanwhile
            if topic_id not in topics:
                topics[topic_id] = _Topic(topic_id=topic_id)
                request.topics.append(topics[topic_id])
            topics[topic_id].partitions.append(
                kind(
                    partition_index=name.partition,
                    leader_epoch=proposal.leader_epoch,
                    new_isr_with_epochs=[
                        kind.BrokerState(broker_id=each, broker_epoch=self._epoch_of(name, each))
                        for each in proposal.isr
                    ],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return request

    def _epoch_of(self, name: TopicPartition, broker_id: int) -> int:
        """Of the incarnation that is proposed: the controller refuses any other (KIP-903)."""
        if not self._names_incarnations:
            return UNKNOWN_EPOCH
        if broker_id == self._broker_id:
            return self._broker_epoch()
        return self._replicas.all[name].partition.broker_epoch_of(broker_id)

    def _take(
        self,
        answer: AlterPartitionResponse,
        proposals: dict[TopicPartition, IsrProposal],
        ids: dict[TopicPartition, Uuid | None],
    ) -> None:
        asked = {(ids[name], name.partition): name for name in proposals}
        for topic in answer.topics:
            for told in topic.partitions:
                name = asked.pop((topic.topic_id, told.partition_index), None)
                replica = None if name is None else self._replicas.all.get(name)
                if name is None or replica is None:
                    continue
                error = ErrorCode.of(told.error_code)
                if error is not ErrorCode.NONE:
                    self._complain(f"isr {error.name}", f"{name}: the controller answers {error.name} to a new ISR")
                found = IsrAnswer(error, told.leader_epoch, told.partition_epoch, tuple(told.isr))
                effects = replica.partition.isr_answered(proposals[name], found, self._now_ms())
                self._replicas.carry_out(name, effects)
        for name in asked.values():  # it did not answer about these: the same is asked again
            self._again(name, proposals[name])
