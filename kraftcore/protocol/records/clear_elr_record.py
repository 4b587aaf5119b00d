"""ClearElrRecord, record type 28 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, string


class ClearElrRecord(MetadataRecord, api_key=28, versions=(0, 0), flexible_from=0):
    """Eligible leader replicas of one topic, or of all, were cleared (KIP-966)."""

    topic_name: str = string()
