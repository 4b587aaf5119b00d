"""Watermark against a definition-by-counting twin, and cases from Raft, KIP-595 and KIP-853."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.errors import LocalError
from kraftcore.raft.watermark import Watermark


class NaiveWatermark:
    """By definition: the largest offset that more than half of the voters have reached."""

    def __init__(self, epoch_start_offset: int) -> None:
        self.epoch_start_offset = epoch_start_offset
        self.offsets: dict[int, int | None] = {}
        self.value: int | None = None

    def refresh(self) -> bool:
        known = [offset for offset in self.offsets.values() if offset is not None]
        agreed = [o for o in known if sum(other >= o for other in known) * 2 > len(self.offsets)]
        best = max(agreed, default=-1)
        if best > self.epoch_start_offset and (self.value is None or best > self.value):
            self.value = best
            return True
        return False

    def update(self, voter_id: int, log_end_offset: int) -> bool:
        if voter_id in self.offsets:
            self.offsets[voter_id] = log_end_offset
        return self.refresh()

    def set_voters(self, voters: Iterable[int], log_end_offsets: dict[int, int]) -> bool:
        self.offsets = {
            voter: log_end_offsets.get(voter) if self.offsets.get(voter) is None else self.offsets[voter]
            for voter in voters
        }
        return self.refresh()

    def forget(self, voter_id: int) -> None:
        if voter_id in self.offsets:
            self.offsets[voter_id] = None


ids = st.integers(0, 9)
log_offsets = st.integers(0, 20)
voter_sets = st.lists(ids, unique=True, min_size=1, max_size=9)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("update"), ids, log_offsets),
        st.tuples(st.just("update"), ids, log_offsets),
        st.tuples(st.just("update"), ids, log_offsets),
        st.tuples(st.just("set_voters"), voter_sets, st.dictionaries(ids, log_offsets, max_size=4)),
        st.tuples(st.just("forget"), ids),
    ),
    max_size=40,
)


@given(st.integers(0, 12), steps)
def test_behaves_like_the_naive_twin(epoch_start_offset: int, steps: list[tuple[object, ...]]) -> None:
    ours, naive = Watermark(epoch_start_offset), NaiveWatermark(epoch_start_offset)
    previous = -1
    for name, *arguments in steps:
        assert getattr(ours, str(name))(*arguments) == getattr(naive, str(name))(*arguments)
        assert ours.value == naive.value
        assert ours.voters() == naive.offsets
        assert list(ours.voters()) == list(naive.offsets)
        now = -1 if ours.value is None else ours.value
        assert now >= previous
        previous = now
    for voter in range(10):
        assert ours.log_end_offset(voter) == naive.offsets.get(voter)


@pytest.mark.parametrize(
    ("offsets", "expected"),
    [
        ([8], 8),
        ([8, 5], 5),
        ([8, 5, 3], 5),
        ([8, 8, 3, 3], 3),
        ([9, 8, 7, 6], 7),
        ([9, 8, 7, 6, 5], 7),
        ([9, None, None], None),
        ([9, 4, None], 4),
        ([9, 4, None, None], None),
        ([9, 9, 9, 9, 2, 1, None], 9),
    ],
)
def test_majority_of_the_voter_set(offsets: list[int | None], expected: int | None) -> None:
    watermark = Watermark(0, range(len(offsets)))
    for voter, offset in enumerate(offsets):
        if offset is not None:
            watermark.update(voter, offset)
    assert watermark.value == expected


def test_a_record_of_an_older_epoch_is_not_committed_by_counting_copies() -> None:
    # Raft figure 8: entries up to 10 are on a majority, but the leader's own first record is at 10.
    watermark = Watermark(10, [1, 2, 3])
    assert not watermark.update(1, 11)
    assert not watermark.update(2, 10)
    assert watermark.value is None
    assert watermark.update(2, 11)
    assert watermark.value == 11


def test_a_leader_that_removed_itself_does_not_count() -> None:
    watermark = Watermark(0, [1, 2, 3])
    for voter, offset in ((1, 20), (2, 10), (3, 10)):
        watermark.update(voter, offset)
    assert watermark.value == 10
    watermark.set_voters([2, 3])
    assert not watermark.update(1, 30)
    assert not watermark.update(2, 20)
    assert watermark.update(3, 15)
    assert watermark.value == 15


def test_it_never_falls_but_a_leaving_laggard_lets_it_rise() -> None:
    watermark = Watermark(0, [1])
    assert watermark.update(1, 50)
    assert not watermark.set_voters([1, 2])  # alone it would be unknown now
    assert watermark.value == 50
    assert not watermark.update(1, 60)
    assert watermark.set_voters([1])
    assert watermark.value == 60


def test_a_caught_up_observer_brings_its_offset_along() -> None:
    watermark = Watermark(0, [1])
    watermark.update(1, 5)
    assert not watermark.update(2, 9)  # an observer: not even remembered
    watermark.set_voters([1, 2], {2: 9, 1: 99, 4: 7})
    assert watermark.voters() == {1: 5, 2: 9}
    assert watermark.update(1, 8)
    assert watermark.value == 8


def test_a_voter_may_fall_back_and_forget_makes_it_unknown() -> None:
    watermark = Watermark(0, [1, 2, 3])
    for voter in (1, 2, 3):
        watermark.update(voter, 9)
    watermark.update(2, 3)
    watermark.forget(3)
    assert (watermark.value, watermark.voters()) == (9, {1: 9, 2: 3, 3: None})
    assert not watermark.update(1, 12)
    assert watermark.update(2, 12)


@pytest.mark.parametrize("voters", [[], [1, 1], [-1, 2], [1 << 31]])
def test_impossible_voter_sets_are_refused_and_change_nothing(voters: list[int]) -> None:
    watermark = Watermark(0, [1])
    with pytest.raises(LocalError, match="voter"):
        watermark.set_voters(voters)
    assert watermark.voters() == {1: None}


def test_negative_offsets_are_refused() -> None:
    with pytest.raises(LocalError, match="epoch_start_offset -1"):
        Watermark(-1)
    watermark = Watermark(0, [1])
    with pytest.raises(LocalError, match=r"log end offset -4 of voter 1"):
        watermark.update(1, -4)
    with pytest.raises(LocalError, match=r"log end offset -1 of voter 2"):
        watermark.set_voters([1, 2], {2: -1})
    assert "value=None" in repr(watermark)


def test_large_voter_sets() -> None:
    watermark = Watermark(0, range(101))
    for voter in range(101):
        watermark.update(voter, 1000 - voter)
    assert watermark.value == 950
