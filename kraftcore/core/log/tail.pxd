# The recent end of a log in memory, for the log: `from kraftcore.core.log.tail cimport Tail`.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t


cdef struct TailEntry:
    PyObject *owner             # bytes or bytearray, one reference held
    int64_t start, size         # the part of it that holds the batches
    int64_t base_offset, next_offset
    int64_t position            # bytes of batches before it, since the last reset
    bint single                 # one batch: no look inside


cdef class Tail:
    cdef TailEntry *ring
    cdef int64_t slots, first, count
    cdef readonly int64_t base_offset, next_offset      # what it covers; both the log's end when empty
    cdef readonly int64_t used_bytes, bytes_max
    cdef int64_t position       # of what comes next

    cdef int reset(self, int64_t offset) except -1
    cdef int bound(self, int64_t bytes_max) noexcept
    cdef bint takes(self, int64_t size) noexcept
    cdef int push(self, object owner, int64_t start, int64_t size, int64_t base_offset, int64_t next_offset,
                  bint single) except -1
    cdef int cut(self, int64_t offset) except -1
    cdef int64_t position_of(self, int64_t offset) noexcept
    cdef int64_t slot_of(self, int64_t offset) noexcept
    cdef bytes read(self, int64_t offset, int64_t max_bytes, int64_t up_to, bint at_least_one)
    cdef TailEntry *entry(self, int64_t number) noexcept
    cdef int drop_first(self) noexcept
    cdef int drop_last(self) noexcept
    cdef bint grow(self) noexcept
