"""AddOffsetsToTxn, api key 25."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, int16, int32, int64, string


class AddOffsetsToTxnRequest(Request, api_key=25, versions=(0, 4), flexible_from=3, listeners=("broker",)):
    """Add a group's offsets to a transaction."""

    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


class AddOffsetsToTxnResponse(Response, api_key=25, versions=(0, 4), flexible_from=3):
    """Answer to AddOffsetsToTxnRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
