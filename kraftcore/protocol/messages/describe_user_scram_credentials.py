"""DescribeUserScramCredentials, api key 50."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class DescribeUserScramCredentialsRequest(
    Request, api_key=50, versions=(0, 0), flexible_from=0, listeners=("broker", "controller")
):
    """List users' SCRAM credentials without their secrets (KIP-554)."""

    class UserName(Struct):
        """An element of ``users``."""

        name: str = string()

    users: list[UserName] | None = array(UserName, nullable="0+")


class DescribeUserScramCredentialsResponse(Response, api_key=50, versions=(0, 0), flexible_from=0):
    """Answer to DescribeUserScramCredentialsRequest."""

    class DescribeUserScramCredentialsResult(Struct):
        """An element of ``results``."""

        class CredentialInfo(Struct):
            """An element of ``credential_infos``."""

            mechanism: int = int8()
            iterations: int = int32()

        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        credential_infos: list[CredentialInfo] = array(CredentialInfo)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
