"""SnapshotHeaderRecord."""

from __future__ import annotations

from kraftcore.protocol.schema import Data, int16, int64


class SnapshotHeaderRecord(Data, versions=(0, 0), flexible_from=0):
    """Control record: the first record of a snapshot (KIP-630)."""

    version: int = int16()
    last_contained_log_timestamp: int = int64()
