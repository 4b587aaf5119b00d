"""AllocateProducerIds, api key 67."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, int16, int32, int64


class AllocateProducerIdsRequest(Request, api_key=67, versions=(0, 0), flexible_from=0, listeners=("controller",)):
    """Broker to controller: get a block of producer ids (KIP-730)."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)


class AllocateProducerIdsResponse(Response, api_key=67, versions=(0, 0), flexible_from=0):
    """Answer to AllocateProducerIdsRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id_start: int = int64()
    producer_id_len: int = int32()
