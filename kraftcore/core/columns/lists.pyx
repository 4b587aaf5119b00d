"""Columns of lists compared row by row."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memset

from kraftcore.core.columns.chunks cimport Column, address, grow, hand_over, import_pyarrow

from kraftcore.errors import LocalError

__all__ = ["except_lists"]

cdef enum:
    COMPARED_MAX = 1 << 12     # so many pairs of values are compared faster than sorted

cdef struct Lists:
    const uint8_t *valid       # NULL: no row is null
    int64_t first              # row 0 by `valid`
    const int32_t *ends        # from row 0 on
    const int32_t *values


cdef inline bint is_null(const Lists *lists, int64_t row) noexcept nogil:
    row += lists.first
    return lists.valid != NULL and not (lists.valid[row >> 3] >> (row & 7)) & 1


cdef inline bint has(const int32_t *values, int64_t size, int32_t value) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        if values[i] == value:
            return True
    return False


cdef int ascending(const void *a, const void *b) noexcept nogil:
    cdef uint64_t one = (<const uint64_t *>a)[0]
    cdef uint64_t other = (<const uint64_t *>b)[0]
    return (one > other) - (one < other)


cdef int64_t except_short(
    const int32_t *values, int64_t size, const int32_t *others, int64_t other_size, int32_t *to
) noexcept nogil:
    # Compares each value with all values that may equal it. Returns how many are left.
    cdef int64_t i, used = 0
    for i in range(size):
        if not has(others, other_size, values[i]) and not has(to, used, values[i]):
            to[used] = values[i]
            used += 1
    return used


cdef int64_t except_long(
    const int32_t *values, int64_t size, const int32_t *others, int64_t other_size, int32_t *to, uint64_t *marks
) noexcept nogil:
    # As above, by sorting marks, one for each value of either list. A mark has the value in its upper bits, and below
    # its place, from 1, or 0 for the other list. So a value's first mark says whether it is left, and its first place.
    cdef int64_t i, used = 0, count = size + other_size
    cdef uint64_t mark, last = 0
    for i in range(size):
        marks[i] = (<uint64_t><uint32_t>values[i] << 32) | <uint64_t>(i + 1)
    for i in range(other_size):
        marks[size + i] = <uint64_t><uint32_t>others[i] << 32
    qsort(marks, count, sizeof(uint64_t), ascending)
    for i in range(count):
        mark = marks[i]
        if <uint32_t>mark and (i == 0 or mark >> 32 != last >> 32):
            marks[used] = <uint32_t>mark
            used += 1
        last = mark
    qsort(marks, used, sizeof(uint64_t), ascending)
    for i in range(used):
        to[i] = values[marks[i] - 1]
    return used


cdef int look_at(Lists *lists, object array, list kept) except -1:
    # `kept`: objects that must live as long as the addresses.
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
    """Row by row the values of one list that are not in another, each once, in order; null where either list is null.

    Args:
        lists, others: ``pyarrow.ListArray`` of int32 without nulls in the lists, of the same length. A row takes the
            time of sorting its lists.

    Returns:
        ``pyarrow.ListArray`` of the type of ``lists``.

    Raises:
        LocalError: arrays of other types or of different lengths, or nulls in lists.
        MissingDependencyError: pyarrow is not installed.
    """
    cdef int64_t rows = len(lists), row, size, other_size, used = 0, nulls = 0
    cdef Lists left, right
    cdef Column valid, ends, values, marks
    cdef int32_t *to
    cdef int32_t *places
    cdef bint has_room = True
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
    memset(&marks, 0, sizeof(Column))
    try:
        if (
            not grow(&valid, (rows + 7) // 8) or not grow(&ends, 4 * (rows + 1))
            or not grow(&values, 4 * <int64_t>(left.ends[rows] - left.ends[0]))
        ):
            raise MemoryError
        memset(valid.data, 0, (rows + 7) // 8)
        places, to = <int32_t *>ends.data, <int32_t *>values.data
        places[0] = 0
        with nogil:
            for row in range(rows):
                if is_null(&left, row) or is_null(&right, row):
                    nulls += 1
                else:
                    valid.data[row >> 3] |= <uint8_t>(1 << (row & 7))
                    size = left.ends[row + 1] - left.ends[row]
                    other_size = right.ends[row + 1] - right.ends[row]
                    if size * (size + other_size) <= COMPARED_MAX:
                        used += except_short(
                            left.values + left.ends[row], size, right.values + right.ends[row], other_size, to + used
                        )
                    elif grow(&marks, sizeof(uint64_t) * (size + other_size)):
                        used += except_long(
                            left.values + left.ends[row], size, right.values + right.ends[row], other_size, to + used,
                            <uint64_t *>marks.data,
                        )
                    else:
                        has_room = False
                        break
                places[row + 1] = <int32_t>used
        if not has_room:
            raise MemoryError
        items = pa.Array.from_buffers(pa.int32(), used, [None, pa.py_buffer(hand_over(&values, 4 * used, None))], 0)
        buffers = [
            pa.py_buffer(hand_over(&valid, (rows + 7) // 8, None)) if nulls else None,
            pa.py_buffer(hand_over(&ends, 4 * (rows + 1), None)),
        ]
        return pa.Array.from_buffers(lists.type, rows, buffers, nulls, 0, [items])
    finally:
        free(valid.data)
        free(ends.data)
        free(values.data)
        free(marks.data)
