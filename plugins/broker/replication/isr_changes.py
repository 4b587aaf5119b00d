"""Sends AlterPartition on trio: one request of ``isr_requests`` at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable

import trio

from kraftcore.plugins.broker.controller_channel import ControllerChannel
from kraftcore.plugins.broker.partition import IsrProposal, TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.replication.isr_requests import ISR_WITH_EPOCHS, IsrRequests
from kraftcore.plugins.broker.work.deadlines import REQUEST_TIMEOUT_MS
from kraftcore.plugins.broker.work.keyed_queue import KeyedQueue
from kraftcore.ports.complaints import Complaints

_RETRY_S = 0.05
_logger = logging.getLogger("kraftcore.broker")


class IsrChanges:
    """Sends AlterPartition requests to the controller on trio, one at a time.

    Args:
        broker_id: id of this broker.
        broker_epoch: of this broker's present registration.
        replicas: the partitions of this broker.
        proposals: the ISRs that leaders propose.
        controllers: sends requests to the active controller.
        now_ms: the time in milliseconds; it never falls.
        names_incarnations: see `IsrRequests`.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        replicas: Replicas,
        proposals: KeyedQueue[TopicPartition, IsrProposal],
        controllers: ControllerChannel,
        now_ms: Callable[[], int],
        *,
        names_incarnations: bool = True,
    ) -> None:
        self._controllers = controllers
        complain = Complaints(_logger.warning, trio.current_time)
        self._requests = IsrRequests(
            broker_id, broker_epoch, replicas, proposals, complain, now_ms, names_incarnations=names_incarnations
        )
        self._proposals = proposals

    async def run(self) -> None:
        """Send proposed ISRs, until cancelled."""
        while True:
            await self._proposals.wait()
            request = self._requests.take()
            if request is not None:
                answer = await self._controllers.ask(request.message, REQUEST_TIMEOUT_MS, min_version=ISR_WITH_EPOCHS)
                self._requests.answered(request, answer)
            if self._proposals:
                await trio.sleep(_RETRY_S)
