"""AbortTransactionRecord, record type 25 of the metadata log."""

from __future__ import annotations

from kraftcore.protocol.schema import MetadataRecord, string


class AbortTransactionRecord(MetadataRecord, api_key=25, versions=(0, 0), flexible_from=0):
    """A metadata transaction is dropped (KIP-868)."""

    reason: str | None = string(nullable="0+", default=None, tagged="0+", tag=0)
