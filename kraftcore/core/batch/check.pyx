"""Record batches, magic 2: check. Public through ``kraftcore.core.batch.record_batch``.

The checks hold no GIL and make no objects; they return a ``BatchFault`` and fill a ``FaultPlace``, from which
``corrupt_batch`` makes the error. ``crc_matches`` of ``header.pxd`` compares the checksum: here, in
``open_batch``, and in each other reader of batches.
"""

from collections import namedtuple

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t

from kraftcore.core.bytes cimport load_int32
from kraftcore.core.batch.header cimport (
    ATTRIBUTES_POSITION, BATCH_CODEC, BATCH_COUNT, BATCH_CRC, BATCH_HEADER_SIZE, BATCH_LENGTH, BATCH_MAGIC,
    BATCH_OFFSET, BATCH_OK, BATCH_OVERHEAD, BATCH_SHORT, BATCH_TRAILING, CODEC_MAX, COMPRESSION_MASK, CRC_POSITION,
    MAGIC_V2, RECORD_HEADERS, RECORD_KEY, RECORD_LENGTH, RECORD_OFFSET, RECORD_TRAILING, RECORD_VALUE, RECORD_VARINT,
    SIZE_MAX, BatchFault, BatchHeader, batch_crc, crc_matches, read_header,
)
from kraftcore.core.batch.record cimport IN_HEADER, FaultPlace, RecordsSeen, check_count, check_span

from kraftcore.core.batch.compression import DEFAULT_MAX_DECOMPRESSED_BYTES
from kraftcore.core.batch.compression import decompress as _decompress
from kraftcore.errors import CorruptBatchError, LocalError

__all__ = ["BatchTotals", "validate_batches"]

cdef int64_t DEFAULT_LIMIT = DEFAULT_MAX_DECOMPRESSED_BYTES

BatchTotals = namedtuple(
    "BatchTotals",
    "batches records size base_offset last_offset max_timestamp_ms earliest_ms latest_ms keyless decompressed",
)
BatchTotals.__doc__ = """Totals of the batches that ``validate_batches`` checked.

Attributes:
    batches, records: their numbers.
    size: bytes of whole, valid batches; less than the input only if a partial batch at its end was allowed.
    base_offset, last_offset: of the first and of the last batch; -1 without batches.
    max_timestamp_ms: the largest in a header, -1 without batches.
    earliest_ms, latest_ms: of the records' own times, not those of the headers; -1 where no record has a time, and for
        ``latest_ms`` if all times are below -1.
    keyless: how many records have a null key.
    decompressed: bytes of the records of compressed batches, decompressed.
"""


# ---- errors ---------------------------------------------------------------------------------------------------------

