"""Formats a controller's metadata directory so that its log begins with a given state: what a backup is restored by."""

from __future__ import annotations

import os
from collections.abc import Iterable

from kraftcore.core.disk.files import Files
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError
from kraftcore.protocol.topics import METADATA_TOPIC
from kraftcore.storage.format import FormatPlan, format_directory, voters_of
from kraftcore.storage.meta_properties import MetaProperties, read_meta_properties
from kraftcore.storage.snapshot_batches import SnapshotWriter
from kraftcore.storage.snapshots import BOOTSTRAP_SNAPSHOT_ID, SUFFIX, SnapshotId, SnapshotStore, parse_name


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
        snapshot_id: the log goes on from there.
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
