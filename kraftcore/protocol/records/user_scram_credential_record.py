"""UserScramCredentialRecord, record type 11 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, int8, int32, octets, string


class UserScramCredentialRecord(MetadataRecord, api_key=11, versions=(0, 0), flexible_from=0):
    """A user's SCRAM credential was set."""

    name: str = string()
    mechanism: int = int8()
    salt: bytes = octets()
    stored_key: bytes = octets()
    server_key: bytes = octets()
    iterations: int = int32()
