"""Columns of lists compared row by row."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from kraftcore.core.columns.chunks cimport Column, address, grow, hand_over, import_pyarrow

from kraftcore.errors import LocalError

__all__ = ["except_lists"]

cdef struct Lists:
    const uint8_t *valid       # NULL: no row is null
    int64_t first              # row 0 by `valid`
    const int32_t *ends        # from row 0 on
    const int32_t *values


cdef inline bint is_null(const Lists *lists, int64_t row) noexcept nogil:
    row += lists.first
    return lists.valid != NULL and not (lists.valid[row >> 3] >> (row & 7)) & 1


cdef inline bint has(const int32_t *values, int64_t start, int64_t end, int32_t value) noexcept nogil:
    cdef int64_t i
    for i in range(start, end):
        if values[i] == value:
            return True
    return False


cdef int look_at(Lists *lists, object array, list kept) except -1:
    # `kept`: what has to live as long as the addresses.
    pa = import_pyarrow()
    if not pa.types.is_list(array.type) or array.type.value_type != pa.int32():
        raise LocalError(f"lists are {array.type}, not of int32")
    values = array.values
    if values.null_count:
        raise LocalError("lists hold nulls")
    buffers, items = array.buffers(), values.buffers()[1]
    kept += [buffers, items]
    lists.first = array.offset
    lists.valid = address(buffers[0])
    lists.ends = <const int32_t *>address(buffers[1]) + lists.first
    lists.values = <const int32_t *>address(items)
    if lists.values != NULL:
        lists.values += <int64_t>values.offset
    return 0


def except_lists(lists, others):
    """Row by row, what one list has and another has not, each value once, in its order; null where either is null.

    Args:
        lists, others: ``pyarrow.ListArray`` of int32 without nulls in the lists, of the same length. The time of a row
            is the product of its lists' lengths.

    Returns:
        ``pyarrow.ListArray`` of the type of ``lists``.

    Raises:
        LocalError: arrays of other types or of different lengths, or nulls in lists.
        MissingDependencyError: pyarrow is not installed.
    """
    cdef int64_t rows = len(lists), row, i, start, used = 0, nulls = 0
    cdef Lists left, right
    cdef Column valid, ends, values
    cdef int32_t *to
    cdef int32_t *marks
    cdef int32_t value
    cdef list kept = []
    pa = import_pyarrow()
    if rows != len(others):
        raise LocalError(f"{rows} lists and {len(others)} others")
    look_at(&left, lists, kept)
    look_at(&right, others, kept)
    if rows == 0:
        return lists
    memset(&valid, 0, sizeof(Column))
    memset(&ends, 0, sizeof(Column))
    memset(&values, 0, sizeof(Column))
    try:
        if (
            not grow(&valid, (rows + 7) // 8) or not grow(&ends, 4 * (rows + 1))
            or not grow(&values, 4 * <int64_t>(left.ends[rows] - left.ends[0]))
        ):
            raise MemoryError
        memset(valid.data, 0, (rows + 7) // 8)
        marks, to = <int32_t *>ends.data, <int32_t *>values.data
        marks[0] = 0
        with nogil:
            for row in range(rows):
                if is_null(&left, row) or is_null(&right, row):
                    nulls += 1
                else:
                    valid.data[row >> 3] |= <uint8_t>(1 << (row & 7))
                    start = used
                    for i in range(left.ends[row], left.ends[row + 1]):
                        value = left.values[i]
                        if not has(right.values, right.ends[row], right.ends[row + 1], value) and not has(
                            to, start, used, value
                        ):
                            to[used] = value
                            used += 1
                marks[row + 1] = <int32_t>used
        items = pa.Array.from_buffers(pa.int32(), used, [None, pa.py_buffer(hand_over(&values, 4 * used))], 0)
        buffers = [
            pa.py_buffer(hand_over(&valid, (rows + 7) // 8)) if nulls else None,
            pa.py_buffer(hand_over(&ends, 4 * (rows + 1))),
        ]
        return pa.Array.from_buffers(lists.type, rows, buffers, nulls, 0, [items])
    finally:
        free(valid.data)
        free(ends.data)
        free(values.data)
