"""Message objects to bytes."""

# The values in the caller's objects are checked here, once, while they are written.
#
# Small messages are written to a scratch array on the stack and copied once into a bytes object of the right size; a
# longer one moves into a growing bytes object that is cut to size at the end. Internal functions return 0, or -1 after
# `fail` or with a Python exception set (`except? -1` tells the two apart); each caller adds its part of the path.

from kraftcore.errors import LocalError

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.float cimport PyFloat_AsDouble, PyFloat_Check
from cpython.long cimport PyLong_Check
from cpython.object cimport Py_EQ, PyObject_RichCompareBool
from cpython.ref cimport PyObject, PyTypeObject
from cpython.unicode cimport PyUnicode_Check
from libc.limits cimport LLONG_MAX, LLONG_MIN
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove

from kraftcore.core.bytes cimport size_uvarint32, store_int16, store_int32, store_int64, store_uint32, write_uvarint32
from kraftcore.core.wire.plan cimport Codec, FieldPlan, StructPlan, kraft_note
from kraftcore.core.wire.struct cimport (
    BOOL, BYTES, FLOAT64, INT16, INT32, INT64, INT8, RECORDS, STRING, STRUCT, UINT16, UINT32, UUID,
    Struct, fill_slot, is_pristine, slot_at,
)
from kraftcore.core.uuid cimport Uuid, store_uuid

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *s, Py_ssize_t size) except NULL
    int _PyBytes_Resize(PyObject **bytes, Py_ssize_t size) except -1
    char *bytes_start "PyBytes_AS_STRING"(PyObject *bytes) noexcept
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL
    bint is_instance "PyObject_TypeCheck"(PyObject *value, PyTypeObject *cls) noexcept
    bint is_list "PyList_Check"(PyObject *value) noexcept
    bint is_tuple "PyTuple_Check"(PyObject *value) noexcept
    Py_ssize_t items_count "PySequence_Fast_GET_SIZE"(PyObject *items) noexcept
    PyObject *items_get "PySequence_Fast_GET_ITEM"(PyObject *items, Py_ssize_t i) noexcept
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False
    void incref "Py_INCREF"(PyObject *value) noexcept
    void xdecref "Py_XDECREF"(PyObject *value) noexcept

cdef Py_ssize_t LONGEST_STRING = 0x7FFF
cdef Py_ssize_t LONGEST = 0x7FFFFFFF  # bytes or elements
cdef Py_ssize_t SPLIT_FROM = 4096  # bytes of records from which on they become a part of their own
cdef int64_t[7] LOWEST
cdef int64_t[7] HIGHEST
LOWEST[<int>INT8], HIGHEST[<int>INT8] = -0x80, 0x7F
LOWEST[<int>INT16], HIGHEST[<int>INT16] = -0x8000, 0x7FFF
LOWEST[<int>UINT16], HIGHEST[<int>UINT16] = 0, 0xFFFF
LOWEST[<int>INT32], HIGHEST[<int>INT32] = -0x80000000, 0x7FFFFFFF
LOWEST[<int>UINT32], HIGHEST[<int>UINT32] = 0, 0xFFFFFFFF
LOWEST[<int>INT64], HIGHEST[<int>INT64] = LLONG_MIN, LLONG_MAX
_KIND_NAMES = ["bool", "int8", "int16", "uint16", "int32", "uint32", "int64"]


cdef void start_writing(Writer *w) noexcept:
    w.start = w.p = w.scratch
    w.end = w.start + SCRATCH
    w.buffer = w.parts = w.reason = w.path = NULL
    w.flushed = 0
    w.nesting = 0


cdef void stop_writing(Writer *w) noexcept:
    xdecref(w.buffer)
    xdecref(w.reason)
    xdecref(w.path)
    w.buffer = w.reason = w.path = NULL


cdef object finish_writing(Writer *w):
    """Return the written bytes; the writer is empty afterwards."""
    cdef PyObject *made
    if w.buffer == NULL:
        made = new_bytes(<char *>w.start, w.p - w.start)
    else:
        _PyBytes_Resize(&w.buffer, w.p - w.start)
        made = w.buffer
        w.buffer = NULL
    w.start = w.p = w.scratch
    w.end = w.start + SCRATCH
    result = <object>made
    xdecref(made)
    return result


cdef int flush_part(Writer *w) except -1:
    if w.p != w.start:
        w.flushed += w.p - w.start
        (<list>w.parts).append(finish_writing(w))
    return 0


