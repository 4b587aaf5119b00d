"""Message objects: Python classes with ``__slots__`` whose values the codec reaches by offset."""

# A class body (kraftcore/protocol) is the schema; `lay_out` turns its fields into a Layout once, at class creation.
# Attribute reads stay plain slot reads, which the interpreter specialises. Defaults that must not be shared (lists,
# structs) are left empty and made when first asked for: a decoded Fetch response has five of them that nobody reads.

from kraftcore.errors import LocalError

cimport cython
from cpython.dict cimport PyDict_GetItem, PyDict_Next
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport Py_EQ, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF, Py_XDECREF, Py_XINCREF, PyObject, PyTypeObject

from kraftcore.core.uuid import ZERO_UUID as _ZERO_UUID

cdef extern from *:
    """
    #include <structmember.h>
    /* Where a member descriptor keeps its value, or -1 for any other object. */
    static Py_ssize_t kraft_member_offset(PyObject *member) {
        if (!Py_IS_TYPE(member, &PyMemberDescr_Type)) return -1;
        return (Py_ssize_t)((PyMemberDescrObject *)member)->d_member->offset;
    }
    """
    Py_ssize_t kraft_member_offset(object member) noexcept

cdef extern from *:
    """
    static inline PyObject *kraft_make(PyObject *cls, PyObject *nothing) {
        return ((PyTypeObject *)cls)->tp_new((PyTypeObject *)cls, nothing, NULL);
    }
    """
    object kraft_make(object cls, object nothing)

_KINDS = {
    "bool": BOOL,
    "int8": INT8,
    "int16": INT16,
    "uint16": UINT16,
    "int32": INT32,
    "uint32": UINT32,
    "int64": INT64,
    "float64": FLOAT64,
    "string": STRING,
    "bytes": BYTES,
    "records": RECORDS,
    "uuid": UUID,
    "struct": STRUCT,
}
_ZEROS = {BOOL: False, FLOAT64: 0.0, STRING: "", BYTES: b"", RECORDS: b"", UUID: _ZERO_UUID}
_UNSET = object()  # no default named: the type's own
_LONGEST_SHOWN = 64  # bytes; longer values are described, not printed
cdef tuple NOTHING = ()


@cython.final
@cython.auto_pickle(False)
cdef class Field:
    """The definition of one field in a schema.

    Attributes:
        name: the Python attribute.
        kafka_name: the name in Kafka's definitions; error texts use ``name``.
        json_name: the key in Kafka's JSON form, ``kafka_name`` with a small first letter.
        type_name: ``int32``, ``string``, ... or ``struct``; of one element when ``is_array``.
        struct_class: the class of a struct or of an array's structs, else None.
        is_array: True for a list of values.
        default: the value of a field that is left out; None for Kafka's null, and where ``builds`` is True.
        builds: whether the default is a new list or struct each time.
        ignorable: may be dropped silently where the version has no such field.
        versions: first and last version with this field; None as last is open.
        nullable: versions in which None is allowed, or None.
        tagged: versions in which it travels as a tagged field, or None.
        tag: its tag, or None.
        flexible: overrides the message's flexible versions for this field, or None.
    """

    def __init__(
        self,
        str type_name not None,
        *,
        tuple versions not None=(0, None),
        tuple nullable=None,
        tuple tagged=None,
        tag=None,
        default=_UNSET,
        bint ignorable=False,
        bint is_array=False,
        object struct_class=None,
        tuple flexible=None,
        str kafka_name=None,
    ):
        if type_name not in _KINDS:
            raise LocalError(f"{type_name!r} is not a field type")
        if (tag is None) != (tagged is None):
            raise LocalError("tag and tagged versions go together")
        self.kind = _KINDS[type_name]
        if (self.kind == STRUCT) != (struct_class is not None):
            raise LocalError("struct fields, and only they, name a struct class")
        self.type_name = type_name
        self.versions = versions
        self.nullable = nullable
        self.tagged = tagged
        self.tag = tag
        self.ignorable = ignorable
        self.is_array = is_array
        self.struct_class = struct_class
        self.flexible = flexible
        self.kafka_name = kafka_name
        self.builds = default is _UNSET and (is_array or self.kind == STRUCT)
        if self.builds:
            self.default = None
        else:
            self.default = _ZEROS.get(self.kind, 0) if default is _UNSET else default
            if self.default is None and nullable is None:
                raise LocalError("a field whose default is None must be nullable in some version")

    def bind(self, str name not None):
        """Take the attribute's name, and Kafka's name from it unless one was given."""
        self.name = name
        if self.kafka_name is None:
            self.kafka_name = "".join([part.capitalize() for part in name.split("_")])
        self.json_name = self.kafka_name[:1].lower() + self.kafka_name[1:]
        return self

    def make_default(self):
        """A value for a field left out; lists and structs are new at each call."""
        if not self.builds:
            return self.default
        return [] if self.is_array else self.struct_class()

    def __repr__(self):
        return f"<Field {self.name}: {'[]' if self.is_array else ''}{self.type_name}>"


