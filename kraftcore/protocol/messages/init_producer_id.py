"""InitProducerId, api key 22."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, boolean, int16, int32, int64, string


class InitProducerIdRequest(
    Request, api_key=22, versions=(0, 6), flexible_from=2, listeners=("broker",), latest_unstable=True
):
    """Get a producer id and epoch."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)
    enable2_pc: bool = boolean("6+")
    keep_prepared_txn: bool = boolean("6+")


class InitProducerIdResponse(Response, api_key=22, versions=(0, 6), flexible_from=2):
    """Answer to InitProducerIdRequest."""

    throttle_time_ms: int = int32(ignorable=True)
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()
    ongoing_txn_producer_id: int = int64("6+", default=-1)
    ongoing_txn_producer_epoch: int = int16("6+", default=-1)
