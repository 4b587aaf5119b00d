"""Columns of lists against plain lists."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.columns.lists import except_lists
from kraftcore.errors import LocalError

IDS = pa.list_(pa.field("element", pa.int32()))
ROWS = st.lists(st.none() | st.lists(st.integers(-2, 4), max_size=6))
LONG = st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-20, 60), min_size=70, max_size=120)


@given(ROWS, ROWS, st.integers(0, 3))
def test_each_row_keeps_what_the_other_has_not(first, second, skipped):
    size = min(len(first), len(second))
    wanted = [
        None if one is None or other is None else list(dict.fromkeys(value for value in one if value not in other))
        for one, other in zip(first, second, strict=False)
    ]
    found = except_lists(pa.array(first[:size], IDS)[skipped:], pa.array(second[:size], IDS)[skipped:])
    found.validate(full=True)
    assert found.type == IDS
    assert found.to_pylist() == wanted[skipped:]


@given(st.lists(st.tuples(LONG | st.just([1]), LONG | st.just([2])), min_size=1, max_size=3))
def test_long_lists_are_compared_as_short_ones_are(rows):
    found = except_lists(pa.array([one for one, _ in rows], IDS), pa.array([other for _, other in rows], IDS))
    found.validate(full=True)
    assert found.to_pylist() == [
        list(dict.fromkeys(value for value in one if value not in set(other))) for one, other in rows
    ]


def test_lists_as_long_as_a_record_allows_end_soon():
    # Comparing each value with each would be 2,000,000,000,000 comparisons.
    many = list(range(0, 2_000_000, 2))
    found = except_lists(pa.array([[*many, *many, -1]], IDS), pa.array([[*reversed(many[1:]), 1]], IDS))
    assert found.to_pylist() == [[0, -1]]


@pytest.mark.parametrize("others", [
    pa.array([[1], [2]], IDS), pa.array([["text"]]), pa.array([[None]], IDS), pa.array([1]),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(others):
    with pytest.raises(LocalError):
        except_lists(pa.array([[1]], IDS), others)
