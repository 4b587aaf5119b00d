"""Bytes to message objects."""

# Bytes are hostile: no read at or beyond `end`, nothing allocated by a claimed length or count
# before it is compared with the bytes that are left, recursion only as deep as the schema.
#
# Plain C reference counting throughout: a function returns a new reference, or NULL after `fail` (or, without memory,
# with a Python exception set). Each caller on the way out adds its part of the field's path.
#
# As in Kafka any negative length is null, any non-zero byte is true, and varints may be longer than needed. Stricter
# than Kafka: a tagged field must use exactly its size, tags must ascend (KIP-482), strings must be UTF-8, and no byte
# may be left over.

from kraftcore.errors import WireError

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.ref cimport PyObject, PyTypeObject
from libc.stdint cimport int8_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kraftcore.core.bytes cimport load_int16, load_int32, load_int64, load_uint32, read_uvarint32
from kraftcore.core.wire.plan cimport Codec, FieldPlan, StructPlan, kraft_note
from kraftcore.core.wire.struct cimport (
    BOOL, BYTES, INT16, INT32, INT64, INT8, RECORDS, STRING, STRUCT, UINT16, UINT32, UUID,
    Struct, slot_at,
)
from kraftcore.core.uuid cimport Uuid

from kraftcore.core.uuid import ZERO_UUID as _ZERO_UUID

cdef extern from *:
    """
    static inline PyObject *kraft_new(PyTypeObject *cls, PyObject *nothing) { return cls->tp_new(cls, nothing, NULL); }
    static inline void kraft_list_set(PyObject *list, Py_ssize_t i, PyObject *item) { PyList_SET_ITEM(list, i, item); }
    static inline PyObject *kraft_bool(int value) { return Py_NewRef(value ? Py_True : Py_False); }
    static inline PyObject *kraft_none(void) { return Py_NewRef(Py_None); }
    /* A read-only window of `view`, a memoryview of a bytes object: one allocation, where slicing takes three. */
    static PyObject *kraft_window(PyObject *view, const void *start, Py_ssize_t size) {
        PyObject *window = PyMemoryView_FromObject(view);
        if (window != NULL) {
            Py_buffer *buffer = PyMemoryView_GET_BUFFER(window);
            buffer->buf = (void *)start; buffer->len = size; buffer->shape[0] = size;
        }
        return window;
    }
    """
    PyObject *kraft_new(PyTypeObject *cls, PyObject *nothing) noexcept
    void kraft_list_set(PyObject *list, Py_ssize_t i, PyObject *value) noexcept
    PyObject *kraft_window(PyObject *view, const void *start, Py_ssize_t size) noexcept
    PyObject *kraft_bool(int value) noexcept
    PyObject *kraft_none() noexcept

# Declared here once more so that Cython neither counts references nor checks for exceptions on its own.
cdef extern from "Python.h":
    PyObject *PyLong_FromLong(long value) noexcept
    PyObject *PyLong_FromLongLong(long long value) noexcept
    PyObject *PyFloat_FromDouble(double value) noexcept
    PyObject *PyUnicode_DecodeUTF8(const char *s, Py_ssize_t size, const char *errors) noexcept
    PyObject *PyUnicode_FromFormat(const char *format, ...) noexcept
    PyObject *PyBytes_FromStringAndSize(const char *s, Py_ssize_t size) noexcept
    PyObject *PyMemoryView_FromObject(PyObject *source) noexcept
    PyObject *PyList_New(Py_ssize_t size) noexcept
    PyObject *PyDict_New() noexcept
    int PyDict_SetItem(PyObject *dict, PyObject *key, PyObject *value) noexcept
    PyObject *PyErr_Occurred() noexcept
    int PyErr_ExceptionMatches(PyObject *kind) noexcept
    void PyErr_Clear() noexcept
    PyObject *PyExc_UnicodeDecodeError
    Py_ssize_t PY_SSIZE_T_MAX
    void incref "Py_INCREF"(PyObject *value) noexcept
    void decref "Py_DECREF"(PyObject *value) noexcept
    void xdecref "Py_XDECREF"(PyObject *value) noexcept

cdef tuple NOTHING = ()
cdef PyObject *ZERO = <PyObject *>_ZERO_UUID
cdef Py_ssize_t LONGEST_STRING = 0x7FFF
cdef enum:
    NULL_LENGTH = -1
    BAD_LENGTH = -2


