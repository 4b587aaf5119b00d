# One record inside a batch, and a run of them, for compiled callers (batch, columns, log). The bytes are the
# uncompressed records; every read is bounded, no length is believed before it is compared.
#
#   length varint | attributes int8 | timestampDelta varlong | offsetDelta varint | keyLength varint | key |
#   valueLength varint | value | headerCount varint | headers: (keyLength varint | key | valueLength varint | value)*
#
# Accepted because Kafka writes or accepts it: gaps in the offsets and fewer records than lastOffsetDelta + 1 (compacted
# batches), no record at all (what compaction leaves of a producer's last batch), over-long varints, any record
# attributes. Refused although Kafka's reader lets it pass, because no writer makes it: lengths below -1, offset deltas
# that do not rise or that pass lastOffsetDelta, and more than 32 bits in a varint.
# Source: Kafka 4.3.1, DefaultRecord.readFrom, DefaultRecordBatch.RecordIterator.

from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraftcore.core.bytes cimport read_varint, read_varlong
from kraftcore.core.batch.header cimport (
    BATCH_COUNT, BATCH_OK, BATCH_TRAILING, RECORD_HEADERS, RECORD_KEY, RECORD_LENGTH, RECORD_OFFSET, RECORD_TRAILING,
    RECORD_VALUE, RECORD_VARINT, BatchFault,
)

cdef enum:
    RECORD_SIZE_MIN = 7        # seven fields of one byte
    IN_HEADER = -2             # FaultPlace.record: the fault lies in the batch header, the rest is not set

cdef struct RecordView:
    int64_t timestamp_delta
    int32_t offset_delta
    int32_t key_size           # -1: null
    int32_t value_size         # -1: null
    int32_t header_count
    uint8_t attributes
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers     # the first header
    const uint8_t *end         # the next record

cdef struct RecordsSeen:
    # What the records of a batch say. Records without a time, -1, count neither as earliest nor as latest.
    int64_t earliest           # INT64_MAX: none has a time
    int64_t latest             # -1: none has a time, or an earlier one than that
    int64_t keyless            # how many have a null key
    int64_t size               # bytes that were decompressed for them

cdef struct FaultPlace:
    int32_t record             # index in the batch; -1 for none, or IN_HEADER
    int64_t at                 # bytes into the (uncompressed) records
    int64_t found
    int64_t wanted             # the limit that `found` breaks


cdef inline int64_t add_wrapping(int64_t a, int64_t b) noexcept nogil:
    return <int64_t>(<uint64_t>a + <uint64_t>b)


cdef inline BatchFault scan_headers(
    const uint8_t *p, const uint8_t *end, int32_t count, int64_t *found, int64_t *wanted, const uint8_t **at
) noexcept nogil:
    # Walks `count` headers, which must fill the record exactly.
    cdef int32_t size, _i
    at[0] = p
    if count < 0 or count > (end - p) // 2:
        found[0] = count
        wanted[0] = (end - p) // 2
        return RECORD_HEADERS
    for _i in range(count):
        at[0] = p
        p = read_varint(p, end, &size)
        if p == NULL:
            return RECORD_VARINT
        if size < 0 or size > end - p:
            found[0] = size
            wanted[0] = end - p
            return RECORD_HEADERS
        p += size
        at[0] = p
        p = read_varint(p, end, &size)
        if p == NULL:
            return RECORD_VARINT
        if size < -1 or size > end - p:
            found[0] = size
            wanted[0] = end - p
            return RECORD_HEADERS
        if size > 0:
            p += size
    if p != end:
        at[0] = p
        found[0] = end - p
        wanted[0] = 0
        return RECORD_TRAILING
    return BATCH_OK


