# Decoded columns for compiled callers.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    SLACK = 64                 # bytes behind each buffer's contents


cdef class ColumnBuffer:
    cdef uint8_t *data
    cdef int64_t size


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
cdef ColumnBuffer make_buffer(uint8_t *data, int64_t size, int64_t capacity)
cdef object import_pyarrow()
# Of a pyarrow buffer; NULL without one.
cdef const uint8_t *address(object buffer) except? NULL
# Names in the caller's order, and a bit for each by its place in COLUMNS.
cdef tuple wanted_columns(object columns)
# 1 for "ms", 1000 for "us".
cdef int timestamp_scale(str unit) except -1
