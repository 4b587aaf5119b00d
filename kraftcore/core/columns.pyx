"""Record batches to columns in Arrow's memory layout, without a Python object per record.

One pass over the batches fills malloc'ed buffers, which Arrow arrays then wrap without a copy; pyarrow itself is needed
only by ``to_arrow``. The pass checks everything ``validate_batch`` checks. It holds no GIL, except to decompress.

Sizes are never taken from the input on trust: a batch may add as many rows as its bytes can hold records of seven
bytes, and that many only after its checksum was compared. A batch that turns out damaged leaves no row behind, because
the row counters move only when its last record has passed.
"""

from collections import namedtuple

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kraftcore.core.batch cimport acquire, corrupt_batch, decompress_records
from kraftcore.core.bytes cimport read_varint
from kraftcore.core.chunks cimport (
    SLACK, ColumnBuffer, ColumnChunk, import_pyarrow, make_buffer, timestamp_scale, wanted_columns,
)
from kraftcore.core.header cimport (
    BATCH_CRC, BATCH_HEADER_SIZE, BATCH_OK, BATCH_SHORT, BATCH_TRAILING, COMPRESSION_MASK,
    CONTROL, SIZE_MAX, TIMESTAMP_LOG_APPEND, BatchFault, BatchHeader, crc_matches, read_header,
)
from kraftcore.core.record cimport (
    IN_HEADER, FaultPlace, RecordView, check_count, check_order, scan_plain, scan_record,
)

from kraftcore.core.chunks import COLUMNS, arrow_schema
from kraftcore.core.chunks import ColumnBuffer as _ColumnBuffer
from kraftcore.core.chunks import ColumnChunk as _ColumnChunk
from kraftcore.core.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from kraftcore.errors import CorruptBatchError, LocalError

__all__ = [
    "COLUMNS", "CHUNK_BYTES_MAX", "ColumnBuffer", "ColumnChunk", "ColumnReader", "Damage", "DecodedColumns",
    "arrow_schema", "decode_columns",
]

CHUNK_BYTES_MAX = 0x7FFFFFFF

globals().update(ColumnBuffer=_ColumnBuffer, ColumnChunk=_ColumnChunk)  # an assignment would clash with the cimport

Damage = namedtuple("Damage", "position size reason")
Damage.__doc__ = """A stretch of input that was left out.

Attributes:
    position: where the damaged batch starts, counted like the ``position`` column.
    size: bytes left out from there.
    reason: what the error would have said.
"""

cdef enum:
    WANT_OFFSET = 1
    WANT_TIMESTAMP = 2
    WANT_KEY = 4
    WANT_VALUE = 8
    WANT_HEADERS = 16
    WANT_EPOCH = 32
    WANT_CONTROL = 64
    WANT_POSITION = 128
    BLOCK = 32

cdef enum State:
    DONE
    FULL                       # the chunk has no room for the next batch
    FAULT
    COMPRESSED
    NO_MEMORY

cdef struct Column:
    uint8_t *data
    int64_t used
    int64_t capacity

cdef struct Sink:
    # The columns of one chunk. `used` is kept for data of variable length only; the rest follows from the counts.
    int64_t rows
    int64_t capacity           # in rows
    int64_t span               # bytes of records taken in
    int64_t key_nulls
    int64_t value_nulls
    int64_t headers
    int64_t header_nulls
    Column offset
    Column timestamp
    Column epoch
    Column control
    Column position
    Column key_offsets
    Column key_valid
    Column key
    Column value_offsets
    Column value_valid
    Column value
    Column header_offsets
    Column name_offsets
    Column name
    Column content_offsets
    Column content_valid
    Column content

cdef struct Job:
    const uint8_t *data
    int64_t size
    int64_t position           # of the next batch
    int64_t end                # batches start before this
    int64_t base_position
    int64_t chunk_bytes
    int64_t offset_from
    int64_t offset_to
    int want
    int scale                  # timestamps: 1 for milliseconds, 1000 for microseconds
    bint verify
    BatchHeader header
    FaultPlace place
    BatchFault fault
    Sink sink


# ---- the pass, without the GIL --------------------------------------------------------------------------------------

