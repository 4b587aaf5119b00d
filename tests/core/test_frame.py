"""Long frames, filled in place."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.wire.frame import FrameInParts
from kraftcore.errors import LocalError


def pour(source: memoryview, most: int):
    """Like a socket's recv_into: at most so many bytes, in order."""
    at = 0

    def receive(view: memoryview) -> int:
        nonlocal at
        count = min(len(view), most, len(source) - at)
        view[:count] = source[at : at + count]
        at += count
        return count

    return receive


@given(st.integers(1, 2_000_000), st.floats(0, 1, exclude_max=True), st.integers(1, 300_000))
def test_it_is_what_came(size, share, most):
    whole = random.Random(size).randbytes(size)
    first = int(size * share)
    frame = FrameInParts(whole[:first], size)
    receive = pour(memoryview(whole)[first:], max(most, size // 50))
    while frame.filled < size:
        room, before = frame.room, frame.filled
        assert 0 < room <= size - before
        got = frame.fill(receive)
        assert got <= room
        assert frame.filled == before + got
    assert frame.room == 0
    assert frame.take() == whole


def test_room_follows_what_arrived():
    frame = FrameInParts(b"ab", 2**31 - 1)
    assert frame.room < 1_000_000
    frame.fill(lambda view: len(view))
    assert frame.room <= 4 * frame.filled


def test_the_view_ends_with_the_call():
    kept = []
    frame = FrameInParts(b"", 10)
    frame.fill(lambda view: kept.append(view) or 3)
    with pytest.raises(ValueError, match="released"):
        kept[0][0] = 1


def test_what_receive_raises_changes_nothing():
    def fail(_):
        raise BlockingIOError

    frame = FrameInParts(b"x", 3)
    with pytest.raises(BlockingIOError):
        frame.fill(fail)
    assert frame.filled == 1
    frame.fill(pour(memoryview(b"yz"), 2))
    assert frame.take() == b"xyz"


@pytest.mark.parametrize("count", [-1, 11])
def test_a_count_that_cannot_be(count):
    frame = FrameInParts(b"", 10)
    with pytest.raises(LocalError, match="received into"):
        frame.fill(lambda _: count)
    assert frame.filled == 0


def test_mistakes():
    with pytest.raises(LocalError, match="does not begin"):
        FrameInParts(b"abc", 3)
    frame = FrameInParts(b"a", 2)
    with pytest.raises(LocalError, match="1 of 2"):
        frame.take()
    frame.fill(pour(memoryview(b"b"), 1))
    with pytest.raises(LocalError, match="whole"):
        frame.fill(lambda _: 0)
    assert frame.take() == b"ab"
    with pytest.raises(LocalError):
        frame.take()
    with pytest.raises(LocalError, match="does not begin"):
        frame.__init__(b"", 5) or FrameInParts(b"", 0)
