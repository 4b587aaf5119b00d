"""AccessControlEntryRecord, record type 18 of the metadata log."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import MetadataRecord, int8, string, uuid


class AccessControlEntryRecord(MetadataRecord, api_key=18, versions=(0, 0), flexible_from=0):
    """An access control entry was added."""

    id: Uuid = uuid()
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8()
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()
