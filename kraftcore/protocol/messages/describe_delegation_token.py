"""DescribeDelegationToken, api key 41."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, octets, string


class DescribeDelegationTokenRequest(
    Request, api_key=41, versions=(1, 3), flexible_from=2, listeners=("broker", "controller")
):
    """List delegation tokens."""

    class DescribeDelegationTokenOwner(Struct):
        """An element of ``owners``."""

        principal_type: str = string()
        principal_name: str = string()

    owners: list[DescribeDelegationTokenOwner] | None = array(DescribeDelegationTokenOwner, nullable="0+")


class DescribeDelegationTokenResponse(Response, api_key=41, versions=(1, 3), flexible_from=2):
    """Answer to DescribeDelegationTokenRequest."""

    class DescribedDelegationToken(Struct):
        """An element of ``tokens``."""

        class DescribedDelegationTokenRenewer(Struct):
            """An element of ``renewers``."""

            principal_type: str = string()
            principal_name: str = string()

        principal_type: str = string()
        principal_name: str = string()
        token_requester_principal_type: str = string("3+")
        token_requester_principal_name: str = string("3+")
        issue_timestamp: int = int64()
        expiry_timestamp: int = int64()
        max_timestamp: int = int64()
        token_id: str = string()
        hmac: bytes = octets()
        renewers: list[DescribedDelegationTokenRenewer] = array(DescribedDelegationTokenRenewer)

    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()
