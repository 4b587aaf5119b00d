from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t

from kraftcore.core.wire.plan cimport Codec, StructPlan

cdef struct Reader:
    const uint8_t *start
    const uint8_t *p
    const uint8_t *end
    PyObject *source  # the bytes object that start..end belongs to
    PyObject *view  # memoryview of it, made with the first records field
    PyObject *reason  # why decoding stopped; NULL with a Python exception set: no memory
    PyObject *path  # where
    Py_ssize_t items_left  # elements of arrays and unknown tagged fields that may still come


cdef void start_reading(Reader *r, bytes data) noexcept
cdef void stop_reading(Reader *r) noexcept
cdef object decode_body(Codec codec, Reader *r, bint whole)
cdef PyObject *decode_struct(const StructPlan *plan, Reader *r) noexcept
