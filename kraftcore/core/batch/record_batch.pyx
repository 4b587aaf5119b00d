"""Record batches, magic 2: read, check, stamp. build.pyx makes them; header.pxd and record.pxd show the bytes.

Reading is lazy and copies nothing but the keys and values asked for: a ``RecordBatch`` is a view into the caller's
bytes, which it keeps alive and, if they are a bytearray, locks against resizing. If those bytes are changed meanwhile,
other records or a ``CorruptBatchError`` result, but never a read outside the bytes.

Two depths of checking. ``RecordBatch(...)`` checks the header and the checksum, as Kafka does before it appends;
``validate_batch`` also walks every record. Iterating always checks what it walks over.
"""

from enum import IntEnum
from types import GenericAlias

cimport cython
from cpython.buffer cimport PyBUF_WRITABLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kraftcore.core.batch.build cimport KEEP_OFFSETS, encode_records
from kraftcore.core.bytes cimport store_int16, store_int64, store_uint32
from kraftcore.core.batch.check cimport acquire, corrupt_batch, decompress_records
from kraftcore.core.batch.header cimport (
    ATTRIBUTES_POSITION, BATCH_CODEC, BATCH_CRC, BATCH_HEADER_SIZE, BATCH_OFFSET, BATCH_OK, BATCH_SHORT,
    BATCH_TRAILING, CODEC_MAX, COMPRESSION_MASK, CONTROL, CRC_POSITION, DELETE_HORIZON, LONG_WORK, SIZE_MAX,
    TIMESTAMP_LOG_APPEND, TRANSACTIONAL, BatchFault, BatchHeader, batch_crc, crc_matches, read_header, stamp_header,
    write_header,
)
from kraftcore.core.batch.record cimport (
    FaultPlace, RecordView, add_wrapping, check_count, check_order, check_span, make_record, scan_record,
)

from kraftcore.core.batch.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Compression
from kraftcore.errors import CorruptBatchError, LocalError

__all__ = ["RecordBatch", "TimestampType", "iter_batches", "stamp_batch", "validate_batch"]

cdef int64_t DEFAULT_LIMIT = DEFAULT_MAX_DECOMPRESSED_BYTES
cdef object COMPRESSIONS = tuple(Compression)


