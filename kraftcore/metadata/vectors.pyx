"""Lists of replicas and of directories, each kept once: a partition holds their numbers of 4 bytes."""

# A cluster has far fewer different replica lists than partitions, and most ISRs are the replica list itself. Each
# holder of a number (a row, an undo entry) counts as a reference. A vector without references is freed and its number
# given out again; while a frozen state pins the numbers, the vector waits.

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy

from kraftcore.core.uuid cimport uuid_from

from kraftcore.errors import InvariantError, LocalError

cdef extern from "Python.h":
    void incref "Py_INCREF"(PyObject *value) noexcept
    void decref "Py_DECREF"(PyObject *value) noexcept

cdef enum:
    INT32 = 4
    UUID = 16
    FIRST_ROOM = 64
    VIEWS_MAX = 1 << 16  # tuples that are kept for repeated reads


@cython.final
@cython.auto_pickle(False)
cdef class Vectors:
    """Interned vectors of int32 or of uuids.

    Args:
        unit: bytes of an element, 4 or 16.

    Attributes:
        live: how many different vectors are held, the empty one included.
    """

    def __cinit__(self, uint32_t unit):
        if unit != INT32 and unit != UUID:
            raise LocalError(f"vectors of elements of {unit} bytes: 4 and 16 are possible")
        self.unit = unit
        self.mask = FIRST_ROOM - 1
        self.room = FIRST_ROOM
        self.buckets = <uint32_t *>calloc(FIRST_ROOM, sizeof(uint32_t))
        self.vectors = <Vector **>calloc(FIRST_ROOM, sizeof(Vector *))
        self.free = <uint32_t *>malloc(FIRST_ROOM * sizeof(uint32_t))
        self.dead = <uint32_t *>malloc(FIRST_ROOM * sizeof(uint32_t))
        if self.buckets == NULL or self.vectors == NULL or self.free == NULL or self.dead == NULL:
            raise MemoryError
        self.vectors[0] = <Vector *>calloc(1, sizeof(Vector))
        if self.vectors[0] == NULL:
            raise MemoryError
        self.vectors[0].references = 1
        self.size = 1
        self.live = 1

    def __dealloc__(self):
        cdef uint32_t i
        if self.vectors != NULL:
            self.drop_views()
            for i in range(self.size):
                free(self.vectors[i])
        free(self.vectors)
        free(self.free)
        free(self.dead)
        free(self.buckets)

    @property
    def memory_bytes(self):
        """C memory in use, without what malloc adds."""
        cdef uint64_t total = (<uint64_t>self.mask + 1) * sizeof(uint32_t)
        cdef uint32_t i
        total += <uint64_t>self.room * (sizeof(Vector *) + 2 * sizeof(uint32_t))
        for i in range(self.size):
            if self.vectors[i] != NULL:
                total += sizeof(Vector) + <uint64_t>self.vectors[i].count * self.unit
        return total

    cdef uint32_t intern(self, const uint8_t *data, uint32_t count) except 0xFFFFFFFF:
        # The number of the vector with these elements, in the machine's byte order; the caller gets a reference.
        cdef uint32_t number, mixed
        cdef size_t size = <size_t>count * self.unit
        cdef Vector *vector
        if count == 0:
            self.take(0)
            return 0
        mixed = hash_of(data, size)
        number = self.buckets[mixed & self.mask]
        while number:
            vector = self.vectors[number]
            if vector.hash == mixed and vector.count == count and memcmp(elements(vector), data, size) == 0:
                vector.references += 1
                return number
            number = vector.following
        if self.live > self.mask:
            self.rehash()
        if self.free_count == 0 and self.size == self.room:
            self.grow()
        vector = <Vector *>malloc(sizeof(Vector) + size)
        if vector == NULL:
            raise MemoryError
        if self.free_count:
            self.free_count -= 1
            number = self.free[self.free_count]
        else:
            number = self.size
            self.size += 1
        vector.references = 1
        vector.hash = mixed
        vector.following = self.buckets[mixed & self.mask]
        vector.count = count
        vector.view = NULL
        memcpy(elements(vector), data, size)
        self.vectors[number] = vector
        self.buckets[mixed & self.mask] = number
        self.live += 1
        return number

    cdef void release(self, uint32_t number) noexcept:
        cdef Vector *vector = self.vectors[number]
        vector.references -= 1
        if vector.references == 0:
            if self.pins:
                # It may be taken up again, and be dead a second time: a place for each number is enough, because a
                # number is written down only once until the pins are gone.
                vector.references = 1
                self.dead[self.dead_count] = number
                self.dead_count += 1
            else:
                self.free_vector(number)

    cdef void unpin(self) noexcept:
        # Counts a frozen state as gone; with the last one the waiting vectors are freed.
        cdef uint32_t i, count
        self.pins -= 1
        if self.pins == 0:
            count = self.dead_count
            self.dead_count = 0
            for i in range(count):
                self.release(self.dead[i])

    cdef tuple view(self, uint32_t number):
        # The elements as a tuple.
        cdef Vector *vector = self.vectors[number]
        cdef uint32_t i
        cdef object made
        if vector.view != NULL:
            return <tuple>vector.view
        if self.unit == INT32:
            made = tuple([(<int32_t *>elements(vector))[i] for i in range(vector.count)])
        else:
            made = tuple([uuid_from(elements(vector) + i * UUID) for i in range(vector.count)])
        if self.views >= VIEWS_MAX:
            self.drop_views()
        incref(<PyObject *>made)
        vector.view = <PyObject *>made
        self.views += 1
        return <tuple>made

    cdef void drop_views(self) noexcept:
        cdef uint32_t i
        cdef Vector *vector
        for i in range(self.size):
            vector = self.vectors[i]
            if vector != NULL and vector.view != NULL:
                decref(vector.view)
                vector.view = NULL
        self.views = 0

    cdef void free_vector(self, uint32_t number) noexcept:
        cdef Vector *vector = self.vectors[number]
        cdef uint32_t *link = &self.buckets[vector.hash & self.mask]
        while link[0] != number:
            link = &self.vectors[link[0]].following
        link[0] = vector.following
        if vector.view != NULL:
            decref(vector.view)
            self.views -= 1
        free(vector)
        self.vectors[number] = NULL
        self.free[self.free_count] = number
        self.free_count += 1
        self.live -= 1

    cdef int grow(self) except -1:
        # More numbers.
        cdef uint32_t room = self.room * 2
        cdef void *moved
        if room < self.room:
            raise InvariantError(f"{self.room} different vectors are held")
        moved = realloc(self.vectors, room * sizeof(Vector *))
        if moved == NULL:
            raise MemoryError
        self.vectors = <Vector **>moved
        moved = realloc(self.free, room * sizeof(uint32_t))
        if moved == NULL:
            raise MemoryError
        self.free = <uint32_t *>moved
        moved = realloc(self.dead, room * sizeof(uint32_t))
        if moved == NULL:
            raise MemoryError
        self.dead = <uint32_t *>moved
        self.room = room
        return 0

    cdef int rehash(self) except -1:
        # More buckets.
        cdef uint32_t mask = self.mask * 2 + 1
        cdef uint32_t number
        cdef uint32_t *buckets = <uint32_t *>calloc(<size_t>mask + 1, sizeof(uint32_t))
        cdef uint32_t *bucket
        if buckets == NULL:
            raise MemoryError
        for number in range(1, self.size):
            if self.vectors[number] != NULL:
                bucket = &buckets[self.vectors[number].hash & mask]
                self.vectors[number].following = bucket[0]
                bucket[0] = number
        free(self.buckets)
        self.buckets = buckets
        self.mask = mask
        return 0


cdef uint32_t hash_of(const uint8_t *data, size_t size) noexcept nogil:
    # Words of four bytes, mixed as in MurmurHash3.
    cdef uint32_t word, mixed = <uint32_t>size
    cdef size_t i
    for i in range(0, size, 4):
        memcpy(&word, data + i, 4)
        word *= <uint32_t>0xCC9E2D51
        word = (word << 15) | (word >> 17)
        mixed ^= word * <uint32_t>0x1B873593
        mixed = ((mixed << 13) | (mixed >> 19)) * 5 + <uint32_t>0xE6546B64
    mixed ^= mixed >> 16
    mixed *= <uint32_t>0x85EBCA6B
    mixed ^= mixed >> 13
    return mixed
