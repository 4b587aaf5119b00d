# What a leader sent, verified for the log: `from kraftcore.core.log.received cimport verify_received`.

from libc.stdint cimport int32_t, int64_t, uint8_t


cdef struct LogEnd:
    # What the batches have to continue.
    int64_t next_offset, segment_bytes
    int64_t epoch_limit                     # batches of later epochs are left out
    int32_t epoch
    bint allow_gaps


cdef struct Received:
    # The batches that are taken.
    int64_t first_offset, next_offset, size, batches

# The bytes of `data`, which nobody can change: bytes or a view of bytes, else a copy. The result keeps them alive.
cdef object unchanging(object data, const uint8_t **p, int64_t *size)
cdef int verify_received(str folder, const uint8_t *p, int64_t available, const LogEnd *end, Received *found) except -1
