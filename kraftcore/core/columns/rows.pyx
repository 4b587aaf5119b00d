"""Takes rows out of columns of numbers."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from kraftcore.core.columns.chunks cimport BufferPool, Column, address, begin, hand_over, import_pyarrow

from kraftcore.errors import LocalError

__all__ = ["take_rows"]


cdef object take_one(object pa, object column, const uint64_t *places, int64_t count, BufferPool pool):
    cdef int width = column.type.bit_width // 8
    cdef int64_t first = column.offset, i
    cdef const uint64_t *longs
    cdef const uint32_t *words
    cdef Column taken
    buffer = column.buffers()[1]
    longs = <const uint64_t *>address(buffer) + first
    words = <const uint32_t *>address(buffer) + first
    if not begin(&taken, width * count, pool):
        raise MemoryError
    if width == 8:
        for i in range(count):
            (<uint64_t *>taken.data)[i] = longs[places[i]]
    else:
        for i in range(count):
            (<uint32_t *>taken.data)[i] = words[places[i]]
    return pa.Array.from_buffers(column.type, count, [None, pa.py_buffer(hand_over(&taken, width * count, pool))], 0)


def take_rows(columns, rows, BufferPool pool=None):
    """The same rows of several columns.

    Args:
        columns: arrays of pyarrow without nulls, of numbers or times of 4 or 8 bytes.
        rows: ``pyarrow.UInt64Array`` of positions in all of them.
        pool: memory for the columns; None: the system's.

    Returns:
        A list of arrays, of the columns' types.

    Raises:
        LocalError: arrays of other types, nulls, or a position outside a column.
        MissingDependencyError: pyarrow is not installed.
    """
    cdef int64_t count = len(rows), size, i
    cdef const uint64_t *places
    pa = import_pyarrow()
    if rows.type != pa.uint64() or rows.null_count:
        raise LocalError(f"rows are {rows.type}, not uint64 without nulls")
    for column in columns:
        if not pa.types.is_primitive(column.type) or column.type.bit_width not in (32, 64) or column.null_count:
            raise LocalError(f"a column is {column.type}, not of 4 or 8 bytes without nulls")
    if count == 0:
        return [column[:0] for column in columns]
    buffer = rows.buffers()[1]
    places = <const uint64_t *>address(buffer) + <int64_t>rows.offset
    size = min([len(column) for column in columns], default=0)
    for i in range(count):
        if places[i] >= <uint64_t>size:
            raise LocalError(f"row {places[i]} is not in the {size} rows")
    return [take_one(pa, column, places, count, pool) for column in columns]
