"""BeginTransactionRecord, record type 23 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, string


class BeginTransactionRecord(MetadataRecord, api_key=23, versions=(0, 0), flexible_from=0):
    """A metadata transaction starts (KIP-868)."""

    name: str | None = string(nullable="0+", default=None, tagged="0+", tag=0)
