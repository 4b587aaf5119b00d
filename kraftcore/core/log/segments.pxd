# The segments of a log, for the log that owns them: `from kraftcore.core.log.segments cimport Segments`.

from libc.stdint cimport int64_t

from kraftcore.core.disk.files cimport Files
from kraftcore.core.log.segment cimport Segment


cdef class Segments:
    cdef Files files
    cdef readonly str folder
    cdef readonly object config
    cdef list all, bases                    # parallel, oldest first
    cdef Segment active                     # the newest: the one that takes appends
    cdef list unsynced                      # sealed segments that no flush has reached
    cdef list readers                       # sealed segments whose files are open
    cdef list expiring                      # (time to unlink ms, path)
    cdef object listing
    cdef int64_t listed                     # synced segments that the listing covers
    cdef bint pristine                      # as the last clean stop left it: the listing covers the active segment
    cdef bint flushing                      # or removing: no other flush or removal begins
    cdef bint overlisted                    # the file covers the active segment as it was at the start
    cdef bint names_pending                 # a segment's name is not known to be durable (LogConfig.names_wait)

    cdef int keep_reader(self, Segment segment) except -1
    cdef Segment at(self, int64_t offset)
