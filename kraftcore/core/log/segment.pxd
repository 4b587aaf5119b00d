# One segment of a log, for the log: `from kraftcore.core.log.segment cimport Segment`.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.disk.files cimport File, Files
from kraftcore.core.batch.header cimport BatchFault, BatchHeader
from kraftcore.core.log.index cimport Index

cdef enum:
    SEGMENT_BYTES_MAX = 0x7FFFFFFF      # positions in the offset index are int32
    LOOK_BYTES = 4096                   # how much a search reads at a time


cdef struct Look:
    # A page of the file, for walks over headers.
    int64_t start, got
    uint8_t bytes[LOOK_BYTES]


cdef class Segment:
    cdef Files files
    cdef File log
    cdef Index offsets, times
    cdef readonly str path                  # without the suffix
    cdef readonly int64_t base_offset, next_offset
    cdef readonly int64_t size
    cdef readonly int64_t max_timestamp, max_timestamp_offset
    cdef readonly int32_t last_epoch        # of the last batch; -1 when empty
    cdef readonly list control_offsets      # base offsets of its control batches, ascending; or of the first alone
    cdef bint all_control
    cdef readonly bint sealed               # no more appends: trimmed, last time entry written
    cdef readonly bint synced               # sealed, and durable with its indexes
    cdef readonly bint gone                 # deleted or truncated away
    cdef readonly bint unborn               # its files are not there: the first append makes them
    cdef readonly bint suspect_index        # a lookup led astray: search from the start
    cdef int64_t first_timestamp            # of the first batch; -2: not read yet
    cdef int64_t created_ms
    cdef int64_t since_entry                # bytes since the last index entry
    cdef int64_t interval_bytes
    cdef int64_t ahead_bytes                # zeros written ahead of small appends; 0: none
    cdef bint allow_gaps
    cdef readonly int64_t file_end          # where those zeros end, or 0
    cdef int64_t written_out                # batches below are on their way to the disk, or there

    cdef int attach(self) except -1
    cdef File opened(self)
    cdef int write_ahead(self, File log) except -1
    cdef int trim(self) except -1
    cdef int write_out(self) except -1
    cdef bint must_roll(self, int64_t size, int64_t last_offset, int64_t max_timestamp, int64_t now_ms,
                        int64_t segment_bytes, int64_t segment_ms) except -1
    cdef int write(self, const uint8_t *p, int64_t size) except -1
    cdef int note(self, const BatchHeader *header) except -1
    cdef int64_t find(self, int64_t offset, BatchHeader *header) except -2
    cdef bytes read(self, int64_t offset, int64_t max_bytes, int64_t up_to, bint at_least_one)
    cdef int read_first_timestamp(self) except -1
    cdef int note_time(self) except -1
    cdef int note_recovered(self, const BatchHeader *header) except -1
    cdef int64_t walk(
        self, int64_t position, int64_t entry_offset, int64_t offset, BatchHeader *header
    ) except? -1
    cdef bint look_at(self, Look *look, int64_t position, BatchHeader *header) except -1
    cdef int find_end(self) except -1
    cdef object scan(self, int64_t file_size, int32_t epoch, int64_t durable_offset, list epochs)
    cdef object objection(self, BatchFault fault, const uint8_t *p, const BatchHeader *header, int32_t epoch)
    cdef list list_entries(self, Index index)
