"""RemoveTopicRecord, record type 9 of the metadata log."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import MetadataRecord, uuid


class RemoveTopicRecord(MetadataRecord, api_key=9, versions=(0, 0), flexible_from=0):
    """A topic was deleted."""

    topic_id: Uuid = uuid()
