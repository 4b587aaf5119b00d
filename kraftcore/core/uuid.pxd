from libc.stdint cimport uint8_t, uint64_t


cdef class Uuid:
    cdef readonly uint64_t high
    cdef readonly uint64_t low


cdef Uuid uuid_from(const uint8_t *data)
cdef void store_uuid(uint8_t *p, Uuid value) noexcept
