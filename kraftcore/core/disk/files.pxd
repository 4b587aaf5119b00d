# The file operations of the log, for compiled callers: `from kraftcore.core.disk.files cimport File, Files`.

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    GIL_BYTES = 32768        # transfers of at least this many bytes release the GIL; below, the switch costs more


cdef class File:
    cdef readonly str path
    cdef readonly bint closed
    cdef Exception failure      # the first failed sync: nothing but close works after it
    cdef int owner              # in a forked child: the process that it belongs to; else 0

    # Positions and sizes in bytes, never negative. A failure raises StorageError.
    cdef int64_t pread(self, uint8_t *target, int64_t size, int64_t position) except -1   # short only at the file's end
    cdef int pwrite(self, const uint8_t *data, int64_t size, int64_t position) except -1  # all of it, or an error
    cdef int64_t length(self) except -1
    cdef int resize(self, int64_t size) except -1
    cdef int write_out(self) except -1                            # begin to write what was written here; a hint
    cdef int flush(self, bint whole) except -1                    # whole: times and modes too, not only data and size
    cdef int release(self) except -1
    cdef int refuse(self) except -1                               # raises when closed or failed


cdef class Files:
    pass
