"""Columns of nested values, as a tree that mirrors a message class, and the Arrow arrays over them."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kraftcore.core.bytes cimport load_int64
from kraftcore.core.columns.chunks cimport BufferPool, Column, begin, grow, hand_over
from kraftcore.core.wire.struct cimport (
    BOOL, BYTES, FLOAT64, INT16, INT32, INT64, INT8, RECORDS, STRING, STRUCT, UINT16, UINT32, UUID, Field, layout_of,
)

__all__ = []

cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

cdef uint8_t[8192] PAIRS  # two characters for each 12 bits


cdef void fill_pairs() noexcept:
    cdef int i
    for i in range(4096):
        PAIRS[2 * i] = BASE64[i >> 6]
        PAIRS[2 * i + 1] = BASE64[i & 63]


fill_pairs()


cdef void uuid_text(uint8_t *to, const uint8_t *p) noexcept nogil:
    cdef uint64_t high = <uint64_t>load_int64(p)
    cdef uint64_t low = <uint64_t>load_int64(p + 8)
    put_pair(to, high >> 52)
    put_pair(to + 2, high >> 40)
    put_pair(to + 4, high >> 28)
    put_pair(to + 6, high >> 16)
    put_pair(to + 8, high >> 4)
    put_pair(to + 10, high << 8 | low >> 56)
    put_pair(to + 12, low >> 44)
    put_pair(to + 14, low >> 32)
    put_pair(to + 16, low >> 20)
    put_pair(to + 18, low >> 8)
    to[20] = BASE64[(low & 0xFF) >> 2]
    to[21] = BASE64[(low & 3) << 4]


cdef inline void put_pair(uint8_t *to, uint64_t bits) noexcept nogil:
    # The two characters of the last twelve bits.
    memcpy(to, PAIRS + 2 * (bits & 4095), 2)


cdef bint put_uuid(Node *node, const uint8_t *p) noexcept nogil:
    cdef int64_t used = last_end(node)
    if used + UUID_TEXT > ENDS_MAX or not grow(&node.data, used + UUID_TEXT):
        return False
    uuid_text(node.data.data + used, p)
    return set_end(node, used + UUID_TEXT)


cdef bint put_bits(Column *column, int64_t start, int64_t count, bint value) noexcept nogil:
    cdef int64_t i = start, end = start + count
    if not grow(column, (end >> 3) + 1):
        return False
    while i < end and i & 7:
        set_bit(column, i, value)
        i += 1
    if i < end:
        memset(column.data + (i >> 3), 0xFF if value else 0, (end - i + 7) >> 3)
    return True


cdef bint put_nulls(Node *node, int64_t count) noexcept nogil:
    # The next values' bits; with the first null those of all before it.
    if not node.has_nulls and not put_bits(&node.valid, 0, node.length, True):
        return False
    node.has_nulls = True
    return put_bits(&node.valid, node.length, count, False)


cdef bint put_defaults(Node *node, int64_t count) noexcept nogil:
    cdef bint done = True
    if node.null_default:
        done = put_nulls(node, count)
    elif node.has_nulls:
        done = put_bits(&node.valid, node.length, count, True)
    if not done:
        return False
    if node.is_array:
        done = put_ends(node, count)
    elif node.kind == STRUCT:
        pass  # its fields get their values later
    elif node.kind == STRING or node.kind == BYTES or node.kind == RECORDS or node.kind == UUID:
        if node.default_size == 0:
            done = put_ends(node, count)
        else:
            while count > 0 and done:
                done = put_text(node, <const uint8_t *>node.default_text, node.default_size)
                node.length += done
                count -= 1
    else:
        done = put_same(node, count)
    if done:
        node.length += count
    return done


cdef bint put_ends(Node *node, int64_t count) noexcept nogil:
    # Empty lists or texts.
    cdef int32_t end = <int32_t>last_end(node)
    cdef int32_t *ends
    cdef int64_t i
    if not grow(&node.ends, 4 * (node.length + count + 1)):
        return False
    ends = <int32_t *>node.ends.data + node.length + 1
    for i in range(count):
        ends[i] = end
    return True


cdef bint put_same(Node *node, int64_t count) noexcept nogil:
    # The default of a fixed-size value.
    cdef uint8_t *at
    cdef int64_t i
    if node.kind == BOOL:
        return put_bits(&node.data, node.length, count, node.default_int != 0)
    if not grow(&node.data, (node.length + count) * node.width):
        return False
    at = node.data.data + node.length * node.width
    if node.kind == FLOAT64:
        for i in range(count):
            (<double *>at)[i] = node.default_float
    elif node.width == 4:
        for i in range(count):
            (<int32_t *>at)[i] = <int32_t>node.default_int
    elif node.width == 8:
        for i in range(count):
            (<int64_t *>at)[i] = node.default_int
    elif node.width == 2:
        for i in range(count):
            (<int16_t *>at)[i] = <int16_t>node.default_int
    else:
        memset(at, <int8_t>node.default_int, count)
    return True


cdef bint put_null(Node *node) noexcept nogil:
    cdef bint done = put_nulls(node, 1)
    if node.is_array or node.kind == STRING or node.kind == BYTES or node.kind == RECORDS or node.kind == UUID:
        done = done and set_end(node, last_end(node))
    elif node.kind != STRUCT:
        done = done and put_same(node, 1)
    node.length += done
    return done


cdef bint settle(Node *node) noexcept nogil:
    cdef Py_ssize_t i
    if node.is_array:
        return node.kind != STRUCT or settle(node.item)
    for i in range(node.field_count):
        if not catch_up(&node.fields[i], node.length) or not settle(&node.fields[i]):
            return False
    return True


cdef void cut(Node *node, int64_t length) noexcept nogil:
    cdef Py_ssize_t i
    if node.length > length:
        node.length = length
    if node.is_array:
        cut(node.item, (<int32_t *>node.ends.data)[node.length])
    elif node.kind == STRUCT:
        for i in range(node.field_count):
            cut(&node.fields[i], node.length)


@cython.final
@cython.auto_pickle(False)
cdef class TreeArena(Arena):
    """Memory of trees and walks, and the bytes of the defaults."""

    def __cinit__(self):
        self.kept = []


cdef int plant(TreeArena arena, Node *node, object cls) except -1:
    cdef tuple fields = layout_of(cls).fields
    cdef Py_ssize_t i
    node.kind = STRUCT
    node.field_count = len(fields)
    node.fields = <Node *>arena.take(len(fields), sizeof(Node))
    for i in range(node.field_count):
        plant_field(arena, &node.fields[i], fields[i])
    return 0


cdef int plant_field(TreeArena arena, Node *node, Field field) except -1:
    cdef object default = None if field.builds else field.default
    node.kind = field.kind
    node.is_array = field.is_array
    node.width = {BOOL: 0, INT8: 1, INT16: 2, UINT16: 4, INT32: 4, UINT32: 8, INT64: 8, FLOAT64: 8}.get(field.kind, 0)
    if field.is_array:
        node.null_default = not field.builds
        node.item = <Node *>arena.take(1, sizeof(Node))
        node.item.kind = field.kind
        node.item.width = node.width
        if field.kind == STRUCT:
            plant(arena, node.item, field.struct_class)
        return 0
    if field.kind == STRUCT:
        node.null_default = not field.builds
        plant(arena, node, field.struct_class)
    elif default is None:
        node.null_default = True
    elif field.kind in (STRING, BYTES, RECORDS, UUID):
        text = bytes(default) if field.kind in (BYTES, RECORDS) else str(default).encode()
        arena.kept.append(text)
        node.default_text = PyBytes_AS_STRING(text)
        node.default_size = PyBytes_GET_SIZE(text)
    elif field.kind == FLOAT64:
        node.default_float = default
    else:
        node.default_int = default
    return 0


cdef int start(Node *node, BufferPool pool, int64_t rows, int64_t before) except -1:
    cdef Py_ssize_t i
    node.length = 0
    node.has_nulls = False
    start_column(&node.valid, pool, rows, before)
    start_column(&node.ends, pool, rows, before)
    start_column(&node.data, pool, rows, before)
    if node.is_array or node.kind in (STRING, BYTES, RECORDS, UUID):
        if not grow(&node.ends, 4):
            raise MemoryError
        memset(node.ends.data, 0, 4)
    if node.is_array:
        start(node.item, pool, rows, before)
    elif node.kind == STRUCT:
        for i in range(node.field_count):
            start(&node.fields[i], pool, rows, before)
    return 0


cdef void start_column(Column *column, BufferPool pool, int64_t rows, int64_t before) noexcept:
    # As large as the last time, less for fewer rows, and a sixteenth. Without memory for that it begins empty.
    cdef int64_t bytes = column.before
    if rows < before:
        bytes = <int64_t>(<double>bytes * rows / before)
    if bytes == 0 or not begin(column, bytes + bytes // 16 + 8, pool):
        column.data = NULL
        column.used = column.capacity = 0


cdef void drop(Node *node) noexcept:
    cdef Py_ssize_t i
    free(node.valid.data)
    free(node.ends.data)
    free(node.data.data)
    node.valid.data = node.ends.data = node.data.data = NULL
    if node.item != NULL:
        drop(node.item)
    for i in range(node.field_count):
        drop(&node.fields[i])


cdef object wrap(object pa, Column *column, int64_t size, BufferPool pool):
    return pa.py_buffer(hand_over(column, size, pool))


cdef object arrow_type(object pa, object field, bint item):
    if field.is_array and not item:
        return pa.list_(pa.field("element", arrow_type(pa, field, True)))
    if field.kind == STRUCT:
        return pa.struct([pa.field(part.name, arrow_type(pa, part, False))
                          for part in layout_of(field.struct_class).fields])
    return {
        BOOL: pa.bool_, INT8: pa.int8, INT16: pa.int16, UINT16: pa.int32, INT32: pa.int32, UINT32: pa.int64,
        INT64: pa.int64, FLOAT64: pa.float64, STRING: pa.string, BYTES: pa.binary, RECORDS: pa.binary, UUID: pa.string,
    }[field.kind]()


cdef object harvest(object pa, Node *node, object kind, BufferPool pool):
    cdef int64_t length = node.length
    cdef Py_ssize_t i
    cdef list buffers = [wrap(pa, &node.valid, (length + 7) // 8, pool) if node.has_nulls else None]
    cdef list children = []
    cdef int64_t used
    if node.is_array:
        buffers.append(wrap(pa, &node.ends, 4 * (length + 1), pool))
        children = [harvest(pa, node.item, kind.value_type, pool)]
    elif node.kind == STRUCT:
        children = [harvest(pa, &node.fields[i], kind[i].type, pool) for i in range(node.field_count)]
    elif node.kind in (STRING, BYTES, RECORDS, UUID):
        used = last_end(node)
        buffers += [wrap(pa, &node.ends, 4 * (length + 1), pool), wrap(pa, &node.data, used, pool)]
    else:
        buffers.append(wrap(pa, &node.data, (length + 7) // 8 if node.kind == BOOL else length * node.width, pool))
    return pa.Array.from_buffers(kind, length, buffers, -1 if node.has_nulls else 0, 0, children)
