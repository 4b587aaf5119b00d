"""RemoveAccessControlEntryRecord, record type 19 of the metadata log."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import MetadataRecord, uuid


class RemoveAccessControlEntryRecord(MetadataRecord, api_key=19, versions=(0, 0), flexible_from=0):
    """An access control entry was removed."""

    id: Uuid = uuid()