cdef int reserve(Writer *w, Py_ssize_t count) except -1:
    if w.end - w.p >= count:
        return 0
    return grow(w, count)


cdef int grow(Writer *w, Py_ssize_t count) except -1:
    cdef Py_ssize_t used = w.p - w.start
    cdef Py_ssize_t size = max(2 * (w.end - w.start), used + count + 256)
    if w.buffer == NULL:
        w.buffer = new_bytes(NULL, size)
        memcpy(bytes_start(w.buffer), w.start, used)
    else:
        _PyBytes_Resize(&w.buffer, size)
    w.start = <uint8_t *>bytes_start(w.buffer)
    w.p = w.start + used
    w.end = w.start + size
    return 0


cdef int encode_body(Codec codec, Struct message, Writer *w) except -1:
    """Write one message; ``message`` must be an instance of the codec's class.

    Raises:
        LocalError: a value does not fit its field, which is named; the caller must still call ``stop_writing``.
    """
    if encode_struct(codec.root, <PyObject *>message, w) < 0:
        where = f"{codec.name} v{codec.version}"
        if w.path != NULL:
            where += f", field {<object>w.path}"
        raise LocalError(f"{where}: {<object>w.reason}")
    return 0


cdef int fail(Writer *w, str reason) except? -1:
    xdecref(w.reason)
    w.reason = <PyObject *>reason
    incref(w.reason)
    return -1


cdef int encode_struct(const StructPlan *plan, PyObject *instance, Writer *w) except? -1:
    cdef const FieldPlan *field
    cdef PyObject *value
    cdef Py_ssize_t i
    cdef int failed
    for i in range(plan.barred_count):
        field = &plan.barred[i]
        if not has_default(field, slot_at(instance, field.slot.offset)[0]):
            fail(w, "holds a value that this version cannot carry; leave it at its default, or use another version")
            kraft_note(&w.path, field.name, 0)
            return -1
    for i in range(plan.field_count):
        field = &plan.fields[i]
        value = slot_at(instance, field.slot.offset)[0]
        if value == NULL:
            value = fill_slot(instance, &field.slot)
        failed = encode_array(field, value, w) if field.is_array else encode_value(field, value, field.nullable, w)
        if failed < 0:
            kraft_note(&w.path, field.name, 0)
            return -1
    if plan.flexible:
        return encode_tagged(plan, instance, w)
    if (<Struct>instance).unknown:
        return fail(w, "keeps unknown tagged fields, which this version cannot carry")
    return 0


cdef bint has_default(const FieldPlan *field, PyObject *value) except -1:
    if value == NULL or value == field.slot.default:
        return True
    cdef object held = <object>value  # comparing may run foreign code that drops the owner's reference
    if field.slot.default != NULL:
        return PyObject_RichCompareBool(held, <object>field.slot.default, Py_EQ)
    if field.is_array:
        return (is_list(value) or is_tuple(value)) and items_count(value) == 0
    return is_instance(value, field.slot.struct_type) and is_pristine(<Struct>held)


cdef int encode_value(const FieldPlan *field, PyObject *value, bint nullable, Writer *w) except? -1:
    if field.kind == STRING:
        return encode_string(field, value, nullable, w)
    if field.kind == STRUCT:
        return encode_nested(field, value, nullable, w)
    if field.kind == UUID:
        if not is_instance(value, <PyTypeObject *>Uuid):
            return fail(w, f"needs a Uuid, not {kind_of(value)}")
        reserve(w, 16)
        store_uuid(w.p, <Uuid>value)
        w.p += 16
        return 0
    if field.kind == BYTES or field.kind == RECORDS:
        return encode_bytes(field, value, nullable, w)
    if field.kind == BOOL:
        if value != Py_True and value != Py_False:
            return fail(w, f"needs a bool, not {kind_of(value)}")
        reserve(w, 1)
        w.p[0] = value == Py_True
        w.p += 1
        return 0
    if field.kind == FLOAT64:
        return encode_float(value, w)
    return encode_int(field.kind, value, w)


