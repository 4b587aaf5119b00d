"""RemoveUserScramCredentialRecord, record type 22 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, int8, string


class RemoveUserScramCredentialRecord(MetadataRecord, api_key=22, versions=(0, 0), flexible_from=0):
    """A user's SCRAM credential was deleted."""

    name: str = string()
    mechanism: int = int8()
