"""The files that ``format`` leaves for the first leader: ``bootstrap.checkpoint`` and the 0-0 checkpoint.

``bootstrap.checkpoint`` lies in every log directory and holds the records (feature levels, SCRAM credentials) that the
first leader writes into an empty log. The 0-0 checkpoint lies in the metadata partition's folder and holds the voters
that the quorum was formatted with (KIP-853). Source: Kafka 4.3.1, BootstrapDirectory and Formatter.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable

from kraftcore.core.disk.files import Files
from kraftcore.errors import LocalError, StorageError
from kraftcore.protocol.data.voters_record import VotersRecord
from kraftcore.storage.snapshot_batches import BatchSequence, SnapshotReader, SnapshotWriter
from kraftcore.storage.snapshots import BOOTSTRAP_SNAPSHOT_ID, RawSnapshotReader, SnapshotStore

BOOTSTRAP_CHECKPOINT = "bootstrap.checkpoint"


def read_bootstrap_checkpoint(files: Files, folder: str) -> tuple[bytes, ...] | None:
    """The values of the bootstrap records, in order.

    Returns:
        None if there is no such file: the first leader then starts with the latest metadata.version.

    Raises:
        CorruptDataError: the file is damaged.
        StorageError: the file cannot be read.
    """
    try:
        file = files.open(os.path.join(folder, BOOTSTRAP_CHECKPOINT), read_only=True)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return None
        raise
    with SnapshotReader(RawSnapshotReader(BOOTSTRAP_SNAPSHOT_ID, file)) as reader:
        return tuple(value for value in reader.values() if value is not None)


def write_bootstrap_checkpoint(files: Files, folder: str, values: Iterable[bytes], clock_ms: Callable[[], int]) -> None:
    """Write ``bootstrap.checkpoint``, durably and atomically.

    Args:
        files: where the folder is.
        folder: a log directory.
        values: framed metadata records.
        clock_ms: milliseconds since 1970; asked once per batch, as Kafka does.

    Raises:
        LocalError: a record is larger than a batch may be.
        StorageError: the old file, if any, is still there.
    """
    batches = BatchSequence(BOOTSTRAP_SNAPSHOT_ID.epoch)
    content = batches.header(clock_ms(), 0, 0, None)
    chosen = list(values)
    now_ms = clock_ms() if chosen else 0
    for value in chosen:
        content += batches.add(value, now_ms) or b""
    for batch in batches.finish(clock_ms()):
        content += batch
    files.replace_file(os.path.join(folder, BOOTSTRAP_CHECKPOINT), content)


def begun_store(files: Files, folder: str) -> SnapshotStore:
    """Open the snapshots of a new log, and remove the 0-0 checkpoint of an interrupted formatting.

    Args:
        files: where the log's folder is.
        folder: of the log; its directory has no ``meta.properties`` yet.

    Raises:
        StorageError: the disk failed.
    """
    store = SnapshotStore(files, folder)
    if BOOTSTRAP_SNAPSHOT_ID not in store:
        return store
    files.unlink(store.path(BOOTSTRAP_SNAPSHOT_ID))
    return SnapshotStore(files, folder)


def write_initial_voters(
    store: SnapshotStore,
    voters: Iterable[VotersRecord.Voter],
    clock_ms: Callable[[], int],
    *,
    kraft_version: int = 1,
) -> None:
    """Write the 0-0 checkpoint with a quorum's first voter set.

    Args:
        store: the metadata partition's snapshots.
        voters: at least one.
        clock_ms: milliseconds since 1970; asked for the header's own time and once per batch, as Kafka does.
        kraft_version: >= 1.

    Raises:
        LocalError: no voters, or the checkpoint exists already.
        StorageError: the disk failed; there is no checkpoint.
    """
    chosen = tuple(voters)
    if not chosen:
        raise LocalError("a quorum needs at least one initial voter")
    timestamp_ms = clock_ms()
    with SnapshotWriter(
        store.create(BOOTSTRAP_SNAPSHOT_ID),
        now_ms=clock_ms(),
        last_contained_log_timestamp_ms=timestamp_ms,
        kraft_version=kraft_version,
        voters=chosen,
    ) as writer:
        writer.freeze(clock_ms())