cdef int encode_int(int kind, PyObject *value, Writer *w) except? -1:
    cdef int overflow = 0
    cdef long long number
    if not PyLong_Check(<object>value):
        return fail(w, f"needs an int, not {kind_of(value)}")
    number = PyLong_AsLongLongAndOverflow(<object>value, &overflow)
    if overflow != 0 or number < LOWEST[kind] or number > HIGHEST[kind]:
        return fail(w, f"{<object>value} does not fit {_KIND_NAMES[kind]} ({LOWEST[kind]} to {HIGHEST[kind]})")
    reserve(w, 8)
    if kind == INT32 or kind == UINT32:
        store_uint32(w.p, <uint32_t>number)
        w.p += 4
    elif kind == INT64:
        store_int64(w.p, number)
        w.p += 8
    elif kind == INT8:
        w.p[0] = <uint8_t>number
        w.p += 1
    else:
        store_int16(w.p, <int16_t>number)
        w.p += 2
    return 0


cdef int encode_float(PyObject *value, Writer *w) except? -1:
    cdef double number
    cdef uint64_t word
    if not PyFloat_Check(<object>value) and not PyLong_Check(<object>value):
        return fail(w, f"needs a float, not {kind_of(value)}")
    try:
        number = PyFloat_AsDouble(<object>value)
    except OverflowError:
        return fail(w, "the int is too large for a float64")
    memcpy(&word, &number, 8)
    reserve(w, 8)
    store_int64(w.p, <int64_t>word)
    w.p += 8
    return 0


cdef int put_length(const FieldPlan *field, int width, Py_ssize_t length, Writer *w) except -1:
    # length -1: null
    reserve(w, 5)
    if field.compact:
        w.p = write_uvarint32(w.p, <uint32_t>(length + 1))
    elif width == 2:
        store_int16(w.p, <int16_t>length)
        w.p += 2
    else:
        store_int32(w.p, <int32_t>length)
        w.p += 4
    return 0


cdef int put_null(const FieldPlan *field, int width, bint nullable, Writer *w) except? -1:
    if not nullable:
        return fail(w, "is None, but the field is not nullable in this version")
    return put_length(field, width, -1, w)


cdef int put_raw(const void *data, Py_ssize_t size, Writer *w) except -1:
    reserve(w, size)
    memcpy(w.p, data, size)
    w.p += size
    return 0


cdef int encode_string(const FieldPlan *field, PyObject *value, bint nullable, Writer *w) except? -1:
    cdef const char *text
    cdef Py_ssize_t size
    if value == Py_None:
        return put_null(field, 2, nullable, w)
    if not PyUnicode_Check(<object>value):
        return fail(w, f"needs a str, not {kind_of(value)}")
    try:
        text = PyUnicode_AsUTF8AndSize(<object>value, &size)
    except UnicodeEncodeError:
        return fail(w, "holds lone surrogates, which UTF-8 cannot carry")
    if size > LONGEST_STRING:
        return fail(w, f"string of {size} bytes, the limit is {LONGEST_STRING}")
    put_length(field, 2, size, w)
    return put_raw(text, size, w)


cdef int encode_bytes(const FieldPlan *field, PyObject *value, bint nullable, Writer *w) except? -1:
    cdef Py_buffer view
    cdef object data
    if value == Py_None:
        return put_null(field, 4, nullable, w)
    data = <object>value
    if PyBytes_CheckExact(data):
        return encode_run(field, data, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), w)
    if not PyObject_CheckBuffer(data):
        return fail(w, f"needs a bytes-like object, not {kind_of(value)}")
    try:
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    except (BufferError, ValueError) as error:
        return fail(w, f"cannot be read as contiguous bytes: {error}")
    try:
        return encode_run(field, data, view.buf, view.len, w)
    finally:
        PyBuffer_Release(&view)


cdef int encode_run(const FieldPlan *field, object data, const void *start, Py_ssize_t size, Writer *w) except? -1:
    if size >= LONGEST:
        return fail(w, f"{size} bytes do not fit a 32-bit length")
    put_length(field, 4, size, w)
    if w.parts == NULL or size < SPLIT_FROM or field.kind != RECORDS or w.nesting > 0:
        return put_raw(start, size, w)
    flush_part(w)
    w.flushed += size
    (<list>w.parts).append(data if PyBytes_CheckExact(data) else memoryview(data).cast("B"))
    return 0


cdef int encode_nested(const FieldPlan *field, PyObject *value, bint nullable, Writer *w) except? -1:
    cdef object held
    if nullable:
        reserve(w, 1)
        w.p[0] = 0xFF if value == Py_None else 1
        w.p += 1
    if value == Py_None:
        return 0 if nullable else fail(w, "is None, but the field is not nullable in this version")
    if not is_instance(value, field.element.type):
        return fail(w, f"needs a {(<object>field.element.type).__qualname__}, not {kind_of(value)}")
    held = <object>value  # a buffer's own code may run below and drop the owner's reference
    return encode_struct(field.element, <PyObject *>held, w)


