"""Record values to typed Arrow columns, without a Python object per record.

The plans of plan.pyx say what to read; each value goes to a column of the tree that mirrors the class's layout. A field
that a version does not have, or a record leaves out, gets its default, as in the object decoder. A record that cannot
be decoded leaves nothing behind and is reported by its row; the object decoder tells the reason.

A column may have fewer rows than its struct: it gets its defaults all at once, when its next value comes or at the end.
So fields that records leave out, which are most, cost nothing.
"""

cimport cython
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from kraftcore.core.bytes cimport load_int16, load_int32, load_int64, load_uint32, read_uvarint32
from kraftcore.core.columns.chunks cimport BufferPool, Column, address, grow, import_pyarrow
from kraftcore.core.columns.tree cimport (
    Node, TreeArena, arrow_type, catch_up, cut, drop, harvest, plant,
    put_float, put_null, put_text, put_uuid, put_valid,
    put_word, set_end, settle, start,
)
from kraftcore.core.wire.plan cimport Arena, Codec, FieldPlan, StructPlan, codec_of
from kraftcore.core.wire.struct cimport (
    BOOL, BYTES, FLOAT64, INT16, INT32, INT64, INT8, RECORDS, STRING, STRUCT, UINT16, UUID, Field, layout_of,
)
from kraftcore.core.wire.text cimport is_utf8

from kraftcore.errors import LocalError

__all__ = ["RecordColumns"]

cdef extern from *:
    void __builtin_prefetch(const void *p) noexcept nogil

cdef enum:
    AHEAD = 8                  # rows may be in any order: this many are prefetched
    LONGEST_STRING = 0x7FFF
    FRAME = 1
    RECENT = 8

cdef struct Walk:
    # A struct at one version: which node each value goes to.
    const StructPlan *plan
    int *fields
    int *tagged
    Walk **inner               # by node

cdef struct Cursor:
    const uint8_t *p
    const uint8_t *end
    bint no_room               # a column could not grow: no fault of the record


cdef inline bint fits(Cursor *c, bint done) noexcept nogil:
    # Whether a column took a value.
    if not done:
        c.no_room = True
    return done


cdef bint take_struct(Node *node, const Walk *walk, Cursor *c) noexcept nogil:
    cdef const StructPlan *plan = walk.plan
    cdef const FieldPlan *field
    cdef Node *column
    cdef Py_ssize_t i
    cdef int at
    for i in range(plan.field_count):
        field = &plan.fields[i]
        at = walk.fields[i]
        column = &node.fields[at]
        if not fits(c, catch_up(column, node.length)):
            return False
        if field.kind == INT32 and not field.is_array and c.end - c.p >= 4:  # the commonest, without a call
            if not fits(c, put_int32(column, load_int32(c.p)) and put_valid(column)):
                return False
            c.p += 4
            column.length += 1
        elif not take_value(column, field, walk.inner[at], field.nullable, c):
            return False
    if plan.flexible:
        if c.p >= c.end:
            return False
        if c.p[0] == 0:
            c.p += 1
        else:
            return take_tagged(node, walk, c)
    return True


cdef bint take_tagged(Node *node, const Walk *walk, Cursor *c) noexcept nogil:
    cdef uint32_t count, tag, size
    cdef int64_t last = -1
    cdef const uint8_t *end = c.end
    cdef const uint8_t *p = read_uvarint32(c.p, end, &count)
    cdef const FieldPlan *field = walk.plan.tagged
    cdef const FieldPlan *behind = field + walk.plan.tagged_count
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
        while field < behind and field.tag < tag:
            field += 1
        if field < behind and field.tag == tag:
            at = walk.tagged[field - walk.plan.tagged]
            c.p = p
            c.end = p + size
            if not fits(c, catch_up(&node.fields[at], node.length)) or not take_value(
                &node.fields[at], field, walk.inner[at], field.nullable, c
            ) or c.p != c.end:
                return False
            c.end = end
        p += size
    c.p = p
    return True


cdef inline Py_ssize_t take_length(const FieldPlan *field, int width, bint nullable, Cursor *c) noexcept nogil:
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


cdef bint take_value(Node *node, const FieldPlan *field, const Walk *inner, bint nullable, Cursor *c) noexcept nogil:
    # One more value of a field.
    cdef Py_ssize_t length, _i
    cdef Node *item
    if field.is_array:
        length = take_length(field, 4, nullable, c)
        if length == -1:
            return fits(c, put_null(node))
        if length < 0:
            return False
        item = node.item
        if field.kind == INT32:
            if length > (c.end - c.p) >> 2:
                return False
            if not fits(c, put_numbers(item, c.p, length)):
                return False
            c.p += 4 * length
        elif length > (c.end - c.p) // field.unit:
            return False
        else:
            for _i in range(length):
                if not take_item(item, field, inner, False, c):
                    return False
        if not fits(c, set_end(node, item.length) and put_valid(node)):
            return False
        node.length += 1
        return True
    return take_item(node, field, inner, nullable, c)