cdef object corrupt_batch(
    BatchFault fault, const uint8_t *p, int64_t available, int64_t position, const FaultPlace *place, object path=None
):
    cdef BatchHeader header
    cdef int32_t length
    cdef str reason, where
    cdef object found = None
    cdef object wanted = None
    cdef object at = position
    read_header(p, available, &header)
    if fault == BATCH_SHORT:
        found = available
        if available < BATCH_HEADER_SIZE:
            wanted = BATCH_HEADER_SIZE
            reason = f"a batch header needs {wanted} bytes, {found} are left"
        else:
            wanted = <int64_t>load_int32(p + 8) + BATCH_OVERHEAD
            reason = f"the batch has {wanted} bytes, {found} are left"
    elif fault == BATCH_LENGTH:
        length = load_int32(p + 8)
        at = position + 8
        found, wanted = length, BATCH_HEADER_SIZE - BATCH_OVERHEAD
        reason = f"batch length {found} is outside {wanted} to {SIZE_MAX - BATCH_OVERHEAD}"
    elif fault == BATCH_MAGIC:
        at = position + 16
        found, wanted = p[16], MAGIC_V2
        reason = f"magic is {found}, wanted {wanted}"
        if found < MAGIC_V2:
            reason += " (written before Kafka 0.11; not supported)"
    elif fault == BATCH_CRC:
        at = position + CRC_POSITION
        found, wanted = header.crc, batch_crc(p, header.size)
        reason = f"checksum 0x{found:08x} is stored, 0x{wanted:08x} computed"
    elif fault == BATCH_OFFSET:
        found, wanted = header.base_offset, header.last_offset_delta
        reason = f"base offset {found} with last offset delta {wanted}: negative, or beyond 63 bits"
    elif fault == BATCH_CODEC:
        at = position + ATTRIBUTES_POSITION
        found, wanted = header.attributes & COMPRESSION_MASK, CODEC_MAX
        reason = f"compression codec {found} is unknown, {wanted} is the last"
    elif place == NULL or place.record == IN_HEADER:
        found, wanted = header.count, header.last_offset_delta + <int64_t>1
        at = position + 57
        reason = f"records count {found}, with a last offset delta of {wanted - 1}"
    else:
        found, wanted = place.found, place.wanted
        where = "" if place.record < 0 else f"record {place.record}: "
        at = position + BATCH_HEADER_SIZE
        if header.attributes & COMPRESSION_MASK:
            if fault != BATCH_COUNT:
                where += f"{place.at} bytes into the decompressed records: "
        else:
            at += place.at
        if fault == BATCH_COUNT:
            reason = f"records count {found}, the batch has room for {wanted}"
        elif fault == BATCH_TRAILING:
            reason = f"{found} bytes are left after the last record, wanted {wanted}"
        elif fault == RECORD_LENGTH:
            reason = f"length {found} with {wanted} bytes left"
        elif fault == RECORD_VARINT:
            found = wanted = None
            reason = "a varint has no end"
        elif fault == RECORD_OFFSET:
            reason = f"offset delta {found}, wanted {'at most' if found > wanted else 'at least'} {wanted}"
        elif fault == RECORD_KEY:
            reason = f"key length {found} with {wanted} bytes left"
        elif fault == RECORD_VALUE:
            reason = f"value length {found} with {wanted} bytes left"
        elif fault == RECORD_HEADERS:
            reason = f"header count or length {found} with room for {wanted}"
        elif fault == RECORD_TRAILING:
            reason = f"{found} bytes are left after the last field, wanted {wanted}"
        else:
            reason = f"fault {<int>fault}"
        reason = where + reason
    return CorruptBatchError(reason, position=at, path=path, found=found, wanted=wanted)


# ---- checks ---------------------------------------------------------------------------------------------------------

cdef BatchFault check_records(
    const uint8_t *p, const BatchHeader *header, FaultPlace *place, RecordsSeen *seen
) noexcept nogil:
    cdef int64_t size = header.size - BATCH_HEADER_SIZE
    cdef int codec = header.attributes & COMPRESSION_MASK
    if codec:
        if codec > CODEC_MAX:
            return BATCH_CODEC
        # The decompressed size is unknown here; offset deltas still bound the count.
        return check_count(<int64_t>SIZE_MAX * 8, header.count, header.last_offset_delta, place)
    if seen == NULL:
        return check_span(p + BATCH_HEADER_SIZE, size, header.count, header.last_offset_delta, place)
    return check_span(
        p + BATCH_HEADER_SIZE, size, header.count, header.last_offset_delta, place, header.base_timestamp, seen
    )


cdef BatchFault check_batch(
    const uint8_t *p, int64_t available, bint deep, BatchHeader *header, FaultPlace *place
) noexcept nogil:
    cdef BatchFault fault = read_header(p, available, header)
    place.record = IN_HEADER
    if fault != BATCH_OK:
        return fault
    if not crc_matches(p, header):
        return BATCH_CRC
    if deep:
        return check_records(p, header, place, NULL)
    return BATCH_OK


cdef bytes decompress_records(const uint8_t *p, const BatchHeader *header, int64_t position, int64_t max_bytes):
    cdef int codec = header.attributes & COMPRESSION_MASK
    if header.size == BATCH_HEADER_SIZE and header.count == 0:
        return b""
    if codec > CODEC_MAX:
        raise corrupt_batch(BATCH_CODEC, p, header.size, position, NULL)
    try:
        return _decompress(
            codec,
            PyBytes_FromStringAndSize(<const char *>p + BATCH_HEADER_SIZE, header.size - BATCH_HEADER_SIZE),
            max_bytes,
        )
    except CorruptBatchError as error:
        raise type(error)(error.reason, position=position + BATCH_HEADER_SIZE) from None