cdef void start_reading(Reader *r, bytes data) noexcept:
    """Begin at the first byte; ``data`` must outlive the reader."""
    r.start = r.p = <const uint8_t *>PyBytes_AS_STRING(data)
    r.end = r.start + PyBytes_GET_SIZE(data)
    r.source = <PyObject *>data
    r.view = r.reason = r.path = NULL
    r.items_left = PY_SSIZE_T_MAX


cdef void stop_reading(Reader *r) noexcept:
    xdecref(r.view)
    xdecref(r.reason)
    xdecref(r.path)
    r.view = r.reason = r.path = NULL


cdef object decode_body(Codec codec, Reader *r, bint whole):
    """Decode one message at the reader's position; with ``whole``, up to its end.

    Raises:
        WireError: the bytes are damaged; the caller must still call ``stop_reading``.
    """
    cdef PyObject *made = decode_struct(codec.root, r)
    if made != NULL and whole and r.p != r.end:
        decref(made)
        made = fail(r, PyUnicode_FromFormat(b"%zd bytes left over after the message", <Py_ssize_t>(r.end - r.p)))
    if made == NULL:
        raise_failure(codec, r)
    result = <object>made
    decref(made)
    return result


cdef int raise_failure(Codec codec, Reader *r) except -1:
    if PyErr_Occurred() != NULL:
        return -1
    if r.reason == NULL:
        raise MemoryError
    raise WireError(
        <object>r.reason,
        message_name=codec.name,
        version=codec.version,
        field=<object>r.path if r.path != NULL else None,
        position=r.p - r.start,
    )


cdef PyObject *fail(Reader *r, PyObject *reason) noexcept:
    # Takes over the reference; the reader stays at the fault.
    xdecref(r.reason)
    r.reason = reason
    return NULL


cdef PyObject *fail_short(Reader *r, Py_ssize_t need) noexcept:
    return fail(r, PyUnicode_FromFormat(b"needs %zd bytes, %zd left", need, <Py_ssize_t>(r.end - r.p)))


cdef PyObject *fail_varint(Reader *r) noexcept:
    return fail(r, PyUnicode_FromFormat(b"the varint does not end within 5 bytes, or is above 4294967295"))


cdef PyObject *decode_struct(const StructPlan *plan, Reader *r) noexcept:
    cdef PyObject *made = kraft_new(plan.type, <PyObject *>NOTHING)
    cdef PyObject *value
    cdef const FieldPlan *field
    cdef Py_ssize_t i
    if made == NULL:
        return NULL
    for i in range(plan.preset_count):
        incref(plan.preset[i].default)
        slot_at(made, plan.preset[i].offset)[0] = plan.preset[i].default
    for i in range(plan.field_count):
        field = &plan.fields[i]
        value = decode_array(field, r) if field.is_array else decode_value(field, field.nullable, r)
        if value == NULL:
            kraft_note(&r.path, field.name, 0)
            decref(made)
            return NULL
        slot_at(made, field.slot.offset)[0] = value
    if plan.flexible:
        if r.p < r.end and r.p[0] == 0:
            r.p += 1
        elif not decode_tagged(plan, made, r):
            decref(made)
            return NULL
    return made


cdef PyObject *decode_value(const FieldPlan *field, bint nullable, Reader *r) noexcept:
    cdef Py_ssize_t left = r.end - r.p
    cdef const uint8_t *p = r.p
    cdef uint64_t word
    cdef double number
    if field.kind == INT32:
        if left < 4:
            return fail_short(r, 4)
        r.p = p + 4
        return PyLong_FromLong(load_int32(p))
    if field.kind == INT64:
        if left < 8:
            return fail_short(r, 8)
        r.p = p + 8
        return PyLong_FromLongLong(load_int64(p))
    if field.kind == INT16:
        if left < 2:
            return fail_short(r, 2)
        r.p = p + 2
        return PyLong_FromLong(load_int16(p))
    if field.kind == STRUCT:
        return decode_nested(field, nullable, r)
    if field.kind == STRING:
        return decode_string(field, nullable, r)
    if field.kind == UUID:
        if left < 16:
            return fail_short(r, 16)
        r.p = p + 16
        return new_uuid(p)
    if field.kind == BYTES or field.kind == RECORDS:
        return decode_bytes(field, nullable, r)
    if field.kind == BOOL or field.kind == INT8:
        if left < 1:
            return fail_short(r, 1)
        r.p = p + 1
        return PyLong_FromLong(<int8_t>p[0]) if field.kind == INT8 else kraft_bool(p[0] != 0)
    if field.kind == UINT16:
        if left < 2:
            return fail_short(r, 2)
        r.p = p + 2
        return PyLong_FromLong(<uint16_t>load_int16(p))
    if field.kind == UINT32:
        if left < 4:
            return fail_short(r, 4)
        r.p = p + 4
        return PyLong_FromLongLong(load_uint32(p))
    if left < 8:
        return fail_short(r, 8)
    r.p = p + 8
    word = <uint64_t>load_int64(p)
    memcpy(&number, &word, 8)
    return PyFloat_FromDouble(number)


