"""ConfigRecord, record type 4 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, int8, string


class ConfigRecord(MetadataRecord, api_key=4, versions=(0, 0), flexible_from=0):
    """One configuration key of a resource was set, or removed with a null value."""

    resource_type: int = int8()
    resource_name: str = string()
    name: str = string()
    value: str | None = string(nullable="0+")
