"""Which type each record has: a metadata record by its frame, a control record by its key."""

from collections import namedtuple

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from kraftcore.core.columns.chunks cimport Column, address, grow, hand_over, import_pyarrow

from kraftcore.errors import LocalError

__all__ = ["BAD_FRAME", "CONTROL_BASE", "RecordTypes", "record_types"]

CONTROL_BASE = 1 << 40
BAD_FRAME = -1

RecordTypes = namedtuple("RecordTypes", "code version")
RecordTypes.__doc__ = """Types and versions of the rows of a chunk.

Attributes:
    code: ``pyarrow.Int64Array``: a metadata record's type; ``CONTROL_BASE`` plus a control record's type; ``BAD_FRAME``
        where key or value are too damaged to tell.
    version: ``pyarrow.Int32Array``; -1 where the type is bad or the version cannot be read.
"""


def record_types(key, value, is_control):
    """The type and version of each record.

    Args:
        key, value: ``pyarrow.BinaryArray``.
        is_control: ``pyarrow.BooleanArray``; all three without an offset, as ``ColumnChunk.to_arrow`` makes them.

    Returns:
        ``RecordTypes``.

    Raises:
        LocalError: arrays of other types, of different length, or slices.
        MissingDependencyError: pyarrow is not installed.
    """
    cdef int64_t count = len(value), i
    cdef int64_t *codes
    cdef int32_t *versions
    cdef const int32_t *key_ends
    cdef const int32_t *value_ends
    cdef const uint8_t *keys
    cdef const uint8_t *values
    cdef const uint8_t *control
    cdef Column code_column, version_column
    pa = import_pyarrow()
    if [key.type, value.type, is_control.type] != [pa.binary(), pa.binary(), pa.bool_()]:
        raise LocalError(f"key, value and is_control are {key.type}, {value.type}, {is_control.type}")
    if len(key) != count or len(is_control) != count or key.offset or value.offset or is_control.offset:
        raise LocalError("key, value and is_control must be whole arrays of one length")
    if count == 0:
        return RecordTypes(pa.array([], pa.int64()), pa.array([], pa.int32()))
    memset(&code_column, 0, sizeof(Column))
    memset(&version_column, 0, sizeof(Column))
    if not grow(&code_column, 8 * count) or not grow(&version_column, 4 * count):
        free(code_column.data)
        raise MemoryError
    key_ends = <const int32_t *>address(key.buffers()[1])
    value_ends = <const int32_t *>address(value.buffers()[1])
    keys = address(key.buffers()[2])
    values = address(value.buffers()[2])
    control = address(is_control.buffers()[1])
    codes = <int64_t *>code_column.data
    versions = <int32_t *>version_column.data
    with nogil:
        for i in range(count):
            codes[i] = code_of(
                (control[i >> 3] >> (i & 7)) & 1, keys + key_ends[i], key_ends[i + 1] - key_ends[i],
                values + value_ends[i], value_ends[i + 1] - value_ends[i], &versions[i],
            )
    return RecordTypes(
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(hand_over(&code_column, 8 * count))], 0),
        pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(hand_over(&version_column, 4 * count))], 0),
    )
