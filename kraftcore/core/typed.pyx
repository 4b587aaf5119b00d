"""Record values to typed Arrow columns, without a Python object per record.

The plans of plan.pyx say what to read; each value goes to a column of the tree that mirrors the class's layout. What a
version does not have, or a record leaves out, gets the field's default, as the object decoder gives it. A record that
cannot be decoded leaves nothing behind and is reported by its row; why, the object decoder can tell.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kraftcore.core.bytes cimport load_int16, load_int32, load_int64, load_uint32, read_uvarint32
from kraftcore.core.chunks cimport import_pyarrow, make_buffer
from kraftcore.core.column_pass cimport Column, grow
from kraftcore.core.plan cimport Codec, FieldPlan, StructPlan, codec_of
from kraftcore.core.struct cimport (
    BOOL, BYTES, FLOAT64, INT16, INT32, INT64, INT8, RECORDS, STRING, STRUCT, UINT16, UINT32, UUID, Field, layout_of,
)
from kraftcore.core.text cimport is_utf8

from kraftcore.errors import LocalError

__all__ = ["RecordColumns"]

cdef enum:
    FIELDS_MAX = 64            # of one struct: a bit set tells which were read
    ENDS_MAX = 0x7FFFFFFF      # Arrow's int32 offsets
    LONGEST_STRING = 0x7FFF
    UUID_TEXT = 22
    FRAME = 1

cdef const char *BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

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
    Column valid
    Column ends
    Column data
    Node *fields
    Py_ssize_t field_count
    Node *item

cdef struct Walk:
    # A struct at one version: which node each value goes to.
    const StructPlan *plan
    int *fields
    int *tagged
    Walk **inner               # by node
    int *absent                # nodes without a place in the wire order
    Py_ssize_t absent_count

cdef struct Cursor:
    const uint8_t *p
    const uint8_t *end


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


cdef bint put_uuid(Node *node, const uint8_t *p) noexcept nogil:
    # base64url without padding, as Kafka writes ids.
    cdef int64_t used = last_end(node)
    cdef uint8_t *to
    cdef uint32_t three
    cdef int i
    if used + UUID_TEXT > ENDS_MAX or not grow(&node.data, used + UUID_TEXT):
        return False
    to = node.data.data + used
    for i in range(5):
        three = (<uint32_t>p[3 * i] << 16) | (<uint32_t>p[3 * i + 1] << 8) | p[3 * i + 2]
        to[4 * i] = BASE64[three >> 18]
        to[4 * i + 1] = BASE64[(three >> 12) & 63]
        to[4 * i + 2] = BASE64[(three >> 6) & 63]
        to[4 * i + 3] = BASE64[three & 63]
    to[20] = BASE64[p[15] >> 2]
    to[21] = BASE64[(p[15] & 3) << 4]
    return set_end(node, used + UUID_TEXT)


cdef bint put_default(Node *node, bint as_null) noexcept nogil:
    # One more value: the default, or null with whatever must stand below it.
    cdef Py_ssize_t i
    cdef bint null = as_null or node.null_default
    cdef bint done
    if not set_bit(&node.valid, node.length, not null):
        return False
    if node.is_array:
        done = set_end(node, last_end(node))
    elif node.kind == STRUCT:
        done = True
        for i in range(node.field_count):
            done = done and put_default(&node.fields[i], False)
    elif node.kind == STRING or node.kind == BYTES or node.kind == RECORDS or node.kind == UUID:
        if null:
            done = set_end(node, last_end(node))
        else:
            done = put_text(node, <const uint8_t *>node.default_text, node.default_size)
    elif node.kind == FLOAT64:
        done = put_float(node, node.default_float)
    else:
        done = put_word(node, node.default_int)
    node.length += done
    return done


cdef void cut(Node *node, int64_t length) noexcept nogil:
    # Takes values beyond `length` back.
    cdef Py_ssize_t i
    node.length = length
    if node.is_array:
        cut(node.item, (<int32_t *>node.ends.data)[length])
    elif node.kind == STRUCT:
        for i in range(node.field_count):
            cut(&node.fields[i], length)


cdef bint take_struct(Node *node, const Walk *walk, Cursor *c) noexcept:
    cdef const StructPlan *plan = walk.plan
    cdef const FieldPlan *field
    cdef uint64_t seen = 0
    cdef Py_ssize_t i
    cdef int at
    for i in range(plan.field_count):
        field = &plan.fields[i]
        at = walk.fields[i]
        if not take_value(&node.fields[at], field, walk.inner[at], field.nullable, c):
            return False
    if plan.flexible:
        if c.p >= c.end:
            return False
        if c.p[0] == 0:
            c.p += 1
        elif not take_tagged(node, walk, c, &seen):
            return False
    for i in range(walk.absent_count):
        at = walk.absent[i]
        if not (seen >> at) & 1 and not put_default(&node.fields[at], False):
            return False
    return True


cdef bint take_tagged(Node *node, const Walk *walk, Cursor *c, uint64_t *seen) noexcept:
    cdef uint32_t count, tag, size
    cdef int64_t last = -1
    cdef const uint8_t *end = c.end
    cdef const uint8_t *p = read_uvarint32(c.p, end, &count)
    cdef Py_ssize_t i
    cdef int at
    if p == NULL:
        return False
    while count > 0:
        count -= 1
        p = read_uvarint32(p, end, &tag)
        if p != NULL:
            p = read_uvarint32(p, end, &size)
        if p == NULL or tag <= last or size > end - p:
            return False
        last = tag
        for i in range(walk.plan.tagged_count):
            if walk.plan.tagged[i].tag == tag:
                at = walk.tagged[i]
                c.p = p
                c.end = p + size
                if not take_value(
                    &node.fields[at], &walk.plan.tagged[i], walk.inner[at], walk.plan.tagged[i].nullable, c
                ) or c.p != c.end:
                    return False
                c.end = end
                seen[0] |= <uint64_t>1 << at
                break
        p += size
    c.p = p
    return True


cdef inline Py_ssize_t take_length(const FieldPlan *field, int width, bint nullable, Cursor *c) noexcept:
    # A length or count; -1 for null, -2 for damage.
    cdef uint32_t raw
    cdef Py_ssize_t length
    if field.compact:
        c.p = read_uvarint32(c.p, c.end, &raw)
        if c.p == NULL:
            return -2
        length = <Py_ssize_t>raw - 1
    else:
        if c.end - c.p < width:
            return -2
        length = load_int16(c.p) if width == 2 else load_int32(c.p)
        c.p += width
    if length < 0:
        return -1 if nullable else -2
    return length


cdef bint take_value(Node *node, const FieldPlan *field, const Walk *inner, bint nullable, Cursor *c) noexcept:
    # One more value of a field.
    cdef Py_ssize_t length, i
    cdef Node *item
    if field.is_array:
        length = take_length(field, 4, nullable, c)
        if length == -1:
            return put_default(node, True)
        if length < 0 or length > (c.end - c.p) // field.unit:
            return False
        item = node.item
        for i in range(length):
            if not take_item(item, field, inner, False, c):
                return False
        if not set_end(node, item.length) or not set_bit(&node.valid, node.length, True):
            return False
        node.length += 1
        return True
    return take_item(node, field, inner, nullable, c)


cdef bint take_item(Node *node, const FieldPlan *field, const Walk *inner, bint nullable, Cursor *c) noexcept:
    cdef const uint8_t *p = c.p
    cdef Py_ssize_t left = c.end - p
    cdef Py_ssize_t length
    cdef int kind = field.kind
    cdef bint done
    cdef int64_t word
    cdef double number
    if kind == STRUCT:
        if nullable:
            if left < 1:
                return False
            c.p = p + 1
            if <int8_t>p[0] < 0:
                return put_default(node, True)
        done = take_struct(node, inner, c)
    elif kind == STRING or kind == BYTES or kind == RECORDS:
        length = take_length(field, 2 if kind == STRING else 4, nullable, c)
        if length == -1:
            return put_default(node, True)
        if length < 0 or length > c.end - c.p:
            return False
        if kind == STRING and (length > LONGEST_STRING or not is_text(c.p, length)):
            return False
        done = put_text(node, c.p, length)
        c.p += length
    elif kind == UUID:
        if left < 16:
            return False
        done = put_uuid(node, p)
        c.p = p + 16
    elif kind == INT32:
        if left < 4:
            return False
        done = put_word(node, load_int32(p))
        c.p = p + 4
    elif kind == INT64 or kind == FLOAT64:
        if left < 8:
            return False
        word = load_int64(p)
        if kind == FLOAT64:
            memcpy(&number, &word, 8)
            done = put_float(node, number)
        else:
            done = put_word(node, word)
        c.p = p + 8
    elif kind == INT8 or kind == BOOL:
        if left < 1:
            return False
        done = put_word(node, <int8_t>p[0])
        c.p = p + 1
    elif kind == INT16 or kind == UINT16:
        if left < 2:
            return False
        done = put_word(node, load_int16(p) if kind == INT16 else <int64_t><uint16_t>load_int16(p))
        c.p = p + 2
    else:
        if left < 4:
            return False
        done = put_word(node, load_uint32(p))
        c.p = p + 4
    if not done or not set_bit(&node.valid, node.length, True):
        return False
    node.length += 1
    return True


cdef inline bint is_text(const uint8_t *p, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    cdef uint8_t high = 0
    for i in range(size):
        high |= p[i]
    return high < 0x80 or is_utf8(p, size)


@cython.final
@cython.auto_pickle(False)
cdef class _Arena:
    # Memory of the tree and the walks, and the bytes of the defaults.
    cdef list blocks
    cdef list kept

    def __cinit__(self):
        self.blocks = []
        self.kept = []

    def __dealloc__(self):
        for block in self.blocks:
            PyMem_Free(<void *><size_t>block)

    cdef void *take(self, Py_ssize_t count, size_t size) except NULL:
        cdef void *block = PyMem_Calloc(max(count, 1), size)
        if block == NULL:
            raise MemoryError
        self.blocks.append(<size_t>block)
        return block


cdef int plant(_Arena arena, Node *node, object cls) except -1:
    # The nodes of a struct's fields.
    cdef tuple fields = layout_of(cls).fields
    cdef Py_ssize_t i
    if len(fields) > FIELDS_MAX:
        raise LocalError(f"{cls.__name__} has more than {FIELDS_MAX} fields")
    node.kind = STRUCT
    node.field_count = len(fields)
    node.fields = <Node *>arena.take(len(fields), sizeof(Node))
    for i in range(node.field_count):
        plant_field(arena, &node.fields[i], fields[i])
    return 0


cdef int plant_field(_Arena arena, Node *node, Field field) except -1:
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


cdef Walk *route(_Arena arena, const StructPlan *plan, object cls) except NULL:
    # Plan and layout, side by side.
    cdef object layout = layout_of(cls)
    cdef tuple fields = layout.fields
    cdef Py_ssize_t i, count = len(fields)
    cdef Walk *walk = <Walk *>arena.take(1, sizeof(Walk))
    cdef dict index = {field.name: i for i, field in enumerate(fields)}
    cdef list absent = list(range(count))
    walk.plan = plan
    walk.fields = <int *>arena.take(plan.field_count, sizeof(int))
    walk.tagged = <int *>arena.take(plan.tagged_count, sizeof(int))
    walk.inner = <Walk **>arena.take(count, sizeof(void *))
    for i in range(plan.field_count):
        walk.fields[i] = index[<object>plan.fields[i].name]
        absent.remove(walk.fields[i])
        join(arena, walk, &plan.fields[i], fields[walk.fields[i]], walk.fields[i])
    for i in range(plan.tagged_count):
        walk.tagged[i] = index[<object>plan.tagged[i].name]
        join(arena, walk, &plan.tagged[i], fields[walk.tagged[i]], walk.tagged[i])
    walk.absent_count = len(absent)
    walk.absent = <int *>arena.take(len(absent), sizeof(int))
    for i in range(walk.absent_count):
        walk.absent[i] = absent[i]
    return walk


cdef int join(_Arena arena, Walk *walk, const FieldPlan *field, Field of, int at) except -1:
    if field.element != NULL:
        walk.inner[at] = route(arena, field.element, of.struct_class)
    return 0


cdef int start(Node *node) except -1:
    # Empty columns, ready for the first value.
    cdef Py_ssize_t i
    node.length = 0
    memset(&node.valid, 0, sizeof(Column))
    memset(&node.ends, 0, sizeof(Column))
    memset(&node.data, 0, sizeof(Column))
    if node.is_array or node.kind in (STRING, BYTES, RECORDS, UUID):
        if not grow(&node.ends, 4):
            raise MemoryError
        memset(node.ends.data, 0, 4)
    if node.is_array:
        start(node.item)
    elif node.kind == STRUCT:
        for i in range(node.field_count):
            start(&node.fields[i])
    return 0


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


cdef object wrap(object pa, Column *column, int64_t size):
    cdef object buffer = make_buffer(column.data, size, column.capacity)
    column.data = NULL
    column.capacity = 0
    return pa.py_buffer(buffer)


cdef object arrow_type(object pa, Field field, bint item):
    if field.is_array and not item:
        return pa.list_(pa.field("element", arrow_type(pa, field, True)))
    if field.kind == STRUCT:
        return pa.struct([pa.field(part.name, arrow_type(pa, part, False))
                          for part in layout_of(field.struct_class).fields])
    return {
        BOOL: pa.bool_, INT8: pa.int8, INT16: pa.int16, UINT16: pa.int32, INT32: pa.int32, UINT32: pa.int64,
        INT64: pa.int64, FLOAT64: pa.float64, STRING: pa.string, BYTES: pa.binary, RECORDS: pa.binary, UUID: pa.string,
    }[field.kind]()


cdef object harvest(object pa, Node *node, object kind):
    # The Arrow array over a node's memory, which it takes over.
    cdef int64_t length = node.length
    cdef Py_ssize_t i
    cdef list buffers = [wrap(pa, &node.valid, (length + 7) // 8)]
    cdef list children = []
    cdef int64_t used
    if node.is_array:
        buffers.append(wrap(pa, &node.ends, 4 * (length + 1)))
        children = [harvest(pa, node.item, kind.value_type)]
    elif node.kind == STRUCT:
        children = [harvest(pa, &node.fields[i], kind[i].type) for i in range(node.field_count)]
    elif node.kind in (STRING, BYTES, RECORDS, UUID):
        used = last_end(node)
        buffers += [wrap(pa, &node.ends, 4 * (length + 1)), wrap(pa, &node.data, used)]
    else:
        buffers.append(wrap(pa, &node.data, (length + 7) // 8 if node.kind == BOOL else length * node.width))
    return pa.Array.from_buffers(kind, length, buffers, -1, 0, children)


@cython.final
@cython.auto_pickle(False)
cdef class RecordColumns:
    """Decodes record values of one class, all its versions, to Arrow columns named as the class's fields.

    Uuids become their text, unsigned integers the next wider signed type, nested structs and lists their Arrow
    counterparts.

    Args:
        message_class: a metadata record's class, or the class of a control record's value.
        framed: values start with frame version, type and version (metadata records); else with their version as int16
            that is also their first field (control records).

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """

    cdef readonly object message_class
    cdef readonly object schema
    cdef bint framed
    cdef _Arena arena
    cdef Node root
    cdef dict walks
    cdef bint started
    cdef object pa
    cdef list types

    def __cinit__(self):
        memset(&self.root, 0, sizeof(Node))

    def __dealloc__(self):
        drop(&self.root)

    def __init__(self, message_class, *, bint framed=True):
        if self.arena is not None:
            raise LocalError("a RecordColumns cannot be made twice")
        self.pa = import_pyarrow()
        self.message_class = message_class
        self.framed = framed
        self.arena = _Arena.__new__(_Arena)
        self.walks = {}
        plant(self.arena, &self.root, message_class)
        fields = layout_of(message_class).fields
        self.types = [arrow_type(self.pa, field, False) for field in fields]
        self.schema = self.pa.schema(
            [self.pa.field(field.name, kind) for field, kind in zip(fields, self.types, strict=True)]
        )

    cdef Walk *walk_of(self, uint32_t version) except? NULL:
        # NULL: the class has no such version.
        cdef Codec codec
        known = self.walks.get(version)
        if known is None:
            try:
                codec = codec_of(self.message_class, <int>version) if version <= 0x7FFF else None
                known = <size_t>route(self.arena, codec.root, self.message_class) if codec is not None else 0
            except KeyError:
                known = 0
            self.walks[version] = known
        return <Walk *><size_t>known

    cdef bint take(self, const uint8_t *p, const uint8_t *end) except -1:
        cdef Cursor c
        cdef uint32_t frame, kind, version
        cdef Walk *walk
        cdef int64_t length = self.root.length
        if self.framed:
            p = read_uvarint32(p, end, &frame)
            if p != NULL:
                p = read_uvarint32(p, end, &kind)
            if p != NULL:
                p = read_uvarint32(p, end, &version)
            if p == NULL or frame != FRAME:
                return False
        else:
            if end - p < 2:
                return False
            version = <uint16_t>load_int16(p)
        walk = self.walk_of(version)
        if walk == NULL:
            return False
        c.p = p
        c.end = end
        if not take_struct(&self.root, walk, &c) or c.p != end:
            cut(&self.root, length)
            return False
        self.root.length += 1
        return True

    def decode(self, values):
        """Decode values of this class.

        Args:
            values: ``pyarrow.BinaryArray`` of record values.

        Returns:
            A ``pyarrow.RecordBatch`` with a row for each value that could be decoded, and the positions in ``values``
            of those that could not: damaged, null, or of an unknown version.
        """
        cdef const int32_t *ends = NULL
        cdef const uint8_t *base = NULL
        cdef const uint8_t *valid = NULL
        cdef int64_t first = values.offset, count = len(values), i
        cdef list failed = []
        buffers = values.buffers()
        if values.type != self.pa.binary():
            raise LocalError(f"values are {values.type}, not binary")
        drop(&self.root)
        start(&self.root)
        if count:
            valid, ends, base = address(buffers[0]), <const int32_t *>address(buffers[1]), address(buffers[2])
        for i in range(first, first + count):
            if (valid != NULL and not (valid[i >> 3] >> (i & 7)) & 1) or (
                not self.take(base + ends[i], base + ends[i + 1])
            ):
                failed.append(i - first)
        batch = self.pa.RecordBatch.from_arrays(
            [harvest(self.pa, &self.root.fields[i], self.types[i]) for i in range(self.root.field_count)],
            schema=self.schema,
        ) if self.root.field_count else self.pa.RecordBatch.from_struct_array(
            self.pa.array([{}] * self.root.length, self.pa.struct([]))
        )
        return batch, failed


cdef const uint8_t *address(object buffer) except? NULL:
    if buffer is None or buffer.size == 0:
        return NULL
    return <const uint8_t *><size_t>buffer.address
