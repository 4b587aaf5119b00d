"""Messages as JSON text, byte for byte as Kafka's tools print them (Jackson, compact, from the generated converters).

Keys are the schema names with a small first letter, in schema order; only the fields of the version, tagged ones only
when they differ from their default. Uuids and bytes are strings (base64), characters beyond ASCII stand as they are.
"""

import re
from decimal import Decimal

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Realloc
from cpython.object cimport Py_EQ, PyObject_RichCompareBool
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kraftcore.core.wire.struct cimport (
    BOOL, BYTES, FLOAT64, RECORDS, STRING, STRUCT, UUID, Field, Layout, Struct, fill_slot, is_pristine,
    layout_of, slot_at,
)
from kraftcore.core.uuid cimport Uuid

from kraftcore.errors import LocalError

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(PyObject *text, Py_ssize_t *size) except NULL
    long long PyLong_AsLongLong(PyObject *value) except? -1
    bint PyList_CheckExact(PyObject *value) noexcept
    Py_ssize_t PyList_GET_SIZE(PyObject *value) noexcept
    PyObject *PyList_GET_ITEM(PyObject *value, Py_ssize_t index) noexcept

cdef const char *URL_SAFE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
cdef const char *STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
cdef const char *HEX = b"0123456789ABCDEF"
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")

# ---- the buffer


cdef int grow_text(Text *text, Py_ssize_t more) except -1:
    cdef Py_ssize_t room = max(text.room * 2, text.size + more, <Py_ssize_t>256)
    cdef uint8_t *start = <uint8_t *>PyMem_Realloc(text.start, room)
    if start == NULL:
        raise MemoryError
    text.start = start
    text.room = room
    return 0


cdef void free_text(Text *text) noexcept:
    PyMem_Free(text.start)
    text.start = NULL
    text.size = text.room = 0


cdef int put_unsigned(Text *text, uint64_t value) except -1:
    cdef uint8_t[20] digits
    cdef int at = 20
    while True:
        at -= 1
        digits[at] = <uint8_t>(c"0" + value % 10)
        value //= 10
        if value == 0:
            break
    return put_bytes(text, digits + at, 20 - at)


cdef int put_signed(Text *text, int64_t value) except -1:
    if value < 0:
        put_byte(text, c"-")
        return put_unsigned(text, 0 - <uint64_t>value)
    return put_unsigned(text, <uint64_t>value)


cdef int put_json_string(Text *text, const uint8_t *p, Py_ssize_t size) except -1:
    # `p`: valid UTF-8. Escapes as Jackson does: the short forms, other controls in upper-case hex, nothing else.
    cdef Py_ssize_t i, clean = 0
    cdef uint8_t c
    put_byte(text, c'"')
    for i in range(size):
        c = p[i]
        if c >= 0x20 and c != c'"' and c != c"\\":
            continue
        put_bytes(text, p + clean, i - clean)
        clean = i + 1
        put_byte(text, c"\\")
        if c == c'"' or c == c"\\":
            put_byte(text, c)
        elif c == 8:
            put_byte(text, c"b")
        elif c == 9:
            put_byte(text, c"t")
        elif c == 10:
            put_byte(text, c"n")
        elif c == 12:
            put_byte(text, c"f")
        elif c == 13:
            put_byte(text, c"r")
        else:
            put(text, b"u00")
            put_byte(text, HEX[c >> 4])
            put_byte(text, HEX[c & 15])
    put_bytes(text, p + clean, size - clean)
    return put_byte(text, c'"')


