"""Finds the type of each record: of a metadata record by its frame, of a control record by its key."""

from collections import namedtuple

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memset

from kraftcore.core.columns.chunks cimport BufferPool, Column, address, begin, grow, hand_over, import_pyarrow

from kraftcore.errors import LocalError

__all__ = ["BAD_FRAME", "CONTROL_BASE", "RecordTypes", "record_types", "rows_of_types"]

cdef enum:
    COMMON = 256               # codes below are found without a dict

CONTROL_BASE = 1 << 40
BAD_FRAME = -1

RecordTypes = namedtuple("RecordTypes", "code version")
RecordTypes.__doc__ = """Types and versions of the rows of a chunk.

Attributes:
    code: ``pyarrow.Int64Array``: a metadata record's type; ``CONTROL_BASE`` plus a control record's type; ``BAD_FRAME``
        where key or value are too damaged to read it.
    version: ``pyarrow.Int32Array``; -1 where the type is bad or the version cannot be read.
"""


def record_types(key, value, is_control, BufferPool pool=None):
    """The type and version of each record.

    Args:
        key, value: ``pyarrow.BinaryArray``.
        is_control: ``pyarrow.BooleanArray``; all three without an offset, as ``ColumnChunk.to_arrow`` makes them.
        pool: memory for the columns.

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
    if not begin(&code_column, 8 * count, pool):
        raise MemoryError
    if not begin(&version_column, 4 * count, pool):
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
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(hand_over(&code_column, 8 * count, pool))], 0),
        pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(hand_over(&version_column, 4 * count, pool))], 0),
    )


def rows_of_types(codes, BufferPool pool=None):
    """Which rows each type has.

    Args:
        codes: ``pyarrow.Int64Array`` without nulls, as ``RecordTypes.code``.
        pool: memory for the row numbers.

    Returns:
        A list of (code, ``pyarrow.UInt64Array`` of ascending row numbers), in the order in which the codes come first.

    Raises:
        LocalError: an array of another type.
        MissingDependencyError: pyarrow is not installed.
    """
    cdef int64_t count = len(codes), i, place
    cdef const int64_t *values
    cdef int32_t[COMMON] common
    cdef int32_t group, groups = 0
    cdef int32_t *of_row
    cdef int64_t *ends
    cdef uint64_t *to
    cdef dict others = {}
    cdef list found = []
    cdef Column group_column, end_column, row_column
    pa = import_pyarrow()
    if codes.type != pa.int64() or codes.null_count:
        raise LocalError(f"codes are {codes.type}, not int64 without nulls")
    if count == 0:
        return []
    memset(common, 0xFF, sizeof(common))
    memset(&group_column, 0, sizeof(Column))
    memset(&end_column, 0, sizeof(Column))
    memset(&row_column, 0, sizeof(Column))
    values = <const int64_t *>address(codes.buffers()[1]) + <int64_t>codes.offset
    try:
        if not begin(&group_column, 4 * count, pool) or not begin(&row_column, 8 * count, pool):
            raise MemoryError
        of_row, to = <int32_t *>group_column.data, <uint64_t *>row_column.data
        for i in range(count):
            if 0 <= values[i] < COMMON:
                group = common[values[i]]
            else:
                group = others.get(values[i], -1)
            if group < 0:
                group = groups
                groups += 1
                if not grow(&end_column, 8 * groups):
                    raise MemoryError
                (<int64_t *>end_column.data)[group] = 0
                found.append(values[i])
                if 0 <= values[i] < COMMON:
                    common[values[i]] = group
                else:
                    others[values[i]] = group
            of_row[i] = group
            (<int64_t *>end_column.data)[group] += 1
        ends = <int64_t *>end_column.data
        place = 0
        for group in range(groups):     # from counts to starts, and below from starts to ends
            place += ends[group]
            ends[group] = place - ends[group]
        for i in range(count):
            to[ends[of_row[i]]] = i
            ends[of_row[i]] += 1
        rows = pa.Array.from_buffers(
            pa.uint64(), count, [None, pa.py_buffer(hand_over(&row_column, 8 * count, pool))], 0
        )
        return [
            (code, rows[(ends[group - 1] if group else 0):ends[group]]) for group, code in enumerate(found)
        ]
    finally:
        if pool is not None and group_column.data != NULL:
            pool.give_back(group_column.data, group_column.capacity)
        else:
            free(group_column.data)
        free(end_column.data)
        free(row_column.data)
