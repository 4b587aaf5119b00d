from libc.stdint cimport int32_t


cdef class Partition:
    cdef readonly tuple replicas
    cdef readonly tuple directories
    cdef readonly tuple isr
    cdef readonly tuple elr
    cdef readonly tuple last_known_elr
    cdef readonly tuple removing
    cdef readonly tuple adding
    cdef readonly int32_t leader
    cdef readonly int32_t leader_epoch
    cdef readonly int32_t partition_epoch
    cdef readonly int recovery_state
