"""TopicRecord, record type 2 of the metadata log."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import MetadataRecord, string, uuid


class TopicRecord(MetadataRecord, api_key=2, versions=(0, 0), flexible_from=0):
    """A topic was created."""

    name: str = string()
    topic_id: Uuid = uuid()
