"""Formats a controller's metadata directory so that its log begins with a given state: what a backup is restored by.

The old quorum may have gone on after the backup, and nodes that were not restored, as brokers, may hold what it wrote.
So the new quorum's leader epochs begin far above the old ones. A log that ends in an epoch below that of the leader's
earliest snapshot is replaced by the snapshot (KIP-630), with its voters; were the epochs the same, other records with
the same offsets and epochs would count as the leader's own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from kraftcore.core.disk.files import Files
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.protocol.election_state import EPOCH_MAX
from kraftcore.protocol.topics import METADATA_TOPIC
from kraftcore.storage.format import FormatPlan, format_directory, voters_of
from kraftcore.storage.meta_properties import MetaProperties, read_meta_properties
from kraftcore.storage.snapshot_batches import SnapshotWriter
from kraftcore.storage.snapshots import BOOTSTRAP_SNAPSHOT_ID, SUFFIX, SnapshotId, SnapshotStore, parse_name

EPOCHS_AHEAD = 1_000_000
"""Leader epochs between a backup and the quorum that begins with it: more than elections after the backup."""


def restored_id(backup: SnapshotId) -> SnapshotId:
    """The id of the snapshot with which the log of a restored quorum begins.

    Raises:
        LocalError: there are no leader epochs left.
    """
    epoch = backup.epoch + EPOCHS_AHEAD
    if epoch >= EPOCH_MAX:
        raise LocalError(f"leader epoch {backup.epoch} of the backup is too high to begin another quorum above it")
    return SnapshotId(backup.end_offset, epoch)


def restore_directory(
    files: Files,
    folder: str,
    plan: FormatPlan,
    values: Iterable[bytes],
    snapshot_id: SnapshotId,
    timestamp_ms: int,
    *,
    used: Iterable[Uuid] = (),
) -> MetaProperties:
    """Format a metadata directory, with a snapshot in it; a missing directory is made.

    Two nodes that are given the same get the same snapshot, byte for byte. Interrupted, it can be run again.

    Args:
        files: where the directory is.
        folder: the directory, neither formatted nor with a log in it.
        plan: see ``plan_format``; its voters are the quorum's.
        values: the records of the state.
        snapshot_id: see `restored_id`; the log goes on from there.
        timestamp_ms: of the last record, milliseconds since 1970.
        used: directory ids of the node's other directories, not to be drawn again.

    Returns:
        The content of the new ``meta.properties``.

    Raises:
        LocalError: the directory is formatted already, or holds a log; nothing was changed.
        StorageError: the disk failed; the directory does not count as formatted.
    """
    if read_meta_properties(files, folder) is not None:
        raise LocalError(f"{folder} is formatted already: restore into an empty directory")
    partition = os.path.join(folder, f"{METADATA_TOPIC}-0")
    _clear_interrupted(files, partition, snapshot_id)
    files.make_folder(folder)
    store = SnapshotStore(files, partition)
    with SnapshotWriter(
        store.create(snapshot_id),
        now_ms=timestamp_ms,
        last_contained_log_timestamp_ms=timestamp_ms,
        kraft_version=plan.kraft_version,
        voters=voters_of(plan) if plan.voters is not None else None,
    ) as writer:
        writer.append(values, timestamp_ms)
        writer.freeze(timestamp_ms)
    return format_directory(files, folder, plan, used=used)


def _clear_interrupted(files: Files, partition: str, snapshot_id: SnapshotId) -> None:
    if not files.exists(partition):
        return
    for name in files.list_folder(partition):
        found = parse_name(name)
        if name.endswith(".log") or (
            found is not None and found.suffix == SUFFIX and found.id not in (snapshot_id, BOOTSTRAP_SNAPSHOT_ID)
        ):
            raise LocalError(f"{partition} holds a log ({name}): restore into an empty directory")
    path = os.path.join(partition, snapshot_id.file_name)
    if files.exists(path):
        files.unlink(path)
