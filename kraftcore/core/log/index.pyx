"""Sparse index files, byte for byte Kafka's.

    .index       8 bytes an entry:  last offset of a batch - base offset, int32; file position of that batch, int32
    .timeindex  12 bytes an entry:  timestamp, int64 ms; offset - base offset, int32

Kafka maps a preallocated file and trims it at roll and close. Here new entries wait in one page of memory and reach the
file when the page is full, at roll and at close: between those an index on disk may lack its last entries, never hold
wrong ones. A start after a crash rebuilds it anyway, as Kafka does. Lookups read the file; nothing of it is kept in
memory. It is opened, or made, when the first entry is to be written or read: most segments of idle logs never need it.
"""

cimport cython
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kraftcore.core.bytes cimport load_int32, load_int64, store_int32, store_int64
from kraftcore.core.disk.files cimport File, Files

from kraftcore.errors import ClosedError, CorruptDataError

cdef enum:
    PENDING_BYTES = 4080  # a multiple of both entry sizes


@cython.final
cdef class Index:
    """One index file; which of the two kinds is told by the size of its entries.

    Attributes:
        path: the file.
        entries: how many entries it has.
    """

    def __cinit__(self, str path, int entry_size, int64_t base_offset, int64_t bytes_max, int64_t entries=0):
        self.path = path
        self.entry_size = entry_size
        self.base_offset = base_offset
        self.capacity = bytes_max // entry_size
        self.entries = self.written = entries

    def __dealloc__(self):
        PyMem_Free(self.pending)

    cdef int attach(self, Files files, bint read_only) except -1:
        if self.files is None:
            self.files, self.read_only = files, read_only
        return 0

    cdef File opened(self):
        # Its file, to be held while it is used: another thread may close it meanwhile.
        cdef File file = self.file
        cdef Files files = self.files
        if file is None:
            if files is None:
                self.refuse()
            file = files.open(self.path, create=not self.read_only, read_only=self.read_only)
            if self.files is None:
                file.close()
                self.refuse()
            self.file = file
        return file

    cdef int detach(self) except -1:
        cdef File file = self.file
        self.files = None
        PyMem_Free(self.pending)
        self.pending = NULL
        self.pending_bytes = 0
        self.entries = self.written
        self.file = None
        if file is not None:
            file.close()
        return 0

    cdef int add(self, int64_t key, int64_t value) except -1:
        cdef uint8_t *entry
        if self.pending == NULL:
            self.pending = <uint8_t *>PyMem_Malloc(PENDING_BYTES)
            if self.pending == NULL:
                raise MemoryError
        if self.pending_bytes == PENDING_BYTES:
            self.write_out()
        entry = self.pending + self.pending_bytes
        if self.entry_size == OFFSET_ENTRY:
            store_int32(entry, <int32_t>(key - self.base_offset))
            store_int32(entry + 4, <int32_t>value)
        else:
            store_int64(entry, key)
            store_int32(entry + 8, <int32_t>(value - self.base_offset))
        self.pending_bytes += self.entry_size
        self.entries += 1
        return 0

    cdef int write_out(self) except -1:
        if self.pending_bytes:
            self.opened().pwrite(self.pending, self.pending_bytes, self.written * self.entry_size)
            self.written += self.pending_bytes // self.entry_size
            self.pending_bytes = 0
        return 0

    cdef int get(self, int64_t slot, IndexEntry *entry) except -1:
        cdef uint8_t raw[TIME_ENTRY]
        if slot >= self.written:
            if (slot - self.written) * self.entry_size >= self.pending_bytes:  # another thread cut it meanwhile
                self.refuse()
            memcpy(raw, self.pending + (slot - self.written) * self.entry_size, self.entry_size)
        elif self.opened().pread(raw, self.entry_size, slot * self.entry_size) < self.entry_size:
            raise CorruptDataError("the index file became shorter", position=slot * self.entry_size, path=self.path)
        if self.entry_size == OFFSET_ENTRY:
            entry.key = self.base_offset + load_int32(raw)
            entry.value = load_int32(raw + 4)
        else:
            entry.key = load_int64(raw)
            entry.value = self.base_offset + load_int32(raw + 8)
        return 0

    cdef int refuse(self) except -1:
        raise ClosedError(f"{self.path}: the index was closed, by a failure in another thread")

    cdef int64_t floor_slot(self, int64_t target, bint by_value) except -2:
        # The last entry whose key (or value) is at most `target`; -1 when there is none.
        cdef int64_t low = -1, high = self.entries - 1, middle
        cdef IndexEntry entry
        while low < high:
            middle = (low + high + 1) // 2
            self.get(middle, &entry)
            if (entry.value if by_value else entry.key) <= target:
                low = middle
            else:
                high = middle - 1
        return low

    cdef int cut(self, int64_t entries) except -1:
        self.write_out()
        if entries < self.entries:
            self.opened().resize(entries * self.entry_size)
            self.entries = self.written = entries
        return 0

    cdef int cut_from(self, int64_t offset) except -1:
        # Drops the entries that name an offset at or above `offset`.
        cdef int64_t slot = self.floor_slot(offset - 1, self.entry_size == TIME_ENTRY)
        return self.cut(slot + 1)
