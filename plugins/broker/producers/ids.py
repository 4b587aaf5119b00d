"""Ids for producers: given out of blocks that the controller allocates. Source: Kafka 4.3.1, RPCProducerIdManager."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from kraftcore.ports.complaints import Complaints
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

_WAIT_S = 1.0
_logger = logging.getLogger("kraftcore.broker")


class ProducerIds:
    """Gives producers their ids, out of blocks that the controller allocates.

    Args:
        broker_id: the id of this broker.
        broker_epoch: gives the present broker epoch of this broker.
        send: sends a request to the active controller; gives the response, or a `Failure`.
        start: starts a task.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        send: Callable[[Any], Awaitable[Any]],
        start: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._send = send
        self._start = start
        self._next = self._end = 0
        self._asking: trio.Event | None = None
        self._complain = Complaints(_logger.warning, trio.current_time)

    async def next(self) -> int | None:
        """A new producer id; None while the controller has not allocated a block: the client asks again."""
        with trio.move_on_after(_WAIT_S):
            while self._next == self._end:
                if self._asking is None:
                    self._asking = trio.Event()
                    self._start(self._ask)
                await self._asking.wait()
                if self._next == self._end:
                    return None
            self._next += 1
            return self._next - 1
        return None

    async def _ask(self) -> None:
        asking = self._asking
        try:
            request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
            answer = await self._send(request)
            if isinstance(answer, AllocateProducerIdsResponse) and answer.error_code == ErrorCode.NONE:
                self._next = answer.producer_id_start
                self._end = self._next + answer.producer_id_len
            else:
                failure = answer if isinstance(answer, Failure) else ErrorCode.of(answer.error_code)
                self._complain("producer ids", f"the controller gives no producer ids: {failure.name}")
        finally:
            self._asking = None
            if asking is not None:
                asking.set()