cdef int check_compressed(
    const uint8_t *p, const BatchHeader *header, int64_t position, int64_t max_bytes, RecordsSeen *seen
) except -1:
    cdef bytes plain
    cdef const uint8_t *start
    cdef int64_t size
    cdef FaultPlace place
    cdef BatchFault fault
    if not header.attributes & COMPRESSION_MASK:
        return 0
    plain = decompress_records(p, header, position, max_bytes)
    start, size = <const uint8_t *>PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain)
    seen.size += size
    with nogil:
        fault = check_span(
            start, size, header.count, header.last_offset_delta, &place, header.base_timestamp, seen
        )
    if fault != BATCH_OK:
        raise corrupt_batch(fault, p, header.size, position, &place)
    return 0


# ---- memory ---------------------------------------------------------------------------------------------------------

cdef uint8_t NOTHING[8]


@cython.final
@cython.internal
cdef class Source:
    # A buffer export held open.
    cdef Py_buffer view
    cdef bint held

    def __dealloc__(self):
        if self.held:
            PyBuffer_Release(&self.view)


cdef object acquire(object data, const uint8_t **p, int64_t *size):
    cdef Source source
    if PyBytes_CheckExact(data):
        p[0] = <const uint8_t *>PyBytes_AS_STRING(data)
        size[0] = PyBytes_GET_SIZE(data)
        return data
    source = Source.__new__(Source)
    PyObject_GetBuffer(data, &source.view, PyBUF_SIMPLE)
    source.held = True
    p[0] = <const uint8_t *>source.view.buf if source.view.len else NOTHING
    size[0] = source.view.len
    return source


# ---- a whole buffer -------------------------------------------------------------------------------------------------

def validate_batches(
    data, Py_ssize_t position=0, *, bint allow_partial=False, int64_t max_decompressed_bytes=DEFAULT_LIMIT
):
    """Check every batch of a buffer in full, without an object per batch; the GIL is released meanwhile.

    Args:
        data: bytes-like object with whole batches, one after the other.
        position: where the first batch starts.
        allow_partial: see ``iter_batches``.
        max_decompressed_bytes: see ``RecordBatch``.
    Returns:
        ``BatchTotals``. Whether offsets and epochs rise from batch to batch is not checked.
    Raises:
        CorruptBatchError: the first fault, with its position in ``data``.
        OversizedBatchError: a batch decompresses to more than ``max_decompressed_bytes``.
        LocalError: ``position`` is outside ``data``.
    """
    cdef int64_t size = 0
    cdef const uint8_t *data_start = NULL
    cdef object _owner = acquire(data, &data_start, &size)  # keeps the bytes alive
    if position < 0 or position > size:
        raise LocalError(f"position {position} is outside 0 to {size}")
    cdef const uint8_t *start = data_start + position
    cdef const uint8_t *p = start
    cdef const uint8_t *end = data_start + size
    cdef int64_t batches = 0, records = 0, base_offset = -1, last_offset = -1, max_timestamp = -1
    cdef BatchHeader header
    cdef FaultPlace place
    cdef BatchFault fault = BATCH_OK
    cdef RecordsSeen seen
    seen.earliest, seen.latest, seen.keyless, seen.size = INT64_MAX, -1, 0, 0
    with nogil:
        while p < end:
            fault = check_batch(p, end - p, False, &header, &place)
            if fault == BATCH_OK:
                fault = check_records(p, &header, &place, &seen)
            if fault != BATCH_OK:
                break
            if header.attributes & COMPRESSION_MASK:
                with gil:
                    check_compressed(p, &header, p - data_start, max_decompressed_bytes, &seen)
            if batches == 0:
                base_offset = header.base_offset
            last_offset = header.last_offset
            if header.max_timestamp > max_timestamp:
                max_timestamp = header.max_timestamp
            batches += 1
            records += header.count
            p += header.size
    if fault != BATCH_OK and not (fault == BATCH_SHORT and allow_partial):
        raise corrupt_batch(fault, p, end - p, p - data_start, &place)
    if seen.earliest == INT64_MAX:
        seen.earliest = -1
    return BatchTotals(
        batches, records, p - start, base_offset, last_offset, max_timestamp, seen.earliest, seen.latest, seen.keyless,
        seen.size,
    )
