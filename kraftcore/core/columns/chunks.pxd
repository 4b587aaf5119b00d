# Decoded columns for compiled callers, and the memory they are filled into.

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport realloc

cdef enum:
    SLACK = 64                 # bytes behind each buffer's contents
    BLOCKS_MAX = 64            # that a pool keeps
    CHUNK_COLUMNS = 11         # buffers of a chunk's columns without its headers


cdef struct Column:
    uint8_t *data
    int64_t used
    int64_t capacity
    int64_t before             # bytes it held when it was handed over the last time


cdef struct Block:
    uint8_t *data
    int64_t capacity


cdef class BufferPool:
    cdef readonly int64_t limit
    cdef readonly int64_t kept
    cdef int count
    cdef Block[BLOCKS_MAX] blocks  # the longest here first
    cdef int64_t[CHUNK_COLUMNS] chunk  # bytes of the last chunk's columns: the next ColumnReader's will be as large

    # Memory for `bytes` and the slack, if there is a block of about that size; else the column stays as it is: empty.
    cdef void lend(self, Column *column, int64_t bytes) noexcept
    cdef void give_back(self, uint8_t *data, int64_t capacity) noexcept
    cdef void remove(self, int at) noexcept


cdef class ColumnBuffer:
    cdef uint8_t *data
    cdef int64_t size
    cdef int64_t capacity
    cdef BufferPool pool       # gets the memory in the end; None: the allocator does


cdef class ColumnChunk:
    cdef readonly int64_t count
    cdef readonly tuple columns
    cdef readonly dict buffers
    cdef readonly str timestamp_unit
    cdef int64_t key_nulls
    cdef int64_t value_nulls
    cdef int64_t headers
    cdef int64_t header_nulls

    cdef object array(self, object wrap, object from_buffers, str name, object kind, tuple pair)


# Takes over malloc'ed `data`; a large rest behind `size` is given back.
cdef ColumnBuffer make_buffer(uint8_t *data, int64_t size, int64_t capacity, BufferPool pool)
cdef object import_pyarrow()
# Of a pyarrow buffer; NULL without one.
cdef const uint8_t *address(object buffer) except? NULL
# Names in the caller's order, and a bit for each by its place in COLUMNS.
cdef tuple wanted_columns(object columns)
# 1 for "ms", 1000 for "us".
cdef int timestamp_scale(str unit) except -1


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


cdef inline bint begin(Column *column, int64_t bytes, BufferPool pool) noexcept:
    # An empty column with room for `bytes`, out of the pool (None: of none) if that has any. It held nothing.
    column.data = NULL
    column.used = column.capacity = 0
    if pool is not None:
        pool.lend(column, bytes)
    return grow(column, bytes)


cdef inline ColumnBuffer hand_over(Column *column, int64_t size, BufferPool pool):
    # The column's memory becomes a Python object.
    cdef ColumnBuffer buffer = make_buffer(column.data, size, column.capacity, pool)
    column.data = NULL
    column.capacity = column.used = 0
    column.before = size
    return buffer
