"""The rows of the table of partitions that belong to a topic."""

cimport cython
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove


@cython.final
@cython.auto_pickle(False)
cdef class TopicRows:
    """The partitions of a topic as row numbers, ascending by partition id."""

    def __dealloc__(self):
        free(self.rows)

    cdef TopicRows copy(self, uint32_t stamp):
        cdef TopicRows made = TopicRows.__new__(TopicRows)
        made.id = self.id
        made.number = self.number
        made.stamp = stamp
        if self.count:
            made.rows = <uint32_t *>malloc(self.count * sizeof(uint32_t))
            if made.rows == NULL:
                raise MemoryError
            memcpy(made.rows, self.rows, self.count * sizeof(uint32_t))
        made.count = made.room = self.count
        return made

    cdef int insert(self, uint32_t position, uint32_t row) except -1:
        cdef uint32_t room
        cdef void *moved
        if self.count == self.room:
            room = self.room + self.room // 2 + 1
            moved = realloc(self.rows, room * sizeof(uint32_t))
            if moved == NULL:
                raise MemoryError
            self.rows = <uint32_t *>moved
            self.room = room
        memmove(self.rows + position + 1, self.rows + position, (self.count - position) * sizeof(uint32_t))
        self.rows[position] = row
        self.count += 1
        return 0

    cdef void remove(self, uint32_t position) noexcept:
        self.count -= 1
        memmove(self.rows + position, self.rows + position + 1, (self.count - position) * sizeof(uint32_t))
