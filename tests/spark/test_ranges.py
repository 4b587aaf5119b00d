"""What a stream notices of files that change under it."""

from __future__ import annotations

import struct

import pytest
from golden import GOLDEN
from spark_parts import batches_of, counted_rows

from kraftcore.errors import CorruptDataError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import pipeline, ranges
from kraftcore.plugins.spark.arrow_batches import RangeReader
from kraftcore.plugins.spark.direct import read_typed
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.intake import shares_between
from kraftcore.plugins.spark.ranges import (
    MARKS_MAX,
    Tracker,
    file_ranges,
    limit_bytes,
    narrow,
    new_ranges,
    progress_from_json,
    read_ranges,
)
from kraftcore.plugins.spark.stores import Inventory
from kraftcore.plugins.spark.tables import Tables

SEGMENT = GOLDEN / "static" / "c1" / "__cluster_metadata-0" / "00000000000000000000.log"
DATA = SEGMENT.read_bytes()
SPOTS = batches_of(DATA)


def no_spark():
    pytest.fail("so little is done without Spark")


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


def with_index(path, entries):
    """The log with an index of some (offset, position)."""
    path.write_bytes(DATA)
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    (file,) = Inventory().files([str(path)])
    return file


TRUE = [(spot.last_offset, spot.position) for spot in SPOTS[1:]]
STALE = {
    "inside a batch": [(offset, position + 7) for offset, position in TRUE],
    "offsets too small": [(offset // 3, position) for offset, position in TRUE],
    "of a segment further on": [(offset - SPOTS[-1].last_offset - 1, position) for offset, position in TRUE],
}


def test_ranges_are_cut_and_narrowed_by_an_index(path, monkeypatch):
    file = with_index(path, TRUE)
    monkeypatch.setattr(ranges, "boundaries", None)
    found = file_ranges(file, 0, len(DATA), 4096)
    assert {one.start for one in found[1:]} <= {position for _, position in TRUE}
    assert max(one.end - one.start for one in found) < 4096 * 5 // 4 + max(spot.size for spot in SPOTS)
    low, high = SPOTS[20], SPOTS[40]
    wanted = Filters.from_options({"offset_from": str(low.base_offset), "offset_to": str(high.base_offset)})
    assert narrow(file, wanted) == (low.position, high.position + 1)


@pytest.mark.parametrize("entries", STALE.values(), ids=STALE)
def test_an_index_of_another_file_cuts_no_batch(path, entries):
    file = with_index(path, entries)
    assert [(one.start, one.end) for one in file_ranges(file, 0, len(DATA), 4096)] == [(0, len(DATA))]
    low, high = SPOTS[20].base_offset, SPOTS[40].base_offset
    found = read_typed([path], offset_from=str(low), offset_to=str(high))
    stale = {offset for kind, batch in found if not kind.is_control for offset in batch["offset"].to_pylist()}
    path.with_suffix(".index").unlink()
    found = read_typed([path], offset_from=str(low), offset_to=str(high))
    assert stale == {offset for kind, batch in found if not kind.is_control for offset in batch["offset"].to_pylist()}
    assert stale


def test_the_last_batch_of_a_full_segment_is_found_behind_a_stale_index(path):
    with_index(path, [(TRUE[5][0], TRUE[5][1] + 7)])
    path.with_name(f"{SPOTS[-1].last_offset + 1:020}.log").touch()
    after = Tracker().advance({}, Inventory().files([str(path.parent)]))
    (mark,) = after[str(path)].marks
    assert (mark.position, after[str(path)].stop) == (SPOTS[-1].position, None)


def test_a_bound_by_bytes_takes_over_files_that_only_shrank(path):
    _, before = look(path, DATA, {})
    path.write_bytes(DATA[: SPOTS[-5].position])
    other = path.with_name(f"{SPOTS[-1].last_offset + 1:020}.log")
    other.write_bytes(DATA)
    files = Inventory().files([str(path.parent)])
    target = Tracker().advance(before, files)
    steps = [before]
    while steps[-1] != target:
        steps.append(limit_bytes(steps[-1], target, files, 1, 1 << 20))
        assert len(steps) < 4
    assert steps[1][str(path)].rewound == SPOTS[-5].position


def segments(folder):
    """A folder with the log in two segments, the first of which is full and has an index; the path of that one."""
    place = folder / "__cluster_metadata-0"
    place.mkdir(parents=True)
    cut = SPOTS[-5]
    first = place / SEGMENT.name
    first.write_bytes(DATA[: cut.position])
    entries = [entry for entry in TRUE if entry[1] < cut.position]
    first.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    (place / f"{cut.base_offset:020}.log").write_bytes(DATA[cut.position :])
    return first


def offsets_taken(tables):
    """Offsets of the records that count, each as often as it does."""
    rows = counted_rows(tables)
    dead = {(row["file_id"], row["generation"]): row["rewound_to"] for row in rows["bronze_files"]}
    assert all(generation == 0 or position > 0 for (_, generation), position in dead.items())
    newest = {file_id: max(gen for other, gen in dead if other == file_id) for file_id, _ in dead}
    found = []
    for row in rows["bronze_batches"]:
        generation = newest[row["file_id"]]
        if row["generation"] == generation or row["position"] < dead[row["file_id"], generation]:
            found += range(row["base_offset"], row["last_offset"] + 1)
    return sorted(found)


@pytest.mark.parametrize("size_field", [bytes(512), b"\x7f\xff\xff\xff"], ids=["zeros", "a size beyond the file"])
@pytest.mark.parametrize("range_bytes", [1 << 20, 4096])
def test_a_full_segment_that_was_damaged_in_its_middle_is_read_on_once_it_is_repaired(
    tmp_path, size_field, range_bytes
):
    first = segments(tmp_path / "in")
    good = first.read_bytes()
    at = SPOTS[len(SPOTS) // 3].position + (8 if len(size_field) == 4 else 0)
    first.write_bytes(good[:at] + size_field + good[at + len(size_field) :])
    everything = list(range(SPOTS[-1].last_offset + 1))

    def run():
        return kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables", options={"range_bytes": str(range_bytes)})

    run()
    assert set(offsets_taken(tmp_path / "tables")) < set(everything)
    assert not any(run().rows.values()), "nothing changed"
    first.write_bytes(good)
    assert run().rows["bronze_records"]
    assert offsets_taken(tmp_path / "tables") == everything
    assert not any(run().rows.values())


@pytest.mark.parametrize("is_full", [False, True], ids=["last segment", "full segment"])
def test_a_run_that_ends_behind_damage_leaves_it_to_be_read_once_repaired(tmp_path, is_full):
    first = segments(tmp_path / "in")
    if not is_full:
        next(one for one in first.parent.glob("*.log") if one != first).unlink()
    good = first.read_bytes()
    at = SPOTS[len(SPOTS) // 3].position
    first.write_bytes(good[:at] + bytes(512) + good[at + 512 :])
    options = {"max_bytes_per_trigger": "4096", "range_bytes": "4096"}
    tables = Tables(no_spark, tmp_path / "tables")
    settings = pipeline.check_input([tmp_path / "in"], "drop", options)
    for _ in pipeline.Taking(tables, settings, "drop").all():
        reached = progress_from_json(tables.commit.progress)[str(first)]
        if at < reached.position < len(good):
            break
    else:
        pytest.fail("no commit between the damage and the end")
    assert reached.stop is not None
    assert reached.stop.position == at
    for data in (first.read_bytes(), good):
        first.write_bytes(data)
        kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables")
    end = SPOTS[-1].last_offset + 1 if is_full else SPOTS[-5].base_offset
    assert offsets_taken(tmp_path / "tables") == list(range(end))


def test_a_file_that_vanishes_before_it_is_cut_into_ranges_is_said_to_be_gone(tmp_path, monkeypatch):
    first = segments(tmp_path / "in")
    first.with_suffix(".index").unlink()
    plan = pipeline.shares_between

    def vanishes(*arguments):
        first.unlink(missing_ok=True)
        return plan(*arguments)

    monkeypatch.setattr(pipeline, "shares_between", vanishes)
    kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables", options={"range_bytes": "4096"})
    rows = counted_rows(tmp_path / "tables")
    assert [(row["kind"], row["size"]) for row in rows["errors"]] == [("gone", SPOTS[-5].position)]
    assert {row["base_offset"] for row in rows["bronze_batches"]} == {spot.base_offset for spot in SPOTS[-5:]}


def test_a_stream_reads_a_mended_middle_of_a_full_segment_if_it_had_ended_there(path, tmp_path):
    spot = SPOTS[len(SPOTS) // 2]
    with_index(path, TRUE)
    path.with_name(f"{SPOTS[-1].last_offset + 1:020}.log").touch()
    path.write_bytes(DATA[: spot.position] + bytes(61) + DATA[spot.position + 61 :])
    files = Inventory().files([str(tmp_path)])
    planned = Tracker().advance({}, files)

    def offsets(policy):
        reader = RangeReader("records", Filters(), policy)
        found = read_ranges(new_ranges({}, planned, files, 1 << 20), reader)
        return [offset for batch in found for offset in batch["offset"].to_pylist()]

    with pytest.raises(CorruptDataError, match="byte"):
        offsets("fail")
    assert offsets("drop") == list(range(spot.base_offset))
    path.write_bytes(DATA)
    assert offsets("fail") == list(range(SPOTS[-1].last_offset + 1))
    assert Tracker().advance(planned, Inventory().files([str(tmp_path)])) == planned  # what was dropped stays so
