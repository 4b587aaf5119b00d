"""AlterUserScramCredentials, api key 51."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, octets, string


class AlterUserScramCredentialsRequest(
    Request, api_key=51, versions=(0, 0), flexible_from=0, listeners=("broker", "controller")
):
    """Add, change or delete SCRAM credentials (KIP-554)."""

    class ScramCredentialDeletion(Struct):
        """An element of ``deletions``."""

        name: str = string()
        mechanism: int = int8()

    class ScramCredentialUpsertion(Struct):
        """An element of ``upsertions``."""

        name: str = string()
        mechanism: int = int8()
        iterations: int = int32()
        salt: bytes = octets()
        salted_password: bytes = octets()

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResponse(Response, api_key=51, versions=(0, 0), flexible_from=0):
    """Answer to AlterUserScramCredentialsRequest."""

    class AlterUserScramCredentialsResult(Struct):
        """An element of ``results``."""

        user: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
