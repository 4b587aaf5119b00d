# Columns of nested values, as a tree that mirrors a message class: what typed.pyx fills.

from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from kraftcore.core.columns.chunks cimport BufferPool, Column, grow
from kraftcore.core.wire.plan cimport Arena
from kraftcore.core.wire.struct cimport BOOL

cdef enum:
    ENDS_MAX = 0x7FFFFFFF      # Arrow's int32 offsets
    UUID_TEXT = 22             # characters of a uuid

cdef struct Node:
    # A column, or a list's items. Structs have one node a field of the layout.
    int kind
    int width                  # bytes of a fixed-size value
    bint is_array
    bint null_default
    int64_t default_int
    double default_float
    const char *default_text
    Py_ssize_t default_size
    int64_t length
    bint has_nulls             # else `valid` is not filled
    Column valid
    Column ends
    Column data
    Node *fields
    Py_ssize_t field_count
    Node *item


cdef class TreeArena(Arena):
    # Memory of trees and walks, and the bytes of the defaults.
    cdef list kept


# The nodes of a message class's fields.
cdef int plant(TreeArena arena, Node *node, object cls) except -1
# Empty columns, ready for the first value, with about the room that `rows` rows take, judged by the `before` rows that
# they held the last time.
cdef int start(Node *node, BufferPool pool, int64_t rows, int64_t before) except -1
cdef void drop(Node *node) noexcept
# A uuid as Kafka writes it: base64url without padding, UUID_TEXT characters.
cdef void uuid_text(uint8_t *to, const uint8_t *p) noexcept nogil
cdef bint put_uuid(Node *node, const uint8_t *p) noexcept nogil
# So many values: the default each.
cdef bint put_defaults(Node *node, int64_t count) noexcept nogil
cdef bint put_null(Node *node) noexcept nogil
# All columns below a node get their length.
cdef bint settle(Node *node) noexcept nogil
# Takes values beyond `length` back.
cdef void cut(Node *node, int64_t length) noexcept nogil
cdef object arrow_type(object pa, object field, bint item)
# The Arrow array over a node's memory, which it takes over. It must be settled.
cdef object harvest(object pa, Node *node, object kind, BufferPool pool)


cdef inline bint set_bit(Column *column, int64_t i, bint value) noexcept nogil:
    if not grow(column, (i >> 3) + 1):
        return False
    if i & 7 == 0:
        column.data[i >> 3] = 0
    if value:
        column.data[i >> 3] |= <uint8_t>(1 << (i & 7))
    else:
        column.data[i >> 3] &= <uint8_t>~(1 << (i & 7))
    return True


cdef inline bint put_valid(Node *node) noexcept nogil:
    # The value that is being added is none of null; the caller counts it.
    return not node.has_nulls or set_bit(&node.valid, node.length, True)


cdef inline bint set_end(Node *node, int64_t end) noexcept nogil:
    # Where the value that is being added ends; the caller counts it.
    if end > ENDS_MAX or not grow(&node.ends, 4 * (node.length + 2)):
        return False
    (<int32_t *>node.ends.data)[node.length + 1] = <int32_t>end
    return True


cdef inline int64_t last_end(const Node *node) noexcept nogil:
    return (<int32_t *>node.ends.data)[node.length]


cdef inline bint put_text(Node *node, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef int64_t used = last_end(node)
    if used + size > ENDS_MAX or not grow(&node.data, used + size):
        return False
    memcpy(node.data.data + used, p, size)
    return set_end(node, used + size)


cdef inline bint put_word(Node *node, int64_t value) noexcept nogil:
    cdef uint8_t *at
    if node.kind == BOOL:
        return set_bit(&node.data, node.length, value != 0)
    if not grow(&node.data, (node.length + 1) * node.width):
        return False
    at = node.data.data + node.length * node.width
    if node.width == 4:
        (<int32_t *>at)[0] = <int32_t>value
    elif node.width == 8:
        (<int64_t *>at)[0] = value
    elif node.width == 2:
        (<int16_t *>at)[0] = <int16_t>value
    else:
        (<int8_t *>at)[0] = <int8_t>value
    return True


cdef inline bint put_float(Node *node, double value) noexcept nogil:
    if not grow(&node.data, (node.length + 1) * 8):
        return False
    (<double *>(node.data.data))[node.length] = value
    return True


cdef inline bint catch_up(Node *node, int64_t length) noexcept nogil:
    return node.length == length or put_defaults(node, length - node.length)
