# The folder of a log, for the log: `from kraftcore.core.log_folder cimport LogFolder`.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.files cimport Files
from kraftcore.core.header cimport BatchHeader
from kraftcore.core.segment cimport Segment
from kraftcore.core.tail cimport Tail


cdef class LogFolder:
    cdef Files files
    cdef readonly str folder
    cdef readonly object config
    cdef readonly list recovery_actions
    cdef readonly int64_t log_start_offset, log_end_offset, flushed_offset
    cdef readonly bint closed

    cdef list segments, bases               # parallel, oldest first
    cdef list unsynced                      # sealed segments that no flush has reached
    cdef list readers                       # sealed segments whose files are open
    cdef list expiring                      # (time to unlink ms, path)
    cdef Segment active
    cdef Tail tail
    cdef object epochs, listing
    cdef Exception failure                  # the first failed write or sync: no more appends
    cdef bint sync_failed                   # what was not flushed may be gone
    cdef bint pristine                      # as the last clean stop left it: the listing covers the active segment
    cdef bint flushing
    cdef int32_t epoch                      # the newest; -1 when there is none
    cdef int64_t segment_bytes, segment_ms, max_batch_bytes, now_ms
    cdef int64_t listed                     # synced segments that the listing covers

    cdef int ready(self) except -1
    cdef int settled(self) except -1
    cdef int fail(self, error) except -1
    cdef int begin_writing(self) except -1
    cdef int start_epoch(self, int32_t epoch, int64_t offset) except -1
    cdef int roll_active(self) except -1
    cdef Segment segment_at(self, int64_t offset)
    cdef int keep_reader(self, Segment segment) except -1