class TimestampType(IntEnum):
    """Whether timestamps are of the producer's clock or the leader's (attributes bit 3)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


cdef object BY_CREATE = TimestampType.CREATE_TIME
cdef object BY_APPEND = TimestampType.LOG_APPEND_TIME

# The header of a RecordBatch that was made without bytes: valid, no records.
cdef uint8_t EMPTY_BATCH[BATCH_HEADER_SIZE]
cdef BatchHeader EMPTY_HEADER


cdef void fill_empty() noexcept:
    EMPTY_HEADER.size = BATCH_HEADER_SIZE
    EMPTY_HEADER.leader_epoch = -1
    EMPTY_HEADER.producer_id = EMPTY_HEADER.producer_epoch = EMPTY_HEADER.base_sequence = -1
    write_header(EMPTY_BATCH, &EMPTY_HEADER)
    read_header(EMPTY_BATCH, BATCH_HEADER_SIZE, &EMPTY_HEADER)


fill_empty()


# ---- reading --------------------------------------------------------------------------------------------------------

cdef inline int32_t add_sequence(int32_t sequence, int32_t delta) noexcept nogil:
    # Sequence numbers wrap to 0 after 2**31 - 1. Source: DefaultRecordBatch.incrementSequence.
    return <int32_t>((<int64_t>sequence + delta) & SIZE_MAX)


cdef int open_batch(
    RecordBatch batch, object owner, const uint8_t *p, int64_t available, int64_t position, bint verify,
    int64_t max_bytes,
) except -1:
    cdef BatchHeader header
    cdef bint matches
    cdef BatchFault fault = read_header(p, available, &header)
    if fault == BATCH_OK and verify:
        if header.size < LONG_WORK:
            matches = crc_matches(p, &header)
        else:
            with nogil:
                matches = crc_matches(p, &header)
        if not matches:
            fault = BATCH_CRC
    if fault != BATCH_OK:
        raise corrupt_batch(fault, p, available, position, NULL)
    batch.owner = owner
    batch.p = p
    batch.header = header
    batch.position = position
    batch.plain = None
    batch.max_bytes = max_bytes
    return 0


@cython.final
@cython.no_gc
@cython.freelist(64)
cdef class RecordBatch:
    """One record batch: a read-only view into the bytes it was given. Itself a bytes-like object.

    Iterating yields its ``Record`` objects in offset order, and raises ``CorruptBatchError`` at the first that is
    damaged. A compressed batch is decompressed at the first use of its records; the result is kept.

    Args:
        data: bytes-like object that holds the batch; kept alive, not copied.
        position: where in ``data`` the batch starts.
        verify: compare the checksum now. If False, ``is_valid`` does it on request.
        max_decompressed_bytes: most bytes that a compressed batch may decompress to.
    Raises:
        CorruptBatchError: not a whole magic-2 batch, or the checksum differs; its position counts from the start
            of ``data``.
        LocalError: ``position`` is outside ``data``.

    Accepted, because Kafka writes or accepts it: offset gaps and a last offset beyond the last record (compaction),
    no records at all, unknown attribute bits 7 to 15.

    For type checkers each record of a ``RecordBatch[bytes]``, as state machines get, has a value; a record of a
    ``RecordBatch[bytes | None]`` may have none.
    """

    def __class_getitem__(cls, item):
        return GenericAlias(cls, item)

    def __cinit__(self):
        self.p = EMPTY_BATCH
        self.header = EMPTY_HEADER

    def __init__(self, data, Py_ssize_t position=0, *, bint verify=True, int64_t max_decompressed_bytes=DEFAULT_LIMIT):
        cdef int64_t size = 0
        cdef const uint8_t *p = NULL
        cdef object owner = acquire(data, &p, &size)
        if position < 0 or position > size:
            raise LocalError(f"position {position} is outside 0 to {size}")
        open_batch(self, owner, p + position, size - position, position, verify, max_decompressed_bytes)

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>self.p, self.header.size, 1, flags)

    @property
    def base_offset(self):
        """Offset of the first record, or of the one that was the first before compaction."""
        return self.header.base_offset

    @property
    def last_offset(self):
        """Offset of the last record, inclusive; stays when compaction removes that record."""
        return self.header.last_offset

    @property
    def next_offset(self):
        """The offset after this batch."""
        return self.header.last_offset + 1

    @property
    def leader_epoch(self):
        """Epoch of the leader that appended the batch; -1 before that."""
        return self.header.leader_epoch

    @property
    def crc(self):
        """The stored CRC-32C, unsigned."""
        return self.header.crc

    @property
    def is_valid(self):
        """Whether the stored checksum matches the bytes."""
        return crc_matches(self.p, &self.header)

    @property
    def attributes(self):
        """All 16 attribute bits, signed as stored."""
        return self.header.attributes

    @property
    def compression(self):
        """The codec, a ``Compression``; the plain number for the unassigned codes 5 to 7."""
        cdef int codec = self.header.attributes & COMPRESSION_MASK
        return COMPRESSIONS[codec] if codec <= CODEC_MAX else codec

    @property
    def timestamp_type(self):
        """``TimestampType.CREATE_TIME`` or ``LOG_APPEND_TIME``."""
        return BY_APPEND if self.header.attributes & TIMESTAMP_LOG_APPEND else BY_CREATE

    @property
    def is_transactional(self):
        """Whether a transactional producer wrote it."""
        return bool(self.header.attributes & TRANSACTIONAL)

    @property
    def is_control(self):
        """Whether its records are control records."""
        return bool(self.header.attributes & CONTROL)

    @property
    def delete_horizon_ms(self):
        """When compaction may drop the tombstones in this batch, or None (KIP-534)."""
        return self.header.base_timestamp if self.header.attributes & DELETE_HORIZON else None

    @property
    def base_timestamp_ms(self):
        """The base of the records' timestamp deltas: the first record's timestamp, or the delete horizon."""
        return self.header.base_timestamp

    @property
    def max_timestamp_ms(self):
        """Largest timestamp of the records; with log append time, the timestamp of every record."""
        return self.header.max_timestamp

    @property
    def producer_id(self):
        """The idempotent producer's id; -1 without one."""
        return self.header.producer_id

    @property
    def producer_epoch(self):
        """The idempotent producer's epoch; -1 without one."""
        return self.header.producer_epoch

    @property
    def base_sequence(self):
        """Sequence number of the first record, or -1."""
        return self.header.base_sequence

    @property
    def last_sequence(self):
        """Sequence number of the last record, or -1. Wraps to 0 after 2**31 - 1."""
        if self.header.base_sequence == -1:
            return -1
        return add_sequence(self.header.base_sequence, self.header.last_offset_delta)

    @property
    def last_offset_delta(self):
        """Last offset minus base offset, as stored."""
        return self.header.last_offset_delta

    @property
    def count(self):
        """Number of records, as the header says."""
        return self.header.count

    @property
    def size(self):
        """Bytes of the whole batch, header included."""
        return self.header.size

    @property
    def decompressed(self):
        """Bytes of a compressed batch's decompressed records; 0 before their first use."""
        return 0 if self.plain is None else PyBytes_GET_SIZE(self.plain)

    @property
    def raw(self):
        """The batch's bytes, a read-only memoryview without a copy."""
        return memoryview(self)

    def __len__(self):
        return self.header.count

    def to_bytes(self):
        """A copy of the batch's bytes."""
        return PyBytes_FromStringAndSize(<const char *>self.p, self.header.size)

    def values(self):
        """The values of all records, in order, as a list of bytes (None for a null value).

        Raises:
            CorruptBatchError: a record is damaged, or their number differs from ``count``.
        """
        cdef int64_t size = 0
        cdef const uint8_t *p = self.records(&size)
        cdef const uint8_t *start = p
        cdef const uint8_t *end = p + size
        cdef int32_t i, previous = -1
        cdef RecordView view
        cdef list result = []
        self.begin(size)
        for i in range(self.header.count):
            p = self.step(start, p, end, i, previous, &view)
            previous = view.offset_delta
            if view.value_size >= 0:
                result.append(PyBytes_FromStringAndSize(<const char *>view.value, view.value_size))
            else:
                result.append(None)
        return result

    def find_timestamp(self, int64_t timestamp_ms, int64_t from_offset=0):
        """The first record at or after a time, without an object per record; the GIL is released meanwhile.

        Args:
            timestamp_ms: the time.
            from_offset: records below this offset are passed over.
        Returns:
            (offset, timestamp), or None.
        Raises:
            CorruptBatchError: a record up to the result is damaged, or the number of records differs from ``count``.
        """
        cdef int64_t size = 0, time = -1
        cdef const uint8_t *p = self.records(&size)
        cdef const uint8_t *start = p
        cdef const uint8_t *end = p + size
        cdef int32_t i, previous = -1
        cdef bint found = False, bad = False
        cdef RecordView view
        cdef FaultPlace place
        self.begin(size)
        with nogil:
            for i in range(self.header.count):
                bad = (
                    scan_record(start, p, end, &view, &place) != BATCH_OK
                    or check_order(previous, &view, self.header.last_offset_delta, &place) != BATCH_OK
                    or (view.end != end and i == self.header.count - 1)
                )
                if bad:
                    break
                time = add_wrapping(self.header.base_timestamp, view.timestamp_delta)
                if self.header.attributes & TIMESTAMP_LOG_APPEND:
                    time = self.header.max_timestamp
                previous = view.offset_delta
                found = time >= timestamp_ms and self.header.base_offset + previous >= from_offset
                if found:
                    break
                p = view.end
        if bad:
            self.step(start, p, end, i, previous, &view)  # raises
        return (self.header.base_offset + previous, time) if found else None

    def __iter__(self):
        cdef RecordIterator iterator = RecordIterator.__new__(RecordIterator)
        cdef int64_t size = 0
        iterator.p = iterator.start = self.records(&size)
        iterator.end = iterator.p + size
        self.begin(size)
        iterator.batch = self
        iterator.plain = self.plain
        iterator.previous = -1
        iterator.count = self.header.count
        return iterator

    def rebuild(self, records=None, *, level=None):
        """Encode the batch anew: same header, records and offsets.

        Args:
            records: the ``Record`` objects to keep, a part of this batch's in their order, as compaction does;
                None for all. Offsets stay, the last offset and the sequence numbers of the batch too.
            level: compression level, see ``build_batch``.
        Returns:
            A fresh bytearray, for an uncompressed batch of canonical encoding identical to ``to_bytes()``.
        Raises:
            CorruptBatchError: a record of this batch is damaged.
            LocalError: a record's offset is outside base and last offset, or offsets do not rise.
        """
        cdef BatchHeader header = self.header
        cdef list kept = list(self if records is None else records)
        if header.attributes & COMPRESSION_MASK > CODEC_MAX:
            raise self.fault(BATCH_CODEC, NULL)
        return encode_records(kept, &header, KEEP_OFFSETS, level, -1)

    def __repr__(self):
        return (
            f"RecordBatch(offsets={self.header.base_offset}..{self.header.last_offset}, "
            f"leader_epoch={self.header.leader_epoch}, count={self.header.count}, size={self.header.size}, "
            f"compression={self.compression!s}, is_control={self.is_control})"
        )

    cdef const uint8_t *records(self, int64_t *size) except NULL:
        # The uncompressed records.
        if self.plain is None:
            if not self.header.attributes & COMPRESSION_MASK:
                size[0] = self.header.size - BATCH_HEADER_SIZE
                return self.p + BATCH_HEADER_SIZE
            self.plain = decompress_records(self.p, &self.header, self.position, self.max_bytes)
        size[0] = PyBytes_GET_SIZE(self.plain)
        return <const uint8_t *>PyBytes_AS_STRING(self.plain)

    cdef object fault(self, BatchFault fault, const FaultPlace *place):
        return corrupt_batch(fault, self.p, self.header.size, self.position, place)

    cdef int begin(self, int64_t size) except -1:
        # Checks `size` bytes of records as far as possible before the first one is read.
        cdef FaultPlace place
        cdef BatchFault fault
        fault = check_count(size, self.header.count, self.header.last_offset_delta, &place)
        if self.header.count == 0 and size > 0:
            fault = BATCH_TRAILING
            place.record = -1
            place.at = 0
            place.found = size
            place.wanted = 0
        if fault != BATCH_OK:
            raise self.fault(fault, &place)
        return 0

    cdef const uint8_t *step(
        self, const uint8_t *start, const uint8_t *p, const uint8_t *end, int32_t index, int32_t previous,
        RecordView *view
    ) except NULL:
        # Checks record `index` at `p`, and that nothing follows the last; the position after it.
        cdef FaultPlace place
        cdef BatchFault fault = scan_record(start, p, end, view, &place)
        if fault == BATCH_OK:
            fault = check_order(previous, view, self.header.last_offset_delta, &place)
            if fault != BATCH_OK:
                place.at = p - start
            elif view.end != end and index == self.header.count - 1:
                fault = BATCH_TRAILING
                place.at = view.end - start
                place.found = end - view.end
                place.wanted = 0
                index = -1
        if fault != BATCH_OK:
            place.record = index
            raise self.fault(fault, &place)
        return view.end


