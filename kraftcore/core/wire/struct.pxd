# Objects with named fields whose values the codec reads and writes by byte offset, without an attribute look-up.

from cpython.ref cimport PyObject, PyTypeObject

cdef enum Kind:
    BOOL
    INT8
    INT16
    UINT16
    INT32
    UINT32
    INT64
    FLOAT64
    STRING
    BYTES
    RECORDS
    UUID
    STRUCT

cdef struct Slot:
    Py_ssize_t offset
    PyObject *default  # shared and immutable; NULL: a list or struct, made when first asked for
    PyTypeObject *struct_type  # of a struct made when first asked for; NULL: a list


cdef class Field:
    cdef readonly str name
    cdef readonly str kafka_name
    cdef readonly str json_name
    cdef readonly str type_name
    cdef readonly object struct_class
    cdef readonly bint is_array
    cdef readonly object default
    cdef readonly bint builds
    cdef readonly bint ignorable
    cdef readonly tuple versions
    cdef readonly tuple nullable
    cdef readonly tuple tagged
    cdef readonly tuple flexible
    cdef readonly object tag
    cdef readonly int kind


cdef class Layout:
    cdef readonly tuple fields
    cdef dict index
    cdef list kept  # what the slots point to
    cdef Slot *slots
    cdef Py_ssize_t count


cdef class Struct:
    cdef dict unknown  # tag -> bytes; None while there are none


cdef class Member:
    cdef Slot slot
    cdef object owner
    cdef str name

    cdef int refuse(self, instance) except -1
    cdef object get(self, instance)
    cdef int set(self, instance, value) except -1


cdef inline PyObject **slot_at(PyObject *instance, Py_ssize_t offset) noexcept:
    return <PyObject **>(<char *>instance + offset)


cdef Layout layout_of(cls)
cdef Struct new_struct(cls)  # with the defaults of its fields
cdef PyObject *fill_slot(PyObject *instance, const Slot *slot) except NULL
cdef bint is_pristine(Struct value) except -1
