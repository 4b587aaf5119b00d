"""Orders records about partitions by the buckets of their partitions, without decoding the records."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from kraftcore.core.bytes cimport load_int32, read_uvarint32
from kraftcore.core.columns.chunks cimport Column, address, grow, hand_over, import_pyarrow
from kraftcore.core.columns.tree cimport UUID_TEXT, uuid_text

from kraftcore.errors import LocalError

__all__ = ["partition_order"]

cdef enum:
    BUCKETS_MAX = 256
    SLOTS = 1 << 12            # topics whose sums are kept

cdef struct Slot:
    uint8_t[16] topic
    uint32_t sum
    bint used

cdef uint32_t[256] CRC_TABLE


cdef void fill_table() noexcept:
    # CRC-32 of zlib, bit by bit.
    cdef uint32_t word
    cdef int i, _bit
    for i in range(256):
        word = i
        for _bit in range(8):
            word = (word >> 1) ^ (0xEDB88320 if word & 1 else 0)
        CRC_TABLE[i] = word


fill_table()


cdef uint32_t sum_of(const uint8_t *topic) noexcept nogil:
    # The sum of a topic id's text.
    cdef uint8_t[UUID_TEXT] text
    cdef uint32_t word = 0xFFFFFFFF
    cdef int i
    uuid_text(text, topic)
    for i in range(UUID_TEXT):
        word = CRC_TABLE[(word ^ text[i]) & 0xFF] ^ (word >> 8)
    return ~word


cdef inline const uint8_t *partition_of(const uint8_t *p, const uint8_t *end) noexcept nogil:
    # Where partition id and topic id are, with which these records begin. NULL: the record is too short.
    cdef uint32_t word
    cdef int _i
    for _i in range(3):            # frame version, type, version
        p = read_uvarint32(p, end, &word)
        if p == NULL:
            return NULL
    return p if end - p >= 20 else NULL


def partition_order(values, rows, int buckets, int64_t step):
    """Order records by the bucket of their partition: CRC-32 of the topic id's text, plus the partition's number times
    ``step``, modulo ``buckets``.

    Args:
        values: ``pyarrow.BinaryArray`` of record values.
        rows: ``pyarrow.UInt64Array`` of the positions in ``values`` of metadata records that begin with a partition's
            number and its topic's id, as ``PartitionRecord`` and ``PartitionChangeRecord``.
        buckets: how many, 1 to 256.
        step: see above, not negative.

    Returns:
        ``pyarrow.UInt64Array``: ``rows`` by bucket, in their own order within a bucket; and ``pyarrow.UInt8Array``: the
        bucket of each. Records that are too short are in bucket 0.

    Raises:
        LocalError: arrays of other types, a position outside ``values``, or numbers outside their ranges.
        MissingDependencyError: pyarrow is not installed.
    """
    cdef int64_t count = len(rows), size = len(values), first, i, at, place, number
    cdef const uint64_t *places
    cdef const int32_t *ends
    cdef const uint8_t *base
    cdef const uint8_t *p
    cdef uint64_t *to
    cdef uint8_t *marks
    cdef uint8_t *found
    cdef int64_t[BUCKETS_MAX + 1] starts
    cdef Slot[SLOTS] slots
    cdef Slot *slot
    cdef Column order, sorted_marks, unsorted
    pa = import_pyarrow()
    if values.type != pa.binary() or rows.type != pa.uint64() or rows.null_count:
        raise LocalError(f"values and rows are {values.type} and {rows.type}, not binary and uint64 without nulls")
    if not 1 <= buckets <= BUCKETS_MAX or not 0 <= step <= 0xFFFF:
        raise LocalError(f"{buckets} buckets with a step of {step}: 1 to {BUCKETS_MAX}, and 0 to 65535")
    if count == 0:
        return rows, pa.array([], pa.uint8())
    places = <const uint64_t *>address(rows.buffers()[1]) + <int64_t>rows.offset
    for i in range(count):
        if places[i] >= <uint64_t>size:
            raise LocalError(f"row {places[i]} is not in the {size} values")
    first = values.offset
    ends = <const int32_t *>address(values.buffers()[1]) + first
    base = address(values.buffers()[2])
    memset(&order, 0, sizeof(Column))
    memset(&sorted_marks, 0, sizeof(Column))
    memset(&unsorted, 0, sizeof(Column))
    if not grow(&order, 8 * count) or not grow(&sorted_marks, count) or not grow(&unsorted, count):
        free(order.data)
        free(sorted_marks.data)
        free(unsorted.data)
        raise MemoryError
    to, marks, found = <uint64_t *>order.data, sorted_marks.data, unsorted.data
    with nogil:
        memset(slots, 0, sizeof(slots))
        memset(starts, 0, sizeof(starts))
        for i in range(count):
            at = <int64_t>places[i]
            found[i] = 0
            p = partition_of(base + ends[at], base + ends[at + 1]) if base != NULL else NULL
            if p != NULL:
                slot = &slots[(<uint32_t>load_int32(p + 4) ^ <uint32_t>load_int32(p + 16)) % SLOTS]
                if not slot.used or memcmp(slot.topic, p + 4, 16) != 0:
                    memcpy(slot.topic, p + 4, 16)
                    slot.sum = sum_of(p + 4)
                    slot.used = True
                number = (<int64_t>slot.sum + step * load_int32(p)) % buckets
                found[i] = <uint8_t>(number + buckets if number < 0 else number)
            starts[found[i] + 1] += 1
        for i in range(buckets):
            starts[i + 1] += starts[i]
        for i in range(count):
            place = starts[found[i]]
            starts[found[i]] = place + 1
            to[place] = places[i]
            marks[place] = found[i]
    free(unsorted.data)
    return (
        pa.Array.from_buffers(pa.uint64(), count, [None, pa.py_buffer(hand_over(&order, 8 * count, None))], 0),
        pa.Array.from_buffers(pa.uint8(), count, [None, pa.py_buffer(hand_over(&sorted_marks, count, None))], 0),
    )
