"""The last batches of a log, kept in memory as they were appended.

A ring of entries; each names a part of a buffer that holds one or more whole batches, in order and without a gap up
to the log's end. Bounded in bytes, its own bookkeeping included; the rest of the oldest entry's buffer, at most a
quarter of the bound, comes on top. Followers that keep up and the apply loop read only from here.
"""

cimport cython
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

from kraftcore.core.bytes cimport load_int32, load_int64
from kraftcore.core.batch.header cimport BATCH_OVERHEAD

cdef enum:
    ENTRY_COST = 128      # bookkeeping of an entry and its buffer object, in bytes
    SLOTS_MIN = 64


@cython.final
cdef class Tail:
    """The recent end of a log.

    Attributes:
        base_offset: first offset it holds.
        next_offset: the log's end.
        used_bytes: what it holds, bookkeeping included.
        bytes_max: the bound on ``used_bytes``.
    """

    def __cinit__(self, int64_t bytes_max, int64_t offset):
        self.bytes_max = bytes_max
        self.base_offset = self.next_offset = offset
        self.slots = SLOTS_MIN
        self.ring = <TailEntry *>PyMem_Malloc(self.slots * sizeof(TailEntry))
        if self.ring == NULL:
            raise MemoryError

    def __dealloc__(self):
        if self.ring != NULL:
            while self.count:
                self.drop_first()
            PyMem_Free(self.ring)

    cdef TailEntry *entry(self, int64_t number) noexcept:
        return &self.ring[(self.first + number) & (self.slots - 1)]

    cdef int drop_first(self) noexcept:
        cdef TailEntry *entry = self.entry(0)
        self.first += 1
        self.count -= 1
        self.used_bytes -= entry.size + ENTRY_COST
        self.base_offset = entry.next_offset
        Py_DECREF(<object>entry.owner)
        return 0

    cdef int drop_last(self) noexcept:
        cdef TailEntry *entry = self.entry(self.count - 1)
        self.count -= 1
        self.used_bytes -= entry.size + ENTRY_COST
        self.next_offset, self.position = entry.base_offset, entry.position
        Py_DECREF(<object>entry.owner)
        return 0

    cdef int reset(self, int64_t offset) except -1:
        while self.count:
            self.drop_first()
        self.base_offset = self.next_offset = offset
        return 0

    cdef bint grow(self) noexcept:
        cdef TailEntry *ring = <TailEntry *>PyMem_Malloc(2 * self.slots * sizeof(TailEntry))
        cdef int64_t number
        if ring == NULL:
            return False
        for number in range(self.count):
            ring[number] = self.entry(number)[0]
        PyMem_Free(self.ring)
        self.ring, self.first = ring, 0
        self.slots *= 2
        return True

    cdef int bound(self, int64_t bytes_max) noexcept:
        self.bytes_max = bytes_max
        while self.count and self.used_bytes > bytes_max:
            self.drop_first()
        return 0

    cdef bint takes(self, int64_t size) noexcept:
        # Whether a piece of ``size`` bytes may be pushed.
        return size + ENTRY_COST <= self.bytes_max

    cdef int push(self, object owner, int64_t start, int64_t size, int64_t base_offset, int64_t next_offset,
                  bint single) except -1:
        # A bytearray holds a single batch: if its giver changes it against the contract, readers get wrong bytes, but
        # the walk over lengths inside never leaves the buffer. Several batches come in bytes, which cannot change.
        cdef TailEntry *entry
        if base_offset != self.next_offset or not self.takes(size):
            self.reset(next_offset)
            return 0
        while self.used_bytes + size + ENTRY_COST > self.bytes_max:
            self.drop_first()
        if self.count == self.slots and not self.grow():
            self.reset(next_offset)
            return 0
        Py_INCREF(owner)
        self.count += 1
        entry = self.entry(self.count - 1)
        entry.owner = <PyObject *>owner
        entry.start, entry.size, entry.single = start, size, single
        entry.base_offset, entry.next_offset = base_offset, next_offset
        entry.position = self.position
        self.position += size
        self.used_bytes += size + ENTRY_COST
        self.next_offset = next_offset
        return 0

    cdef int cut(self, int64_t offset) except -1:
        # `offset` is where a batch starts, or the log's end.
        while self.count and self.entry(self.count - 1).base_offset >= offset:
            self.drop_last()
        if self.next_offset > offset:
            self.reset(offset)  # within an entry of several batches, which are then read from disk
        elif self.count == 0:
            self.reset(offset)
        return 0

    cdef int64_t slot_of(self, int64_t offset) noexcept:
        # Index of the entry that holds `offset`, which is at or above base_offset and below next_offset.
        cdef int64_t low = 0, high = self.count - 1, middle
        while low < high:
            middle = (low + high + 1) // 2
            if self.entry(middle).base_offset <= offset:
                low = middle
            else:
                high = middle - 1
        return low

    cdef int64_t position_of(self, int64_t offset) noexcept:
        # How many bytes lie before the batch that holds `offset`; -1: it is not here. Only differences have a meaning.
        cdef TailEntry *entry
        cdef const uint8_t *p
        cdef int64_t skipped = 0
        if offset >= self.next_offset:
            return self.position
        if offset < self.base_offset:
            return -1
        entry = self.entry(self.slot_of(offset))
        if not entry.single:
            p = bytes_of(entry)
            if p == NULL:
                return -1
            while offset > load_int64(p + skipped) + load_int32(p + skipped + 23):
                skipped += load_int32(p + skipped + 8) + BATCH_OVERHEAD
        return entry.position + skipped

    cdef bytes read(self, int64_t offset, int64_t max_bytes, int64_t up_to, bint at_least_one):
        # The caller has checked base_offset <= offset. None: cannot serve, ask the disk.
        cdef int64_t low, number, total = 0, skipped = 0, left, first_size
        cdef const uint8_t *p
        cdef uint8_t *target
        cdef TailEntry *entry
        cdef bytes result
        if offset >= self.next_offset:
            return None
        low = self.slot_of(offset)
        entry = self.entry(low)
        p = bytes_of(entry)
        if p == NULL:
            return None
        first_size = entry.size
        if not entry.single:
            while offset > load_int64(p + skipped) + load_int32(p + skipped + 23):
                skipped += load_int32(p + skipped + 8) + BATCH_OVERHEAD
            first_size = load_int32(p + skipped + 8) + BATCH_OVERHEAD
        if at_least_one and max_bytes < first_size:
            max_bytes = first_size
        number = low
        left = -skipped
        while number < self.count:
            entry = self.entry(number)
            left += entry.size
            if entry.next_offset <= up_to and total + left <= max_bytes:
                total += left
                left = 0
                number += 1
                continue
            total += whole_batches(entry, entry.size - left, max_bytes - total, up_to)
            break
        if total == 0:
            return b""
        result = PyBytes_FromStringAndSize(NULL, total)
        target = <uint8_t *>PyBytes_AS_STRING(result)
        number = low
        while total:
            entry = self.entry(number)
            p = bytes_of(entry)
            if p == NULL:
                return None
            left = min(entry.size - skipped, total)
            memcpy(target, p + skipped, left)
            target += left
            total -= left
            skipped = 0
            number += 1
        return result


cdef inline const uint8_t *bytes_of(TailEntry *entry) noexcept:
    # NULL when the owner of a bytearray took it back by resizing it.
    cdef object owner = <object>entry.owner
    if PyBytes_CheckExact(owner):
        return <const uint8_t *>PyBytes_AS_STRING(owner) + entry.start
    if PyByteArray_GET_SIZE(owner) < entry.start + entry.size:
        return NULL
    return <const uint8_t *>PyByteArray_AS_STRING(owner) + entry.start


cdef int64_t whole_batches(TailEntry *entry, int64_t position, int64_t max_bytes, int64_t up_to) noexcept:
    # How many bytes of whole batches from `position` on fit.
    cdef const uint8_t *p = bytes_of(entry)
    cdef int64_t total = 0, size
    if p == NULL or entry.single:
        return 0  # a single batch that fits was taken as a whole
    while position < entry.size:
        size = load_int32(p + position + 8) + BATCH_OVERHEAD
        if total + size > max_bytes or load_int64(p + position) + load_int32(p + position + 23) >= up_to:
            break
        total += size
        position += size
    return total
