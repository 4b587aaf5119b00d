"""ClientQuotaRecord, record type 14 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, Struct, array, boolean, float64, string


class ClientQuotaRecord(MetadataRecord, api_key=14, versions=(0, 0), flexible_from=0):
    """One quota of a client entity was set or removed."""

    class EntityData(Struct):
        """An element of ``entity``."""

        entity_type: str = string()
        entity_name: str | None = string(nullable="0+")

    entity: list[EntityData] = array(EntityData)
    key: str = string()
    value: float = float64()
    remove: bool = boolean()
