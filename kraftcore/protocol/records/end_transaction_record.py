"""EndTransactionRecord, record type 24 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord


class EndTransactionRecord(MetadataRecord, api_key=24, versions=(0, 0), flexible_from=0):
    """A metadata transaction takes effect (KIP-868)."""
