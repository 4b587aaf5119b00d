# PartitionRecord and PartitionChangeRecord between bytes and rows, without objects.

from libc.stdint cimport int32_t, uint8_t, uint32_t

from kraftcore.core.uuid cimport Uuid
from kraftcore.metadata.rows cimport Row, Rows

cdef enum:
    PARTITION_RECORD = 3
    PARTITION_CHANGE_RECORD = 5
    NO_LEADER_CHANGE = -2
    ABSENT = -1  # RecordList.count

# A list as it stands in the record, big-endian.
cdef struct RecordList:
    const uint8_t *data
    int32_t count

# What a record says. Of a PartitionRecord every list but ELR and last known ELR is there.
cdef struct PartitionFields:
    bint is_change
    int32_t partition_id
    const uint8_t *topic_id
    RecordList replicas
    RecordList isr
    RecordList removing
    RecordList adding
    RecordList elr
    RecordList last_known_elr
    RecordList directories
    int32_t leader
    int32_t recovery_state  # -1 in a change: as before
    int32_t leader_epoch
    int32_t partition_epoch


cdef bint is_partition_record(const uint8_t *p, const uint8_t *end) noexcept nogil
cdef bint read_partition_fields(const uint8_t *p, const uint8_t *end, PartitionFields *fields) noexcept nogil


cdef class PartitionCodec:
    cdef Rows rows
    cdef uint8_t *scratch
    cdef size_t room

    cdef bint directories_fit(self, const PartitionFields *fields, const Row *before) noexcept
    cdef int fill(self, const PartitionFields *fields, const Row *before, Row *row) except -1
    cdef bytes encode(self, const Row *row, Uuid topic_id, int32_t partition_id, int version)
    cdef bint tells_directories(self, uint32_t directories) noexcept
    cdef int reserve(self, size_t size) except -1
    cdef int replace_ints(self, uint32_t *number, const RecordList *values) except -1
    cdef int replace_directories(self, const PartitionFields *fields, Row *row) except -1
    cdef uint8_t *write_ints(self, uint8_t *p, uint32_t number) noexcept
    cdef uint8_t *write_tagged_ints(self, uint8_t *p, uint32_t tag, uint32_t number) noexcept
