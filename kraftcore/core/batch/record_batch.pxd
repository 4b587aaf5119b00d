# Record batches for compiled callers; check.pxd has what works on their bytes alone.

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.batch.header cimport BatchFault, BatchHeader
from kraftcore.core.batch.record cimport FaultPlace, RecordView


cdef class RecordBatch:
    cdef object owner
    cdef const uint8_t *p
    cdef BatchHeader header
    cdef readonly int64_t position
    cdef bytes plain
    cdef int64_t max_bytes

    cdef const uint8_t *records(self, int64_t *size) except NULL
    cdef object fault(self, BatchFault fault, const FaultPlace *place)
    cdef int begin(self, int64_t size) except -1
    cdef const uint8_t *step(
        self, const uint8_t *start, const uint8_t *p, const uint8_t *end, int32_t index, int32_t previous,
        RecordView *view
    ) except NULL
