# A schema at one version, flattened to C: what to read or write, in wire order, and at which offset of the object.
# Everything a plan points to (names, defaults, classes) is kept alive by the codec that owns it.

from cpython.ref cimport PyObject, PyTypeObject
from libc.stdint cimport uint32_t

from kraftcore.core.wire.struct cimport Kind, Slot

cdef struct FieldPlan:
    Kind kind
    bint is_array
    bint compact  # lengths are unsigned varints of length + 1
    bint nullable
    uint32_t tag
    Slot slot
    Py_ssize_t unit  # least bytes of one array element
    PyObject *name  # str, as Python spells it
    StructPlan *element  # of structs

cdef struct StructPlan:
    PyTypeObject *type
    bint flexible
    Py_ssize_t least  # bytes that the smallest instance takes
    FieldPlan *fields  # untagged, in wire order
    Py_ssize_t field_count
    FieldPlan *tagged  # by tag
    Py_ssize_t tagged_count
    FieldPlan *barred  # not in this version and not ignorable: must hold their defaults
    Py_ssize_t barred_count
    Slot *preset  # shared defaults of what may be absent from the bytes
    Py_ssize_t preset_count


cdef class Arena:
    cdef list blocks

    # Room for `count` things of `size` bytes.
    cdef void *take(self, Py_ssize_t count, size_t size) except NULL


cdef class Codec:
    cdef readonly object message_class
    cdef readonly str name
    cdef readonly int version
    cdef int api_key
    cdef int header_version  # -1: neither request nor response
    cdef bint is_response
    cdef StructPlan *root
    cdef object arena  # owns the plan's memory


cdef Codec codec_of(cls, version)


cdef extern from *:
    """
    /* Dotted paths of error messages grow from the inside out; *path is NULL at first, and stays so without memory. */
    static inline void kraft_note(PyObject **path, PyObject *name, Py_ssize_t index) {
        PyObject *old = *path, *made;
        const char *dot = old == NULL || PyUnicode_READ_CHAR(old, 0) == '[' ? "" : ".";
        if (name != NULL) {
            made = PyUnicode_FromFormat("%U%s%V", name, dot, old, "");
        } else {
            made = PyUnicode_FromFormat("[%zd]%s%V", index, dot, old, "");
        }
        if (made == NULL) {
            PyErr_Clear();
            return;
        }
        Py_XDECREF(old);
        *path = made;
    }
    """
    void kraft_note(PyObject **path, PyObject *name, Py_ssize_t index) noexcept
