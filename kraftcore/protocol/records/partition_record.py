"""PartitionRecord, record type 3 of the metadata log."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import MetadataRecord, array, int8, int32, uuid


class PartitionRecord(MetadataRecord, api_key=3, versions=(0, 2), flexible_from=0):
    """A partition in full: replicas, in-sync replicas, leader, directories."""

    partition_id: int = int32(default=-1)
    topic_id: Uuid = uuid()
    replicas: list[int] = array(int32)
    isr: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    leader: int = int32(default=-1)
    leader_recovery_state: int = int8(tagged="0+", tag=0)
    leader_epoch: int = int32(default=-1)
    partition_epoch: int = int32(default=-1)
    directories: list[Uuid] = array(uuid, "1+")
    eligible_leader_replicas: list[int] | None = array(int32, "2+", nullable="2+", default=None, tagged="2+", tag=1)
    last_known_elr: list[int] | None = array(int32, "2+", nullable="2+", default=None, tagged="2+", tag=2)
