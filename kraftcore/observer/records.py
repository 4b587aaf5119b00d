"""Records as an observer hands them out: decoded, or as they are with a note why not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraftcore.core.batch import Record, RecordBatch
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import CorruptDataError, RemoteProtocolError
from kraftcore.protocol.control import decode_control_record
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.storage.snapshot_batches import SnapshotReader
from kraftcore.storage.snapshots import SnapshotId, SnapshotStore


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything below ``end_offset``, in place of whatever was handed out before.

    Attributes:
        end_offset: the log goes on from here.
        epoch: leader epoch of the last record in it.
    """

    end_offset: int
    epoch: int
    _store: SnapshotStore

    def open(self) -> SnapshotReader:
        """Read it; the caller closes the reader. At once: a newer snapshot may replace it later.

        Raises:
            LocalError: a newer one did.
            StorageError: the file cannot be opened.
        """
        return SnapshotReader(self._store.open(SnapshotId(self.end_offset, self.epoch)))


@dataclass(frozen=True, slots=True)
class ObservedRecord:
    """One committed record.

    Attributes:
        offset: in the log; of a record in a snapshot its number there.
        epoch: leader epoch of its batch.
        timestamp_ms: when the leader wrote it, milliseconds since 1970.
        snapshot: the snapshot it came in, or None.
        is_control: whether the quorum wrote it for itself.
        type: class name, for example ``TopicRecord``; empty if ``data`` is None.
        version: of the record; -1 if ``data`` is None.
        data: the typed record (``kraftcore.protocol.records``, ``kraftcore.protocol.data``), or None: the log is not
            cluster metadata, or the record cannot be decoded.
        key: bytes, or None.
        value: bytes, or None.
        note: why it could not be decoded, or empty.
    """

    offset: int
    epoch: int
    timestamp_ms: int
    snapshot: SnapshotId | None
    is_control: bool
    type: str
    version: int
    data: Struct | None
    key: bytes | None
    value: bytes | None
    note: str


def observed_records(
    batch: RecordBatch, *, decode: bool, from_offset: int = 0, snapshot: SnapshotId | None = None
) -> Iterator[ObservedRecord]:
    """Take a batch apart.

    Args:
        batch: from a log or snapshot.
        decode: values are cluster metadata; control records are decoded in any case.
        from_offset: leave out what is below.
        snapshot: where the batch came from.
    """
    records: list[Record] = []
    bad: ObservedRecord | None = None
    try:
        records.extend(batch)
    except CorruptDataError as error:  # its checksum was right: the leader wrote it so
        note = f"the rest of the batch cannot be read: {error}"
        at = batch.base_offset + len(records)
        bad = ObservedRecord(at, batch.leader_epoch, -1, snapshot, batch.is_control, "", -1, None, None, None, note)
    for record in records:
        if record.offset >= from_offset or snapshot is not None:
            yield _observed(batch, record, decode, snapshot)
    if bad is not None:
        yield bad


def _observed(batch: RecordBatch, record: Record, decode: bool, snapshot: SnapshotId | None) -> ObservedRecord:
    data: Struct | None = None
    version, note = -1, ""
    key, value = record.key, record.value
    try:
        if batch.is_control:
            control = decode_control_record(key, value)
            data, version = control.body, control.version
            note = "" if data is not None else f"control record type {control.type} is not known"
        elif decode:
            data, version = decode_metadata_record(value or b"")
    except RemoteProtocolError as error:
        note = str(error)
    return ObservedRecord(
        record.offset,
        batch.leader_epoch,
        record.timestamp_ms,
        snapshot,
        batch.is_control,
        "" if data is None else type(data).__name__,
        version,
        data,
        key,
        value,
        note,
    )
