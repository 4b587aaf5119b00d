"""Batch headers to Arrow columns: lists the batches in a stretch of log without reading their records.

``positions`` are the places where a log can be cut without splitting a batch.
"""

from collections import namedtuple

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from kraftcore.core.batch.check cimport acquire, corrupt_batch
from kraftcore.core.columns.chunks cimport Column, grow, hand_over, import_pyarrow
from kraftcore.core.batch.header cimport (
    BATCH_CRC, BATCH_OK, BATCH_SHORT, BatchFault, BatchHeader, crc_matches, read_header,
)
from kraftcore.core.batch.record cimport IN_HEADER, FaultPlace

from kraftcore.core.columns.table import Damage

__all__ = ["BatchHeaders", "batch_headers"]

BatchHeaders = namedtuple("BatchHeaders", "batches damage end")
BatchHeaders.__doc__ = """The batches in a stretch of log.

Attributes:
    batches: ``pyarrow.RecordBatch``, a row for each batch.
    damage: list of ``Damage``, ascending.
    end: position behind the last whole batch.
"""

cdef enum:
    INT64 = 8
    INT32 = 4
    INT16 = 2
    FIELDS = 16

NAMES = (
    ("position", INT64), ("base_offset", INT64), ("last_offset", INT64), ("size", INT32), ("epoch", INT32),
    ("crc", INT64), ("attributes", INT16), ("base_timestamp", INT64), ("max_timestamp", INT64), ("producer_id", INT64),
    ("producer_epoch", INT16), ("base_sequence", INT32), ("count", INT32), ("is_valid", INT16),
)


def batch_headers(
    data, *, int64_t position=0, end=None, int64_t base_position=0, bint verify=True, int64_t count_max=-1,
):
    """Read the headers of batches that lie one after the other.

    Args:
        data: bytes-like object, an mmap, too.
        position, end: batches that start in ``data[position:end]``.
        base_position: added to positions: where ``data`` starts in its file.
        verify: compare checksums; a batch with a wrong one is listed, with ``is_valid`` 0, and reported as damage.
        count_max: stop after this many batches; -1: no limit.

    Returns:
        ``BatchHeaders``; columns are named as in ``RecordBatch``, times in ms. Reading stops where a header cannot be
        trusted: then the rest is one damage, or no damage if the bytes end inside a batch: the log may still grow.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    cdef const uint8_t *start
    cdef int64_t size, stop, rows = 0
    cdef BatchHeader header
    cdef FaultPlace place
    cdef BatchFault fault
    cdef Column[FIELDS] columns
    cdef int i
    cdef bint good
    cdef list damage = []
    pa = import_pyarrow()
    owner = acquire(data, &start, &size)
    stop = size if end is None else min(<int64_t>end, size)
    memset(columns, 0, sizeof(columns))
    place.record = IN_HEADER
    try:
        while position < stop and rows != count_max:
            fault = read_header(start + position, size - position, &header)
            if fault == BATCH_SHORT:
                break
            if fault != BATCH_OK:
                error = corrupt_batch(fault, start + position, size - position, base_position + position, &place)
                damage.append(Damage(base_position + position, stop - position, error.reason))
                break
            good = not verify or crc_matches(start + position, &header)
            if not good:
                fault = BATCH_CRC
                error = corrupt_batch(fault, start + position, size - position, base_position + position, &place)
                damage.append(Damage(base_position + position, header.size, error.reason))
            if not put_row(columns, rows, base_position + position, &header, good):
                raise MemoryError
            rows += 1
            position += header.size
        arrays = [
            pa.Array.from_buffers(
                _TYPES[width](), rows, [None, pa.py_buffer(hand_over(&columns[number], rows * <int>width, None))], 0
            )
            for number, (_, width) in enumerate(NAMES)
        ]
    finally:
        for i in range(FIELDS):
            free(columns[i].data)
    del owner
    return BatchHeaders(
        pa.RecordBatch.from_arrays(arrays, [name for name, _ in NAMES]), damage, base_position + position
    )


class _Lazy(dict):
    def __missing__(self, width):
        pa = import_pyarrow()
        self.update({8: pa.int64, 4: pa.int32, 2: pa.int16})
        return self[width]


_TYPES = _Lazy()


cdef bint put_row(Column *columns, int64_t row, int64_t position, const BatchHeader *header, bint good) noexcept nogil:
    return (
        put64(&columns[0], row, position) and put64(&columns[1], row, header.base_offset)
        and put64(&columns[2], row, header.last_offset) and put32(&columns[3], row, header.size)
        and put32(&columns[4], row, header.leader_epoch) and put64(&columns[5], row, header.crc)
        and put16(&columns[6], row, header.attributes) and put64(&columns[7], row, header.base_timestamp)
        and put64(&columns[8], row, header.max_timestamp) and put64(&columns[9], row, header.producer_id)
        and put16(&columns[10], row, header.producer_epoch) and put32(&columns[11], row, header.base_sequence)
        and put32(&columns[12], row, header.count) and put16(&columns[13], row, good)
    )


cdef inline bint put64(Column *column, int64_t row, int64_t value) noexcept nogil:
    if not grow(column, 8 * (row + 1)):
        return False
    (<int64_t *>column.data)[row] = value
    return True


cdef inline bint put32(Column *column, int64_t row, int32_t value) noexcept nogil:
    if not grow(column, 4 * (row + 1)):
        return False
    (<int32_t *>column.data)[row] = value
    return True


cdef inline bint put16(Column *column, int64_t row, int16_t value) noexcept nogil:
    if not grow(column, 2 * (row + 1)):
        return False
    (<int16_t *>column.data)[row] = value
    return True
