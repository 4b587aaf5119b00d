"""EndTxn, api key 26."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, boolean, int16, int32, int64, string


class EndTxnRequest(Request, api_key=26, versions=(0, 5), flexible_from=3, listeners=("broker",)):
    """Commit or abort a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


class EndTxnResponse(Response, api_key=26, versions=(0, 5), flexible_from=3):
    """Answer to EndTxnRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1, ignorable=True)
    producer_epoch: int = int16("5+", default=-1, ignorable=True)
