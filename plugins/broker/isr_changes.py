"""Changes of the ISR on their way to the controller, on trio: sends what ``isr_requests`` says, one at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from kraftcore.node.outbox import OTHERS, Outbox
from kraftcore.plugins.broker.isr_requests import ISR_WITH_EPOCHS, IsrRequest, IsrRequests
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.partition import IsrProposal, TopicPartition
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.ports.complaints import Complaints

_RETRY_S = 0.05
_TIMEOUT_MS = 30_000
_logger = logging.getLogger("kraftcore.broker")


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
        self._cache = cache
        self._listener = listener
        self._outbox = outbox
        complain = Complaints(_logger.warning, trio.current_time)
        self._requests = IsrRequests(broker_id, broker_epoch, replicas, complain, now_ms)
        self._wake = trio.Event()

    def propose(self, name: TopicPartition, proposal: IsrProposal) -> None:
        """Send it soon; a later one of the partition takes its place."""
        if self._requests.propose(name, proposal):
            self._wake.set()

    async def run(self) -> None:
        """Send what is proposed, until cancelled."""
        while True:
            await self._wake.wait()
            self._wake = trio.Event()
            request = self._requests.take()
            if request is not None:
                await self._send(request)
            if self._requests.has_more:
                self._wake.set()
                await trio.sleep(_RETRY_S)

    async def _send(self, request: IsrRequest) -> None:
        controller = self._cache.controller_id
        address = None if controller is None else self._cache.address(controller, self._listener)
        if address is None:
            self._requests.again(request)
            return
        answers: list[Any] = []
        came = trio.Event()

        def done(answer: Any) -> None:
            answers.append(answer)
            came.set()

        self._outbox.send(
            address.host, address.port, request.message, _TIMEOUT_MS, done, min_version=ISR_WITH_EPOCHS, lane=OTHERS
        )
        await came.wait()
        self._requests.answered(request, answers[0])