@cython.final
@cython.auto_pickle(False)
cdef class _BuiltMember:
    # Data descriptor over a slot whose default is built on the first read.
    cdef Slot slot
    cdef object owner
    cdef str name

    def __get__(self, instance, owner):
        if instance is None:
            return self
        if not isinstance(instance, self.owner):
            raise TypeError(f"{self.name} belongs to {self.owner.__name__}, not to {type(instance).__name__}")
        return <object>fill_slot(<PyObject *>instance, &self.slot)

    def __set__(self, instance, value):
        if not isinstance(instance, self.owner):
            raise TypeError(f"{self.name} belongs to {self.owner.__name__}, not to {type(instance).__name__}")
        set_slot(<PyObject *>instance, self.slot.offset, value)


cdef void set_slot(PyObject *instance, Py_ssize_t offset, object value) noexcept:
    cdef PyObject **slot = slot_at(instance, offset)
    cdef PyObject *old = slot[0]
    Py_INCREF(value)
    slot[0] = <PyObject *>value
    Py_XDECREF(old)


cdef PyObject *fill_slot(PyObject *instance, const Slot *slot) except NULL:
    """The slot's value (borrowed), after giving an empty slot its default."""
    cdef PyObject **place = slot_at(instance, slot.offset)
    if place[0] != NULL:
        return place[0]
    if slot.default != NULL:
        set_slot(instance, slot.offset, <object>slot.default)
        return place[0]
    cdef object made = [] if slot.struct_type == NULL else new_struct(<object>slot.struct_type)
    if place[0] == NULL:  # building may have run a finaliser that filled it
        set_slot(instance, slot.offset, made)
    return place[0]


cdef Struct new_struct(cls):
    cdef Layout layout = layout_of(cls)
    cdef Struct made = <Struct>kraft_make(cls, NOTHING)
    fill_shared(made, layout)
    return made


@cython.final
@cython.auto_pickle(False)
cdef class Member:
    """A field of a struct class, for compiled code that reads and writes it without an attribute look-up.

    Args:
        struct_class: a subclass of ``Struct``.
        name: of one of its fields.

    Raises:
        LocalError: no such field.
    """

    def __cinit__(self, struct_class not None, str name not None):
        cdef Layout layout = layout_of(struct_class)
        if name not in layout.index:
            raise LocalError(f"{struct_class.__name__} has no field {name}")
        self.slot = layout.slots[<Py_ssize_t>layout.index[name]]
        self.owner = struct_class
        self.name = name

    cdef int refuse(self, instance) except -1:
        raise TypeError(f"{self.name} belongs to {self.owner.__name__}, not to {type(instance).__name__}")

    cdef object get(self, instance):
        # The field's value, built if it has to be.
        if type(instance) is not self.owner:
            self.refuse(instance)
        return <object>fill_slot(<PyObject *>instance, &self.slot)

    cdef int set(self, instance, value) except -1:
        if type(instance) is not self.owner:
            self.refuse(instance)
        set_slot(<PyObject *>instance, self.slot.offset, value)
        return 0


cdef void fill_shared(Struct instance, Layout layout) noexcept:
    # Gives every empty slot with an immutable default that default.
    cdef Py_ssize_t i
    cdef PyObject **place
    for i in range(layout.count):
        if layout.slots[i].default != NULL:
            place = slot_at(<PyObject *>instance, layout.slots[i].offset)
            if place[0] == NULL:
                Py_INCREF(<object>layout.slots[i].default)
                place[0] = layout.slots[i].default


