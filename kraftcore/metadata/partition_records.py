"""Partitions and the records that make and change them."""

from __future__ import annotations

from kraftcore.core.uuid import MIGRATING_DIRECTORY, Uuid
from kraftcore.errors import MetadataRecordError
from kraftcore.metadata.partition import Partition
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.schema import MetadataRecord

_NO_LEADER_CHANGE = -2


def partition_of(record: PartitionRecord) -> Partition:
    """The partition in a record.

    Raises:
        MetadataRecordError: not as many directories as replicas, or an unknown recovery state.
    """
    return Partition(
        replicas=record.replicas,
        directories=_directories(record, record.directories, len(record.replicas)),
        isr=record.isr,
        elr=record.eligible_leader_replicas or (),
        last_known_elr=record.last_known_elr or (),
        removing=record.removing_replicas,
        adding=record.adding_replicas,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        recovery_state=_recovery_state(record, record.leader_recovery_state),
    )


def changed_partition(partition: Partition, change: PartitionChangeRecord) -> Partition:
    """The partition after a change; fields at their defaults change nothing.

    Raises:
        MetadataRecordError: as `partition_of`.
    """
    replicas = partition.replicas if change.replicas is None else change.replicas
    directories = partition.directories if change.directories is None else change.directories
    leads_anew = change.leader != _NO_LEADER_CHANGE
    state = change.leader_recovery_state
    return Partition(
        replicas=replicas,
        directories=_directories(change, directories, len(replicas)),
        isr=partition.isr if change.isr is None else change.isr,
        elr=partition.elr if change.eligible_leader_replicas is None else change.eligible_leader_replicas,
        last_known_elr=partition.last_known_elr if change.last_known_elr is None else change.last_known_elr,
        removing=partition.removing if change.removing_replicas is None else change.removing_replicas,
        adding=partition.adding if change.adding_replicas is None else change.adding_replicas,
        leader=change.leader if leads_anew else partition.leader,
        leader_epoch=partition.leader_epoch + leads_anew,
        partition_epoch=partition.partition_epoch + 1,
        recovery_state=partition.recovery_state if state == -1 else _recovery_state(change, state),
    )


def partition_record(
    topic_id: Uuid, partition_id: int, partition: Partition, metadata_version: MetadataVersion
) -> PartitionRecord:
    """The record of a partition, to be written in ``metadata_version.partition_record_version``.

    ELR and directories that the version cannot hold are left out without an error.
    """
    version = metadata_version.partition_record_version
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories) if version >= 1 else [],
        eligible_leader_replicas=list(partition.elr) or None if version >= 2 else None,
        last_known_elr=list(partition.last_known_elr) or None if version >= 2 else None,
    )


def _directories(record: MetadataRecord, directories: list[Uuid] | tuple[Uuid, ...], count: int) -> tuple[Uuid, ...]:
    # A list of only "migrating", of any length, means unknown directories: Kafka's DirectoryId.createDirectoriesFrom.
    if all(each == MIGRATING_DIRECTORY for each in directories):
        return (MIGRATING_DIRECTORY,) * count
    if len(directories) != count:
        raise MetadataRecordError(record, f"{len(directories)} directories for {count} replicas")
    return tuple(directories)


def _recovery_state(record: MetadataRecord, state: int) -> int:
    if state not in (0, 1):
        raise MetadataRecordError(record, f"{state} is no leader recovery state: 0 and 1 are")
    return state
