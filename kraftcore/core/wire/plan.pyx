"""From a schema and a version to the C plan that the encoder and the decoder walk; made once, on first use."""

from kraftcore.errors import LocalError

cimport cython
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.ref cimport PyObject, PyTypeObject

from kraftcore.core.wire.struct cimport (
    BOOL, BYTES, FLOAT64, INT16, INT32, INT64, INT8, RECORDS, STRING, STRUCT, UINT16, UINT32, UUID,
    Field, Layout, Slot, layout_of,
)

__all__ = ["Codec"]


@cython.no_gc_clear  # the collector must not take `blocks` away before they are freed
@cython.auto_pickle(False)
cdef class Arena:
    """Blocks of zeroed memory that are freed together."""

    def __cinit__(self):
        self.blocks = []

    def __dealloc__(self):
        for block in self.blocks:
            PyMem_Free(<void *><size_t>block)

    cdef void *take(self, Py_ssize_t count, size_t size) except NULL:
        cdef void *block = PyMem_Calloc(max(count, 1), size)
        if block == NULL:
            raise MemoryError
        self.blocks.append(<size_t>block)
        return block


@cython.final
@cython.auto_pickle(False)
cdef class _PlanArena(Arena):
    # Memory of one plan; and the plans of its structs by class.
    cdef dict plans

    def __cinit__(self):
        self.plans = {}


@cython.final
@cython.auto_pickle(False)
cdef class Codec:
    """A message class at one version, ready to encode and decode (see ``kraftcore.core.wire.codec``).

    Attributes:
        message_class: the class.
        name: its name, for errors.
        version: the version.
    """


cdef Codec codec_of(cls, version):
    """The codec of a class at a version, made on first use.

    Raises:
        KeyError: the class has no such version.
    """
    cdef dict known = getattr(cls, "__codecs__", None)
    if known is None:
        raise TypeError(f"{cls!r} is no message class")
    made = known.get(version)
    if made is None:
        if not isinstance(version, int) or not 0 <= version <= 0x7FFF:
            raise KeyError(version)
        made = compile_codec(cls, version)
        known[version] = made
    return <Codec>made


cdef bint within(tuple span, int version):
    return span is not None and span[0] <= version and (span[1] is None or version <= span[1])


cdef Codec compile_codec(cls, int version):
    schema = getattr(cls, "schema", None)
    if schema is None:
        raise TypeError(f"{cls.__qualname__} is nested in messages and has no versions of its own")
    if not any(within(span, version) for span in schema.decodable_versions):
        raise KeyError(version)
    cdef Codec codec = Codec.__new__(Codec)
    cdef _PlanArena arena = _PlanArena.__new__(_PlanArena)
    codec.message_class = cls
    codec.name = cls.__name__
    codec.version = version
    codec.api_key = -1 if schema.api_key is None else schema.api_key
    codec.header_version = schema.header_version(version)
    codec.is_response = schema.is_response
    codec.arena = arena
    codec.root = compile_struct(arena, cls, version, schema.is_flexible(version))
    return codec


cdef StructPlan *compile_struct(_PlanArena arena, object cls, int version, bint flexible) except NULL:
    known = arena.plans.get(cls)
    if known is not None:
        return <StructPlan *><size_t>known
    cdef Layout layout = layout_of(cls)
    cdef StructPlan *plan = <StructPlan *>arena.take(1, sizeof(StructPlan))
    cdef Py_ssize_t i
    cdef Field field
    cdef list present = [], tagged = [], barred = [], preset = []
    for i in range(layout.count):
        field = layout.fields[i]
        if not within(field.versions, version):
            preset.append(i)
            if not field.ignorable:
                barred.append(i)
        elif within(field.tagged, version):
            if not flexible:
                raise LocalError(f"{cls.__name__}.{field.name} is tagged in version {version}, which is not flexible")
            preset.append(i)
            tagged.append(i)
        else:
            present.append(i)
    tagged.sort(key=lambda i: layout.fields[i].tag)
    if len(tagged) > 64:
        raise LocalError(f"{cls.__name__} has more than 64 tagged fields")  # the encoder keeps them in a bit set
    plan.type = <PyTypeObject *>cls
    plan.flexible = flexible
    plan.field_count = len(present)
    plan.fields = compile_fields(arena, layout, present, version, flexible)
    plan.tagged_count = len(tagged)
    plan.tagged = compile_fields(arena, layout, tagged, version, flexible)
    plan.barred_count = len(barred)
    plan.barred = compile_fields(arena, layout, barred, version, flexible)
    preset = [i for i in preset if layout.slots[<Py_ssize_t>i].default != NULL]
    plan.preset = <Slot *>arena.take(len(preset), sizeof(Slot))
    plan.preset_count = len(preset)
    for i in range(plan.preset_count):
        plan.preset[i] = layout.slots[<Py_ssize_t>preset[i]]
    plan.least = 1 if flexible else 0
    for i in range(plan.field_count):
        plan.least += least_bytes(&plan.fields[i])
    arena.plans[cls] = <size_t>plan
    return plan


cdef FieldPlan *compile_fields(_PlanArena arena, Layout layout, list chosen, int version, bint flexible) except NULL:
    cdef FieldPlan *plans = <FieldPlan *>arena.take(len(chosen), sizeof(FieldPlan))
    cdef FieldPlan *plan
    cdef Field field
    cdef Py_ssize_t i
    for i in range(len(chosen)):
        field = layout.fields[chosen[i]]
        plan = &plans[i]
        plan.kind = <Kind>field.kind
        plan.is_array = field.is_array
        plan.compact = flexible if field.flexible is None else within(field.flexible, version)
        plan.nullable = within(field.nullable, version)
        plan.tag = 0 if field.tag is None else field.tag
        plan.slot = layout.slots[<Py_ssize_t>chosen[i]]
        plan.name = <PyObject *>field.name
        if field.kind == STRUCT and within(field.versions, version):
            plan.element = compile_struct(arena, field.struct_class, version, flexible)
        plan.unit = max(1, least_of_value(plan, False))
    return plans


cdef Py_ssize_t least_bytes(const FieldPlan *field) noexcept:
    if field.is_array:
        return 1 if field.compact else 4
    return least_of_value(field, field.nullable)


cdef Py_ssize_t least_of_value(const FieldPlan *field, bint nullable) noexcept:
    if field.kind == BOOL or field.kind == INT8:
        return 1
    if field.kind == INT16 or field.kind == UINT16:
        return 2
    if field.kind == INT32 or field.kind == UINT32:
        return 4
    if field.kind == INT64 or field.kind == FLOAT64:
        return 8
    if field.kind == UUID:
        return 16
    if field.kind == STRING:
        return 1 if field.compact else 2
    if field.kind == BYTES or field.kind == RECORDS:
        return 1 if field.compact else 4
    if nullable:
        return 1
    return 0 if field.element == NULL else field.element.least
