"""SaslAuthenticate, api key 36."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, int16, int64, octets, string


class SaslAuthenticateRequest(
    Request, api_key=36, versions=(0, 2), flexible_from=2, listeners=("broker", "controller")
):
    """Carry a SASL exchange (KIP-152)."""

    auth_bytes: bytes = octets()


class SaslAuthenticateResponse(Response, api_key=36, versions=(0, 2), flexible_from=2):
    """Answer to SaslAuthenticateRequest."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64("1+", ignorable=True)
