"""What a stream notices of files that change under it."""

from __future__ import annotations

import pytest
from golden import GOLDEN
from spark_parts import batches_of

from kraftcore.plugins.spark import ranges
from kraftcore.plugins.spark.intake import shares_between
from kraftcore.plugins.spark.ranges import MARKS_MAX, Tracker, new_ranges
from kraftcore.plugins.spark.stores import Inventory

SEGMENT = GOLDEN / "static" / "c1" / "__cluster_metadata-0" / "00000000000000000000.log"
DATA = SEGMENT.read_bytes()
SPOTS = batches_of(DATA)


@pytest.fixture
def path(tmp_path):
    return tmp_path / SEGMENT.name


def look(path, data, before):
    """What is to be read, as (start, end, generation), and the progress after."""
    path.write_bytes(data)
    files = Inventory().files([str(path)])
    after = Tracker().advance(before, files)
    return [(one.start, one.end, one.generation) for one in new_ranges(before, after, files, 1 << 20)], after


def with_another_batch_at(spot):
    """The log with another checksum, and so another batch, in one place."""
    other = bytearray(DATA)
    other[spot.position + 17] ^= 1
    return bytes(other)


@pytest.mark.parametrize("index", [-1, -2, -20, -MARKS_MAX + 1])
def test_a_file_replaced_by_one_of_the_same_size_is_read_again_from_where_it_differs(path, index):
    ranges, progress = look(path, DATA, {})
    assert ranges == [(0, len(DATA), 0)]
    spot = SPOTS[index]
    other = with_another_batch_at(spot)
    ranges, progress = look(path, other, progress)
    assert ranges == [(spot.position, len(DATA), 1)]
    assert look(path, other, progress) == ([], progress)
    assert look(path, DATA, progress)[0] == [(spot.position, len(DATA), 2)]


def test_an_end_that_was_cut_off_is_read_again_from_the_last_batch_still_there(path):
    _, progress = look(path, DATA, {})
    cut = SPOTS[-5]
    ranges, progress = look(path, DATA[: cut.position], progress)
    assert ranges == []
    assert progress[str(path)].rewound == cut.position
    assert look(path, DATA, progress)[0] == [(cut.position, len(DATA), 1)]


def test_an_end_that_was_cut_off_inside_a_batch_is_noticed_once(path):
    _, progress = look(path, DATA, {})
    cut = SPOTS[-5]
    torn = DATA[: cut.position + cut.size - 1]
    ranges, progress = look(path, torn, progress)
    assert ranges == []
    assert progress[str(path)].rewound == cut.position
    assert look(path, torn, progress) == ([], progress)
    assert look(path, DATA, progress)[0] == [(cut.position, len(DATA), 1)]


def test_a_file_cut_off_behind_all_batches_remembered_is_read_again_from_its_start(path):
    _, progress = look(path, DATA, {})
    early = SPOTS[-MARKS_MAX - 1]
    ranges, progress = look(path, DATA[: early.position], progress)
    assert ranges == [(0, early.position, 1)]
    assert look(path, DATA, progress)[0] == [(early.position, len(DATA), 1)]


def test_tasks_side_by_side_get_shares_of_one_size(path, monkeypatch):
    path.write_bytes(DATA)
    # As an index with an entry for each batch.
    cuts = [spot.position for spot in SPOTS]
    monkeypatch.setattr(ranges, "boundaries", lambda _, start, end: [cut for cut in cuts if start < cut < end])
    files = Inventory().files([str(path)])
    after = Tracker().advance({}, files)
    size = len(DATA)

    def sizes(range_bytes, at_once):
        shares = shares_between({}, after, files, range_bytes, at_once)
        assert [one.number for one in shares] == list(range(len(shares)))
        parts = [one for share in shares for one in share.ranges]
        assert [0, *(one.end for one in parts)] == [*(one.start for one in parts), size]
        return [sum(one.end - one.start for one in share.ranges) for share in shares]

    largest = max(spot.size for spot in SPOTS)
    assert len(sizes(size, 1)) == 1
    for range_bytes, at_once, wanted in ((size, 2, 2), (size * 2 // 5, 2, 4), (size * 2 // 5, 3, 3), (size, 9, 4)):
        found = sizes(range_bytes, at_once)
        assert len(found) == wanted, (range_bytes, at_once)
        assert max(found) <= size / wanted + largest, found