cdef int encode_array(const FieldPlan *field, PyObject *value, Writer *w) except? -1:
    cdef Py_ssize_t i, count
    cdef object _held
    cdef int failed
    if value == Py_None:
        return put_null(field, 4, field.nullable, w)
    if not is_list(value) and not is_tuple(value):
        return fail(w, f"needs a list, not {kind_of(value)}")
    _held = <object>value  # the list must outlive its elements
    count = items_count(value)
    if count >= LONGEST:
        return fail(w, f"{count} elements do not fit a 32-bit count")
    put_length(field, 4, count, w)
    for i in range(count):
        if i >= items_count(value):
            return fail(w, "the list changed while it was encoded")
        failed = encode_value(field, items_get(value, i), False, w)
        if failed < 0:
            kraft_note(&w.path, NULL, i)
            return -1
    return 0


cdef int encode_tagged(const StructPlan *plan, PyObject *instance, Writer *w) except? -1:
    cdef uint64_t present = 0
    cdef uint32_t count = 0
    cdef const FieldPlan *field
    cdef Py_ssize_t i
    cdef object unknown = (<Struct>instance).unknown
    for i in range(plan.tagged_count):
        field = &plan.tagged[i]
        if not has_default(field, slot_at(instance, field.slot.offset)[0]):
            present |= <uint64_t>1 << i
            count += 1
    if unknown:
        return encode_merged(plan, instance, present, count, unknown, w)
    reserve(w, 5)
    w.p = write_uvarint32(w.p, count)
    if present == 0:
        return 0
    for i in range(plan.tagged_count):
        if present >> i & 1 and encode_one_tagged(&plan.tagged[i], instance, w) < 0:
            return -1
    return 0


cdef int encode_merged(const StructPlan *plan, PyObject *instance, uint64_t present, uint32_t count, dict unknown,
                       Writer *w) except? -1:
    # Known and unknown tagged fields together, in tag order.
    cdef Py_ssize_t i
    cdef dict known = {plan.tagged[i].tag: i for i in range(plan.tagged_count)}
    cdef list order = [(plan.tagged[i].tag, i, None) for i in range(plan.tagged_count) if present >> i & 1]
    for tag, data in unknown.items():
        if type(tag) is not int or not 0 <= tag <= 0xFFFFFFFF or not isinstance(data, bytes):
            return fail(w, f"unknown tagged field {tag!r}: needs a tag from 0 to 4294967295 and bytes")
        if tag in known:
            name = <object>plan.tagged[<Py_ssize_t>known[tag]].name
            return fail(w, f"unknown tagged field {tag} is {name} in this version")
        order.append((tag, -1, data))
    order.sort(key=lambda entry: entry[0])
    reserve(w, 5)
    w.p = write_uvarint32(w.p, <uint32_t>len(order))
    for tag, position, data in order:
        if data is None:
            if encode_one_tagged(&plan.tagged[<Py_ssize_t>position], instance, w) < 0:
                return -1
            continue
        reserve(w, 10)
        w.p = write_uvarint32(w.p, <uint32_t>tag)
        w.p = write_uvarint32(w.p, <uint32_t>len(<bytes>data))
        put_raw(PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), w)
    return 0


cdef int encode_one_tagged(const FieldPlan *field, PyObject *instance, Writer *w) except? -1:
    cdef PyObject *value = fill_slot(instance, &field.slot)
    cdef Py_ssize_t at
    cdef Py_ssize_t size
    cdef int extra, failed
    reserve(w, 6)
    w.p = write_uvarint32(w.p, field.tag)
    at = w.p - w.start
    w.p += 1  # for the size, which mostly takes one byte
    w.nesting += 1
    failed = encode_array(field, value, w) if field.is_array else encode_value(field, value, field.nullable, w)
    w.nesting -= 1
    if failed < 0:
        kraft_note(&w.path, field.name, 0)
        return -1
    size = w.p - w.start - at - 1
    if size >= LONGEST:
        return fail(w, f"a tagged field of {size} bytes does not fit a 32-bit size")
    extra = size_uvarint32(<uint32_t>size) - 1
    if extra > 0:
        reserve(w, extra)
        memmove(w.start + at + 1 + extra, w.start + at + 1, size)
        w.p += extra
    write_uvarint32(w.start + at, <uint32_t>size)
    return 0


cdef str kind_of(PyObject *value):
    return type(<object>value).__name__