cdef inline BatchFault scan_record(
    const uint8_t *start, const uint8_t *p, const uint8_t *end, RecordView *view, FaultPlace *place
) noexcept nogil:
    # Reads the record at `p` and checks all of it but its offset. `start` only serves to fill `place` on a fault.
    cdef int32_t length
    cdef BatchFault fault
    cdef const uint8_t *at = p
    p = read_varint(p, end, &length)
    if p == NULL:
        place.at = at - start
        return RECORD_VARINT
    if length < RECORD_SIZE_MIN - 1 or length > end - p:
        place.at = at - start
        place.found = length
        place.wanted = end - p
        return RECORD_LENGTH
    end = p + length
    view.end = end
    view.attributes = p[0]
    at = p + 1
    p = read_varlong(at, end, &view.timestamp_delta)
    if p != NULL:
        at = p
        p = read_varint(p, end, &view.offset_delta)
    if p != NULL:
        at = p
        p = read_varint(p, end, &view.key_size)
    if p == NULL:
        place.at = at - start
        return RECORD_VARINT
    if view.key_size < -1 or view.key_size > end - p:
        place.at = at - start
        place.found = view.key_size
        place.wanted = end - p
        return RECORD_KEY
    view.key = p
    if view.key_size > 0:
        p += view.key_size
    at = p
    p = read_varint(p, end, &view.value_size)
    if p == NULL:
        place.at = at - start
        return RECORD_VARINT
    if view.value_size < -1 or view.value_size > end - p:
        place.at = at - start
        place.found = view.value_size
        place.wanted = end - p
        return RECORD_VALUE
    view.value = p
    if view.value_size > 0:
        p += view.value_size
    at = p
    p = read_varint(p, end, &view.header_count)
    if p == NULL:
        place.at = at - start
        return RECORD_VARINT
    view.headers = p
    if view.header_count == 0 and p == end:
        return BATCH_OK
    fault = scan_headers(p, end, view.header_count, &place.found, &place.wanted, &at)
    if fault != BATCH_OK:
        place.at = at - start
    return fault