cdef inline bint grow(Column *column, int64_t bytes) noexcept nogil:
    # Room for `bytes` in all, and the slack. Grows by half at least, so that many small steps stay cheap.
    cdef int64_t capacity
    cdef uint8_t *data
    bytes += SLACK
    if bytes <= column.capacity:
        return True
    capacity = column.capacity + column.capacity // 2
    if capacity < bytes:
        capacity = bytes
    data = <uint8_t *>realloc(column.data, capacity)
    if data == NULL:
        return False
    column.data = data
    column.capacity = capacity
    return True


cdef bint grow_rows(Sink *sink, int want, int64_t rows) noexcept nogil:
    # All row columns hold `rows` afterwards. The first offset of a list is written here.
    cdef bint fresh = sink.capacity == 0
    cdef int64_t bits = (rows + 7) // 8
    if want & WANT_OFFSET and not grow(&sink.offset, 8 * rows):
        return False
    if want & WANT_TIMESTAMP and not grow(&sink.timestamp, 8 * rows):
        return False
    if want & WANT_EPOCH and not grow(&sink.epoch, 4 * rows):
        return False
    if want & WANT_CONTROL and not grow(&sink.control, bits):
        return False
    if want & WANT_POSITION and not grow(&sink.position, 8 * rows):
        return False
    if want & WANT_KEY:
        if not grow(&sink.key_offsets, 4 * (rows + 1)) or not grow(&sink.key_valid, bits):
            return False
        if fresh:
            memset(sink.key_offsets.data, 0, 4)
    if want & WANT_VALUE:
        if not grow(&sink.value_offsets, 4 * (rows + 1)) or not grow(&sink.value_valid, bits):
            return False
        if fresh:
            memset(sink.value_offsets.data, 0, 4)
    if want & WANT_HEADERS:
        if not grow(&sink.header_offsets, 4 * (rows + 1)):
            return False
        if fresh:
            memset(sink.header_offsets.data, 0, 4)
    sink.capacity = rows
    return True


cdef inline bint reserve(Job *job, int64_t size) noexcept nogil:
    # Room for the batch in job.header with `size` bytes of records, whose count was checked against that size.
    cdef Sink *sink = &job.sink
    cdef int64_t rows = sink.rows + job.header.count
    cdef int64_t guess
    if rows > sink.capacity or sink.capacity == 0:
        # The rest of the input will be like this batch; at least by half, though.
        guess = job.end - job.position
        if guess > job.chunk_bytes:
            guess = job.chunk_bytes
        guess = rows + guess // job.header.size * job.header.count
        if job.header.attributes & COMPRESSION_MASK:
            guess = rows       # its count says nothing about the bytes to come
        if guess < sink.capacity + sink.capacity // 2:
            guess = sink.capacity + sink.capacity // 2
        if guess < rows:
            guess = rows
        if not grow_rows(sink, job.want, guess):
            return False
    if job.want & WANT_KEY and not grow(&sink.key, sink.key.used + size):
        return False
    if job.want & WANT_VALUE:
        if sink.value.capacity == 0:
            guess = job.end - job.position
            if guess > job.chunk_bytes:
                guess = job.chunk_bytes
            if guess > size and not grow(&sink.value, guess):
                return False
        if not grow(&sink.value, sink.value.used + size):
            return False
    return True


cdef inline void put_bits(uint8_t *bits, int64_t start, int64_t count, bint value) noexcept nogil:
    # Sets bits start..start+count-1; what lies above them in the last byte is undefined.
    cdef int64_t i = start
    cdef int64_t end = start + count
    while i < end and i & 7:
        bits[i >> 3] = (bits[i >> 3] & ((1 << (i & 7)) - 1)) | (value << (i & 7))
        i += 1
    if i < end:
        memset(bits + (i >> 3), 0xFF if value else 0, (end - i + 7) >> 3)


cdef inline int64_t scaled(int64_t timestamp_ms, int scale) noexcept nogil:
    # Clamped to what 64 bits hold.
    if scale == 1:
        return timestamp_ms
    if timestamp_ms > INT64_MAX // 1000:
        return INT64_MAX
    if timestamp_ms < INT64_MIN // 1000:
        return INT64_MIN
    return timestamp_ms * 1000


