"""Changes of the ISR on their way to the controller: AlterPartition, one request at a time (KIP-497).

Topics are named by id, so a partition without one keeps the ISR that it was assigned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from kraftcore.core.uuid import Uuid
from kraftcore.node.outbox import OTHERS, Outbox
from kraftcore.plugins.broker.metadata_cache import MetadataCache
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
        broker_epoch: ours.
        replicas: our partitions.
        cache: knows the controller.
        listener: name of the listener between brokers.
        outbox: sends.
        now_ms: the time.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: int,
        replicas: Replicas,
        cache: MetadataCache,
        listener: str,
        outbox: Outbox,
        now_ms: Callable[[], int],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._replicas = replicas
        self._cache = cache
        self._listener = listener
        self._outbox = outbox
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
        controller = self._cache.controller_id
        address = None if controller is None else self._cache.address(controller, self._listener)
        if address is None:
            return False
        answers: list[Any] = []
        came = trio.Event()

        def done(answer: Any) -> None:
            answers.append(answer)
            came.set()

        ids = {name: self._replicas.topic_id(name) for name in proposals}
        request = self._request(proposals, ids)
        self._outbox.send(
            address.host, address.port, request, _TIMEOUT_MS, done, min_version=_ISR_WITH_EPOCHS, lane=OTHERS
        )
        await came.wait()
        answer = answers[0]
        if not isinstance(answer, AlterPartitionResponse) or answer.error_code != ErrorCode.NONE:
            what = answer.name if isinstance(answer, Failure) else ErrorCode.of(answer.error_code).name
            self._complain("isr", f"the controller did not take a change of the ISR: {what}")
            return False
        self._take(answer, proposals, ids)
        return True

    def _request(
        self, proposals: dict[TopicPartition, IsrProposal], ids: dict[TopicPartition, Uuid | None]
    ) -> AlterPartitionRequest:
        request = AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch)
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
                    new_isr_with_epochs=[kind.BrokerState(broker_id=each) for each in proposal.isr],
                    partition_epoch=proposal.partition_epoch,
                )
            )
        return request

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
