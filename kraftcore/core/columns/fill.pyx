"""The pass over record batches that fills columns, without the GIL. columns.pyx drives it.

Sizes are never taken from the input on trust: a batch may add as many rows as its bytes can hold records of seven
bytes, and that many only after its checksum was compared. A batch that turns out damaged leaves no row behind, because
the row counters move only when its last record has passed.
"""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kraftcore.core.bytes cimport read_varint
from kraftcore.core.batch.header cimport (
    BATCH_CRC, BATCH_HEADER_SIZE, BATCH_OK, BATCH_TRAILING, COMPRESSION_MASK, CONTROL, SIZE_MAX, TIMESTAMP_LOG_APPEND,
    BatchFault, BatchHeader, crc_matches, read_header,
)
from kraftcore.core.batch.record cimport (
    IN_HEADER, RECORD_SIZE_MIN, RecordView, check_count, check_order, scan_plain, scan_record,
)
from kraftcore.core.columns.chunks cimport Column, grow
from kraftcore.core.columns.record_types cimport code_of

cdef enum:
    BLOCK = 32


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
        # Estimated as if the rest of the input were like this batch, but growing by at least half.
        guess = job.end - job.position
        if guess > job.chunk_bytes:
            guess = job.chunk_bytes
        guess = rows + guess // job.header.size * job.header.count
        if job.header.attributes & COMPRESSION_MASK:
            guess = rows       # this batch's count does not predict the rest
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
            if not job.header.attributes & COMPRESSION_MASK:
                # Close to what is needed, if the rest is like this batch: to give back a large part of the block keeps
                # the allocator from using it again. The last batch asks for room for all of its bytes.
                guess = guess // job.header.size * (size - RECORD_SIZE_MIN * <int64_t>job.header.count)
                guess += guess // 16 + RECORD_SIZE_MIN * <int64_t>job.header.count
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


cdef bint is_wanted(const Job *job, int64_t code) noexcept nogil:
    cdef int64_t i
    for i in range(job.type_count):
        if job.types[i] == code:
            return True
    return False


cdef State take_batch(Job *job, const uint8_t *p, int64_t size) noexcept nogil:
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
    cdef int32_t i, timestamp_delta, offset_delta, key_size, value_size, headers_here, _version, previous = -1
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
    cdef bint is_control = (header.attributes & CONTROL) != 0
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
        if job.types != NULL and not is_wanted(job, code_of(is_control, key, key_size, value, value_size, &_version)):
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
