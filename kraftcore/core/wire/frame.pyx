"""A long frame while it arrives, received in place into its bytes object."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport uint8_t
from libc.string cimport memcpy

from kraftcore.errors import LocalError

__all__ = ["FrameInParts"]

cdef extern from "Python.h":
    PyObject *PyBytes_FromStringAndSize(const char *s, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t size) except -1
    int PyBUF_WRITE

cdef enum:
    FIRST_BYTES = 128 * 1024  # room at first
    GROWTH = 4                # the buffer is at most this many times as large as the bytes that have arrived


@cython.final
cdef class FrameInParts:
    """A frame that arrives in parts. Its buffer grows with the bytes that arrive: a claimed length reserves little.

    Args:
        first: bytes-like: its beginning.
        size: bytes of the whole frame, which ``first`` does not fill.

    Attributes:
        size: see above.
        filled: how many bytes have arrived.
        room: size of the memoryview that ``fill`` offers next; 0 when the frame is whole.
    """

    cdef PyObject *data  # an unshared bytes object; NULL when it was handed out
    cdef Py_ssize_t capacity
    cdef readonly Py_ssize_t size, filled

    def __init__(self, first not None, Py_ssize_t size):
        cdef const uint8_t[::1] begun = first
        cdef Py_ssize_t here = begun.shape[0]
        if self.data != NULL or here >= size:
            raise LocalError(f"a frame of {size} bytes does not begin with {here}")
        self.capacity = min(size, max(<Py_ssize_t>FIRST_BYTES, GROWTH * here))
        self.data = PyBytes_FromStringAndSize(NULL, self.capacity)
        if here:
            memcpy(PyBytes_AS_STRING(<object>self.data), &begun[0], here)
        self.size, self.filled = size, here

    def __dealloc__(self):
        Py_XDECREF(self.data)

    @property
    def room(self):
        return (self.capacity if self.filled < self.capacity else self.next_capacity()) - self.filled

    def fill(self, receive):
        """Let ``receive`` write into the next ``room`` bytes.

        Args:
            receive: called with a writable memoryview, which ends with the call; returns how many bytes it wrote, as
                ``socket.recv_into``.

        Returns:
            The result of ``receive``. If that raises, the exception is passed on, and nothing has changed.
        """
        cdef Py_ssize_t room, got
        if self.data == NULL or self.filled == self.size:
            raise LocalError("the frame is whole")
        if self.filled == self.capacity:
            self.grow(self.next_capacity())
        room = self.capacity - self.filled
        view = PyMemoryView_FromMemory(PyBytes_AS_STRING(<object>self.data) + self.filled, room, PyBUF_WRITE)
        try:
            got = receive(view)
        finally:
            view.release()
        if not 0 <= got <= room:
            raise LocalError(f"{got} bytes were received into {room}")
        self.filled += got
        return got

    cdef Py_ssize_t next_capacity(self) noexcept:
        return min(self.size, GROWTH * self.capacity)

    cdef int grow(self, Py_ssize_t capacity) except -1:
        self.capacity = 0
        _PyBytes_Resize(&self.data, capacity)  # NULL where memory is out
        self.capacity = capacity
        return 0

    def take(self):
        """The whole frame, once. Raises LocalError: it is not whole, or was taken."""
        if self.data == NULL or self.filled != self.size:
            raise LocalError(f"{self.filled} of {self.size} bytes of the frame are here")
        data = <bytes>self.data
        Py_XDECREF(self.data)  # `data` holds it
        self.data = NULL
        return data
