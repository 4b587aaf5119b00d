"""NoOpRecord, record type 20 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord


class NoOpRecord(MetadataRecord, api_key=20, versions=(0, 0), flexible_from=0):
    """Nothing; written so that the high watermark moves (KIP-835)."""
