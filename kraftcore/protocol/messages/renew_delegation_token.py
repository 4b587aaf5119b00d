"""RenewDelegationToken, api key 39."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, int16, int32, int64, octets


class RenewDelegationTokenRequest(
    Request, api_key=39, versions=(1, 2), flexible_from=2, listeners=("broker", "controller")
):
    """Extend a delegation token's life."""

    hmac: bytes = octets()
    renew_period_ms: int = int64()


class RenewDelegationTokenResponse(Response, api_key=39, versions=(1, 2), flexible_from=2):
    """Answer to RenewDelegationTokenRequest."""

    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()
