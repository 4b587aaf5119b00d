# The log, for compiled callers: `from kraftcore.core.log.log cimport Log`.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.batch.header cimport BatchHeader
from kraftcore.core.disk.files cimport Files
from kraftcore.core.log.segments cimport Segments
from kraftcore.core.log.tail cimport Tail


cdef class Log:
    cdef Files files
    cdef readonly str folder
    cdef readonly object config
    cdef readonly list recovery_actions
    cdef readonly int64_t log_start_offset, log_end_offset, flushed_offset
    cdef readonly bint closed

    cdef object __weakref__
    cdef int owner                          # in a forked child: the process that it belongs to; else 0
    cdef Segments segments
    cdef Tail tail
    cdef object epochs
    cdef Exception failure                  # the first failed write or sync: no more appends
    cdef bint sync_failed                   # what was not flushed may be gone
    cdef int32_t epoch                      # the newest; -1 when there is none
    cdef int64_t segment_bytes, segment_ms, max_batch_bytes, now_ms
    cdef bint allow_gaps
    cdef bint names_wait
    cdef bint epochs_pending                # the checkpoint of the leader epochs is older than they are
    cdef bint epochs_unseen                 # and not even written: no record of the newest one is there

    cdef int ready(self) except -1
    cdef int settled(self) except -1
    cdef int fail(self, error) except -1
    cdef int begin_writing(self) except -1
    cdef int start_epoch(self, int32_t epoch, int64_t offset) except -1
    cdef int show_new_epoch(self) except -1
    cdef bint must_roll(self, int64_t size, const BatchHeader *header) except -1
    cdef int roll_active(self, int64_t base_offset, int64_t last_offset) except -1
    cdef int append_verified(self, object owner, const uint8_t *p, int64_t size) except -1
    cdef int append_run(self, object owner, const uint8_t *p, int64_t start, int64_t size, int64_t batches) except -1