@cython.final
@cython.no_gc
@cython.internal
@cython.freelist(16)
cdef class RecordIterator:
    cdef RecordBatch batch
    cdef bytes plain
    cdef const uint8_t *start
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef int32_t index
    cdef int32_t count
    cdef int32_t previous

    def __iter__(self):
        return self

    def __length_hint__(self):
        return self.count - self.index

    def __next__(self):
        cdef RecordView view
        cdef const uint8_t *p
        cdef BatchHeader *header
        cdef int64_t timestamp, stored
        cdef int32_t sequence = -1
        if self.index >= self.count:
            raise StopIteration
        header = &self.batch.header
        try:
            p = self.batch.step(self.start, self.p, self.end, self.index, self.previous, &view)
        except CorruptBatchError:
            self.index = self.count
            raise
        stored = timestamp = add_wrapping(header.base_timestamp, view.timestamp_delta)
        if header.attributes & TIMESTAMP_LOG_APPEND:
            timestamp = header.max_timestamp
        if header.base_sequence >= 0:
            sequence = add_sequence(header.base_sequence, view.offset_delta)
        record = make_record(
            &view, header.base_offset + view.offset_delta, timestamp, stored, sequence, <int32_t>(p - self.p)
        )
        self.previous = view.offset_delta
        self.index += 1
        self.p = p
        return record


