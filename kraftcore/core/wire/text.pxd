# Text that grows: UTF-8 bytes in C memory, with the forms that Kafka's tools print numbers, strings and bytes in.

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy, strlen

from kraftcore.core.wire.struct cimport Slot, Struct

cdef struct Text:
    uint8_t *start
    Py_ssize_t size
    Py_ssize_t room


cdef int grow_text(Text *text, Py_ssize_t more) except -1
cdef void free_text(Text *text) noexcept
cdef int put_unsigned(Text *text, uint64_t value) except -1
cdef int put_signed(Text *text, int64_t value) except -1
cdef int put_json_string(Text *text, const uint8_t *p, Py_ssize_t size) except -1
cdef int put_utf8(Text *text, const uint8_t *p, Py_ssize_t size) except -1
cdef int put_base64(Text *text, const uint8_t *p, Py_ssize_t size) except -1
cdef bint is_utf8(const uint8_t *p, Py_ssize_t size) noexcept


cdef inline int put_bytes(Text *text, const void *p, Py_ssize_t size) except -1:
    if size > text.room - text.size:
        grow_text(text, size)
    memcpy(text.start + text.size, p, size)
    text.size += size
    return 0


cdef inline int put(Text *text, const char *literal) except -1:
    return put_bytes(text, literal, <Py_ssize_t>strlen(literal))


cdef inline int put_byte(Text *text, uint8_t value) except -1:
    if text.size == text.room:
        grow_text(text, 1)
    text.start[text.size] = value
    text.size += 1
    return 0


cdef struct JsonField:
    const char *key            # "name":
    Py_ssize_t key_size
    int kind
    bint is_array
    bint tagged
    Slot slot
    void *element              # JsonForm of a struct


cdef class JsonForm:
    cdef list kept             # what the fields point to
    cdef JsonField *fields
    cdef Py_ssize_t count


cdef JsonForm json_form(cls, int version)
cdef int put_struct(Text *text, Struct value, JsonForm form) except -1
