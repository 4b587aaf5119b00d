from libc.stdint cimport uint32_t

from kraftcore.core.uuid cimport Uuid


cdef class TopicRows:
    cdef Uuid id
    cdef uint32_t number  # what rows call the topic
    cdef uint32_t stamp  # the state of the table it was made in; older ones belong to a frozen copy, too
    cdef uint32_t *rows
    cdef uint32_t count
    cdef uint32_t room

    cdef TopicRows copy(self, uint32_t stamp)
    cdef int insert(self, uint32_t position, uint32_t row) except -1
    cdef void remove(self, uint32_t position) noexcept
