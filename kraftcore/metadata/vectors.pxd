# Small vectors kept once each: replica lists, ISRs, directories. A partition holds their numbers.

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef struct Vector:
    uint32_t references
    uint32_t hash
    uint32_t following   # the next one in the bucket; 0: none
    uint32_t count       # elements
    PyObject *view       # the tuple of it, once somebody asked; owned
    # the elements follow


cdef inline uint8_t *elements(Vector *vector) noexcept nogil:
    return <uint8_t *>vector + sizeof(Vector)


cdef class Vectors:
    cdef Vector **vectors    # by number; NULL where free. 0 is the empty vector
    cdef uint32_t *free      # numbers to give out anew; as many places as `vectors`
    cdef uint32_t *dead      # numbers without references that a pin keeps; as many places as `vectors`
    cdef uint32_t *buckets
    cdef uint32_t unit       # bytes of an element: 4 for an int32, 16 for a uuid
    cdef uint32_t size       # numbers given out so far, free ones included
    cdef uint32_t room
    cdef uint32_t free_count
    cdef uint32_t dead_count
    cdef uint32_t mask       # buckets - 1
    cdef uint32_t views
    cdef uint32_t pins
    cdef readonly uint32_t live

    cdef uint32_t intern(self, const uint8_t *data, uint32_t count) except 0xFFFFFFFF
    cdef void release(self, uint32_t number) noexcept
    cdef tuple view(self, uint32_t number)
    cdef void unpin(self) noexcept
    cdef int grow(self) except -1
    cdef int rehash(self) except -1
    cdef void free_vector(self, uint32_t number) noexcept
    cdef void drop_views(self) noexcept

    cdef inline void take(self, uint32_t number) noexcept nogil:
        self.vectors[number].references += 1

    cdef inline uint32_t count(self, uint32_t number) noexcept nogil:
        return self.vectors[number].count

    cdef inline const int32_t *ints(self, uint32_t number) noexcept nogil:
        return <const int32_t *>elements(self.vectors[number])

    cdef inline const uint8_t *data(self, uint32_t number) noexcept nogil:
        return elements(self.vectors[number])

    cdef inline bint holds(self, uint32_t number, int32_t value) noexcept nogil:
        cdef const int32_t *p = <const int32_t *>elements(self.vectors[number])
        cdef uint32_t i
        for i in range(self.vectors[number].count):
            if p[i] == value:
                return True
        return False
