"""Record batches, magic 2: build. Public through ``kraftcore.core.batch.record_batch``.

Two passes over the records: sizes, then bytes, into a bytearray of exactly the right size. No Python code runs between
them, so nobody can change a list or a buffer in the meantime; that is why values that are not bytes are copied first.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.list cimport PyList_GET_ITEM, PyList_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kraftcore.core.bytes cimport size_uvarint32, size_uvarint64, write_varint, write_varlong, zigzag32, zigzag64
from kraftcore.core.batch.header cimport (
    BATCH_HEADER_SIZE, CODEC_MAX, COMPRESSION_MASK, CONTROL, DELETE_HORIZON, LONG_WORK, SIZE_MAX, TIMESTAMP_LOG_APPEND,
    TRANSACTIONAL, BatchHeader, write_header,
)
from kraftcore.core.batch.record cimport RECORD_SIZE_MIN, Record, add_wrapping, as_bytes, encode_headers

from kraftcore.core.batch.compression import compress as _compress
from kraftcore.errors import LocalError

__all__ = ["build_batch", "build_records_batch"]


cdef int set_header(
    BatchHeader *header, int64_t base_offset, int32_t leader_epoch, object compression, object timestamp_type,
    int64_t producer_id, int producer_epoch, int32_t base_sequence, bint transactional, bint control,
    object delete_horizon_ms,
) except -1:
    cdef int codec = compression
    if codec < 0 or codec > CODEC_MAX:
        raise LocalError(f"unknown compression codec {compression!r}: use a Compression")
    if base_offset < 0:
        raise LocalError(f"base_offset {base_offset} is negative")
    if leader_epoch < -1:
        raise LocalError(f"leader_epoch {leader_epoch} is below -1")
    if timestamp_type != 0 and timestamp_type != 1:
        raise LocalError(f"unknown timestamp type {timestamp_type!r}: use a TimestampType")
    # The rules of MemoryRecordsBuilder.validateProducerState.
    if producer_id < -1 or producer_epoch < -1 or producer_epoch > 0x7FFF or base_sequence < -1:
        raise LocalError(
            f"producer_id {producer_id}, producer_epoch {producer_epoch} or base_sequence {base_sequence} "
            "is out of range"
        )
    if producer_id == -1 and transactional:
        raise LocalError("a transactional batch needs a producer_id")
    if producer_id != -1 and (producer_epoch == -1 or (base_sequence == -1 and not control)):
        raise LocalError(f"producer_id {producer_id} needs a producer_epoch, and a base_sequence unless it is control")
    header.base_offset = base_offset
    header.leader_epoch = leader_epoch
    header.attributes = <int16_t>(
        codec | (TIMESTAMP_LOG_APPEND if timestamp_type else 0) | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
    )
    header.producer_id = producer_id
    header.producer_epoch = <int16_t>producer_epoch
    header.base_sequence = base_sequence
    if delete_horizon_ms is not None:
        if delete_horizon_ms < 0:
            raise LocalError(f"delete_horizon_ms {delete_horizon_ms} is negative")
        header.attributes |= DELETE_HORIZON
        header.base_timestamp = delete_horizon_ms
    return 0


cdef int check_room(const BatchHeader *header, int64_t count, int64_t size) except -1:
    if size > SIZE_MAX or count > SIZE_MAX:
        raise LocalError(f"{count} records of {size} bytes are too large for one batch: at most {SIZE_MAX} bytes")
    if header.base_offset > INT64_MAX - count:
        raise LocalError(f"{count} records at base offset {header.base_offset} pass the last offset")
    return 0


cdef bytearray finish_batch(bytearray batch, BatchHeader *header, object level):
    # Writes the header, and compresses the records behind it.
    cdef int codec = header.attributes & COMPRESSION_MASK
    cdef uint8_t *p = <uint8_t *>PyByteArray_AS_STRING(batch)
    cdef bytes packed
    if codec:
        packed = _compress(codec, memoryview(batch)[BATCH_HEADER_SIZE:], level)
        check_room(header, header.count, BATCH_HEADER_SIZE + len(packed))
        batch = PyByteArray_FromStringAndSize(NULL, BATCH_HEADER_SIZE + PyBytes_GET_SIZE(packed))
        p = <uint8_t *>PyByteArray_AS_STRING(batch)
        memcpy(p + BATCH_HEADER_SIZE, PyBytes_AS_STRING(packed), PyBytes_GET_SIZE(packed))
    header.size = <int32_t>PyByteArray_GET_SIZE(batch)
    if header.size < LONG_WORK:
        write_header(p, header)
    else:
        with nogil:
            write_header(p, header)
    return batch


def build_batch(
    values, *, int64_t timestamp_ms, int64_t base_offset=0, int32_t leader_epoch=-1,
    compression=0, level=None, int64_t producer_id=-1, int producer_epoch=-1,
    int32_t base_sequence=-1, bint transactional=False, timestamp_type=0,
):
    """Build a batch of records that have a value only, all of one time.

    Args:
        values: bytes-like objects, or None for a null value; a list of bytes is fastest. At least one.
        timestamp_ms: milliseconds since 1970, or -1 for none.
        base_offset: offset of the first record; the offsets of all others follow without a gap.
        leader_epoch: epoch of the leader that appends the batch, -1 while it is unknown; see ``stamp_batch``.
        compression: a ``Compression``.
        level: gzip -1 to 9 or zstd 1 to 22; None is the library's default.
        producer_id, producer_epoch, base_sequence: of an idempotent producer, else -1.
        transactional: whether the producer is in a transaction.
        timestamp_type: a ``TimestampType``.
    Returns:
        A fresh bytearray: the caller may stamp it in place.
    Raises:
        LocalError: no values, an argument out of range, or more than 2 GiB.
        MissingDependencyError: the codec needs a library that is not installed.
        TypeError: a value is not bytes-like.

    For compression none the bytes are those of Kafka's MemoryRecordsBuilder.
    """
    cdef BatchHeader header
    cdef list items
    cdef Py_ssize_t count, i
    cdef int64_t total = BATCH_HEADER_SIZE
    cdef int64_t length
    cdef int32_t body
    cdef object value
    cdef bytearray batch
    cdef uint8_t *p
    set_header(
        &header, base_offset, leader_epoch, compression, timestamp_type, producer_id, producer_epoch, base_sequence,
        transactional, False, None,
    )
    if timestamp_ms < -1:
        raise LocalError(f"timestamp_ms {timestamp_ms} is below -1")
    items = plain_values(values)
    count = PyList_GET_SIZE(items)
    if count == 0:
        raise LocalError("a batch needs at least one record")
    if count > SIZE_MAX // 8:
        check_room(&header, count, <int64_t>count * 8)
    for i in range(count):
        value = <object>PyList_GET_ITEM(items, i)
        # attributes, timestamp delta, key length, header count: one byte each
        if value is None:
            total += 6 + size_uvarint32(zigzag32(<int32_t>i))
        else:
            length = PyBytes_GET_SIZE(value)
            if length > SIZE_MAX - 64:
                check_room(&header, count, total + length)
            body = size_uvarint32(zigzag32(<int32_t>i)) + size_uvarint32(zigzag32(<int32_t>length))
            body += <int32_t>(4 + length)
            total += size_uvarint32(zigzag32(body)) + body
    check_room(&header, count, total)
    batch = PyByteArray_FromStringAndSize(NULL, total)
    p = <uint8_t *>PyByteArray_AS_STRING(batch) + BATCH_HEADER_SIZE
    for i in range(count):
        value = <object>PyList_GET_ITEM(items, i)
        length = 0 if value is None else PyBytes_GET_SIZE(value)
        body = <int32_t>(4 + size_uvarint32(zigzag32(<int32_t>i)) + size_uvarint32(zigzag32(<int32_t>length)) + length)
        p = write_varint(p, body)
        p[0] = 0
        p[1] = 0
        p = write_varint(p + 2, <int32_t>i)
        p[0] = 1
        if value is None:
            p[1] = 1
            p += 2
        else:
            p = write_varint(p + 1, <int32_t>length)
            memcpy(p, PyBytes_AS_STRING(value), length)
            p += length
        p[0] = 0
        p += 1
    header.last_offset_delta = <int32_t>(count - 1)
    header.base_timestamp = header.max_timestamp = timestamp_ms
    header.count = <int32_t>count
    return finish_batch(batch, &header, level)


cdef list plain_values(object values):
    # A list of bytes and None: `values` itself if it is one. Between the caller's two passes over it no Python code
    # runs.
    cdef list items
    cdef Py_ssize_t i
    cdef object value
    if type(values) is list:
        items = <list>values
    elif isinstance(values, (bytes, bytearray, memoryview, str)):
        raise TypeError(f"values must be a sequence of bytes-like objects, not one {type(values).__name__}")
    else:
        items = list(values)
    for i in range(PyList_GET_SIZE(items)):
        value = <object>PyList_GET_ITEM(items, i)
        if not PyBytes_CheckExact(value) and value is not None:
            return [as_bytes(value, f"value {i}") for i, value in enumerate(items)]
    return items


cdef struct Item:
    const uint8_t *key
    const uint8_t *value
    const uint8_t *headers     # with their count; NULL for none
    int64_t timestamp_delta
    int32_t key_size
    int32_t value_size
    int32_t headers_size
    int32_t offset_delta
    int32_t body
    uint8_t attributes


cdef int64_t set_bytes(bytes data, const uint8_t **p, int32_t *size) except -1:
    if data is None:
        p[0] = NULL
        size[0] = -1
        return 0
    if PyBytes_GET_SIZE(data) > SIZE_MAX:
        raise LocalError(f"a key or value of {len(data)} bytes does not fit a record")
    p[0] = <const uint8_t *>PyBytes_AS_STRING(data)
    size[0] = <int32_t>PyBytes_GET_SIZE(data)
    return size[0]


cdef int64_t set_item(Item *item, object record, list keep, int64_t *timestamp) except -1:
    # Fills all but the deltas; `keep` holds the objects that the pointers point into. Returns the record's bytes
    # without the deltas' varints.
    cdef bytes key, value
    cdef bytes headers = None
    cdef int64_t size
    item.attributes = 0
    if isinstance(record, Record):
        key = (<Record>record).key
        value = (<Record>record).value
        if (<Record>record).headers:
            headers = encode_headers((<Record>record).headers)
        timestamp[0] = (<Record>record).timestamp_ms
        item.attributes = <uint8_t>(<Record>record).attributes
    else:
        if not isinstance(record, tuple) or not 2 <= len(record) <= 4:
            raise TypeError("a record is a Record or a tuple (key, value[, headers[, timestamp_ms]])")
        key = as_bytes(record[0], "key")
        value = as_bytes(record[1], "value")
        if len(record) > 2 and record[2]:
            headers = encode_headers(record[2])
        if len(record) > 3 and record[3] is not None:
            timestamp[0] = record[3]
    size = 1 + set_bytes(key, &item.key, &item.key_size)
    size += set_bytes(value, &item.value, &item.value_size)
    size += size_uvarint32(zigzag32(item.key_size)) + size_uvarint32(zigzag32(item.value_size))
    keep.append(key)
    keep.append(value)
    if headers is None:
        item.headers = NULL
        item.headers_size = 0
        return size + 1
    keep.append(headers)
    return size + set_bytes(headers, &item.headers, &item.headers_size)


cdef bytearray encode_records(list records, BatchHeader *header, Numbering numbering, object level, int64_t default_ms):
    cdef Py_ssize_t count = len(records)
    cdef Py_ssize_t i
    cdef Item *items
    cdef Item *item
    cdef list keep = []
    cdef int64_t size, timestamp, offset_delta, first_ms = default_ms, largest_ms = -1, total = BATCH_HEADER_SIZE
    cdef int64_t previous = -1
    cdef bytearray batch
    cdef uint8_t *p
    check_room(header, count, total + count * RECORD_SIZE_MIN)
    items = <Item *>PyMem_Malloc(max(1, count) * sizeof(Item))
    if items == NULL:
        raise MemoryError()
    try:
        for i in range(count):
            item = &items[i]
            timestamp = default_ms
            size = set_item(item, records[i], keep, &timestamp)
            offset_delta = i
            if numbering == KEEP_OFFSETS:
                offset_delta = add_wrapping((<Record?>records[i]).offset, -header.base_offset)
                if offset_delta <= previous or offset_delta > header.last_offset_delta:
                    raise LocalError(
                        f"record {i}: offset {(<Record>records[i]).offset} does not rise, or is outside the batch's "
                        f"{header.base_offset} to {header.last_offset}"
                    )
                previous = offset_delta
                timestamp = (<Record>records[i]).stored_ms
            elif timestamp < -1:
                raise LocalError(f"record {i}: timestamp_ms {timestamp} is below -1")
            if i == 0:
                first_ms = timestamp
            if timestamp > largest_ms:
                largest_ms = timestamp
            item.timestamp_delta = timestamp
            item.offset_delta = <int32_t>offset_delta
            if total + size > SIZE_MAX:
                check_room(header, count, total + size)
            item.body = <int32_t>size
            total += size
        if numbering == IN_SEQUENCE:
            if not header.attributes & DELETE_HORIZON:
                header.base_timestamp = first_ms
            header.max_timestamp = default_ms if header.attributes & TIMESTAMP_LOG_APPEND else largest_ms
            header.last_offset_delta = <int32_t>(count - 1)
        header.count = <int32_t>count
        total = BATCH_HEADER_SIZE
        for i in range(count):
            item = &items[i]
            item.timestamp_delta = add_wrapping(item.timestamp_delta, -header.base_timestamp)
            size = <int64_t>item.body + size_uvarint64(zigzag64(item.timestamp_delta))
            size += size_uvarint32(zigzag32(item.offset_delta))
            if size > SIZE_MAX:
                check_room(header, count, size)
            item.body = <int32_t>size
            total += size + size_uvarint32(zigzag32(item.body))
        check_room(header, count, total)
        batch = PyByteArray_FromStringAndSize(NULL, total)
        p = <uint8_t *>PyByteArray_AS_STRING(batch) + BATCH_HEADER_SIZE
        for i in range(count):
            p = write_item(p, &items[i])
    finally:
        PyMem_Free(items)
    return finish_batch(batch, header, level)


cdef uint8_t *write_item(uint8_t *p, const Item *item) noexcept nogil:
    p = write_varint(p, item.body)
    p[0] = item.attributes
    p = write_varlong(p + 1, item.timestamp_delta)
    p = write_varint(p, item.offset_delta)
    p = write_varint(p, item.key_size)
    if item.key_size > 0:
        memcpy(p, item.key, item.key_size)
        p += item.key_size
    p = write_varint(p, item.value_size)
    if item.value_size > 0:
        memcpy(p, item.value, item.value_size)
        p += item.value_size
    if item.headers == NULL:
        p[0] = 0
        return p + 1
    memcpy(p, item.headers, item.headers_size)
    return p + item.headers_size


def build_records_batch(
    records, *, int64_t timestamp_ms=-1, int64_t base_offset=0, int32_t leader_epoch=-1, compression=0, level=None,
    int64_t producer_id=-1, int producer_epoch=-1, int32_t base_sequence=-1, bint transactional=False,
    bint control=False, timestamp_type=0, delete_horizon_ms=None,
):
    """Build a batch of whole records: keys, values, headers, and a time each.

    Args:
        records: ``Record`` objects, or tuples (key, value[, headers[, timestamp_ms]]); at least one. Their order
            gives the offsets: those in the ``Record`` objects do not count.
        timestamp_ms: for tuples without a time of their own; with log append time, the time of all.
        control: whether they are control records; then each has a key.
        delete_horizon_ms: base of the timestamps instead of the first record's, or None (KIP-534).
        base_offset, leader_epoch, compression, level, producer_id, producer_epoch, base_sequence, transactional,
            timestamp_type: as for ``build_batch``.
    Returns:
        A fresh bytearray: the caller may stamp it in place.
    Raises:
        LocalError: no records, an argument or a time out of range, a header that is no pair of key and value, or more
            than 2 GiB.
        MissingDependencyError: the codec needs a library that is not installed.
        TypeError: a record, key or value of the wrong type.

    The base timestamp is that of the first record, the maximum that of the largest, as in Kafka's
    MemoryRecordsBuilder.
    """
    cdef BatchHeader header
    cdef list items = list(records)
    set_header(
        &header, base_offset, leader_epoch, compression, timestamp_type, producer_id, producer_epoch, base_sequence,
        transactional, control, delete_horizon_ms,
    )
    if not items:
        raise LocalError("a batch needs at least one record")
    if timestamp_ms < -1:
        raise LocalError(f"timestamp_ms {timestamp_ms} is below -1")
    if control:
        for i, item in enumerate(items):
            if (item.key if isinstance(item, Record) else item[0]) is None:
                raise LocalError(f"record {i}: a control record needs a key")
    return encode_records(items, &header, IN_SEQUENCE, level, timestamp_ms)
