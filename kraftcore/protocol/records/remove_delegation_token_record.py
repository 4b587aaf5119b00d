"""RemoveDelegationTokenRecord, record type 26 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, string


class RemoveDelegationTokenRecord(MetadataRecord, api_key=26, versions=(0, 0), flexible_from=0):
    """A delegation token was deleted."""

    token_id: str = string()
