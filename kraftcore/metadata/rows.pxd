# Partitions as rows of columns in C memory, in chunks that frozen copies share until one of them is written to.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kraftcore.metadata.vectors cimport Vectors

cdef enum:
    CHUNK_BITS = 10
    CHUNK_ROWS = 1 << CHUNK_BITS
    LIVE = 1  # the row is a partition of the image
    RECOVERING = 2  # its leader was elected uncleanly and has not recovered

# Numbers of vectors: directories in `Rows.directories`, all others in `Rows.brokers`.
cdef struct Row:
    uint32_t replicas
    uint32_t directories
    uint32_t isr
    uint32_t elr
    uint32_t last_known_elr
    uint32_t removing
    uint32_t adding
    int32_t leader
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t recovery_state

cdef struct Chunk:
    uint32_t references
    uint32_t[CHUNK_ROWS] topic           # number of the topic
    int32_t[CHUNK_ROWS] partition_id
    uint32_t[CHUNK_ROWS] replicas
    uint32_t[CHUNK_ROWS] directories
    uint32_t[CHUNK_ROWS] isr
    uint32_t[CHUNK_ROWS] elr
    uint32_t[CHUNK_ROWS] last_known_elr
    uint32_t[CHUNK_ROWS] removing
    uint32_t[CHUNK_ROWS] adding
    int32_t[CHUNK_ROWS] leader
    int32_t[CHUNK_ROWS] leader_epoch
    int32_t[CHUNK_ROWS] partition_epoch
    uint8_t[CHUNK_ROWS] flags

cdef enum Question:
    LED_BY
    ISR_MEMBER
    ELR_MEMBER
    REPLICA
    LEADERLESS
    NOT_PREFERRED
    REASSIGNING

cdef struct Counts:
    int64_t live
    int64_t leaderless
    int64_t not_preferred
    int64_t reassigning


cdef class RowNumbers:
    cdef uint32_t *numbers
    cdef size_t count
    cdef size_t room
    cdef int add(self, uint32_t number) except -1


cdef class Rows:
    cdef Chunk **chunks
    cdef uint32_t chunk_count
    cdef uint32_t chunk_room
    cdef uint32_t size            # rows ever used
    cdef RowNumbers free
    cdef readonly Vectors brokers
    cdef readonly Vectors directories
    cdef bint frozen
    cdef Counts counts
    cdef int64_t *leaderships     # by broker id, for ids below leadership_room
    cdef uint32_t leadership_room
    cdef dict far_leaderships     # of the others

    cdef Rows freeze(self)
    cdef uint32_t new_row(self, uint32_t topic, int32_t partition_id) except 0xFFFFFFFF
    cdef int free_row(self, uint32_t row) except -1
    cdef Chunk *writable(self, uint32_t row) except NULL
    cdef int store(self, uint32_t row, const Row *values) except -1
    cdef int set_live(self, uint32_t row, bint live) except -1
    cdef int count_row(self, const Row *values, int sign) except -1
    cdef int64_t leadership_count(self, int32_t broker_id)
    cdef int count_leader(self, int32_t broker_id, int sign) except -1
    cdef void release(self, const Row *values) noexcept
    cdef void take(self, const Row *values) noexcept
    cdef RowNumbers find(self, Question question, int32_t broker_id)
    cdef int64_t most(self, Question question, int32_t broker_id)
    cdef uint8_t *members(self, int32_t broker_id) except NULL
    cdef bint fits(
        self, Question question, int32_t broker_id, const uint8_t *members, const Chunk *chunk, uint32_t i
    ) noexcept nogil
    cdef int add_chunk(self) except -1

    cdef inline const Chunk *chunk(self, uint32_t row) noexcept nogil:
        return self.chunks[row >> CHUNK_BITS]

    cdef inline void load(self, uint32_t row, Row *values) noexcept nogil:
        cdef const Chunk *chunk = self.chunks[row >> CHUNK_BITS]
        cdef uint32_t i = row & (CHUNK_ROWS - 1)
        values.replicas = chunk.replicas[i]
        values.directories = chunk.directories[i]
        values.isr = chunk.isr[i]
        values.elr = chunk.elr[i]
        values.last_known_elr = chunk.last_known_elr[i]
        values.removing = chunk.removing[i]
        values.adding = chunk.adding[i]
        values.leader = chunk.leader[i]
        values.leader_epoch = chunk.leader_epoch[i]
        values.partition_epoch = chunk.partition_epoch[i]
        values.recovery_state = (chunk.flags[i] & RECOVERING) != 0

    cdef inline bint is_preferred(self, const Row *values) noexcept nogil:
        if self.brokers.count(values.replicas) == 0:
            return values.leader == -1
        return values.leader == self.brokers.ints(values.replicas)[0]