cdef PyObject *new_uuid(const uint8_t *p) noexcept:
    cdef uint64_t high = <uint64_t>load_int64(p), low = <uint64_t>load_int64(p + 8)
    cdef PyObject *made
    if high == 0 and low == 0:
        incref(ZERO)
        return ZERO
    made = kraft_new(<PyTypeObject *>Uuid, <PyObject *>NOTHING)
    if made != NULL:
        (<Uuid>made).high = high
        (<Uuid>made).low = low
    return made


cdef PyObject *decode_nested(const FieldPlan *field, bint nullable, Reader *r) noexcept:
    cdef int8_t mark
    if nullable:
        if r.p >= r.end:
            return fail_short(r, 1)
        mark = <int8_t>r.p[0]
        r.p += 1
        if mark < 0:
            return kraft_none()
    return decode_struct(field.element, r)


cdef Py_ssize_t decode_length(const FieldPlan *field, int width, bint nullable, Reader *r) noexcept:
    # The length or count at the reader, which moves behind it; NULL_LENGTH; or BAD_LENGTH after `fail`.
    cdef uint32_t raw
    cdef const uint8_t *p
    cdef Py_ssize_t length
    if field.compact:
        p = read_uvarint32(r.p, r.end, &raw)
        if p == NULL:
            if r.p == r.end:
                fail_short(r, 1)
            else:
                fail_varint(r)
            return BAD_LENGTH
        length = <Py_ssize_t>raw - 1
    else:
        if r.end - r.p < width:
            fail_short(r, width)
            return BAD_LENGTH
        p = r.p + width
        length = load_int16(r.p) if width == 2 else load_int32(r.p)
    if length < 0:
        if not nullable:
            fail(r, PyUnicode_FromFormat(b"null, but the field is not nullable in this version"))
            return BAD_LENGTH
        length = NULL_LENGTH
    r.p = p
    return length


cdef PyObject *decode_string(const FieldPlan *field, bint nullable, Reader *r) noexcept:
    cdef const uint8_t *start = r.p
    cdef Py_ssize_t length = decode_length(field, 2, nullable, r)
    cdef PyObject *text
    if length < 0:
        return kraft_none() if length == NULL_LENGTH else NULL
    if length > r.end - r.p or length > LONGEST_STRING:
        return fail_length(r, start, length, LONGEST_STRING)
    text = PyUnicode_DecodeUTF8(<const char *>r.p, length, NULL)
    if text == NULL:
        if not PyErr_ExceptionMatches(PyExc_UnicodeDecodeError):
            return NULL
        PyErr_Clear()
        return fail(r, PyUnicode_FromFormat(b"string of %zd bytes is not UTF-8", length))
    r.p += length
    return text


cdef PyObject *decode_bytes(const FieldPlan *field, bint nullable, Reader *r) noexcept:
    cdef const uint8_t *start = r.p
    cdef Py_ssize_t length = decode_length(field, 4, nullable, r)
    cdef const uint8_t *p = r.p
    if length < 0:
        return kraft_none() if length == NULL_LENGTH else NULL
    if length > r.end - p:
        return fail_length(r, start, length, 0)
    r.p = p + length
    if field.kind == BYTES:
        return PyBytes_FromStringAndSize(<const char *>p, length)
    if r.view == NULL:
        r.view = PyMemoryView_FromObject(r.source)
        if r.view == NULL:
            return NULL
    return kraft_window(r.view, p, length)


cdef PyObject *fail_length(Reader *r, const uint8_t *start, Py_ssize_t length, Py_ssize_t limit) noexcept:
    cdef Py_ssize_t left = r.end - r.p
    r.p = start
    if length <= left:
        return fail(r, PyUnicode_FromFormat(b"string of %zd bytes, the limit is %zd", length, limit))
    return fail(r, PyUnicode_FromFormat(b"claims %zd bytes, %zd left", length, left))