cdef bint put_name(Column *column, const uint8_t *p, int32_t size) noexcept nogil:
    # A header key as UTF-8; what is not UTF-8 becomes U+FFFD, as in Kafka's Java clients.
    cdef int32_t i
    cdef uint8_t high = 0
    cdef Py_ssize_t length = 0
    cdef const char *text
    for i in range(size):
        high |= p[i]
    if high < 0x80:
        if not grow(column, column.used + size):
            return False
        memcpy(column.data + column.used, p, size)
        column.used += size
        return True
    with gil:
        try:
            name = PyUnicode_DecodeUTF8(<const char *>p, size, b"replace")
            text = PyUnicode_AsUTF8AndSize(name, &length)
            if column.used + length > SIZE_MAX or not grow(column, column.used + length):
                return False
            memcpy(column.data + column.used, text, length)
            column.used += length
            return True
        except MemoryError:
            return False

cdef bint put_headers(Sink *sink, const RecordView *view) noexcept nogil:
    # The headers of one record, checked by scan_record.
    cdef const uint8_t *p = view.headers
    cdef int64_t row = sink.headers
    cdef int64_t rows = row + view.header_count
    cdef int32_t size, _i
    cdef uint8_t bit
    if not grow(&sink.name_offsets, 4 * (rows + 1)) or not grow(&sink.content_offsets, 4 * (rows + 1)):
        return False
    if not grow(&sink.content_valid, (rows + 7) // 8) or not grow(&sink.content, sink.content.used + (view.end - p)):
        return False
    for _i in range(view.header_count):
        p = read_varint(p, view.end, &size)
        if not put_name(&sink.name, p, size):
            return False
        p += size
        p = read_varint(p, view.end, &size)
        bit = 1
        if size < 0:
            bit = 0
            sink.header_nulls += 1
        elif size:
            memcpy(sink.content.data + sink.content.used, p, size)
            sink.content.used += size
            p += size
        row += 1
        (<int32_t *>sink.name_offsets.data)[row] = <int32_t>sink.name.used
        (<int32_t *>sink.content_offsets.data)[row] = <int32_t>sink.content.used
        put_bits(sink.content_valid.data, row - 1, 1, bit)
    sink.headers = row
    return True


cdef inline void copy_bytes(uint8_t *to, const uint8_t *p, int32_t size, const uint8_t *end) noexcept nogil:
    # Short runs in whole blocks: the bytes up to `end` are readable, and each column has its slack.
    cdef int32_t done = 0
    if size <= 4 * BLOCK and end - p >= size + BLOCK:
        while done < size:
            memcpy(to + done, p + done, BLOCK)
            done += BLOCK
    else:
        memcpy(to, p, size)


cdef State take_batch(Job *job, const uint8_t *p, int64_t size) noexcept nogil:
    # Adds the batch in job.header, whose uncompressed records are the `size` bytes at `p`, or nothing of it.
    cdef Sink *sink = &job.sink
    cdef BatchHeader *header = &job.header
    cdef const uint8_t *start = p
    cdef const uint8_t *end = p + size
    cdef const uint8_t *following
    cdef const uint8_t *key
    cdef const uint8_t *value
    cdef int64_t *offsets
    cdef int64_t *timestamps
    cdef int32_t *key_ends
    cdef int32_t *value_ends
    cdef uint8_t *key_valid
    cdef uint8_t *value_valid
    cdef uint8_t *values
    cdef RecordView view
    cdef int want = job.want
    cdef int scale = job.scale
    cdef int32_t i, timestamp_delta, offset_delta, key_size, value_size, headers_here, previous = -1
    cdef int64_t delta
    cdef int64_t row = sink.rows
    cdef int64_t first = row
    cdef int64_t headers = sink.headers
    cdef int64_t header_nulls = sink.header_nulls
    cdef int64_t name_used = sink.name.used
    cdef int64_t content_used = sink.content.used
    cdef int64_t key_used = sink.key.used
    cdef int64_t value_used = sink.value.used
    cdef int64_t key_nulls = 0
    cdef int64_t value_nulls = 0
    cdef int64_t offset
    cdef int64_t timestamp = header.max_timestamp
    cdef bint log_append = header.attributes & TIMESTAMP_LOG_APPEND
    cdef bint partly = header.base_offset < job.offset_from or header.last_offset >= job.offset_to
    cdef uint8_t key_bits = 0
    cdef uint8_t value_bits = 0
    cdef BatchFault fault = check_count(size, header.count, header.last_offset_delta, &job.place)
    if fault != BATCH_OK:
        return fail(job, fault, -1)
    if not reserve(job, size):
        return NO_MEMORY
    offsets = <int64_t *>sink.offset.data
    timestamps = <int64_t *>sink.timestamp.data
    key_ends = <int32_t *>sink.key_offsets.data + 1
    key_valid = sink.key_valid.data
    value_ends = <int32_t *>sink.value_offsets.data + 1
    value_valid = sink.value_valid.data
    values = sink.value.data
    if row & 7:
        if want & WANT_KEY:
            key_bits = sink.key_valid.data[row >> 3] & ((1 << (row & 7)) - 1)
        if want & WANT_VALUE:
            value_bits = sink.value_valid.data[row >> 3] & ((1 << (row & 7)) - 1)
    for i in range(header.count):
        following = scan_plain(p, end, &timestamp_delta, &offset_delta, &key, &key_size, &value, &value_size)
        if following != NULL and offset_delta > previous and offset_delta <= header.last_offset_delta:
            headers_here = 0
            delta = timestamp_delta
        else:
            fault = scan_record(start, p, end, &view, &job.place)
            if fault != BATCH_OK:
                break
            fault = check_order(previous, &view, header.last_offset_delta, &job.place)
            if fault != BATCH_OK:
                job.place.at = p - start
                break
            following = view.end
            delta = view.timestamp_delta
            offset_delta = view.offset_delta
            key, key_size = view.key, view.key_size
            value, value_size = view.value, view.value_size
            headers_here = view.header_count
        previous = offset_delta
        p = following
        offset = header.base_offset + offset_delta
        if partly and (offset < job.offset_from or offset >= job.offset_to):
            continue
        if want & WANT_OFFSET:
            offsets[row] = offset
        if want & WANT_TIMESTAMP:
            if not log_append:
                timestamp = <int64_t>(<uint64_t>header.base_timestamp + <uint64_t>delta)
            timestamps[row] = scaled(timestamp, scale)
        if want & WANT_KEY:
            if key_size >= 0:
                copy_bytes(sink.key.data + key_used, key, key_size, end)
                key_used += key_size
                key_bits |= 1 << (row & 7)
            else:
                key_nulls += 1
            key_ends[row] = <int32_t>key_used
            if (row & 7) == 7:
                key_valid[row >> 3] = key_bits
                key_bits = 0
        if want & WANT_VALUE:
            if value_size >= 0:
                copy_bytes(values + value_used, value, value_size, end)
                value_used += value_size
                value_bits |= 1 << (row & 7)
            else:
                value_nulls += 1
            value_ends[row] = <int32_t>value_used
            if (row & 7) == 7:
                value_valid[row >> 3] = value_bits
                value_bits = 0
        if want & WANT_HEADERS:
            if headers_here and not put_headers(sink, &view):
                return NO_MEMORY
            (<int32_t *>sink.header_offsets.data)[row + 1] = <int32_t>sink.headers
        row += 1
    else:
        i = -1
        if p != end:
            fault = BATCH_TRAILING
            job.place.at = p - start
            job.place.found = end - p
            job.place.wanted = 0
    if fault != BATCH_OK:
        sink.headers = headers
        sink.header_nulls = header_nulls
        sink.name.used = name_used
        sink.content.used = content_used
        return fail(job, fault, i)
    if row & 7:
        if want & WANT_KEY:
            sink.key_valid.data[row >> 3] = key_bits
        if want & WANT_VALUE:
            sink.value_valid.data[row >> 3] = value_bits
    sink.key.used = key_used
    sink.value.used = value_used
    sink.key_nulls += key_nulls
    sink.value_nulls += value_nulls
    sink.span += size
    sink.rows = row
    fill_batch_columns(job, first, row)
    return DONE


cdef inline void fill_batch_columns(Job *job, int64_t first, int64_t end) noexcept nogil:
    # What is the same for all rows of a batch.
    cdef Sink *sink = &job.sink
    cdef int64_t row
    cdef int64_t position = job.base_position + job.position
    if job.want & WANT_EPOCH:
        for row in range(first, end):
            (<int32_t *>sink.epoch.data)[row] = job.header.leader_epoch
    if job.want & WANT_POSITION:
        for row in range(first, end):
            (<int64_t *>sink.position.data)[row] = position
    if job.want & WANT_CONTROL:
        put_bits(sink.control.data, first, end - first, (job.header.attributes & CONTROL) != 0)


cdef inline State fail(Job *job, BatchFault fault, int32_t record) noexcept nogil:
    job.place.record = record
    job.fault = fault
    return FAULT


cdef State run(Job *job) noexcept nogil:
    # Takes batches until one needs the caller: the first compressed, damaged, or beyond the chunk's room.
    cdef const uint8_t *p
    cdef BatchFault fault
    cdef State state
    while job.position < job.end:
        p = job.data + job.position
        job.place.record = IN_HEADER
        fault = read_header(p, job.size - job.position, &job.header)
        if fault == BATCH_OK and (
            job.header.last_offset < job.offset_from or job.header.base_offset >= job.offset_to
        ):
            job.position += job.header.size
            continue
        if fault == BATCH_OK and job.verify and not crc_matches(p, &job.header):
            fault = BATCH_CRC
        if fault != BATCH_OK:
            job.fault = fault
            return FAULT
        if job.header.attributes & COMPRESSION_MASK:
            return COMPRESSED
        if not has_room(job, job.header.size):
            return FULL
        state = take_batch(job, p + BATCH_HEADER_SIZE, job.header.size - BATCH_HEADER_SIZE)
        if state != DONE:
            return state
        job.position += job.header.size
    return DONE


cdef inline bint has_room(const Job *job, int64_t size) noexcept nogil:
    return job.sink.rows == 0 or job.sink.span + size <= job.chunk_bytes


# ---- the reader -----------------------------------------------------------------------------------------------------

cdef inline ColumnBuffer hand_over(Column *column, int64_t size):
    # The column's memory becomes a Python object.
    cdef ColumnBuffer buffer = make_buffer(column.data, size, column.capacity)
    column.data = NULL
    column.capacity = column.used = 0
    return buffer


@cython.final
cdef class ColumnReader:
    """Decode batches chunk by chunk: an iterator of ``ColumnChunk``. See ``decode_columns`` for what it takes.

    Args:
        chunk_bytes: the most bytes of uncompressed records in one chunk, unless one batch alone has more. A few
            MiB keep memory small and caches warm.

    Attributes:
        damage: list of ``Damage``, filled while iterating.
    """

    cdef Job job
    cdef list sources
    cdef Py_ssize_t source
    cdef object owner
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
        bint verify=True, str errors="raise", str timestamp_unit="ms", int64_t chunk_bytes=1 << 20,
        int64_t max_decompressed_bytes=DEFAULT_MAX_DECOMPRESSED_BYTES,
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
        self.max_bytes = min(max_decompressed_bytes, <int64_t>CHUNK_BYTES_MAX)
        self.errors = errors
        self.timestamp_unit = timestamp_unit
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
        # One compressed batch. If the chunk has no room for it, what it decompressed to waits for the next chunk.
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

    cdef ColumnChunk finish_chunk(self):
        cdef Sink *sink = &self.job.sink
        cdef ColumnChunk chunk = ColumnChunk.__new__(ColumnChunk)
        cdef int64_t rows = sink.rows
        cdef int64_t bits = (rows + 7) // 8
        cdef dict buffers = {}
        cdef int want = self.job.want
        chunk.count = rows
        chunk.columns = self.columns
        chunk.timestamp_unit = self.timestamp_unit
        chunk.key_nulls = sink.key_nulls
        chunk.value_nulls = sink.value_nulls
        chunk.headers = sink.headers
        chunk.header_nulls = sink.header_nulls
        chunk.buffers = buffers
        if want & WANT_OFFSET:
            buffers["offset"] = (hand_over(&sink.offset, 8 * rows),)
        if want & WANT_TIMESTAMP:
            buffers["timestamp"] = (hand_over(&sink.timestamp, 8 * rows),)
        if want & WANT_KEY:
            buffers["key"] = (
                hand_over(&sink.key_valid, bits) if sink.key_nulls else None,
                hand_over(&sink.key_offsets, 4 * (rows + 1)), hand_over(&sink.key, sink.key.used),
            )
        if want & WANT_VALUE:
            buffers["value"] = (
                hand_over(&sink.value_valid, bits) if sink.value_nulls else None,
                hand_over(&sink.value_offsets, 4 * (rows + 1)), hand_over(&sink.value, sink.value.used),
            )
        if want & WANT_HEADERS:
            if sink.headers == 0:
                if not grow(&sink.name_offsets, 4) or not grow(&sink.content_offsets, 4):
                    raise MemoryError()
            memset(sink.name_offsets.data, 0, 4)
            memset(sink.content_offsets.data, 0, 4)
            buffers["headers"] = (
                hand_over(&sink.header_offsets, 4 * (rows + 1)),
                hand_over(&sink.name_offsets, 4 * (sink.headers + 1)), hand_over(&sink.name, sink.name.used),
                hand_over(&sink.content_valid, (sink.headers + 7) // 8) if sink.header_nulls else None,
                hand_over(&sink.content_offsets, 4 * (sink.headers + 1)), hand_over(&sink.content, sink.content.used),
            )
        if want & WANT_EPOCH:
            buffers["partition_leader_epoch"] = (hand_over(&sink.epoch, 4 * rows),)
        if want & WANT_CONTROL:
            buffers["is_control"] = (hand_over(&sink.control, bits),)
        if want & WANT_POSITION:
            buffers["position"] = (hand_over(&sink.position, 8 * rows),)
        free_sink(sink)
        return chunk


cdef void free_sink(Sink *sink) noexcept:
    free(sink.offset.data)
    free(sink.timestamp.data)
    free(sink.epoch.data)
    free(sink.control.data)
    free(sink.position.data)
    free(sink.key_offsets.data)
    free(sink.key_valid.data)
    free(sink.key.data)
    free(sink.value_offsets.data)
    free(sink.value_valid.data)
    free(sink.value.data)
    free(sink.header_offsets.data)
    free(sink.name_offsets.data)
    free(sink.name.data)
    free(sink.content_offsets.data)
    free(sink.content_valid.data)
    free(sink.content.data)
    memset(sink, 0, sizeof(Sink))


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
    data, *, columns=None, int64_t position=0, end=None, int64_t base_position=0, offsets=None, bint verify=True,
    str errors="raise", str timestamp_unit="ms", int64_t chunk_bytes=CHUNK_BYTES_MAX,
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
        verify: compare checksums.
        errors: what to do at a damaged batch. "raise"; "stop" there and report the rest in ``damage``; "skip" it,
            report it and go on behind it, or stop if its length cannot be trusted.
        timestamp_unit: "ms" as stored, or "us" (clamped to 64 bits).
        chunk_bytes: the most bytes of uncompressed records in one chunk, unless one batch alone has more. Arrow's
            int32 offsets allow no more than ``CHUNK_BYTES_MAX``.
        max_decompressed_bytes: the most that one compressed batch may decompress to. Returns: ``DecodedColumns``.
    ``timestamp`` is the append time if the batch says so, -1 where there is none; ``headers`` is a list of (key,
    value) with bytes in keys that are not UTF-8 replaced by U+FFFD, as in Kafka's Java clients; ``position`` is that
    of the batch. Raises:
        CorruptBatchError: with ``errors="raise"``, at the first damaged batch.
        LocalError: unknown column, unit or policy, or a range outside ``data``.
        MissingDependencyError: a batch is compressed with a codec whose library is not installed.
    """
    reader = ColumnReader(
        data, columns=columns, position=position, end=end, base_position=base_position, offsets=offsets, verify=verify,
        errors=errors, timestamp_unit=timestamp_unit, chunk_bytes=chunk_bytes,
        max_decompressed_bytes=max_decompressed_bytes,
    )
    cdef DecodedColumns result = DecodedColumns.__new__(DecodedColumns)
    result.chunks = tuple(reader)
    result.damage = tuple(reader.damage)
    result.columns = (<ColumnReader>reader).columns
    result.timestamp_unit = timestamp_unit
    return result
