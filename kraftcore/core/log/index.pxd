# Sparse index files of a segment, for the segment: `from kraftcore.core.log.index cimport Index`.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.disk.files cimport File, Files

cdef enum:
    OFFSET_ENTRY = 8
    TIME_ENTRY = 12


cdef struct IndexEntry:
    int64_t key             # offset index: offset; time index: timestamp, ms
    int64_t value           # offset index: file position; time index: offset


cdef class Index:
    cdef readonly str path
    cdef readonly int64_t entries       # on disk and pending
    cdef int64_t base_offset, written, capacity
    cdef int entry_size
    cdef int pending_bytes
    cdef uint8_t *pending
    cdef Files files                    # where the file is opened when it is needed; None: it is not to be
    cdef bint read_only
    cdef File file

    cdef int attach(self, Files files, bint read_only) except -1
    cdef int detach(self) except -1
    cdef File opened(self)
    cdef int add(self, int64_t key, int64_t value) except -1
    cdef int write_out(self) except -1
    cdef int refuse(self) except -1
    cdef int get(self, int64_t slot, IndexEntry *entry) except -1
    cdef int64_t floor_slot(self, int64_t target, bint by_value) except -2
    cdef int cut(self, int64_t entries) except -1
    cdef int cut_from(self, int64_t offset) except -1
