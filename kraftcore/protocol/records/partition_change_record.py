"""PartitionChangeRecord, record type 5 of the metadata log."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import MetadataRecord, array, int8, int32, uuid


class PartitionChangeRecord(MetadataRecord, api_key=5, versions=(0, 2), flexible_from=0):
    """What changed in a partition; fields left at their defaults did not."""

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    isr: list[int] | None = array(int32, nullable="0+", default=None, tagged="0+", tag=0)
    leader: int = int32(default=-2, tagged="0+", tag=1)
    replicas: list[int] | None = array(int32, nullable="0+", default=None, tagged="0+", tag=2)
    removing_replicas: list[int] | None = array(int32, nullable="0+", default=None, tagged="0+", tag=3)
    adding_replicas: list[int] | None = array(int32, nullable="0+", default=None, tagged="0+", tag=4)
    leader_recovery_state: int = int8(default=-1, tagged="0+", tag=5)
    directories: list[Uuid] | None = array(uuid, "1+", nullable="1+", default=None, tagged="1+", tag=8)
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tagged="2+", tag=6)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tagged="2+", tag=7)