@cython.final
@cython.internal
cdef class BatchIterator:
    cdef object owner
    cdef const uint8_t *p
    cdef int64_t position
    cdef int64_t size
    cdef int64_t max_bytes
    cdef bint verify
    cdef bint allow_partial

    def __iter__(self):
        return self

    def __next__(self):
        cdef RecordBatch batch
        cdef BatchHeader header
        if self.position >= self.size:
            raise StopIteration
        if self.allow_partial and (
            read_header(self.p + self.position, self.size - self.position, &header) == BATCH_SHORT
        ):
            self.position = self.size
            raise StopIteration
        batch = RecordBatch.__new__(RecordBatch)
        try:
            open_batch(
                batch, self.owner, self.p + self.position, self.size - self.position, self.position, self.verify,
                self.max_bytes,
            )
        except CorruptBatchError:
            self.position = self.size
            raise
        self.position += batch.header.size
        return batch


def iter_batches(
    data, Py_ssize_t position=0, *, bint verify=True, bint allow_partial=False,
    int64_t max_decompressed_bytes=DEFAULT_LIMIT,
):
    """Iterate over the batches in ``data``, which follow each other.

    Args:
        data: bytes-like object; kept alive while the iterator or a batch lives, not copied.
        position: where the first batch starts.
        verify: compare each checksum.
        allow_partial: end quietly at a batch that is cut short at the end of ``data``, as fetch responses and
            crashed logs have them. If False that is a ``CorruptBatchError``.
        max_decompressed_bytes: see ``RecordBatch``.
    Yields:
        ``RecordBatch``; each has its own ``position`` in ``data``.
    Raises:
        CorruptBatchError: at the first bad batch; iteration ends there.
        LocalError: ``position`` is outside ``data``.
    """
    cdef BatchIterator iterator = BatchIterator.__new__(BatchIterator)
    iterator.owner = acquire(data, &iterator.p, &iterator.size)
    if position < 0 or position > iterator.size:
        raise LocalError(f"position {position} is outside 0 to {iterator.size}")
    iterator.position = position
    iterator.verify = verify
    iterator.allow_partial = allow_partial
    iterator.max_bytes = max_decompressed_bytes
    return iterator