cdef bint take_item(Node *node, const FieldPlan *field, const Walk *inner, bint nullable, Cursor *c) noexcept nogil:
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
                return fits(c, put_null(node))
        if not take_struct(node, inner, c):
            return False
        done = True
    elif kind == STRING or kind == BYTES or kind == RECORDS:
        length = take_length(field, 2 if kind == STRING else 4, nullable, c)
        if length == -1:
            return fits(c, put_null(node))
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
        done = put_int32(node, load_int32(p))
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
    if not fits(c, done and put_valid(node)):
        return False
    node.length += 1
    return True


cdef inline bint put_numbers(Node *node, const uint8_t *p, Py_ssize_t count) noexcept nogil:
    # int32 items of a list, which are never null. `p` has them.
    cdef int32_t *to
    cdef Py_ssize_t i
    if not grow(&node.data, 4 * (node.length + count)):
        return False
    to = <int32_t *>node.data.data + node.length
    for i in range(count):
        to[i] = load_int32(p + 4 * i)
    node.length += count
    return True


cdef inline bint put_int32(Node *node, int32_t value) noexcept nogil:
    if not grow(&node.data, 4 * (node.length + 1)):
        return False
    (<int32_t *>node.data.data)[node.length] = value
    return True


cdef inline bint is_text(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint8_t high = 0
    for i in range(size):
        high |= p[i]
    return high < 0x80 or is_wide_text(p, size)


cdef bint is_wide_text(const uint8_t *p, Py_ssize_t size) noexcept with gil:
    return is_utf8(p, size)


cdef Walk *route(Arena arena, const StructPlan *plan, object cls) except NULL:
    # Plan and layout, side by side.
    cdef object layout = layout_of(cls)
    cdef tuple fields = layout.fields
    cdef Py_ssize_t i, count = len(fields)
    cdef Walk *walk = <Walk *>arena.take(1, sizeof(Walk))
    cdef dict index = {field.name: i for i, field in enumerate(fields)}
    walk.plan = plan
    walk.fields = <int *>arena.take(plan.field_count, sizeof(int))
    walk.tagged = <int *>arena.take(plan.tagged_count, sizeof(int))
    walk.inner = <Walk **>arena.take(count, sizeof(void *))
    for i in range(plan.field_count):
        walk.fields[i] = index[<object>plan.fields[i].name]
        join(arena, walk, &plan.fields[i], fields[walk.fields[i]], walk.fields[i])
    for i in range(plan.tagged_count):
        walk.tagged[i] = index[<object>plan.tagged[i].name]
        join(arena, walk, &plan.tagged[i], fields[walk.tagged[i]], walk.tagged[i])
    return walk


cdef bint may_be_null(Field field) noexcept:
    # In some version, or where a version does not have it.
    return field.nullable is not None or (field.default is None and not field.builds)


cdef int join(Arena arena, Walk *walk, const FieldPlan *field, Field of, int at) except -1:
    if field.element != NULL:
        walk.inner[at] = route(arena, field.element, of.struct_class)
    return 0


@cython.final
@cython.auto_pickle(False)
cdef class RecordColumns:
    """Decodes record values of one class, all its versions, to Arrow columns named as the class's fields.

    Uuids become their text, unsigned integers the next wider signed type, nested structs and lists their Arrow
    counterparts. Columns that never hold a null say so.

    Args:
        message_class: a metadata record's class, or the class of a control record's value.
        framed: values start with frame version, type and version (metadata records); else with their version as int16
            that is also their first field (control records).
        pool: memory for the columns; None: the system's.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """

    cdef readonly object message_class
    cdef readonly object schema
    cdef bint framed
    cdef bint busy
    cdef BufferPool pool
    cdef int64_t before        # rows of the last decode
    cdef TreeArena arena
    cdef Node root
    cdef dict walks
    cdef (Walk *)[RECENT] recent   # by version
    cdef object pa
    cdef list types

    def __cinit__(self):
        memset(&self.root, 0, sizeof(Node))

    def __dealloc__(self):
        drop(&self.root)

    def __init__(self, message_class, *, bint framed=True, BufferPool pool=None):
        if self.arena is not None:
            raise LocalError("a RecordColumns cannot be made twice")
        self.pa = import_pyarrow()
        self.message_class = message_class
        self.framed = framed
        self.pool = pool
        self.arena = TreeArena.__new__(TreeArena)
        self.walks = {}
        plant(self.arena, &self.root, message_class)
        fields = layout_of(message_class).fields
        self.types = [arrow_type(self.pa, field, False) for field in fields]
        self.schema = self.pa.schema([
            self.pa.field(field.name, kind, may_be_null(field)) for field, kind in zip(fields, self.types, strict=True)
        ])

    cdef Walk *walk_of(self, uint32_t version) except? NULL with gil:
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

    cdef int refuse(self) except -1 with gil:
        raise MemoryError(f"no room for the columns of {self.message_class.__name__} records")

    cdef bint take(self, const uint8_t *p, const uint8_t *end) except -1 nogil:
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
        walk = self.recent[version] if version < RECENT else NULL
        if walk == NULL:
            walk = self.walk_of(version)
            if walk == NULL:
                return False
            if version < RECENT:
                self.recent[version] = walk
        c.p = p
        c.end = end
        c.no_room = False
        if not take_struct(&self.root, walk, &c) or c.p != end:
            if c.no_room:
                self.refuse()
            cut(&self.root, length)
            return False
        self.root.length += 1
        return True

    def decode(self, values, rows=None):
        """Decode values of this class.

        Args:
            values: ``pyarrow.BinaryArray`` of record values.
            rows: ``pyarrow.UInt64Array`` of the positions in ``values`` to decode; None: all.

        Returns:
            A ``pyarrow.RecordBatch`` with a row for each value that could be decoded, and the positions, counted among
            the values that were to be decoded, of those that could not: damaged, null, or of an unknown version.

        Raises:
            LocalError: arrays of other types, a position outside ``values``, or another thread is using this decoder.
            MemoryError: no memory for the columns, or a column exceeds the 2 GiB of Arrow's lists and texts.
        """
        cdef int64_t i
        if self.busy:
            raise LocalError("another thread is using this RecordColumns")
        self.busy = True
        try:
            failed = self.fill(values, rows)
            columns = [
                harvest(self.pa, &self.root.fields[i], self.types[i], self.pool) for i in range(self.root.field_count)
            ]
            batch = self.pa.RecordBatch.from_arrays(columns, schema=self.schema) if columns else (
                self.pa.RecordBatch.from_struct_array(self.pa.array([{}] * self.root.length, self.pa.struct([])))
            )
            self.before = self.root.length
        finally:
            self.busy = False
        return batch, failed

    cdef list fill(self, object values, object rows):
        # Decodes into the tree; returns the positions of values that could not be decoded.
        cdef const int32_t *ends = NULL
        cdef const uint8_t *base = NULL
        cdef const uint8_t *valid = NULL
        cdef const uint64_t *places = NULL
        cdef int64_t first = values.offset, size = len(values), count = size, i, at, failures = 0
        cdef Column bad
        if values.type != self.pa.binary():
            raise LocalError(f"values are {values.type}, not binary")
        if rows is not None:
            if rows.type != self.pa.uint64() or rows.null_count:
                raise LocalError(f"rows are {rows.type}, not uint64 without nulls")
            count = len(rows)
        buffers = values.buffers()
        if size:
            valid, ends, base = address(buffers[0]), <const int32_t *>address(buffers[1]), address(buffers[2])
        if rows is not None and count:
            row_buffer = rows.buffers()[1]
            places = <const uint64_t *>address(row_buffer) + <int64_t>rows.offset
            for i in range(count):
                if places[i] >= <uint64_t>size:
                    raise LocalError(f"row {places[i]} is not in the {size} values")
        drop(&self.root)
        start(&self.root, self.pool, count, self.before)
        memset(&bad, 0, sizeof(Column))
        try:
            with nogil:
                for i in range(count):
                    at = first + (i if places == NULL else <int64_t>places[i])
                    if places != NULL and i + AHEAD < count:
                        __builtin_prefetch(base + ends[first + <int64_t>places[i + AHEAD]])
                    if (valid != NULL and not (valid[at >> 3] >> (at & 7)) & 1) or (
                        not self.take(base + ends[at], base + ends[at + 1])
                    ):
                        if not grow(&bad, 8 * (failures + 1)):
                            self.refuse()
                        (<int64_t *>bad.data)[failures] = i
                        failures += 1
                if not settle(&self.root):
                    self.refuse()
            return [(<int64_t *>bad.data)[i] for i in range(failures)]
        finally:
            free(bad.data)
