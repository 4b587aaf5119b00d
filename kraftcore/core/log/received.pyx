"""Batches that a leader sent: each is verified, and must continue the log, before the first one is appended."""

from cpython.buffer cimport PyBuffer_IsContiguous
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_Check, PyMemoryView_GET_BUFFER
from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftcore.core.batch.check cimport check_batch, corrupt_batch
from kraftcore.core.batch.header cimport BATCH_OK, BATCH_SHORT, BatchFault, BatchHeader, read_header
from kraftcore.core.batch.record cimport FaultPlace

from kraftcore.core.log.refusals import refuse_from_leader
from kraftcore.errors import CorruptBatchError

__all__ = []

cdef int64_t OFFSET_MAX = 0x7FFFFFFFFFFFFFFF


cdef object unchanging(object data, const uint8_t **p, int64_t *size):
    cdef object owner = data if shows_bytes(data) else bytes(data)
    if PyBytes_CheckExact(owner):
        p[0], size[0] = <const uint8_t *>PyBytes_AS_STRING(owner), PyBytes_GET_SIZE(owner)
    else:
        p[0], size[0] = <const uint8_t *>PyMemoryView_GET_BUFFER(owner).buf, PyMemoryView_GET_BUFFER(owner).len
    return owner


cdef int shows_bytes(object data) except -1:
    # Whether the object is bytes, or a view of bytes, and so cannot change.
    if PyBytes_CheckExact(data):
        return True
    return (
        PyMemoryView_Check(data) and PyBytes_CheckExact(data.obj)
        and PyBuffer_IsContiguous(PyMemoryView_GET_BUFFER(data), b"C")
    )


cdef int verify_received(str folder, const uint8_t *p, int64_t available, const LogEnd *end, Received *found) except -1:
    # Takes no batch if the first one is of an epoch that is left out. Raises CorruptBatchError.
    cdef BatchHeader header
    cdef BatchFault fault = BATCH_OK
    cdef FaultPlace place
    cdef int32_t epoch = end.epoch
    found.first_offset = found.next_offset = end.next_offset
    found.size = found.batches = 0
    while found.size < available:
        fault = read_header(p + found.size, available - found.size, &header)
        if fault == BATCH_SHORT or (fault == BATCH_OK and header.leader_epoch > end.epoch_limit):
            break
        fault = check_batch(p + found.size, available - found.size, True, &header, &place)
        if fault != BATCH_OK:
            raise corrupt_batch(fault, p + found.size, available - found.size, found.size, &place)
        if (
            header.base_offset < found.next_offset or header.last_offset == OFFSET_MAX
            or header.leader_epoch < epoch or header.leader_epoch < 0 or header.size > end.segment_bytes
            or (not end.allow_gaps and (
                header.base_offset != found.next_offset or header.count < 1
                or header.count - 1 != header.last_offset_delta
            ))
        ):
            offsets = (header.base_offset, header.last_offset, header.last_offset_delta)
            refuse_from_leader(folder, found.size, offsets, header.count, header.leader_epoch, header.size,
                               (found.next_offset, epoch, end.segment_bytes), allow_gaps=end.allow_gaps)
        if found.batches == 0:
            found.first_offset = header.base_offset
        found.next_offset = header.last_offset + 1
        epoch = header.leader_epoch
        found.size += header.size
        found.batches += 1
    if found.batches == 0 and (not available or fault == BATCH_SHORT):
        raise CorruptBatchError(f"{folder}: {available} bytes that do not hold one whole batch", position=0)
    return 0
