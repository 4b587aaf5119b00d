"""CreateDelegationToken, api key 38."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, octets, string


class CreateDelegationTokenRequest(
    Request, api_key=38, versions=(1, 3), flexible_from=2, listeners=("broker", "controller")
):
    """Create a delegation token (KIP-48)."""

    class CreatableRenewers(Struct):
        """An element of ``renewers``."""

        principal_type: str = string()
        principal_name: str = string()

    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[CreatableRenewers] = array(CreatableRenewers)
    max_lifetime_ms: int = int64()


class CreateDelegationTokenResponse(Response, api_key=38, versions=(1, 3), flexible_from=2):
    """Answer to CreateDelegationTokenRequest."""

    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = octets()
    throttle_time_ms: int = int32()
