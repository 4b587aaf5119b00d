"""Decoded columns: memory in Arrow's layout, and the Arrow arrays over it. Public by ``kraftcore.core.columns``."""

from importlib import import_module

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc

from kraftcore.errors import LocalError, MissingDependencyError

__all__ = ["COLUMNS", "ColumnBuffer", "ColumnChunk", "arrow_schema"]

COLUMNS = ("offset", "timestamp", "key", "value", "headers", "partition_leader_epoch", "is_control", "position")


@cython.final
cdef class ColumnBuffer:
    """Memory of one column, read-only through the buffer protocol. Arrow arrays keep it alive."""

    def __dealloc__(self):
        free(self.data)

    def __reduce__(self):
        raise TypeError("decoded columns cannot be pickled: send what to_arrow() returns")

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>(self.data if self.data != NULL else NOTHING), self.size, 1, flags)

    def __len__(self):
        return self.size


cdef uint8_t NOTHING[8]


cdef ColumnBuffer make_buffer(uint8_t *data, int64_t size, int64_t capacity):
    cdef ColumnBuffer buffer = ColumnBuffer.__new__(ColumnBuffer)
    cdef uint8_t *smaller
    buffer.data = data
    buffer.size = size
    if capacity - size > (1 << 16) and capacity - size > size // 8:
        smaller = <uint8_t *>realloc(data, size + SLACK)
        if smaller != NULL:
            buffer.data = smaller
    return buffer


@cython.final
cdef class ColumnChunk:
    """Rows of one Arrow record batch.

    Attributes:
        count: number of rows.
        columns: names of the columns, in order.
        buffers: per column its Arrow buffers as ``ColumnBuffer`` or None (a validity bitmap when nothing is null):
            ``offset``, ``timestamp``, ``partition_leader_epoch``, ``position``: (data,);
            ``is_control``: (bits,); ``key``, ``value``: (validity, offsets, data);
            ``headers``: (offsets, key offsets, key data, value validity, value offsets, value data).
            All are in the machine's byte order; offsets are int32 and start at 0.
        timestamp_unit: "ms" or "us".
    """

    def __reduce__(self):
        raise TypeError("decoded columns cannot be pickled: send what to_arrow() returns")

    def __len__(self):
        return self.count

    def to_arrow(self):
        """A ``pyarrow.RecordBatch`` over the same memory.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        pa = import_pyarrow()
        schema = arrow_schema(self.columns, timestamp_unit=self.timestamp_unit)
        return pa.RecordBatch.from_arrays([self.array(pa, field) for field in schema], schema=schema)

    cdef object array(self, object pa, object field):
        cdef tuple buffers = tuple([None if item is None else pa.py_buffer(item) for item in self.buffers[field.name]])
        if field.name == "headers":
            pair = field.type.value_type
            names = pa.Array.from_buffers(pair[0].type, self.headers, [None, buffers[1], buffers[2]], 0)
            contents = pa.Array.from_buffers(pair[1].type, self.headers, list(buffers[3:]), self.header_nulls)
            pairs = pa.Array.from_buffers(pair, self.headers, [None], 0, 0, [names, contents])
            return pa.Array.from_buffers(field.type, self.count, [None, buffers[0]], 0, 0, [pairs])
        if field.name == "key":
            return pa.Array.from_buffers(field.type, self.count, list(buffers), self.key_nulls)
        if field.name == "value":
            return pa.Array.from_buffers(field.type, self.count, list(buffers), self.value_nulls)
        return pa.Array.from_buffers(field.type, self.count, [None, buffers[0]], 0)


cdef object import_pyarrow():
    try:
        return import_module("pyarrow")
    except ImportError:
        raise MissingDependencyError("Arrow arrays need pyarrow: pip install 'kraftcore[arrow]'") from None


def arrow_schema(columns=None, *, str timestamp_unit="ms"):
    """The ``pyarrow.Schema`` of decoded columns.

    Args:
        columns: names out of ``COLUMNS``; None for all.
        timestamp_unit: "ms" or "us".
    Raises:
        LocalError: unknown column or unit.
        MissingDependencyError: pyarrow is not installed.
    """
    columns, _ = wanted_columns(columns)
    timestamp_scale(timestamp_unit)
    pa = import_pyarrow()
    fields = {
        "offset": pa.field("offset", pa.int64(), nullable=False),
        "timestamp": pa.field("timestamp", pa.timestamp(timestamp_unit, tz="UTC"), nullable=False),
        "key": pa.field("key", pa.binary()),
        "value": pa.field("value", pa.binary()),
        "headers": pa.field("headers", pa.list_(pa.field("element", pa.struct([
            pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary()),
        ]), nullable=False)), nullable=False),
        "partition_leader_epoch": pa.field("partition_leader_epoch", pa.int32(), nullable=False),
        "is_control": pa.field("is_control", pa.bool_(), nullable=False),
        "position": pa.field("position", pa.int64(), nullable=False),
    }
    return pa.schema([fields[name] for name in columns])


cdef tuple wanted_columns(object columns):
    # Names in the caller's order, and their bits.
    cdef int want = 0
    if isinstance(columns, str):
        raise LocalError(f"columns is a sequence of names, not the string {columns!r}")
    columns = COLUMNS if columns is None else tuple(columns)
    for name in columns:
        if name not in COLUMNS:
            raise LocalError(f"unknown column {name!r}: choose from {', '.join(COLUMNS)}")
        if want & (1 << COLUMNS.index(name)):
            raise LocalError(f"column {name!r} is named twice")
        want |= 1 << COLUMNS.index(name)
    return columns, want


cdef int timestamp_scale(str unit) except -1:
    if unit == "ms":
        return 1
    if unit == "us":
        return 1000
    raise LocalError(f"timestamp_unit {unit!r} is neither 'ms' nor 'us'")
