"""Restores a backup of metadata into the directories of a new controller."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraftcore.cli.kafka_style import KafkaFailure
from kraftcore.cli.metadata_states import State, read_snapshot
from kraftcore.config.storage_properties import ServerFile
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, ZERO_UUID
from kraftcore.metadata import Image, partition_of, partition_record
from kraftcore.metadata.partition import NO_LEADER
from kraftcore.protocol.features import LATEST_PRODUCTION
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.register_controller_record import RegisterControllerRecord
from kraftcore.storage.format import FormatPlan, InitialVoter, format_directory, plan_format
from kraftcore.storage.meta_properties import MetaProperties, load_folders
from kraftcore.storage.restoring import restore_directory, restored_id
from kraftcore.storage.snapshots import SnapshotId


@dataclass(frozen=True, slots=True)
class Restored:
    """What was written.

    Attributes:
        plan: of the format.
        begin: the log goes on from there.
        properties: of the metadata directory.
        topics: how many there are.
        brokers: how many are registered.
    """

    plan: FormatPlan
    begin: SnapshotId
    properties: MetaProperties
    topics: int
    brokers: int


def restore_backup(
    path: str,
    server: ServerFile,
    voters: tuple[InitialVoter, ...] | None,
    cluster_id: str | None,
    *,
    without_brokers: bool,
) -> Restored:
    """Format a controller's directories, with the state of a backup in its metadata log.

    Args:
        path: of the backup, or of another snapshot.
        server: the controller's file.
        voters: of the new quorum; None: they are static.
        cluster_id: of the new quorum; None: that of the backup.
        without_brokers: leave registered brokers out.

    Raises:
        KafkaFailure: it cannot be restored so.
        KraftError: the backup cannot be read, or the directories cannot be written.
    """
    if voters is None and not server.static_voters:
        raise KafkaFailure(
            "Who shall vote? Give --standalone, or --initial-controllers with the same list on each controller."
        )
    if voters is not None and server.node_id not in {voter.node_id for voter in voters}:
        raise KafkaFailure(
            f"Node {server.node_id} is not among --initial-controllers: it needs no backup, for it fetches all from "
            'the voters; format it with "kraftcore storage format --no-initial-controllers".'
        )
    state = read_snapshot(path)
    plan = _plan(state, server, voters, cluster_id)
    begin = restored_id(SnapshotId(state.end_offset, state.epoch))
    files = OsFiles()
    folders = load_folders(files, server.directories, metadata_folder=server.metadata_directory)
    if server.metadata_directory in folders.properties:
        raise KafkaFailure(f"{server.metadata_directory} is formatted already: restore into an empty directory.")
    if folders.properties:
        folders.verify(cluster_id=plan.cluster_id, node_id=plan.node_id)
    used = {each.directory_id for each in folders.properties.values() if each.directory_id is not None}
    if plan.own_voter is not None:
        used.add(plan.own_voter.directory_id)
    # The metadata directory last: while it is not formatted the command can be run again.
    for folder in folders.unformatted:
        if folder != server.metadata_directory:
            used.add(format_directory(files, folder, plan, metadata=False, used=used).directory_id or ZERO_UUID)
    values = restored_values(state.image, without_brokers=without_brokers)
    written = restore_directory(files, server.metadata_directory, plan, values, begin, state.timestamp_ms, used=used)
    return Restored(plan, begin, written, len(state.image.topics), 0 if without_brokers else len(state.image.brokers))


def _plan(
    state: State, server: ServerFile, voters: tuple[InitialVoter, ...] | None, cluster_id: str | None
) -> FormatPlan:
    cluster = cluster_id or state.cluster_id
    if cluster is None:
        raise KafkaFailure(f"{state.source} does not say of which cluster it is: give --cluster-id.")
    return plan_format(
        node_id=server.node_id,
        cluster_id=cluster,
        voters=voters,
        dynamic=not server.static_voters,
        listener=server.listener,
        release=state.image.features.metadata_version,
        unstable=server.unstable_features,
    )


def restored_values(image: Image, *, without_brokers: bool) -> Iterator[bytes]:
    """The records of a new quorum with an image's state.

    The controllers of the old quorum are left out: the new ones register themselves. Without brokers no partition has
    a leader, and no replica a directory.
    """
    version = image.features.metadata_version or LATEST_PRODUCTION
    for record, record_version in image.records():
        if isinstance(record, RegisterControllerRecord):
            continue
        if without_brokers and isinstance(record, RegisterBrokerRecord):
            continue
        if without_brokers and isinstance(record, PartitionRecord):
            known = partition_of(record)
            led = known.replace(
                leader=NO_LEADER,
                leader_epoch=known.leader_epoch + 1,
                partition_epoch=known.partition_epoch + 1,
                directories=[UNASSIGNED_DIRECTORY] * len(known.replicas),
            )
            made = partition_record(record.topic_id, record.partition_id, led, version)
            yield encode_metadata_record(made, record_version)
            continue
        yield encode_metadata_record(record, record_version)