cdef PyObject *decode_array(const FieldPlan *field, Reader *r) noexcept:
    cdef const uint8_t *start = r.p
    cdef Py_ssize_t count = decode_length(field, 4, field.nullable, r)
    cdef Py_ssize_t left, i
    cdef PyObject *items
    cdef PyObject *item
    if count < 0:
        return kraft_none() if count == NULL_LENGTH else NULL
    left = r.end - r.p
    if count > left // field.unit:
        r.p = start
        return fail(r, PyUnicode_FromFormat(
            b"claims %zd elements of at least %zd bytes, %zd bytes left", count, field.unit, left))
    if count > r.items_left:
        r.p = start
        return fail(r, PyUnicode_FromFormat(b"claims %zd elements, %zd more are taken", count, r.items_left))
    r.items_left -= count
    items = PyList_New(count)
    if items == NULL:
        return NULL
    for i in range(count):
        item = decode_value(field, False, r)
        if item == NULL:
            kraft_note(&r.path, NULL, i)
            decref(items)
            return NULL
        kraft_list_set(items, i, item)
    return items


cdef bint decode_tagged(const StructPlan *plan, PyObject *made, Reader *r) noexcept:
    # The tagged-field section; False after `fail`.
    cdef uint32_t count, tag, size
    cdef const uint8_t *p = read_uvarint32(r.p, r.end, &count)
    cdef const uint8_t *at
    cdef int64_t last = -1
    if p == NULL:
        if r.p == r.end:
            fail_short(r, 1)
        else:
            fail_varint(r)
        return False
    r.p = p
    while count > 0:
        count -= 1
        at = r.p
        if r.items_left == 0:
            fail(r, PyUnicode_FromFormat(b"has more items than are taken"))
            return False
        r.items_left -= 1
        p = read_uvarint32(at, r.end, &tag)
        if p != NULL:
            p = read_uvarint32(p, r.end, &size)
        if p == NULL:
            fail(r, PyUnicode_FromFormat(b"the tagged fields end too early or hold a bad varint"))
            return False
        if tag <= last:
            fail(r, PyUnicode_FromFormat(b"tag %lld after tag %lld: tags must ascend", <long long>tag, <long long>last))
            return False
        if size > r.end - p:
            fail(r, PyUnicode_FromFormat(
                b"tag %lld claims %lld bytes, %zd left", <long long>tag, <long long>size, <Py_ssize_t>(r.end - p)))
            return False
        last = tag
        r.p = p
        if not decode_one_tagged(plan, made, tag, size, r):
            return False
    return True


cdef bint decode_one_tagged(const StructPlan *plan, PyObject *made, uint32_t tag, uint32_t size, Reader *r) noexcept:
    cdef const uint8_t *end = r.end
    cdef const uint8_t *stop = r.p + size
    cdef const FieldPlan *field
    cdef PyObject **slot
    cdef PyObject *value
    cdef Py_ssize_t i
    for i in range(plan.tagged_count):
        field = &plan.tagged[i]
        if field.tag == tag:
            break
    else:
        return keep_unknown(made, tag, size, r)
    r.end = stop
    value = decode_array(field, r) if field.is_array else decode_value(field, field.nullable, r)
    if value != NULL and r.p != stop:
        decref(value)
        value = fail(r, PyUnicode_FromFormat(b"uses %zd bytes less than the size of tag %lld says",
                                             <Py_ssize_t>(stop - r.p), <long long>tag))
    r.end = end
    if value == NULL:
        kraft_note(&r.path, field.name, 0)
        return False
    slot = slot_at(made, field.slot.offset)
    xdecref(slot[0])
    slot[0] = value
    return True


cdef bint keep_unknown(PyObject *made, uint32_t tag, uint32_t size, Reader *r) noexcept:
    cdef PyObject *key = PyLong_FromLongLong(tag)
    cdef PyObject *value = PyBytes_FromStringAndSize(<const char *>r.p, size)
    cdef PyObject *kept
    cdef bint done = False
    if key != NULL and value != NULL:
        if (<Struct>made).unknown is None:
            kept = PyDict_New()
            if kept != NULL:
                (<Struct>made).unknown = <dict>kept
                decref(kept)
        if (<Struct>made).unknown is not None:
            done = PyDict_SetItem(<PyObject *>(<Struct>made).unknown, key, value) == 0
    xdecref(key)
    xdecref(value)
    r.p += size
    return done
