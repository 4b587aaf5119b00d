"""SnapshotFooterRecord."""

from __future__ import annotations

from kraftcore.protocol.schema import Data, int16


class SnapshotFooterRecord(Data, versions=(0, 0), flexible_from=0):
    """Control record: the last record of a snapshot (KIP-630)."""

    version: int = int16()
