"""FeatureLevelRecord, record type 12 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, int16, string


class FeatureLevelRecord(MetadataRecord, api_key=12, versions=(0, 0), flexible_from=0):
    """A feature was finalized at a level; level 0 removes it."""

    name: str = string()
    feature_level: int = int16()
