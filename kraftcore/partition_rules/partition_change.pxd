from libc.stdint cimport int32_t

from kraftcore.core.uuid cimport Uuid
from kraftcore.metadata.partition cimport Partition
from kraftcore.partition_rules.leader_choice cimport LeaderChoice


cdef class PartitionRules:
    cdef readonly int version
    cdef object brokers
    cdef LeaderChoice leaders
    cdef bint is_elr_on
    cdef bint has_directories
    cdef bint raises_epoch_on_shrink
    cdef int32_t without
    cdef int32_t unclean

    cdef object changed(
        self,
        Uuid topic_id,
        int32_t partition_id,
        Partition before,
        int min_isr,
        object election,
        tuple isr,
        tuple replicas,
        tuple removing,
        tuple adding,
        int recovery_state,
        tuple directory,
    )
    cdef object refreshed(
        self, Uuid topic_id, int32_t partition_id, Partition before, int min_isr, object election
    )
    cdef tuple next_elr(self, Partition before, tuple isr, int min_isr)
    cdef list wanted_directories(self, Partition before, tuple replicas, tuple directory)