cdef inline const uint8_t *scan_plain(
    const uint8_t *p, const uint8_t *end, int32_t *timestamp_delta, int32_t *offset_delta, const uint8_t **key,
    int32_t *key_size, const uint8_t **value, int32_t *value_size
) noexcept nogil:
    # A short cut for nearly every record: no headers, small numbers, not at the very end. The next record, or NULL if
    # only scan_record can tell. One comparison makes up to ten bytes readable, instead of one for each byte.
    cdef uint32_t raw, byte
    cdef const uint8_t *stop
    if end - p < 16:
        return NULL
    raw = p[0]
    p += 1
    if raw >= 0x80:
        byte = p[0]
        raw = (raw & 0x7F) | (byte << 7)
        p += 1
        if byte >= 0x80:
            return NULL
    if raw & 1:
        return NULL
    raw >>= 1
    if raw < RECORD_SIZE_MIN - 1 or <int64_t>raw > end - p:
        return NULL
    stop = p + raw
    # p[0], the attributes, may be anything
    raw = p[1]
    p += 2
    if raw >= 0x80:
        byte = p[0]
        raw = (raw & 0x7F) | (byte << 7)
        p += 1
        if byte >= 0x80:
            return NULL
    timestamp_delta[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    raw = p[0]
    p += 1
    if raw >= 0x80:
        byte = p[0]
        raw = (raw & 0x7F) | (byte << 7)
        p += 1
        if byte >= 0x80:
            return NULL
    offset_delta[0] = <int32_t>((raw >> 1) ^ (0 - (raw & 1)))
    raw = p[0]
    p += 1
    if raw == 1:
        key_size[0] = -1
        key[0] = p
    else:
        if raw & 0x81 or <int64_t>(raw >> 1) > stop - p:
            return NULL
        key_size[0] = <int32_t>(raw >> 1)
        key[0] = p
        p += raw >> 1
    if stop - p < 3:
        return NULL
    raw = p[0]
    p += 1
    if raw >= 0x80:
        byte = p[0]
        raw = (raw & 0x7F) | (byte << 7)
        p += 1
        if byte >= 0x80:
            return NULL
    if raw & 1:
        return NULL
    raw >>= 1
    value[0] = p
    value_size[0] = <int32_t>raw
    # exactly the value and a header count of 0 must be left
    if stop - p != <int64_t>raw + 1 or p[raw] != 0:
        return NULL
    return stop


cdef inline BatchFault check_count(
    int64_t size, int32_t count, int32_t last_offset_delta, FaultPlace *place
) noexcept nogil:
    # To be asked before anything is allocated for `count` records in `size` uncompressed bytes.
    cdef int64_t most = size // RECORD_SIZE_MIN
    if most > <int64_t>last_offset_delta + 1:
        most = <int64_t>last_offset_delta + 1
    if count < 0 or count > most:
        place.record = -1
        place.at = 0
        place.found = count
        place.wanted = most
        return BATCH_COUNT
    return BATCH_OK


cdef inline BatchFault check_order(
    int32_t previous, const RecordView *view, int32_t last_offset_delta, FaultPlace *place
) noexcept nogil:
    # `previous`: offset delta of the record before, -1 for none.
    if view.offset_delta <= previous or view.offset_delta > last_offset_delta:
        place.at = 0
        place.found = view.offset_delta
        place.wanted = <int64_t>previous + 1 if view.offset_delta <= previous else last_offset_delta
        return RECORD_OFFSET
    return BATCH_OK


cdef inline BatchFault check_span(
    const uint8_t *p, int64_t size, int32_t count, int32_t last_offset_delta, FaultPlace *place,
    int64_t base_timestamp=0, RecordsSeen *seen=NULL
) noexcept nogil:
    # All `count` records in `size` uncompressed bytes, and nothing after them. `seen`, if wanted, is added to.
    cdef RecordView view
    cdef const uint8_t *start = p
    cdef const uint8_t *end = p + size
    cdef const uint8_t *following
    cdef int32_t i, timestamp_delta, previous = -1
    cdef int64_t time, earliest = INT64_MAX, latest = -1, keyless = 0
    cdef BatchFault fault = check_count(size, count, last_offset_delta, place)
    if fault != BATCH_OK:
        return fault
    for i in range(count):
        following = scan_plain(
            p, end, &timestamp_delta, &view.offset_delta, &view.key, &view.key_size, &view.value, &view.value_size
        )
        if following != NULL and view.offset_delta > previous and view.offset_delta <= last_offset_delta:
            previous = view.offset_delta
            p = following
            time = add_wrapping(base_timestamp, timestamp_delta)
            latest = max(latest, time)
            if time < earliest and time != -1:
                earliest = time
            keyless += view.key_size < 0
            continue
        fault = scan_record(start, p, end, &view, place)
        if fault == BATCH_OK:
            fault = check_order(previous, &view, last_offset_delta, place)
            if fault != BATCH_OK:
                place.at = p - start
        if fault != BATCH_OK:
            place.record = i
            return fault
        previous = view.offset_delta
        p = view.end
        time = add_wrapping(base_timestamp, view.timestamp_delta)
        latest = max(latest, time)
        if time < earliest and time != -1:
            earliest = time
        keyless += view.key_size < 0
    if p != end:
        place.record = -1
        place.at = p - start
        place.found = end - p
        place.wanted = 0
        return BATCH_TRAILING
    if seen != NULL:
        seen.earliest, seen.latest = min(seen.earliest, earliest), max(seen.latest, latest)
        seen.keyless += keyless
    return BATCH_OK


cdef class Record:
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp_ms
    cdef int64_t stored_ms     # differs from timestamp_ms where log append time hides it; for encoding anew
    cdef readonly bytes key
    cdef readonly bytes value
    cdef readonly tuple headers
    cdef readonly int32_t sequence
    cdef readonly int32_t size
    cdef readonly int attributes


# The record that `view` shows. `size`: its bytes, length varint included. No checks: scan_record made them.
cdef Record make_record(
    const RecordView *view, int64_t offset, int64_t timestamp_ms, int64_t stored_ms, int32_t sequence, int32_t size
)
# Header count and headers as they stand in a record. LocalError for what cannot be a header.
cdef bytes encode_headers(object headers)
# `data` itself if it is bytes, None for None, else a copy of the bytes-like object; TypeError names `what`.
cdef bytes as_bytes(object data, str what)
