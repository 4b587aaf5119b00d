"""Columns of Arrow tables as NumPy arrays, and SQL's window functions over them: order, groups, row before, last value.

A group is a run of neighbouring rows; ``begins`` says for each row whether it is the first of its group. A row index of
-1 stands for no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftcore.core.columns import lists

if TYPE_CHECKING:
    from numpy.typing import NDArray

Column: TypeAlias = pa.Array | pa.ChunkedArray
Integers: TypeAlias = "NDArray[np.int64]"
Mask: TypeAlias = "NDArray[np.bool_]"
Row: TypeAlias = dict[str, Any]
"""One row of a table as Python values, by column."""
NONE = -1


def one_chunk(column: Column) -> pa.Array:
    """A column of a table or batch as one array."""
    if isinstance(column, pa.ChunkedArray):
        found = column.combine_chunks()
        return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
    return column


def integers(column: Column, null: int = 0) -> Integers:
    """A column of whole numbers, booleans or times as 64-bit integers; ``null`` in place of nulls."""
    array = one_chunk(column)
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    elif pa.types.is_boolean(array.type):
        array = array.cast(pa.int8())
    return np.asarray(array.fill_null(null).to_numpy(zero_copy_only=False), np.int64)


def present(column: Column) -> Mask:
    """Which rows of a column are not null."""
    return np.asarray(one_chunk(column).is_valid().to_numpy(zero_copy_only=False), bool)


def codes(column: Column) -> Integers:
    """A number >= 0 for each value of a column, equal for equal values, -1 for null; whole numbers keep their order."""
    array = one_chunk(column)
    if pa.types.is_integer(array.type) and len(array):
        values = integers(array)
        return np.where(present(array), values - values.min(), NONE)
    if pa.types.is_nested(array.type):
        array = pa.array([None if one is None else repr(one) for one in array.to_pylist()], pa.string())
    found = array.dictionary_encode()
    return np.asarray(found.indices.fill_null(NONE).to_numpy(zero_copy_only=False), np.int64)


def constant(value: Any, rows: int, kind: pa.DataType) -> pa.Array:
    """A column with one value."""
    # pyarrow cannot repeat a list zero times.
    return pa.repeat(pa.scalar(value, kind), rows) if rows else pa.nulls(0, kind)


def shared_codes(first: Column, second: Column) -> tuple[Integers, Integers]:
    """``codes`` of two columns, with one number for a value that both have."""
    array = pa.concat_arrays([one_chunk(first), one_chunk(second)])
    found = codes(array)
    return found[: len(first)], found[len(first) :]


def ordered(*keys: Integers) -> Integers:
    """Row indices sorted by some keys, the first key counting most; equal rows keep their order."""
    return np.lexsort(tuple(reversed(keys)))


def starts(*keys: Integers) -> Mask:
    """Whether each row begins a group of neighbours with equal keys."""
    rows = len(keys[0])
    begins = np.zeros(rows, bool)
    begins[:1] = True
    for key in keys:
        begins[1:] |= key[1:] != key[:-1]
    return begins


def first_rows(begins: Mask) -> Integers:
    """For each row the index of the first row of its group."""
    rows = np.arange(len(begins))
    return np.maximum.accumulate(np.where(begins, rows, 0)) if len(rows) else rows


def before(begins: Mask) -> Integers:
    """For each row the index of the row before it in its group; -1 for the first."""
    return np.where(begins, NONE, np.arange(len(begins)) - 1)


def after(begins: Mask) -> Integers:
    """For each row the index of the row after it in its group; -1 for the last."""
    rows = np.arange(len(begins))
    return np.where(np.append(begins[1:], True), NONE, rows + 1) if len(rows) else rows


def last_known(known: Mask, begins: Mask) -> Integers:
    """For each row the index of the last known row of its group, up to the row itself; -1 if there is none."""
    rows = np.arange(len(known))
    if not len(rows):
        return rows
    found = np.maximum.accumulate(np.where(known, rows, NONE))
    return np.where(found >= first_rows(begins), found, NONE)


def running_sum(values: Integers, begins: Mask) -> Integers:
    """For each row the sum of the values of its group, up to the row itself."""
    sums = np.cumsum(values)
    first = first_rows(begins)
    return sums - sums[first] + values[first] if len(sums) else sums


def take(column: Column, rows: Integers) -> pa.Array:
    """A column's values at some row indices; null for the index -1."""
    return one_chunk(column).take(pa.array(rows, pa.int64(), mask=rows == NONE))


def pick(values: Integers, rows: Integers) -> pa.Array:
    """``take`` for a NumPy array; returns an Arrow array of 64-bit integers."""
    if not len(values):
        return pa.nulls(len(rows), pa.int64())
    return pa.array(values[np.maximum(rows, 0)], pa.int64(), mask=rows == NONE)


def matches(left: Integers, right: Integers) -> tuple[Integers, Integers]:
    """Indices into both arrays of all pairs of equal numbers, in the order of ``left``."""
    order = np.argsort(right, kind="stable")
    values = right[order]
    low = np.searchsorted(values, left, "left")
    counts = np.searchsorted(values, left, "right") - low
    lefts = np.repeat(np.arange(len(left)), counts)
    within = np.arange(len(lefts)) - np.repeat(np.cumsum(counts) - counts, counts)
    return lefts, order[np.repeat(low, counts) + within]


def distinct(*keys: Integers) -> Integers:
    """The index of the first row of each combination of keys, ascending."""
    order = ordered(*keys)
    return np.sort(order[starts(*(key[order] for key in keys))]) if len(order) else order


def except_lists(first: Column, second: Column) -> pa.Array:
    """For each row the 32-bit integers of the first list that the second lacks, each once; null if a list is null."""
    return lists.except_lists(one_chunk(first), one_chunk(second))


def stacked(parts: Sequence[pa.Table]) -> pa.Table:
    """All rows of some tables; a column that a table lacks is null in its rows."""
    return pa.concat_tables(parts, promote_options="default").combine_chunks()


def where(rows: pa.Table, mask: Mask) -> pa.Table:
    """The rows of a table where a mask is true."""
    return rows if mask.all() else rows.filter(pa.array(mask))


def equals(column: Column, value: Any) -> Mask:
    """Which rows of a column are equal to a value."""
    found = pc.fill_null(pc.equal(one_chunk(column), value), False)
    return np.asarray(found.to_numpy(zero_copy_only=False), bool)
