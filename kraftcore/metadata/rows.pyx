"""Partitions as rows of columns in C memory: 49 bytes each, and lists in `kraftcore.metadata.vectors`."""

# A query like "which partitions have broker 3 in their ISR" reads one column of all rows, some nanoseconds each; counts
# show beforehand when there is no match. So no index by broker has to be kept up to date, which would cost as much
# memory as the rows themselves.
#
# Chunks are shared with frozen copies. A chunk with more than one reference is copied before it is written to.

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from kraftcore.metadata.vectors cimport Vectors

from kraftcore.errors import InvariantError

cdef enum:
    NEAR_BROKERS_MAX = 1 << 16
    ROWS_MAX = 0xFFFFFFF0


@cython.final
@cython.auto_pickle(False)
cdef class RowNumbers:
    """A growing list of row numbers."""

    def __dealloc__(self):
        free(self.numbers)

    cdef int add(self, uint32_t number) except -1:
        cdef void *moved
        cdef size_t room
        if self.count == self.room:
            room = self.room * 2 if self.room else 16
            moved = realloc(self.numbers, room * sizeof(uint32_t))
            if moved == NULL:
                raise MemoryError
            self.numbers = <uint32_t *>moved
            self.room = room
        self.numbers[self.count] = number
        self.count += 1
        return 0


