"""Decoded columns: memory in Arrow's layout, and the Arrow arrays over it. Public by ``kraftcore.core.columns``."""

from functools import lru_cache
from importlib import import_module

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from kraftcore.errors import LocalError, MissingDependencyError

__all__ = ["COLUMNS", "BufferPool", "ColumnBuffer", "ColumnChunk", "arrow_schema"]

COLUMNS = ("offset", "timestamp", "key", "value", "headers", "partition_leader_epoch", "is_control", "position")


cdef enum:
    POOLED_MIN = 1 << 16       # bytes; the allocator has smaller blocks at hand


@cython.final
cdef class BufferPool:
    """Keeps the memory of released columns for the next columns: the system provides fresh memory page by page, which
    takes about as long as filling it.

    Args:
        limit: most bytes to keep, in blocks of 64 KiB and more. A block that does not fit replaces the oldest ones.

    Attributes:
        limit: see above.
        kept: bytes that are kept now.
    """

    def __cinit__(self, int64_t limit=32 << 20):
        if limit < 0:
            raise LocalError(f"limit {limit} is negative")
        self.limit = limit

    def __dealloc__(self):
        cdef int i
        for i in range(self.count):
            free(self.blocks[i].data)

    def __reduce__(self):
        raise TypeError("a BufferPool cannot be pickled: it is memory of this process")

    cdef void lend(self, Column *column, int64_t bytes) noexcept:
        cdef int i, best = -1
        cdef int64_t most
        bytes += SLACK
        most = bytes + bytes // 4 + POOLED_MIN
        for i in range(self.count):
            if bytes <= self.blocks[i].capacity <= most and (
                best < 0 or self.blocks[i].capacity < self.blocks[best].capacity
            ):
                best = i
        if best >= 0:
            column.data = self.blocks[best].data
            column.capacity = self.blocks[best].capacity
            self.remove(best)

    cdef void give_back(self, uint8_t *data, int64_t capacity) noexcept:
        if capacity < POOLED_MIN or capacity > self.limit:
            free(data)
            return
        while self.count == BLOCKS_MAX or self.kept + capacity > self.limit:
            free(self.blocks[0].data)
            self.remove(0)
        self.blocks[self.count].data = data
        self.blocks[self.count].capacity = capacity
        self.count += 1
        self.kept += capacity

    cdef void remove(self, int at) noexcept:
        self.kept -= self.blocks[at].capacity
        self.count -= 1
        memmove(&self.blocks[at], &self.blocks[at + 1], (self.count - at) * sizeof(Block))


@cython.final
@cython.no_gc
cdef class ColumnBuffer:
    """Memory of one column, read-only through the buffer protocol. Arrow arrays keep it alive."""

    def __dealloc__(self):
        if self.pool is None or self.data == NULL:
            free(self.data)
        else:
            self.pool.give_back(self.data, self.capacity)

    def __reduce__(self):
        raise TypeError("decoded columns cannot be pickled: send what to_arrow() returns")

    def __getbuffer__(self, Py_buffer *buffer, int flags):
        PyBuffer_FillInfo(buffer, self, <void *>(self.data if self.data != NULL else NOTHING), self.size, 1, flags)

    def __len__(self):
        return self.size


cdef uint8_t NOTHING[8]


cdef ColumnBuffer make_buffer(uint8_t *data, int64_t size, int64_t capacity, BufferPool pool):
    cdef ColumnBuffer buffer = ColumnBuffer.__new__(ColumnBuffer)
    cdef uint8_t *smaller
    buffer.data = data
    buffer.size = size
    buffer.capacity = capacity
    buffer.pool = pool
    if capacity - size > (1 << 16) and capacity - size > size // 4:
        smaller = <uint8_t *>realloc(data, size + SLACK)
        if smaller != NULL:
            buffer.data = smaller
            buffer.capacity = size + SLACK
    return buffer


cdef const uint8_t *address(object buffer) except? NULL:
    if buffer is None or buffer.size == 0:
        return NULL
    return <const uint8_t *><size_t>buffer.address


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
        cdef list arrays = []
        pa = import_pyarrow()
        schema, types, pair = _arrow_layout(self.columns, self.timestamp_unit)
        from_buffers = pa.Array.from_buffers
        for name, kind in zip(self.columns, types, strict=True):
            arrays.append(self.array(pa.py_buffer, from_buffers, name, kind, pair))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    cdef object array(self, object wrap, object from_buffers, str name, object kind, tuple pair):
        cdef list buffers = [None if item is None else wrap(item) for item in self.buffers[name]]
        if name == "headers":
            names = from_buffers(pair[1], self.headers, [None, buffers[1], buffers[2]], 0)
            contents = from_buffers(pair[2], self.headers, buffers[3:], self.header_nulls)
            pairs = from_buffers(pair[0], self.headers, [None], 0, 0, [names, contents])
            return from_buffers(kind, self.count, [None, buffers[0]], 0, 0, [pairs])
        if name == "key":
            return from_buffers(kind, self.count, buffers, self.key_nulls)
        if name == "value":
            return from_buffers(kind, self.count, buffers, self.value_nulls)
        return from_buffers(kind, self.count, [None, buffers[0]], 0)


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
    import_pyarrow()
    return _arrow_layout(columns, timestamp_unit)[0]


@lru_cache(maxsize=32)
def _arrow_layout(tuple columns, str timestamp_unit):
    # The schema, the type of each column, and of a header, its key and its value. Making them costs more than an array.
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
    header = fields["headers"].type.value_type
    return (
        pa.schema([fields[name] for name in columns]),
        tuple([fields[name].type for name in columns]),
        (header, header[0].type, header[1].type),
    )


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
