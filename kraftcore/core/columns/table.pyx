"""Record batches to columns in Arrow's memory layout, without a Python object per record.

One pass over the batches (column_pass.pyx) fills malloc'ed buffers, which Arrow arrays then wrap without a copy;
pyarrow itself is needed only by ``to_arrow``. The pass checks everything ``validate_batch`` checks. It holds no GIL,
except to decompress.
"""

from array import array
from collections import namedtuple

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t, uint8_t
from libc.string cimport memset

from kraftcore.core.batch.check cimport acquire, corrupt_batch, decompress_records
from kraftcore.core.columns.chunks cimport (
    CHUNK_COLUMNS, BufferPool, Column, ColumnChunk, grow, hand_over, import_pyarrow, timestamp_scale, wanted_columns,
)
from kraftcore.core.columns.fill cimport (
    COMPRESSED, DONE, FAULT, FULL, NO_MEMORY, WANT_CONTROL, WANT_EPOCH, WANT_HEADERS, WANT_KEY, WANT_OFFSET,
    WANT_POSITION, WANT_TIMESTAMP, WANT_VALUE, Job, Sink, State, free_sink, has_room, run, take_batch,
)
from kraftcore.core.batch.header cimport BATCH_OK, BATCH_SHORT

from kraftcore.core.columns.chunks import arrow_schema
from kraftcore.core.batch.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from kraftcore.errors import CorruptBatchError, LocalError

__all__ = ["CHUNK_BYTES_MAX", "ColumnReader", "Damage", "DecodedColumns", "decode_columns"]

CHUNK_BYTES_MAX = 0x7FFFFFFF

Damage = namedtuple("Damage", "position size reason")
Damage.__doc__ = """A stretch of input that was left out as damaged.

Attributes:
    position: where the damaged batch starts, counted like the ``position`` column.
    size: bytes left out from there.
    reason: text of the error.
"""


