from kraftcore.metadata.partition_codec cimport PartitionCodec
from kraftcore.metadata.rows cimport Rows


cdef class FrozenPartitions:
    cdef Rows rows
    cdef PartitionCodec codec
    cdef dict topics  # TopicRows by Uuid
