"""KRaftVersionRecord."""

from __future__ import annotations

from kraftcore.protocol.schema import Data, int16


class KRaftVersionRecord(Data, versions=(0, 0), flexible_from=0):
    """Control record: the kraft.version in force from here on (KIP-853)."""

    version: int = int16()
    kraft_version: int = int16(kafka="KRaftVersion")
