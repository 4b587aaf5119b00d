"""Decisions on producer ids: AllocateProducerIds (KIP-730)."""

from __future__ import annotations

from typing import Final

from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, Refusal
from kraftcore.plugins.controller.requester import check_epoch
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from kraftcore.protocol.records.producer_ids_record import ProducerIdsRecord
from kraftcore.protocol.schema import Request

BLOCK: Final = 1000
"""Ids that a broker is given at a time."""
_LAST: Final = (1 << 63) - 1


def allocate(context: Context, request: AllocateProducerIdsRequest, version: int) -> ControllerResult:
    """Give a broker the next block of ids."""
    check_epoch(context, request.broker_id, request.broker_epoch)
    first = context.image.producer_ids.next_id
    if first > _LAST - BLOCK:
        text = "Exhausted all producerIds as the next block's end producerId has exceeded the int64 type limit"
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, text)
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK
    )
    return ControllerResult(
        AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK), [(record, 0)], is_atomic=False
    )


def _refuse(
    request: AllocateProducerIdsRequest, version: int, error: ErrorCode, message: str | None
) -> AllocateProducerIdsResponse:
    return AllocateProducerIdsResponse(error_code=error)


APIS: dict[type[Request], Api] = {AllocateProducerIdsRequest: Api(allocate, _refuse)}
