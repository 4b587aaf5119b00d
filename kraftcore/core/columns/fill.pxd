# The pass of columns.pyx over the batches: what it reads (Job), what it fills (Sink).

from libc.stdint cimport int64_t, uint8_t

from kraftcore.core.columns.chunks cimport Column
from kraftcore.core.batch.header cimport BatchFault, BatchHeader
from kraftcore.core.batch.record cimport FaultPlace

cdef enum:
    WANT_OFFSET = 1
    WANT_TIMESTAMP = 2
    WANT_KEY = 4
    WANT_VALUE = 8
    WANT_HEADERS = 16
    WANT_EPOCH = 32
    WANT_CONTROL = 64
    WANT_POSITION = 128

cdef enum State:
    DONE
    FULL                       # the chunk has no room for the next batch
    FAULT
    COMPRESSED
    NO_MEMORY

cdef struct Sink:
    # The columns of one chunk. `used` is kept for data of variable length only; the rest follows from the counts.
    int64_t rows
    int64_t capacity           # in rows
    int64_t span               # bytes of records taken in
    int64_t key_nulls
    int64_t value_nulls
    int64_t headers
    int64_t header_nulls
    Column offset
    Column timestamp
    Column epoch
    Column control
    Column position
    Column key_offsets
    Column key_valid
    Column key
    Column value_offsets
    Column value_valid
    Column value
    Column header_offsets
    Column name_offsets
    Column name
    Column content_offsets
    Column content_valid
    Column content

cdef struct Job:
    const uint8_t *data
    int64_t size
    int64_t position           # of the next batch
    int64_t end                # batches start before this
    int64_t base_position
    int64_t chunk_bytes
    int64_t offset_from
    int64_t offset_to
    const int64_t *types       # codes of the record types that are wanted; NULL: all
    int64_t type_count
    int want
    int scale                  # timestamps: 1 for milliseconds, 1000 for microseconds
    bint verify
    BatchHeader header
    FaultPlace place
    BatchFault fault
    Sink sink


cdef inline bint has_room(const Job *job, int64_t size) noexcept nogil:
    return job.sink.rows == 0 or job.sink.span + size <= job.chunk_bytes


# Takes batches until one needs the caller: the first compressed, damaged, or beyond the chunk's room.
cdef State run(Job *job) noexcept nogil
# Adds the batch in job.header, whose uncompressed records are the `size` bytes at `p`, or nothing of it.
cdef State take_batch(Job *job, const uint8_t *p, int64_t size) noexcept nogil
cdef void free_sink(Sink *sink) noexcept