@cython.final
@cython.no_gc_clear  # freezing ends in __dealloc__, which needs the vectors
@cython.auto_pickle(False)
cdef class Rows:
    """The rows of a table of partitions.

    Attributes:
        brokers: the lists of broker ids.
        directories: the lists of directory ids.
    """

    def __cinit__(self):
        self.free = RowNumbers()
        self.far_leaderships = {}
        self.brokers = Vectors(4)
        self.directories = Vectors(16)

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.chunk_count):
            self.chunks[i].references -= 1
            if self.chunks[i].references == 0:
                free(self.chunks[i])
        free(self.chunks)
        free(self.leaderships)
        if self.frozen:
            self.brokers.unpin()
            self.directories.unpin()

    @property
    def memory_bytes(self):
        """C memory in use, without what malloc adds."""
        return (
            self.chunk_count * sizeof(Chunk)
            + self.chunk_room * sizeof(Chunk *)
            + self.free.room * sizeof(uint32_t)
            + self.leadership_room * sizeof(int64_t)
            + self.brokers.memory_bytes
            + self.directories.memory_bytes
        )

    cdef Rows freeze(self):
        # The rows as they are now, for reading; shares chunks and vectors.
        cdef Rows copy = Rows.__new__(Rows)
        cdef uint32_t i
        copy.brokers = self.brokers
        copy.directories = self.directories
        copy.brokers.pins += 1
        copy.directories.pins += 1
        copy.frozen = True
        copy.counts = self.counts
        if self.chunk_count:
            copy.chunks = <Chunk **>malloc(self.chunk_count * sizeof(Chunk *))
            if copy.chunks == NULL:
                raise MemoryError
        for i in range(self.chunk_count):
            self.chunks[i].references += 1
            copy.chunks[i] = self.chunks[i]
        copy.chunk_count = copy.chunk_room = self.chunk_count
        copy.size = self.size
        return copy

    cdef uint32_t new_row(self, uint32_t topic, int32_t partition_id) except 0xFFFFFFFF:
        # A row that is not live yet and holds empty vectors.
        cdef uint32_t row, i
        cdef Chunk *chunk
        if self.free.count:
            row = self.free.numbers[self.free.count - 1]
            chunk = self.writable(row)
            self.free.count -= 1
        else:
            if self.size >= ROWS_MAX:
                raise InvariantError(f"the table has {self.size} rows")
            if self.size == self.chunk_count * CHUNK_ROWS:
                self.add_chunk()
            row = self.size
            chunk = self.writable(row)
            self.size += 1
        i = row & (CHUNK_ROWS - 1)
        chunk.topic[i] = topic
        chunk.partition_id[i] = partition_id
        chunk.flags[i] = 0
        return row

    cdef int free_row(self, uint32_t row) except -1:
        # Of a row that is not live; its vectors are the caller's.
        return self.free.add(row)

    cdef int add_chunk(self) except -1:
        cdef uint32_t room
        cdef void *moved
        if self.chunk_count == self.chunk_room:
            room = self.chunk_room * 2 if self.chunk_room else 4
            moved = realloc(self.chunks, room * sizeof(Chunk *))
            if moved == NULL:
                raise MemoryError
            self.chunks = <Chunk **>moved
            self.chunk_room = room
        self.chunks[self.chunk_count] = <Chunk *>calloc(1, sizeof(Chunk))
        if self.chunks[self.chunk_count] == NULL:
            raise MemoryError
        self.chunks[self.chunk_count].references = 1
        self.chunk_count += 1
        return 0

    cdef Chunk *writable(self, uint32_t row) except NULL:
        # The row's chunk, of our own.
        cdef uint32_t number = row >> CHUNK_BITS
        cdef Chunk *chunk = self.chunks[number]
        cdef Chunk *copy
        if chunk.references > 1:
            copy = <Chunk *>malloc(sizeof(Chunk))
            if copy == NULL:
                raise MemoryError
            memcpy(copy, chunk, sizeof(Chunk))
            copy.references = 1
            chunk.references -= 1
            self.chunks[number] = chunk = copy
        return chunk

    cdef int store(self, uint32_t row, const Row *values) except -1:
        # Puts values into a row; references and counts are the caller's.
        cdef Chunk *chunk = self.writable(row)
        cdef uint32_t i = row & (CHUNK_ROWS - 1)
        chunk.replicas[i] = values.replicas
        chunk.directories[i] = values.directories
        chunk.isr[i] = values.isr
        chunk.elr[i] = values.elr
        chunk.last_known_elr[i] = values.last_known_elr
        chunk.removing[i] = values.removing
        chunk.adding[i] = values.adding
        chunk.leader[i] = values.leader
        chunk.leader_epoch[i] = values.leader_epoch
        chunk.partition_epoch[i] = values.partition_epoch
        chunk.flags[i] = <uint8_t>((chunk.flags[i] & LIVE) | (RECOVERING if values.recovery_state else 0))
        return 0

    cdef int set_live(self, uint32_t row, bint live) except -1:
        # Makes a row count, or not.
        cdef Chunk *chunk = self.writable(row)
        cdef uint32_t i = row & (CHUNK_ROWS - 1)
        cdef Row values
        self.load(row, &values)
        self.count_row(&values, 1 if live else -1)
        chunk.flags[i] = <uint8_t>(chunk.flags[i] & ~LIVE | (LIVE if live else 0))
        return 0

    cdef int count_row(self, const Row *values, int sign) except -1:
        self.count_leader(values.leader, sign)
        self.counts.live += sign
        self.counts.leaderless += sign * (values.leader == -1)
        self.counts.not_preferred += sign * (not self.is_preferred(values))
        self.counts.reassigning += sign * (values.removing != 0 or values.adding != 0)
        return 0

    cdef int count_leader(self, int32_t broker_id, int sign) except -1:
        cdef uint32_t room
        cdef void *moved
        if 0 <= broker_id < NEAR_BROKERS_MAX:
            if <uint32_t>broker_id >= self.leadership_room:
                room = self.leadership_room if self.leadership_room else 16
                while room <= <uint32_t>broker_id:
                    room *= 2
                moved = realloc(self.leaderships, room * sizeof(int64_t))
                if moved == NULL:
                    raise MemoryError
                self.leaderships = <int64_t *>moved
                memset(self.leaderships + self.leadership_room, 0,
                       (room - self.leadership_room) * sizeof(int64_t))
                self.leadership_room = room
            self.leaderships[broker_id] += sign
        elif broker_id != -1:
            count = self.far_leaderships.get(broker_id, 0) + sign
            if count:
                self.far_leaderships[broker_id] = count
            else:
                del self.far_leaderships[broker_id]
        return 0

    cdef int64_t leadership_count(self, int32_t broker_id):
        if 0 <= broker_id < NEAR_BROKERS_MAX:
            return self.leaderships[broker_id] if <uint32_t>broker_id < self.leadership_room else 0
        return self.far_leaderships.get(broker_id, 0)

    cdef void take(self, const Row *values) noexcept:
        # One more reference to each vector.
        self.brokers.take(values.replicas)
        self.directories.take(values.directories)
        self.brokers.take(values.isr)
        self.brokers.take(values.elr)
        self.brokers.take(values.last_known_elr)
        self.brokers.take(values.removing)
        self.brokers.take(values.adding)

    cdef void release(self, const Row *values) noexcept:
        # One reference less.
        self.brokers.release(values.replicas)
        self.directories.release(values.directories)
        self.brokers.release(values.isr)
        self.brokers.release(values.elr)
        self.brokers.release(values.last_known_elr)
        self.brokers.release(values.removing)
        self.brokers.release(values.adding)

    cdef RowNumbers find(self, Question question, int32_t broker_id):
        # The live rows that fit a question, in the order of the table.
        cdef RowNumbers found = RowNumbers.__new__(RowNumbers)
        cdef uint8_t *members = NULL
        cdef uint32_t number, i, first, last
        cdef int64_t most = self.most(question, broker_id)
        cdef const Chunk *chunk
        if most == 0:
            return found
        try:
            if ISR_MEMBER <= question <= REPLICA:
                members = self.members(broker_id)
            for number in range(self.chunk_count):
                chunk = self.chunks[number]
                first = number << CHUNK_BITS
                last = min(self.size - first, <uint32_t>CHUNK_ROWS)
                for i in range(last):
                    if chunk.flags[i] & LIVE and self.fits(question, broker_id, members, chunk, i):
                        found.add(first + i)
                if <int64_t>found.count == most:
                    break
            return found
        finally:
            free(members)

    cdef int64_t most(self, Question question, int32_t broker_id):
        # How many rows can fit.
        if question == LED_BY:
            return self.leadership_count(broker_id)
        if question == LEADERLESS:
            return self.counts.leaderless
        if question == NOT_PREFERRED:
            return self.counts.not_preferred
        if question == REASSIGNING:
            return self.counts.reassigning
        return self.counts.live

    cdef uint8_t *members(self, int32_t broker_id) except NULL:
        # A flag for each vector: whether it has the broker.
        cdef uint8_t *flags = <uint8_t *>calloc(self.brokers.size, 1)
        cdef uint32_t i
        if flags == NULL:
            raise MemoryError
        for i in range(self.brokers.size):
            if self.brokers.vectors[i] != NULL:
                flags[i] = self.brokers.holds(i, broker_id)
        return flags

    cdef bint fits(
        self, Question question, int32_t broker_id, const uint8_t *members, const Chunk *chunk, uint32_t i
    ) noexcept nogil:
        if question == LED_BY:
            return chunk.leader[i] == broker_id
        if question == ISR_MEMBER:
            return members[chunk.isr[i]]
        if question == ELR_MEMBER:
            return members[chunk.elr[i]]
        if question == REPLICA:
            return members[chunk.replicas[i]]
        if question == LEADERLESS:
            return chunk.leader[i] == -1
        if question == REASSIGNING:
            return chunk.removing[i] != 0 or chunk.adding[i] != 0
        if self.brokers.count(chunk.replicas[i]) == 0:
            return chunk.leader[i] != -1
        return chunk.leader[i] != self.brokers.ints(chunk.replicas[i])[0]
