"""Memory: bytes objects that are filled in place, and the C library's rule for giving memory back."""

from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF

cdef extern from "Python.h":
    PyObject *PyBytes_FromStringAndSize(const char *s, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t size) except -1
    int PyBUF_WRITE

cdef extern from *:
    """
    #include <stdlib.h>
    #if defined(__GLIBC__)
    #include <malloc.h>
    static int kraft_keep_freed(int bytes, int longest) {
        return mallopt(M_MMAP_THRESHOLD, longest) && mallopt(M_TRIM_THRESHOLD, bytes);
    }
    #else
    static int kraft_keep_freed(int bytes, int longest) { (void)bytes; (void)longest; return 0; }
    #endif
    """
    int kraft_keep_freed(int bytes, int longest) noexcept nogil

__all__ = ["keep_freed_memory", "written_bytes"]

cdef enum:
    KEPT = 16 * 1024 * 1024
    LONGEST = 32 * 1024 * 1024  # glibc takes no more (malloc.c, HEAP_MAX_SIZE / 2)


def keep_freed_memory(int bytes_kept=KEPT):
    """Let this process keep up to ``bytes_kept`` of freed memory at the end of its heap, for its next allocations.

    A server allocates and frees a buffer of 0.1 to some MiB a request. By default glibc gives such memory back to the
    kernel at once and gets it again page by page, which took half of a broker's processor time under load.

    Args:
        bytes_kept: 0 to 2**31 - 1.

    Returns:
        Whether the C library can do this (glibc can, musl cannot). For the whole process, until it ends.
    """
    return bool(kraft_keep_freed(bytes_kept, LONGEST))


def written_bytes(Py_ssize_t size, write):
    """A bytes object that ``write`` fills: never zeroed, never copied, so that a thread holds no GIL for it.

    Args:
        size: most bytes that may be written, 0 or more.
        write: gets a memoryview of ``size`` bytes, and returns how many of them, from the first one on, it wrote. It
            must keep no part of the view.

    Returns:
        The written bytes.

    Raises:
        ValueError: ``write`` returned a number outside 0 to ``size``. An exception of ``write`` is passed on.
    """
    cdef PyObject *room = PyBytes_FromStringAndSize(NULL, size)
    cdef Py_ssize_t written
    try:
        view = PyMemoryView_FromMemory(PyBytes_AS_STRING(<object>room), size, PyBUF_WRITE)
        with view:
            written = write(view)
        if not 0 <= written <= size:
            raise ValueError(f"{written} of {size} bytes were written")
        if written != size:
            _PyBytes_Resize(&room, written)  # NULL where memory is out
        return <object>room
    finally:
        Py_XDECREF(room)
