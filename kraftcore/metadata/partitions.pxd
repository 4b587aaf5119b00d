# The table of partitions, for compiled decisions about them.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kraftcore.core.uuid cimport Uuid
from kraftcore.metadata.partition cimport Partition
from kraftcore.metadata.partition_codec cimport PartitionCodec, PartitionFields
from kraftcore.metadata.rows cimport Row, RowNumbers, Rows
from kraftcore.metadata.topic_rows cimport TopicRows
from kraftcore.metadata.undo cimport Undo, UndoLog


cdef class Matches:
    cdef Partitions table
    cdef RowNumbers rows
    cdef size_t done
    cdef uint64_t changes_made

    cdef int64_t next_row(self) except -2  # -1: there is none


cdef class Partitions:
    cdef Rows rows
    cdef PartitionCodec codec
    cdef UndoLog log
    cdef dict topics  # TopicRows by Uuid
    cdef list numbered  # TopicRows by number; of removed ones as long as they may come back
    cdef list free_numbers
    cdef TopicRows last  # the topic asked for last
    cdef uint32_t stamp
    cdef uint64_t changes_made
    cdef bint noting

    cdef Partition find(self, Uuid topic_id, int32_t partition_id)
    cdef Partition find_in(self, TopicRows topic, int32_t partition_id)
    cdef bint is_in(self, const Row *row, int32_t broker_id, Uuid directory_id) noexcept
    cdef Matches matches(self, RowNumbers rows)
    cdef int32_t id_of_row(self, uint32_t row) noexcept
    cdef TopicRows topic_of_row(self, uint32_t row)
    cdef bint is_live(self, uint32_t row) noexcept
    cdef object row_key(self, uint32_t row)
    cdef Partition row_value(self, uint32_t row)
    cdef Partition make(self, const Row *row)
    cdef int64_t position_of(self, TopicRows topic, int32_t partition_id) noexcept
    cdef TopicRows topic_of(self, const uint8_t *topic_id)
    cdef object take_over(self, const PartitionFields *fields)
    cdef int change_row(self, uint32_t row, const Row *before, const Row *after) except -1
    cdef int add_row(self, TopicRows topic, uint32_t position, int32_t partition_id, const Row *values) except -1
    cdef TopicRows own(self, TopicRows topic)
    cdef int unlink_row(self, uint32_t row) except -1
    cdef int link_row(self, uint32_t row) except -1
    cdef int free_row(self, uint32_t row) except -1
    cdef int free_topic(self, TopicRows topic) except -1
    cdef int undo(self, const Undo *entry) except -1
    cdef int repeat_backwards(self, const Undo *entry) except -1
    cdef uint32_t successor(self, uint32_t row) except 0xFFFFFFFF
    cdef int forget(self, const Undo *entry) except -1
    cdef int first_values(self, int64_t start, int64_t end, dict found) except -1
