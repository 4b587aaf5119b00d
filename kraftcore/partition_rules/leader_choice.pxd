from libc.stdint cimport int32_t

from kraftcore.metadata.partition cimport Partition


cdef class LeaderChoice:
    cdef object brokers
    cdef dict asked  # by broker id, filled as brokers are asked for: the broker where it may lead, else None
    cdef bint is_elr_on
    cdef int32_t including

    cdef tuple choose(self, Partition before, object election, tuple isr, tuple elr, tuple replicas)
    cdef bint is_candidate(self, object broker_id, tuple among, Partition partition) except -1
    cdef bint can_lead(self, object broker_id, Partition partition) except -1