def validate_batch(data, Py_ssize_t position=0, *, int64_t max_decompressed_bytes=DEFAULT_LIMIT):
    """Check a batch in full: header, checksum, and every record's lengths, offset and count.

    Args and errors as for ``RecordBatch``.
    Returns:
        The ``RecordBatch``.
    """
    cdef RecordBatch batch = RecordBatch(data, position, max_decompressed_bytes=max_decompressed_bytes)
    cdef int64_t size = 0
    cdef FaultPlace place
    cdef BatchFault fault
    cdef const uint8_t *p = batch.records(&size)
    if size < LONG_WORK:
        fault = check_span(p, size, batch.header.count, batch.header.last_offset_delta, &place)
    else:
        with nogil:
            fault = check_span(p, size, batch.header.count, batch.header.last_offset_delta, &place)
    if fault != BATCH_OK:
        raise batch.fault(fault, &place)
    return batch


# ---- stamping -------------------------------------------------------------------------------------------------------

def stamp_batch(batch, int64_t base_offset, int32_t leader_epoch, timestamp_ms=None, *, Py_ssize_t position=0):
    """Patch a batch in place, as a leader does when it appends it.

    Args:
        batch: a bytearray or another writable buffer.
        base_offset: the new offset of the first record; all other offsets follow from their deltas.
        leader_epoch: the appending leader's epoch, >= -1.
        timestamp_ms: the time of the append, which replaces all timestamps: log append time (Kafka's
            ``message.timestamp.type=LogAppendTime``); None: timestamps stay.
        position: where in ``batch`` the batch starts.
    Raises:
        CorruptBatchError: there is no magic-2 batch; nothing was changed. The checksum is not verified.
        LocalError: an argument out of range; nothing was changed.
        BufferError, TypeError: ``batch`` is not a writable buffer.

    Offset and epoch lie outside the checksum, which is computed anew only if ``timestamp_ms`` changes something.
    """
    cdef Py_buffer view
    if PyByteArray_CheckExact(batch):
        stamp(
            <uint8_t *>PyByteArray_AS_STRING(batch), PyByteArray_GET_SIZE(batch), position, base_offset, leader_epoch,
            timestamp_ms,
        )
        return
    PyObject_GetBuffer(batch, &view, PyBUF_WRITABLE)
    try:
        stamp(<uint8_t *>view.buf, view.len, position, base_offset, leader_epoch, timestamp_ms)
    finally:
        PyBuffer_Release(&view)


