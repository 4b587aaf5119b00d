# Record batches for compiled callers (the log, columns):
#
#     read_header(p, available, &header)                  header.pxd: header fields, bounds-checked
#     crc_matches(p, &header)                             header.pxd: the checksum
#     check_records(p, &header, &place, &seen)            deep check of the records, no GIL; compressed ones are let
#                                                         through: check_compressed(p, &header, position, limit, &seen)
#     check_batch(p, available, deep, &header, &place)    all of these in order
#     corrupt_batch(fault, p, available, position, &place, path)    the CorruptBatchError for a fault, to be raised
#     stamp_header(p, base_offset, leader_epoch)          header.pxd: what a leader writes into a batch on append
#
# `p` is the first byte of the batch, `available` what follows from there, `position` the place of `p` in the caller's
# input, for the error only.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.batch.header cimport BatchFault, BatchHeader
from kraftcore.core.batch.record cimport FaultPlace, RecordsSeen

cdef BatchFault check_records(
    const uint8_t *p, const BatchHeader *header, FaultPlace *place, RecordsSeen *seen
) noexcept nogil
cdef BatchFault check_batch(
    const uint8_t *p, int64_t available, bint deep, BatchHeader *header, FaultPlace *place
) noexcept nogil
cdef object corrupt_batch(
    BatchFault fault, const uint8_t *p, int64_t available, int64_t position, const FaultPlace *place, object path=*
)
cdef bytes decompress_records(const uint8_t *p, const BatchHeader *header, int64_t position, int64_t max_bytes)
cdef int check_compressed(
    const uint8_t *p, const BatchHeader *header, int64_t position, int64_t max_bytes, RecordsSeen *seen
) except -1

# The memory of a bytes-like argument. The result keeps it alive: bytes themselves, else a buffer export.
cdef object acquire(object data, const uint8_t **p, int64_t *size)
