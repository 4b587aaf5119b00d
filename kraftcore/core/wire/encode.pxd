from cpython.ref cimport PyObject
from libc.stdint cimport uint8_t

from kraftcore.core.wire.plan cimport Codec
from kraftcore.core.wire.struct cimport Struct

cdef enum:
    SCRATCH = 1024

cdef struct Writer:
    uint8_t *start
    uint8_t *p
    uint8_t *end
    PyObject *buffer  # bytes object behind start..end; NULL while that is the scratch space
    PyObject *parts  # list that big records are put into as they are, between the other bytes; NULL: copy them
    Py_ssize_t flushed  # bytes that are in parts already
    int nesting  # inside how many tagged fields, where nothing may be split off
    PyObject *reason  # why encoding stopped; NULL with a Python exception set
    PyObject *path  # where
    uint8_t[SCRATCH] scratch


cdef void start_writing(Writer *w) noexcept
cdef void stop_writing(Writer *w) noexcept
cdef object finish_writing(Writer *w)
cdef int flush_part(Writer *w) except -1
cdef int reserve(Writer *w, Py_ssize_t count) except -1
cdef int encode_body(Codec codec, Struct message, Writer *w) except -1
