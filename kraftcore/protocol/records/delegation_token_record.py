"""DelegationTokenRecord, record type 10 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, array, int64, string


class DelegationTokenRecord(MetadataRecord, api_key=10, versions=(0, 0), flexible_from=0):
    """A delegation token was created or renewed."""

    owner: str = string()
    requester: str = string()
    renewers: list[str] = array(string)
    issue_timestamp: int = int64()
    max_timestamp: int = int64()
    expiration_timestamp: int = int64()
    token_id: str = string()