cdef bint is_utf8(const uint8_t *p, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i = 0
    while i < size and p[i] < 0x80:
        i += 1
    if i == size:
        return True
    try:
        PyBytes_FromStringAndSize(<const char *>p + i, size - i).decode()
    except (UnicodeDecodeError, MemoryError):
        return False
    return True


cdef int put_utf8(Text *text, const uint8_t *p, Py_ssize_t size) except -1:
    # What is not UTF-8 becomes U+FFFD, as often as Java does it: once per broken sequence, once per surrogate.
    if is_utf8(p, size):
        return put_bytes(text, p, size)
    raw = _SURROGATE.sub(b"\xef\xbf\xbd", PyBytes_FromStringAndSize(<const char *>p, size))
    cdef bytes clean = raw.decode("utf-8", "replace").encode()
    return put_bytes(text, <const char *>clean, len(clean))


cdef int put_base64(Text *text, const uint8_t *p, Py_ssize_t size) except -1:
    cdef uint8_t[4] group
    cdef Py_ssize_t i
    cdef uint64_t bits
    for i in range(0, size, 3):
        bits = <uint64_t>p[i] << 16
        if i + 1 < size:
            bits |= <uint64_t>p[i + 1] << 8
        if i + 2 < size:
            bits |= p[i + 2]
        group[0] = STANDARD[bits >> 18]
        group[1] = STANDARD[bits >> 12 & 63]
        group[2] = STANDARD[bits >> 6 & 63] if i + 1 < size else c"="
        group[3] = STANDARD[bits & 63] if i + 2 < size else c"="
        put_bytes(text, group, 4)
    return 0


cdef int put_uuid(Text *text, Uuid value) except -1:
    cdef uint8_t[24] digits
    cdef uint64_t high = value.high, low = value.low
    cdef int i
    digits[0] = digits[23] = c'"'
    for i in range(10):
        digits[1 + i] = URL_SAFE[high >> (58 - 6 * i) & 63]
    digits[11] = URL_SAFE[(high << 2 | low >> 62) & 63]
    for i in range(10):
        digits[12 + i] = URL_SAFE[low >> (56 - 6 * i) & 63]
    digits[22] = URL_SAFE[low << 4 & 63]
    return put_bytes(text, digits, 24)


def java_double(double value):
    """A double as ``Double.toString`` of Java 19 and later writes it; what is no number is quoted, as Jackson does."""
    if value != value:
        return '"NaN"'
    if value in (float("inf"), float("-inf")):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    sign = "-" if repr(value).startswith("-") else ""
    if value == 0:
        return sign + "0.0"
    shortest = repr(abs(value))
    if len(shortest.partition("e")[0].replace(".", "").strip("0")) == 1:
        shortest = f"{abs(value):.1e}"  # Java takes the nearest of two digits where one would do
    digits = shortest.partition("e")[0].replace(".", "").strip("0")
    power = Decimal(shortest).adjusted()
    if -3 <= power < 7:
        if power < 0:
            return f"{sign}0.{'0' * (-power - 1)}{digits}"
        digits = digits.ljust(power + 1, "0")
        return f"{sign}{digits[:power + 1]}.{digits[power + 1:] or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{power}"


# ---- messages


@cython.final
@cython.auto_pickle(False)
cdef class JsonForm:
    """The fields of a struct class at a version, as they are printed. For compiled callers only."""

    def __dealloc__(self):
        PyMem_Free(self.fields)


cdef dict forms = {}


cdef bint within(span, int version):
    return span is not None and span[0] <= version and (span[1] is None or version <= span[1])


cdef JsonForm json_form(cls, int version):
    known = forms.get((cls, version))
    if known is not None:
        return <JsonForm>known
    cdef Layout layout = layout_of(cls)
    cdef JsonForm form = JsonForm.__new__(JsonForm)
    cdef JsonField *out
    cdef Field field
    cdef bytes key
    cdef Py_ssize_t i
    form.kept = []
    form.fields = <JsonField *>PyMem_Calloc(max(layout.count, 1), sizeof(JsonField))
    if form.fields == NULL:
        raise MemoryError
    for i in range(layout.count):
        field = layout.fields[i]
        if not within(field.versions, version):
            continue
        out = &form.fields[form.count]
        key = f'"{field.json_name}":'.encode()
        form.kept.append(key)
        out.key, out.key_size = key, len(key)
        out.kind = field.kind
        out.is_array = field.is_array
        out.tagged = within(field.tagged, version)
        out.slot = layout.slots[i]
        if field.kind == STRUCT:
            element = json_form(field.struct_class, version)
            form.kept.append(element)
            out.element = <void *>element
        form.count += 1
    form.kept.append(layout)
    forms[cls, version] = form
    return form


cdef bint is_default(PyObject *held, const JsonField *field) except -1:
    if held == NULL or held == field.slot.default:
        return True
    if field.slot.default != NULL:
        return PyObject_RichCompareBool(<object>held, <object>field.slot.default, Py_EQ)
    if field.slot.struct_type == NULL:
        return <object>held is not None and len(<object>held) == 0
    return isinstance(<object>held, Struct) and is_pristine(<Struct>held)


cdef int put_struct(Text *text, Struct value, JsonForm form) except -1:
    cdef JsonField *field
    cdef PyObject *held
    cdef Py_ssize_t i, j
    cdef bint first = True
    put_byte(text, c"{")
    for i in range(form.count):
        field = &form.fields[i]
        if field.tagged and is_default(slot_at(<PyObject *>value, field.slot.offset)[0], field):
            continue
        if not first:
            put_byte(text, c",")
        first = False
        put_bytes(text, field.key, field.key_size)
        held = fill_slot(<PyObject *>value, &field.slot)
        if held == <PyObject *>None:
            put(text, b"null")
        elif not field.is_array:
            put_value(text, held, field)
        elif not PyList_CheckExact(held):
            raise LocalError(f"{type(value).__name__}: {field.key[:field.key_size].decode()} needs a list")
        else:
            put_byte(text, c"[")
            for j in range(PyList_GET_SIZE(held)):
                if j:
                    put_byte(text, c",")
                put_value(text, PyList_GET_ITEM(held, j), field)
            put_byte(text, c"]")
    return put_byte(text, c"}")


cdef int put_value(Text *text, PyObject *value, const JsonField *field) except -1:
    cdef Py_ssize_t size
    cdef const char *p
    cdef const uint8_t[::1] view
    cdef int kind = field.kind
    if kind == STRING:
        p = PyUnicode_AsUTF8AndSize(value, &size)
        return put_json_string(text, <const uint8_t *>p, size)
    if kind == STRUCT:
        return put_struct(text, <Struct?><object>value, <JsonForm>field.element)
    if kind == UUID:
        return put_uuid(text, <Uuid?><object>value)
    if kind == BOOL:
        return put(text, b"true" if <object>value else b"false")
    if kind == FLOAT64:
        form = java_double(<object>value).encode()
        return put_bytes(text, <const char *>form, len(form))
    if kind == BYTES or kind == RECORDS:
        view = <object>value
        put_byte(text, c'"')
        if view.shape[0]:
            put_base64(text, &view[0], view.shape[0])
        return put_byte(text, c'"')
    return put_signed(text, PyLong_AsLongLong(value))


def to_json_text(Struct message not None, int version):
    """A message as JSON text.

    Args:
        message: an instance of a class with a schema.
        version: whose fields are printed. Fields that the version lacks are left out, whatever they hold.

    Returns:
        UTF-8 bytes.
    """
    cdef Text text
    text.start, text.size, text.room = NULL, 0, 0
    try:
        put_struct(&text, message, json_form(type(message), version))
        return PyBytes_FromStringAndSize(<const char *>text.start, text.size)
    finally:
        free_text(&text)