cdef int stamp(
    uint8_t *p, int64_t size, int64_t position, int64_t base_offset, int32_t leader_epoch, object timestamp_ms
) except -1:
    cdef BatchHeader header
    cdef BatchFault fault
    cdef int64_t timestamp = -1
    if position < 0 or position > size:
        raise LocalError(f"position {position} is outside 0 to {size}")
    p += position
    fault = read_header(p, size - position, &header)
    if fault != BATCH_OK and fault != BATCH_OFFSET:
        raise corrupt_batch(fault, p, size - position, position, NULL)
    if header.last_offset_delta < 0:
        raise corrupt_batch(BATCH_OFFSET, p, size - position, position, NULL)
    if base_offset < 0 or base_offset > INT64_MAX - 1 - header.last_offset_delta:
        raise LocalError(f"base_offset {base_offset} is out of range")
    if leader_epoch < -1:
        raise LocalError(f"leader_epoch {leader_epoch} is below -1")
    if timestamp_ms is not None:
        timestamp = timestamp_ms
        if timestamp < -1:
            raise LocalError(f"timestamp_ms {timestamp} is below -1")
    stamp_header(p, base_offset, leader_epoch)
    if timestamp_ms is not None and not (
        header.attributes & TIMESTAMP_LOG_APPEND and header.max_timestamp == timestamp
    ):
        store_int16(p + ATTRIBUTES_POSITION, header.attributes | TIMESTAMP_LOG_APPEND)
        store_int64(p + 35, timestamp)
        store_uint32(p + CRC_POSITION, batch_crc(p, header.size))
    return 0
