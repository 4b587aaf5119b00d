"""Earlier rows of the table of partitions, by which changes are undone."""

cimport cython
from libc.stdint cimport uint32_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove, memset

from kraftcore.metadata.rows cimport Row


@cython.final
@cython.auto_pickle(False)
cdef class UndoLog:
    """Changes in their order. A position counts all changes ever noted, so it stays valid when old ones go."""

    def __dealloc__(self):
        free(self.entries)

    cdef int add(self, UndoKind kind, uint32_t topic, uint32_t row, const Row *values) except -1:
        cdef size_t room
        cdef void *moved
        cdef Undo *entry
        if self.end == self.room:
            self.compact()
        if self.end == self.room:
            room = self.room * 2 if self.room else 64
            moved = realloc(self.entries, room * sizeof(Undo))
            if moved == NULL:
                raise MemoryError
            self.entries = <Undo *>moved
            self.room = room
        entry = &self.entries[self.end]
        entry.kind = kind
        entry.topic = topic
        entry.row = row
        if values == NULL:
            memset(&entry.values, 0, sizeof(Row))
        else:
            entry.values = values[0]
        self.end += 1
        return 0

    cdef void forget_first(self) noexcept:
        # The oldest entry; what it refers to is the caller's.
        self.first += 1
        if self.first == self.end:
            self.compact()

    cdef void compact(self) noexcept:
        # Moves what is left to the front, if that frees at least half.
        if self.first and (self.first == self.end or self.first * 2 > self.end):
            memmove(self.entries, self.entries + self.first, (self.end - self.first) * sizeof(Undo))
            self.base += <long long>self.first
            self.end -= self.first
            self.first = 0
