"""History against a list that is searched from the back, and the cases that KIP-853 describes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.errors import LocalError
from kraftcore.raft.history import BOOTSTRAP_OFFSET, History


class NaiveHistory:
    """The same contract on a plain list, scanned in full."""

    def __init__(self, initial: str) -> None:
        self.initial = initial
        self.entries: list[tuple[int, str]] = []
        self.compacted = False

    def add(self, offset: int, value: str) -> None:
        if offset < -1 or any(offset <= known for known, _ in self.entries):
            raise LocalError("add")
        self.entries.append((offset, value))

    def at(self, offset: int) -> str:
        for known, value in reversed(self.entries):
            if known <= offset:
                return value
        if self.compacted:
            raise LocalError("at")
        return self.initial

    def truncate_to(self, offset: int) -> bool:
        kept = [entry for entry in self.entries if entry[0] < offset]
        changed = kept != self.entries
        if changed and not kept and self.compacted:
            raise LocalError("truncate_to")
        self.entries = kept
        return changed

    def compact_to(self, offset: int) -> int:
        below = [entry for entry in self.entries if entry[0] < offset]
        if not below:
            return 0
        self.entries = below[-1:] + [entry for entry in self.entries if entry[0] >= offset]
        self.compacted = True
        return len(below) - 1

    def clear(self) -> None:
        self.entries, self.compacted = [], False


offsets = st.integers(-3, 30)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), offsets, st.text("abc", max_size=3)),
        st.tuples(st.just("truncate_to"), offsets),
        st.tuples(st.just("compact_to"), offsets),
        st.tuples(st.just("clear")),
    ),
    max_size=30,
)


def outcome(target: object, name: str, *arguments: object) -> object:
    try:
        return getattr(target, name)(*arguments)
    except LocalError:
        return LocalError


@given(steps, offsets)
def test_behaves_like_the_naive_twin(steps: list[tuple[object, ...]], probe: int) -> None:
    ours, naive = History("initial"), NaiveHistory("initial")
    for name, *arguments in steps:
        assert outcome(ours, str(name), *arguments) == outcome(naive, str(name), *arguments)
        ours.check_invariants()
        assert list(ours) == naive.entries
        assert len(ours) == len(naive.entries)
        assert ours.latest == (naive.entries[-1][1] if naive.entries else "initial")
        assert ours.latest_offset == (naive.entries[-1][0] if naive.entries else None)
        assert outcome(ours, "at", probe) == outcome(naive, "at", probe)
        assert outcome(ours, "last_committed", probe) == outcome(naive, "at", probe - 1)
        assert ours.uncommitted(probe) == tuple(entry for entry in naive.entries if entry[0] >= probe)


def test_an_uncommitted_voter_set_is_in_force_and_truncation_brings_the_old_one_back() -> None:
    history = History(frozenset({1, 2, 3}))
    history.add(10, frozenset({1, 2, 3, 4}))
    assert history.latest == {1, 2, 3, 4}
    assert history.last_committed(10) == {1, 2, 3}  # the high watermark is exclusive
    assert history.last_committed(11) == {1, 2, 3, 4}
    assert history.uncommitted(10) == ((10, frozenset({1, 2, 3, 4})),)
    assert history.truncate_to(10)
    assert history.latest == {1, 2, 3}
    assert history.latest_offset is None


def test_the_0_0_checkpoint_is_committed_before_any_high_watermark() -> None:
    history = History(frozenset[int]())
    history.add(BOOTSTRAP_OFFSET, frozenset({7}))
    assert history.last_committed(0) == {7}
    assert history.latest_offset == -1
    history.add(2, frozenset({7, 8}))
    history.truncate_to(0)
    assert history.latest == {7}


def test_the_snapshot_keeps_what_an_uncommitted_entry_at_its_end_would_fall_back_to() -> None:
    history = History("static")
    for offset in (3, 40, 100):
        history.add(offset, f"v{offset}")
    assert history.compact_to(100) == 1
    assert list(history) == [(40, "v40"), (100, "v100")]
    assert history.truncate_to(100)
    assert history.latest == "v40"


def test_errors_name_the_offsets() -> None:
    history = History(0)
    with pytest.raises(LocalError, match=r"offset -2.*lowest possible is -1"):
        history.add(-2, 1)
    history.add(5, 1)
    with pytest.raises(LocalError, match=r"offset 5: must be above the newest one, 5"):
        history.add(5, 2)
    history.compact_to(9)
    with pytest.raises(LocalError, match=r"offset 4 is gone: it starts at 5"):
        history.at(4)
    with pytest.raises(LocalError, match=r"truncated to offset 5"):
        history.truncate_to(5)
    with pytest.raises(OverflowError):
        history.at(1 << 70)
    assert list(history) == [(5, 1)]


def test_iteration_is_a_copy() -> None:
    history = History(0)
    for offset in range(5):
        history.add(offset, offset)
    for offset, _ in history:
        if offset == 2:
            history.clear()
    assert len(history) == 0
    assert repr(history) == "History(initial=0, entries={})"