@cython.final
cdef class ColumnReader:
    """Decode batches chunk by chunk: an iterator of ``ColumnChunk``. See ``decode_columns`` for what it takes.

    Args:
        chunk_bytes: the most bytes of uncompressed records in one chunk, unless one batch alone has more. A few
            MiB keep memory small and caches warm.
        pool: memory for the columns; None: the system's.

    Attributes:
        damage: list of ``Damage``, filled while iterating.
    """

    cdef Job job
    cdef list sources
    cdef bytes types
    cdef Py_ssize_t source
    cdef object owner
    cdef BufferPool pool
    cdef int64_t max_bytes
    cdef str errors
    cdef tuple columns
    cdef str timestamp_unit
    cdef object error
    cdef bytes waiting
    cdef bint busy
    cdef readonly list damage

    def __cinit__(self):
        memset(&self.job, 0, sizeof(Job))

    def __dealloc__(self):
        free_sink(&self.job.sink)

    def __init__(
        self, data, *, columns=None, int64_t position=0, end=None, int64_t base_position=0, offsets=None,
        types=None, bint verify=True, str errors="raise", str timestamp_unit="ms", int64_t chunk_bytes=1 << 20,
        int64_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES, BufferPool pool=None,
    ):
        cdef Job *job = &self.job
        if self.damage is not None:
            raise LocalError("a ColumnReader is used once")
        if errors not in ("raise", "stop", "skip"):
            raise LocalError(f"errors={errors!r} is none of 'raise', 'stop', 'skip'")
        self.columns, job.want = wanted_columns(columns)
        job.scale = timestamp_scale(timestamp_unit)
        if not 0 < chunk_bytes <= CHUNK_BYTES_MAX:
            raise LocalError(f"chunk_bytes {chunk_bytes} is outside 1 to {CHUNK_BYTES_MAX}")
        job.chunk_bytes = chunk_bytes
        job.verify = verify
        job.base_position = base_position
        job.offset_from, job.offset_to = (0, INT64_MAX) if offsets is None else offsets
        if offsets is None:
            job.offset_from = INT64_MIN
        if types is not None:
            try:
                self.types = array("q", types).tobytes()
            except (TypeError, OverflowError):
                raise LocalError(f"types {types!r} are no codes of record types") from None
            job.types = <const int64_t *>PyBytes_AS_STRING(self.types)
            job.type_count = PyBytes_GET_SIZE(self.types) // sizeof(int64_t)
        self.max_bytes = min(max_decompressed_bytes, <int64_t>CHUNK_BYTES_MAX)
        self.errors = errors
        self.timestamp_unit = timestamp_unit
        self.pool = pool
        self.sources = list(data) if isinstance(data, (list, tuple)) else [data]
        if len(self.sources) != 1 and (position or end is not None):
            raise LocalError("position and end go with a single buffer")
        self.damage = []
        self.source = -1
        self.open_next()
        if self.source == 0:
            if not 0 <= position <= job.size:
                raise LocalError(f"position {position} is outside 0 to {job.size}")
            job.position = position
            if end is not None:
                if not position <= end <= job.size:
                    raise LocalError(f"end {end} is outside {position} to {job.size}")
                job.end = end

    cdef bint open_next(self) except -1:
        # The next buffer, if there is one.
        cdef Job *job = &self.job
        if self.source + 1 >= len(self.sources):
            return False
        if self.source >= 0:
            job.base_position += job.size
        self.source += 1
        self.owner = acquire(self.sources[self.source], &job.data, &job.size)
        job.position = 0
        job.end = job.size
        return True

    def __iter__(self):
        return self

    def __next__(self):
        if self.busy:
            raise LocalError("another thread is using this ColumnReader")
        self.busy = True
        try:
            chunk = self.next_chunk()
        finally:
            self.busy = False
        if chunk is None:
            raise StopIteration
        return chunk

    cdef ColumnChunk next_chunk(self):
        cdef Job *job = &self.job
        cdef State state
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        if self.pool is not None and job.sink.capacity == 0 and job.position < job.end:
            self.borrow()
        while True:
            with nogil:
                state = run(job)
            if state == COMPRESSED:
                state = self.take_compressed()
            if state == FULL:
                return self.finish_chunk()
            if state == NO_MEMORY:
                raise MemoryError(f"no memory for the columns of {job.sink.rows + job.header.count} rows")
            if state == FAULT:
                self.handle(corrupt_batch(
                    job.fault, job.data + job.position, job.size - job.position, job.base_position + job.position,
                    &job.place,
                ))
            if self.error is None and (job.position < job.end or self.open_next()):
                continue
            if job.sink.rows:
                return self.finish_chunk()
            if self.error is None:
                return None
            error, self.error = self.error, None
            raise error

    cdef State take_compressed(self) except *:
        # One compressed batch. If the chunk has no room for it, the decompressed records wait for the next chunk.
        cdef Job *job = &self.job
        cdef const uint8_t *p = job.data + job.position
        cdef const uint8_t *records
        cdef int64_t size
        cdef State state
        cdef bytes plain = self.waiting
        self.waiting = None
        if plain is None:
            try:
                plain = decompress_records(p, &job.header, job.base_position + job.position, self.max_bytes)
            except CorruptBatchError as error:
                self.handle(error)
                return DONE
        records = <const uint8_t *>PyBytes_AS_STRING(plain)
        size = PyBytes_GET_SIZE(plain)
        if not has_room(job, size):
            self.waiting = plain
            return FULL
        with nogil:
            state = take_batch(job, records, size)
        if state == DONE:
            job.position += job.header.size
        return state

    cdef int handle(self, object error) except -1:
        # A damaged batch: by the caller's choice the end, a gap, or an error once the rows before it are out.
        cdef Job *job = &self.job
        cdef int64_t left = job.end - job.position
        if self.errors == "skip" and 0 < job.header.size <= left and job.fault != BATCH_SHORT:
            left = job.header.size
        if self.errors == "raise":
            self.error = error
        else:
            self.damage.append(Damage(job.base_position + job.position, left, error.reason))
        job.fault = BATCH_OK
        job.position += left
        if self.errors != "skip":
            self.source = len(self.sources)
        return 0

    cdef int borrow(self) except -1:
        # The pool's buffers for columns like those of the last chunk, of this reader or of the one before it.
        cdef (Column *)[CHUNK_COLUMNS] columns
        cdef int i
        list_columns(&self.job.sink, columns)
        for i in range(CHUNK_COLUMNS):
            if self.pool.chunk[i] and columns[i].data == NULL:
                self.pool.lend(columns[i], self.pool.chunk[i] + self.pool.chunk[i] // 16)
        return 0

    cdef ColumnChunk finish_chunk(self):
        cdef Sink *sink = &self.job.sink
        cdef ColumnChunk chunk = ColumnChunk.__new__(ColumnChunk)
        cdef int64_t rows = sink.rows
        cdef int64_t bits = (rows + 7) // 8
        cdef dict buffers = {}
        cdef int want = self.job.want
        cdef BufferPool pool = self.pool
        cdef (Column *)[CHUNK_COLUMNS] columns
        cdef int i
        chunk.count = rows
        chunk.columns = self.columns
        chunk.timestamp_unit = self.timestamp_unit
        chunk.key_nulls = sink.key_nulls
        chunk.value_nulls = sink.value_nulls
        chunk.headers = sink.headers
        chunk.header_nulls = sink.header_nulls
        chunk.buffers = buffers
        if want & WANT_OFFSET:
            buffers["offset"] = (hand_over(&sink.offset, 8 * rows, pool),)
        if want & WANT_TIMESTAMP:
            buffers["timestamp"] = (hand_over(&sink.timestamp, 8 * rows, pool),)
        if want & WANT_KEY:
            buffers["key"] = (
                hand_over(&sink.key_valid, bits, pool) if sink.key_nulls else None,
                hand_over(&sink.key_offsets, 4 * (rows + 1), pool), hand_over(&sink.key, sink.key.used, pool),
            )
        if want & WANT_VALUE:
            buffers["value"] = (
                hand_over(&sink.value_valid, bits, pool) if sink.value_nulls else None,
                hand_over(&sink.value_offsets, 4 * (rows + 1), pool), hand_over(&sink.value, sink.value.used, pool),
            )
        if want & WANT_HEADERS:
            if sink.headers == 0:
                if not grow(&sink.name_offsets, 4) or not grow(&sink.content_offsets, 4):
                    raise MemoryError()
            memset(sink.name_offsets.data, 0, 4)
            memset(sink.content_offsets.data, 0, 4)
            buffers["headers"] = (
                hand_over(&sink.header_offsets, 4 * (rows + 1), pool),
                hand_over(&sink.name_offsets, 4 * (sink.headers + 1), pool),
                hand_over(&sink.name, sink.name.used, pool),
                hand_over(&sink.content_valid, (sink.headers + 7) // 8, pool) if sink.header_nulls else None,
                hand_over(&sink.content_offsets, 4 * (sink.headers + 1), pool),
                hand_over(&sink.content, sink.content.used, pool),
            )
        if want & WANT_EPOCH:
            buffers["partition_leader_epoch"] = (hand_over(&sink.epoch, 4 * rows, pool),)
        if want & WANT_CONTROL:
            buffers["is_control"] = (hand_over(&sink.control, bits, pool),)
        if want & WANT_POSITION:
            buffers["position"] = (hand_over(&sink.position, 8 * rows, pool),)
        if pool is not None:
            list_columns(sink, columns)
            for i in range(CHUNK_COLUMNS):
                pool.chunk[i] = columns[i].before
        free_sink(sink)
        return chunk


cdef void list_columns(Sink *sink, Column **to) noexcept:
    # The columns of a chunk that a pool knows, in its order.
    to[0], to[1], to[2], to[3] = &sink.offset, &sink.timestamp, &sink.epoch, &sink.control
    to[4], to[5], to[6], to[7] = &sink.position, &sink.key_offsets, &sink.key_valid, &sink.key
    to[8], to[9], to[10] = &sink.value_offsets, &sink.value_valid, &sink.value


@cython.final
cdef class DecodedColumns:
    """All chunks of one ``decode_columns`` call.

    Attributes:
        chunks: tuple of ``ColumnChunk``.
        damage: tuple of ``Damage``; empty with ``errors="raise"``.
        columns: names of the columns, in order.
        timestamp_unit: "ms" or "us".
    """

    cdef readonly tuple chunks
    cdef readonly tuple damage
    cdef readonly tuple columns
    cdef readonly str timestamp_unit

    def __reduce__(self):
        raise TypeError("decoded columns cannot be pickled: send what to_arrow() returns")

    def __len__(self):
        cdef int64_t rows = 0
        for chunk in self.chunks:
            rows += (<ColumnChunk>chunk).count
        return rows

    def to_arrow(self):
        """A ``pyarrow.Table`` over the same memory, one chunk for each of ours.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        pa = import_pyarrow()
        schema = arrow_schema(self.columns, timestamp_unit=self.timestamp_unit)
        return pa.Table.from_batches([chunk.to_arrow() for chunk in self.chunks], schema)


def decode_columns(
    data, *, columns=None, int64_t position=0, end=None, int64_t base_position=0, offsets=None, types=None,
    bint verify=True, str errors="raise", str timestamp_unit="ms", int64_t chunk_bytes=CHUNK_BYTES_MAX,
    int64_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
):
    """Decode any number of batches to columns, checking everything.

    Args:
        data: bytes-like object (an mmap, too) with batches one after the other, or a list of such objects. Must not
            change during the call; of a mapped file no byte may be cut off.
        columns: names out of ``COLUMNS``, None for all. The others cost nothing.
        position, end: decode the batches that start in ``data[position:end]``; the last may reach beyond ``end``.
        base_position: added to the ``position`` column and to positions in errors: where ``data`` starts in its file.
            In a list each buffer starts where the one before ended.
        offsets: pair (first, end) of offsets; other records are left out. Whole batches outside are not even
            checksummed.
        types: codes of record types as in ``RecordTypes``; other records are checked and left out.
        verify: compare checksums.
        errors: what to do at a damaged batch. "raise"; "stop" there and report the rest in ``damage``; "skip" it,
            report it and go on behind it, or stop if its length cannot be trusted.
        timestamp_unit: "ms" as stored, or "us" (clamped to 64 bits).
        chunk_bytes: the most bytes of uncompressed records in one chunk, unless one batch alone has more. Arrow's
            int32 offsets allow no more than ``CHUNK_BYTES_MAX``.
        max_decompressed_bytes: the most that one compressed batch may decompress to.

    Returns:
        ``DecodedColumns``. ``timestamp`` is the append time if the batch says so, -1 where there is none; ``headers``
        is a list of (key, value) with bytes in keys that are not UTF-8 replaced by U+FFFD, as in Kafka's Java clients;
        ``position`` is that of the batch.

    Raises:
        CorruptBatchError: with ``errors="raise"``, at the first damaged batch.
        LocalError: unknown column, unit or policy, or a range outside ``data``.
        MissingDependencyError: a batch is compressed with a codec whose library is not installed.
    """
    reader = ColumnReader(
        data, columns=columns, position=position, end=end, base_position=base_position, offsets=offsets, types=types,
        verify=verify, errors=errors, timestamp_unit=timestamp_unit, chunk_bytes=chunk_bytes,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    cdef DecodedColumns result = DecodedColumns.__new__(DecodedColumns)
    result.chunks = tuple(reader)
    result.damage = tuple(reader.damage)
    result.columns = (<ColumnReader>reader).columns
    result.timestamp_unit = timestamp_unit
    return result
