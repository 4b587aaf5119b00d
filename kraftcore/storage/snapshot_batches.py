"""The content of a snapshot: record batches numbered from offset 0. Source: KIP-630, KIP-853; Kafka 4.3.1.

The first is a control batch that begins with SnapshotHeader, followed there by KRaftVersion and KRaftVoters when
kraft.version is at least 1; then data batches of at most 8 MiB; the last is a control batch with SnapshotFooter alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kraftcore.core.batch import RecordBatch, build_batch, build_records_batch, validate_batch
from kraftcore.core.batch.layout import HEADER_BYTES
from kraftcore.core.disk.files import File
from kraftcore.errors import (
    ClosedError,
    CorruptBatchError,
    CorruptDataError,
    LocalError,
    RemoteProtocolError,
    StorageError,
)
from kraftcore.protocol.control import (
    ControlRecord,
    ControlRecordType,
    decode_control_record,
    kraft_version,
    kraft_voters,
    snapshot_footer,
    snapshot_header,
)
from kraftcore.protocol.data.kraft_version_record import KRaftVersionRecord
from kraftcore.protocol.data.snapshot_header_record import SnapshotHeaderRecord
from kraftcore.protocol.data.voters_record import VotersRecord
from kraftcore.storage.closing import Closing
from kraftcore.storage.snapshots import RawSnapshotReader, RawSnapshotWriter

BATCH_BYTES_MAX = 8 * 1024 * 1024

_READ_BYTES = 1 << 20
_LENGTH_END = 12  # a batch's base offset and length
_RECORD_OVERHEAD = 16  # at most, around a value without key and headers


class SnapshotWriter(Closing):
    """Writes records into a snapshot, one batch at a time: memory stays below two batches.

    Also a context manager: leaving it unfrozen discards the snapshot.

    Args:
        raw: where the bytes go; nothing may have been written to it.
        now_ms: time of the first batch, milliseconds since 1970.
        last_contained_log_timestamp_ms: append time of the last record in the log that the snapshot covers.
        kraft_version: in force at the snapshot's end.
        voters: the voter set in force there; None if unknown. Only with ``kraft_version`` >= 1.
        batch_bytes_max: most bytes of a data batch.

    Raises:
        LocalError: ``raw`` is not empty, or voters without ``kraft_version``.
        StorageError: the disk failed.
    """

    def __init__(
        self,
        raw: RawSnapshotWriter,
        *,
        now_ms: int,
        last_contained_log_timestamp_ms: int = 0,
        kraft_version: int = 0,
        voters: Iterable[VotersRecord.Voter] | None = None,
        batch_bytes_max: int = BATCH_BYTES_MAX,
    ) -> None:
        if raw.size:
            raise LocalError(f"snapshot {raw.id.file_name} has {raw.size} bytes already: start with an empty one")
        self.raw = raw
        self._batches = BatchSequence(raw.id.epoch, batch_bytes_max)
        raw.append(self._batches.header(now_ms, last_contained_log_timestamp_ms, kraft_version, voters))

    def append(self, values: Iterable[bytes], now_ms: int) -> None:
        """Add data records.

        Args:
            values: one record each, framed as in the log. Readers do not depend on how they are split into batches.
            now_ms: milliseconds since 1970, the time of a batch that begins with them.

        Raises:
            LocalError: a value does not fit a batch; ClosedError when frozen or closed.
            StorageError: the disk failed: close the writer, there is no snapshot.
        """
        if self.raw.is_frozen:
            raise ClosedError(f"snapshot {self.raw.id.file_name} is frozen")
        for value in values:
            full = self._batches.add(value, now_ms)
            if full is not None:
                self._write(full)

    def append_numbered(
        self, value: bytes, timestamp_ms: int, producer_id: int, sequence: int, producer_epoch: int = 0
    ) -> None:
        """Add a data record as a batch of its own, with a producer's id, sequence and epoch in its header.

        Raises:
            LocalError, StorageError: see ``append``.
        """
        if self.raw.is_frozen:
            raise ClosedError(f"snapshot {self.raw.id.file_name} is frozen")
        for batch in self._batches.add_numbered(value, timestamp_ms, producer_id, sequence, producer_epoch):
            self._write(batch)

    def freeze(self, now_ms: int) -> None:
        """Write the footer, make the snapshot durable and give it its name.

        Raises:
            LocalError, StorageError: see ``RawSnapshotWriter.freeze``.
        """
        for data in self._batches.finish(now_ms):
            self._write(data)
        self.raw.freeze()

    def _write(self, batch: bytearray) -> None:
        try:
            self.raw.append(batch)
        except StorageError:
            self.raw.close()  # the batch's records are lost: frozen later, the snapshot would lack them
            raise

    def close(self) -> None:
        """Discard the snapshot, unless it is frozen. Idempotent."""
        self.raw.close()


class BatchSequence:
    """Builds the batches of a snapshot, in order; the caller writes them."""

    def __init__(self, epoch: int, batch_bytes_max: int = BATCH_BYTES_MAX) -> None:
        self._epoch = epoch
        self._bytes_max = batch_bytes_max
        self._next_offset = 0
        self._values: list[bytes] = []
        self._bytes = 0
        self._timestamp_ms = 0

    def header(
        self,
        now_ms: int,
        last_contained_log_timestamp_ms: int,
        level: int,
        voters: Iterable[VotersRecord.Voter] | None,
    ) -> bytearray:
        """The first batch."""
        records = [snapshot_header(last_contained_log_timestamp_ms)]
        if level > 0:
            records.append(kraft_version(level))
            if voters is not None:
                records.append(kraft_voters(voters))
        elif voters is not None:
            raise LocalError("a snapshot has a voter set only from kraft.version 1 on")
        return self._control(records, now_ms)

    def add(self, value: bytes, now_ms: int) -> bytearray | None:
        """Add a value; if it does not fit the present batch, that batch is ended and returned."""
        size = len(value) + _RECORD_OVERHEAD
        if size + HEADER_BYTES > self._bytes_max:
            raise LocalError(f"a record of {len(value)} bytes does not fit a batch of {self._bytes_max}")
        full = self._flush() if self._values and self._bytes + size > self._bytes_max else None
        if not self._values:
            self._timestamp_ms = now_ms
            self._bytes = HEADER_BYTES
        self._values.append(value)
        self._bytes += size
        return full

    def add_numbered(
        self, value: bytes, timestamp_ms: int, producer_id: int, sequence: int, producer_epoch: int
    ) -> Iterator[bytearray]:
        """Return the present batch, if it has values, then a producer's batch."""
        if self._values:
            yield self._flush()
        batch = build_batch(
            (value,),
            timestamp_ms=timestamp_ms,
            base_offset=self._next_offset,
            leader_epoch=self._epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        self._next_offset += 1
        yield batch

    def finish(self, now_ms: int) -> Iterator[bytearray]:
        """The last batches."""
        if self._values:
            yield self._flush()
        yield self._control([snapshot_footer()], now_ms)

    def _flush(self) -> bytearray:
        batch = build_batch(
            self._values,
            timestamp_ms=self._timestamp_ms,
            base_offset=self._next_offset,
            leader_epoch=self._epoch,
        )
        self._next_offset += len(self._values)
        self._values = []
        return batch

    def _control(self, records: list[tuple[bytes, bytes]], now_ms: int) -> bytearray:
        batch = build_records_batch(
            records, timestamp_ms=now_ms, base_offset=self._next_offset, leader_epoch=self._epoch, control=True
        )
        self._next_offset += len(records)
        return batch


class SnapshotReader(Closing):
    """Reads a snapshot's records; memory stays at the size of the largest batch, at least 1 MiB.

    Args:
        raw: an open snapshot; closed by ``close``.

    Attributes:
        last_contained_log_timestamp_ms: from the header.
        kraft_version: 0 if the snapshot names none.
        voters: the voter set, or None.

    Raises:
        CorruptDataError: the first batch is damaged, or not that of a snapshot.
        StorageError: the disk failed.
    """

    def __init__(self, raw: RawSnapshotReader) -> None:
        self.raw = raw
        self.last_contained_log_timestamp_ms = 0
        self.kraft_version = 0
        self.voters: tuple[VotersRecord.Voter, ...] | None = None
        self._path = raw.file.path
        _, first = next(read_batches(raw.file), (0, None))
        if first is None or not first.is_control:
            raise CorruptDataError("does not begin with a control batch", position=0, path=self._path)
        types = [record.type for record in self._control_records(0, first)]
        if not types or types[0] != ControlRecordType.SNAPSHOT_HEADER:
            raise CorruptDataError("does not begin with a SnapshotHeader", position=0, path=self._path)

    def batches(self) -> Iterator[RecordBatch]:
        """The data batches, in order. Each time from the start.

        Raises:
            CorruptDataError: a damaged batch, bytes after the footer, or no footer: the snapshot is incomplete.
            StorageError: the disk failed.
        """
        ended = False
        for position, batch in read_batches(self.raw.file):
            if ended:
                raise CorruptDataError("holds a batch after the SnapshotFooter", position=position, path=self._path)
            if not batch.is_control:
                yield batch
            elif any(
                record.type == ControlRecordType.SNAPSHOT_FOOTER for record in self._control_records(position, batch)
            ):
                ended = True
        if not ended:
            raise CorruptDataError("ends without a SnapshotFooter", position=self.raw.size, path=self._path)

    def values(self) -> Iterator[bytes | None]:
        """The values of all data records, in order; errors as ``batches``."""
        for batch in self.batches():
            yield from batch.values()

    def close(self) -> None:
        """Release the file. Idempotent."""
        self.raw.close()

    def _control_records(self, position: int, batch: RecordBatch) -> list[ControlRecord]:
        try:
            records = [decode_control_record(record.key, record.value) for record in batch]
        except CorruptBatchError:
            raise
        except RemoteProtocolError as error:
            raise CorruptDataError(f"bad control record: {error}", position=position, path=self._path) from None
        for record in records:
            if isinstance(record.body, SnapshotHeaderRecord):
                self.last_contained_log_timestamp_ms = record.body.last_contained_log_timestamp
            elif isinstance(record.body, KRaftVersionRecord):
                self.kraft_version = record.body.kraft_version
            elif isinstance(record.body, VotersRecord):
                self.voters = tuple(record.body.voters)
        return records


def verify_snapshot(raw: RawSnapshotReader) -> int:
    """Check a snapshot in full, before a received one is frozen: header, every checksum and record, footer.

    Returns:
        The number of data records.

    Raises:
        CorruptDataError: the first fault.
        StorageError: the disk failed.
    """
    count = 0
    for batch in SnapshotReader(raw).batches():
        validate_batch(batch.raw)
        count += batch.count
    return count


def read_batches(file: File) -> Iterator[tuple[int, RecordBatch]]:
    """Every batch of a file of batches, checksums compared, with its position in the file.

    Raises:
        CorruptBatchError: a batch is damaged or cut short; with the position in the file, and its path.
        StorageError: the disk failed.
    """
    size = file.size()
    position = start = 0  # of the next batch, and of `data`, in the file
    data = b""
    while position < size:
        at = position - start
        need = _batch_bytes(data, at)
        if at + need > len(data):
            start, at = position, 0
            data = file.read_at(start, _READ_BYTES)
            need = _batch_bytes(data, 0)
            if len(data) < need <= size - start:  # a length beyond the file is refused by RecordBatch below
                data = file.read_at(start, need)
        try:
            batch = RecordBatch(data, at)
        except CorruptBatchError as error:
            raise CorruptBatchError(
                error.reason, position=start + error.position, path=file.path, found=error.found, wanted=error.wanted
            ) from None
        yield position, batch
        position += batch.size


def _batch_bytes(data: bytes, at: int) -> int:
    # The size that the batch at `at` claims; or the bytes needed to read it, if `data` ends before.
    if at + _LENGTH_END > len(data):
        return _LENGTH_END
    return max(int.from_bytes(data[at + 8 : at + _LENGTH_END], signed=True), 0) + _LENGTH_END


def verify_and_close(raw: RawSnapshotReader) -> None:
    """Check a snapshot as `verify_snapshot` does, and close the reader."""
    with raw:
        verify_snapshot(raw)
