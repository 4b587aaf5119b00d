# What the table of partitions was before each change, oldest first.

from libc.stdint cimport int64_t, uint32_t

from kraftcore.metadata.rows cimport Row

cdef enum UndoKind:
    CHANGED          # a row had other values
    ADDED            # a row was added
    REMOVED          # a row was taken out; it still holds its values
    TOPIC_ADDED
    TOPIC_REMOVED    # with its rows, which still hold their values

cdef struct Undo:
    UndoKind kind
    uint32_t topic   # its number
    uint32_t row
    Row values       # of CHANGED, with a reference to each vector


cdef class UndoLog:
    cdef Undo *entries
    cdef size_t first      # entries in front of it are forgotten
    cdef size_t end        # behind the newest entry
    cdef size_t room
    cdef int64_t base      # position of entries[0]

    cdef int add(self, UndoKind kind, uint32_t topic, uint32_t row, const Row *values) except -1
    cdef void forget_first(self) noexcept
    cdef void compact(self) noexcept

    cdef inline int64_t position(self) noexcept nogil:
        return self.base + <int64_t>self.end

    cdef inline Undo *at(self, int64_t position) noexcept nogil:
        return &self.entries[position - self.base]
