# The log, for compiled callers: `from kraftcore.core.log cimport Log`.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.header cimport BatchHeader
from kraftcore.core.log_folder cimport LogFolder


cdef class Log(LogFolder):
    cdef int append_run(self, object owner, const uint8_t *p, int64_t start, int64_t size, int64_t batches) except -1
    cdef int refuse_received(
        self, int64_t position, const BatchHeader *header, int64_t expected, int32_t epoch
    ) except -1
