"""ExpireDelegationToken, api key 40."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, int16, int32, int64, octets


class ExpireDelegationTokenRequest(
    Request, api_key=40, versions=(1, 2), flexible_from=2, listeners=("broker", "controller")
):
    """Change a delegation token's expiry."""

    hmac: bytes = octets()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Response, api_key=40, versions=(1, 2), flexible_from=2):
    """Answer to ExpireDelegationTokenRequest."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