@cython.final
@cython.auto_pickle(False)
cdef class Layout:
    """The offsets at which instances of one struct class keep their values.

    Attributes:
        fields: the ``Field`` objects in schema order.
    """

    def __cinit__(self, struct_class not None, tuple fields not None):
        cdef Py_ssize_t i
        cdef Field field
        cdef _BuiltMember member
        self.slots = <Slot *>PyMem_Calloc(max(len(fields), 1), sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError
        if not issubclass(struct_class, Struct):
            raise LocalError(f"{struct_class.__name__} is no subclass of Struct")
        self.fields = fields
        self.index = {field.name: i for i, field in enumerate(fields)}
        self.kept = []
        for i in range(len(fields)):
            field = fields[i]
            self.slots[i].offset = kraft_member_offset(struct_class.__dict__.get(field.name))
            if self.slots[i].offset < 0:
                raise LocalError(f"{struct_class.__name__} has no slot named {field.name}")
            if not field.builds:
                self.slots[i].default = <PyObject *>field.default
            elif not field.is_array:
                self.slots[i].struct_type = <PyTypeObject *>field.struct_class
            self.kept.append(field)
            if field.builds:
                member = _BuiltMember.__new__(_BuiltMember)
                member.slot = self.slots[i]
                member.owner = struct_class
                member.name = field.name
                setattr(struct_class, field.name, member)
        self.count = len(fields)

    def __dealloc__(self):
        PyMem_Free(self.slots)


def lay_out(struct_class not None, tuple fields not None):
    """Prepare a new subclass of ``Struct`` whose ``__slots__`` are the fields' names.

    Sets ``__layout__`` and replaces the slots of lists and structs by descriptors that build the default.

    Raises:
        LocalError: a field without a slot, or not a subclass of Struct.
    """
    struct_class.__layout__ = Layout(struct_class, fields)


cdef Layout layout_of(cls):
    layout = getattr(cls, "__layout__", None)
    if not isinstance(layout, Layout):
        raise TypeError(f"{cls.__name__} has no schema")
    return <Layout>layout


@cython.auto_pickle(False)
cdef class Struct:
    """Base of every message, record and nested struct: named values, compared by value, mutable, unhashable.

    Constructors take the fields as keywords; a field left out has its schema default. Values are checked when encoded.
    """

    def __init__(self, **fields):
        cdef Layout layout = layout_of(type(self))
        cdef PyObject *name = NULL
        cdef PyObject *value = NULL
        cdef Py_ssize_t position = 0
        while PyDict_Next(fields, &position, &name, &value):
            set_slot(<PyObject *>self, offset_of(self, layout, <object>name), <object>value)
        fill_shared(self, layout)

    @property
    def unknown_tagged_fields(self):
        """Tagged fields the schema does not know, by tag, as raw bytes; encoded again with the known ones.

        Kafka's compatibility rule (KIP-482) is to pass them on. A dict of int to bytes; empty for most messages.
        """
        if self.unknown is None:
            self.unknown = {}
        return self.unknown

    @unknown_tagged_fields.setter
    def unknown_tagged_fields(self, dict value not None):
        self.unknown = value

    def copy(self):
        """A new object with the same values; lists and nested structs are shared."""
        cdef Layout layout = layout_of(type(self))
        cls = type(self)
        cdef Struct made = <Struct>cls.__new__(cls)
        cdef Py_ssize_t i
        cdef PyObject *value
        for i in range(layout.count):
            value = slot_at(<PyObject *>self, layout.slots[i].offset)[0]
            Py_XINCREF(value)
            slot_at(<PyObject *>made, layout.slots[i].offset)[0] = value
        if self.unknown:
            made.unknown = dict(self.unknown)
        return made

    def replace(self, **changes):
        """A copy with some fields changed.

        Raises:
            TypeError: a name that is no field.
        """
        cdef Struct made = self.copy()
        cdef Layout layout = layout_of(type(self))
        for name, value in changes.items():
            set_slot(<PyObject *>made, offset_of(self, layout, name), value)
        return made

    def __copy__(self):
        return self.copy()

    def __reduce__(self):
        cdef Layout layout = layout_of(type(self))
        values = {}
        for field in layout.fields:
            value = getattr(self, field.name)
            values[field.name] = bytes(value) if isinstance(value, memoryview) else value
        return _rebuild, (type(self), values, self.unknown)

    def __eq__(self, other):
        cdef Layout layout
        cdef Py_ssize_t i
        cdef PyObject *mine
        cdef PyObject *theirs
        if type(self) is not type(other):
            return NotImplemented
        layout = layout_of(type(self))
        for i in range(layout.count):
            mine = fill_slot(<PyObject *>self, &layout.slots[i])
            theirs = fill_slot(<PyObject *>other, &layout.slots[i])
            if mine != theirs and not PyObject_RichCompareBool(<object>mine, <object>theirs, Py_EQ):
                return False
        return (self.unknown or None) == ((<Struct>other).unknown or None)

    __hash__ = None

    def __repr__(self):
        cdef Layout layout = layout_of(type(self))
        shown = []
        for field in layout.fields:
            value = getattr(self, field.name)
            if isinstance(value, (bytes, bytearray, memoryview)):
                size = len(value)
                if size:
                    text = repr(bytes(value)) if size <= _LONGEST_SHOWN else f"<{size} bytes>"
                    shown.append(f"{field.name}={text}")
            elif value != field.make_default():
                shown.append(f"{field.name}={value!r}")
        if self.unknown:
            shown.append(f"unknown_tagged_fields={self.unknown!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"


cdef Py_ssize_t offset_of(Struct instance, Layout layout, object name) except -1:
    cdef PyObject *position = PyDict_GetItem(layout.index, name)
    if position == NULL:
        raise TypeError(f"{type(instance).__name__} has no field {name!r}")
    return layout.slots[<Py_ssize_t><object>position].offset


cdef bint is_pristine(Struct value) except -1:
    """True when every field has its default and no unknown tagged field is kept."""
    cdef Layout layout = layout_of(type(value))
    cdef Py_ssize_t i
    cdef PyObject *held
    cdef object item
    if value.unknown:
        return False
    for i in range(layout.count):
        held = slot_at(<PyObject *>value, layout.slots[i].offset)[0]
        if held == NULL or held == layout.slots[i].default:
            continue
        item = <object>held
        if layout.slots[i].default != NULL:
            if not PyObject_RichCompareBool(item, <object>layout.slots[i].default, Py_EQ):
                return False
        elif layout.slots[i].struct_type == NULL:
            if item is None or len(item) != 0:
                return False
        elif not isinstance(item, Struct) or not is_pristine(<Struct>item):
            return False
    return True


def _rebuild(cls, dict values, unknown):
    made = cls(**values)
    if unknown:
        made.unknown_tagged_fields = unknown
    return made
