"""Inputs that are damaged and mended, copied while they are read, unseen by workers, or with indexes of other files."""

from __future__ import annotations

import errno
import struct
from datetime import UTC, datetime
from pathlib import Path

import bad_day
import pytest
from click.testing import CliRunner
from spark_parts import batches_of, counted_rows

from kraftcore.cli.spark import spark as commands_of_spark
from kraftcore.core.batch import build_batch
from kraftcore.errors import StorageError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import gold_registry, intake
from kraftcore.plugins.spark.arrow_batches import FAIL, Range, RangeReader
from kraftcore.plugins.spark.canonical import YEARS
from kraftcore.plugins.spark.commits import Commits
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.folders import LocalFolder
from kraftcore.plugins.spark.parquet import TableFile
from kraftcore.plugins.spark.ranges import read_ranges, split_into_ranges
from kraftcore.plugins.spark.stores import Inventory
from kraftcore.plugins.spark.tables import arrow_schema
from kraftcore.protocol.control import leader_change
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.no_op_record import NoOpRecord

FIRST = f"{0:020}.log"


def no_spark():
    pytest.fail("so little is done without Spark")


def flaps(log, first, count):
    for number in range(first, first + count):
        log.fence(f"13:59:{number:02}.000", 101)
        log.unfence(f"13:59:{number:02}.500", 101)


@pytest.fixture
def log():
    """A log with a few hundred records."""
    found = bad_day.Log()
    found.control("13:58:00.000", leader_change(1, [1, 2, 3], [1, 2, 3]))
    found.register("13:58:02.000", 101)
    values = (ConfigRecord(resource_type=2, resource_name="t", name=f"k{n}", value="v" * 80) for n in range(251))
    found.write("13:58:20.000", *values)
    flaps(found, 0, 5)
    return found


@pytest.fixture
def folder(tmp_path):
    """The folder of a node's log, below ``tmp_path / "in"``."""
    found = tmp_path / "in" / "c1" / "__cluster_metadata-0"
    found.mkdir(parents=True)
    (found.parent / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=odd\n")
    return found


@pytest.fixture
def take(folder, tmp_path):
    """Writes a file of the log, runs, and returns the rows that count, by table."""

    def run(data, name=FIRST, **options):
        (folder / name).write_bytes(bytes(data))
        kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables", options=options)
        return counted_rows(tmp_path / "tables")

    return run


def index(entries):
    """An offset index of a segment that begins at offset 0."""
    return b"".join(struct.pack(">ii", one.last_offset, one.position) for one in entries if one.position)


def offsets(rows):
    return sorted({row["offset"] for row in rows["bronze_records"]})


def log_end(rows):
    (row,) = rows["gold_logs"]
    return row["start_offset"], row["end_offset"], row["batches"]


def test_what_replaces_a_damaged_end_is_read(log, take):
    good = bytes(log.data)
    rows = take(good + bytes(4096))
    assert [(row["position"], row["size"], row["kind"]) for row in rows["errors"]] == [(len(good), 4096, "batch")]
    assert take(good + bytes(4096)) == rows
    flaps(log, 5, 40)
    assert len(log.data) > len(good) + 4096
    rows = take(log.data)
    assert offsets(rows) == list(range(log.end))
    assert len(rows["errors"]) == 1
    assert {row["rewound_to"] for row in rows["bronze_files"]} == {None, len(good)}
    assert log_end(rows) == (0, log.end, len(batches_of(log.data)))
    assert take(log.data) == rows


def test_an_end_of_the_same_size_that_is_mended_is_read(log, take):
    good, start = bytes(log.data), batches_of(log.data)[-3].position
    take(good[:start] + bytes(len(good) - start))
    assert offsets(take(good)) == list(range(log.end))


def test_a_damaged_end_that_grows_is_read_no_second_time(log, take):
    good, start = bytes(log.data), batches_of(log.data)[-3].position
    take(good[:start] + bytes(len(good) - start))
    flaps(log, 5, 3)
    rows = take(good[:start] + bytes(len(good) - start) + log.data[len(good) :])
    assert {row["generation"] for row in rows["bronze_records"]} == {0}
    assert offsets(take(log.data)) == list(range(log.end))


def test_a_batch_with_a_wrong_checksum_before_a_damaged_end_costs_nothing_else(log, take):
    spot, data = batches_of(log.data)[-1], bytearray(log.data)
    data[spot.position + spot.size - 1] ^= 1
    take(data + bytes(100))
    base = log.end
    flaps(log, 5, 3)
    rows = take(data + log.data[len(data) :])
    assert offsets(rows) == [offset for offset in range(log.end) if not spot.base_offset <= offset < base]
    (about,) = rows["gold_logs"]
    assert (about["start_offset"], about["end_offset"]) == (0, log.end)


def test_a_stale_index_costs_nothing(log, take, folder):
    (folder / FIRST).with_suffix(".index").write_bytes(struct.pack(">iiii", 100, 10001, 150, 20003))
    rows = take(log.data, range_bytes="4096")
    assert offsets(rows) == list(range(log.end))
    assert "errors" not in rows


def test_a_segment_that_was_half_copied_is_read_when_it_is_whole(log, take):
    data, cut = bytes(log.data), max(batches_of(log.data), key=lambda spot: spot.size)
    after = bad_day.Log()
    after.end = log.end
    flaps(after, 10, 1)
    take(data[: cut.position + 70])
    take(after.data, f"{log.end:020}.log")
    rows = take(data[: cut.position + 80])
    assert offsets(rows) == [*range(cut.base_offset), *range(log.end, after.end)]
    rows = take(data)
    assert offsets(rows) == list(range(after.end))
    assert log_end(rows)[:2] == (0, after.end)


@pytest.fixture
def opened(monkeypatch):
    """What is called with the number of times that a task has opened a file, before it does."""
    original, calls = Range.open, []

    def patch(before):
        def counting(part):
            calls.append(part)
            before(part, len(calls))
            return original(part)

        monkeypatch.setattr(Range, "open", counting)

    yield patch
    assert calls


def test_a_task_that_does_not_see_the_input_fails_the_run(log, take, opened, monkeypatch, tmp_path):
    def unseen(part, _):
        raise StorageError(errno.ENOENT, "No such file or directory", part.file.path)

    opened(unseen)
    with pytest.raises(StorageError, match="workers must see the input under the same paths"):
        take(log.data)
    monkeypatch.undo()
    assert offsets(take(log.data)) == list(range(log.end))


@pytest.mark.parametrize("number", [1, 2])
def test_a_file_that_is_removed_before_it_is_read_is_listed_and_read_if_it_comes_back(
    log, take, opened, monkeypatch, folder, number
):
    def remove(part, count):
        if count == number:
            Path(part.file.path).unlink()

    other = folder.parent.parent / "c2" / folder.name
    other.mkdir(parents=True)
    (other.parent / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=odd\n")
    (other / FIRST).write_bytes(log.data)
    (folder / FIRST).with_suffix(".index").write_bytes(index(batches_of(log.data)))
    opened(remove)
    rows = take(log.data, range_bytes="1024", max_bytes_per_trigger="9000")
    monkeypatch.undo()
    assert {row["kind"] for row in rows["errors"]} == {"gone"}
    assert len({row["offset"] for row in rows["bronze_records"] if row["node_id"] == 1}) > 0 or number == 1
    rows = take(log.data)
    last = {node: max(row["generation"] for row in rows["bronze_records"] if row["node_id"] == node) for node in (1, 2)}
    assert last == {1: 1, 2: 0}
    found = sorted(
        (one["node_id"], one["offset"]) for one in rows["bronze_records"] if one["generation"] == last[one["node_id"]]
    )
    assert found == [(node, offset) for node in (1, 2) for offset in range(log.end)]
    assert {row["end_offset"] for row in rows["gold_logs"]} == {log.end}


def test_a_snapshot_that_is_removed_before_it_is_read_is_read_if_it_comes_back(log, take, opened, monkeypatch):
    opened(lambda part, _: Path(part.file.path).unlink())
    name = f"{log.end:020}-{1:010}.checkpoint"
    assert take(log.data, name)["errors"]
    monkeypatch.undo()
    assert offsets(take(log.data, name)) == list(range(log.end))


def test_a_full_disk_is_told_with_the_file_that_had_no_room():
    file = TableFile("/dev/full", arrow_schema("bronze_files"))
    with pytest.raises(StorageError) as told:
        file.close()
    assert (told.value.errno, told.value.filename) == (errno.ENOSPC, "/dev/full")


def test_the_data_source_tells_a_removed_file_from_a_folder_that_is_not_there(log, folder):
    (folder / FIRST).write_bytes(log.data)
    parts = split_into_ranges(Inventory().files([str(folder)]), Filters())
    reader = RangeReader("records", Filters(), FAIL)
    assert sum(batch.num_rows for batch in read_ranges(parts, reader)) == log.end
    (folder / FIRST).unlink()
    assert list(read_ranges(parts, reader)) == []
    folder.rmdir()
    with pytest.raises(StorageError, match=FIRST):
        list(read_ranges(parts, reader))


def last_step(tables):
    return Commits(LocalFolder(str(tables))).last().number


def test_a_worker_that_does_not_see_the_tables_fails_the_run(log, take, monkeypatch, tmp_path):
    class Elsewhere(LocalFolder):
        def __init__(self, path):
            super().__init__(f"{path}-of-the-worker")

    monkeypatch.setattr(intake, "LocalFolder", Elsewhere)
    with pytest.raises(StorageError, match="workers must see the folder of tables"):
        take(log.data)
    assert last_step(tmp_path / "tables") == -1
    monkeypatch.undo()
    assert offsets(take(log.data)) == list(range(log.end))


def test_a_cluster_whose_gold_cannot_be_made_costs_no_other_its_own(log, take, folder, monkeypatch, tmp_path):
    other = folder.parent.parent / "c2" / folder.name
    other.mkdir(parents=True)
    (other.parent / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=good\n")
    (other / FIRST).write_bytes(log.data)
    before = take(log.data)
    end = log.end
    flaps(log, 5, 3)
    for one in (folder, other):
        (one / FIRST).write_bytes(log.data)
    make = gold_registry.GOLD["gold_logs"]

    def fail(canonical):
        if canonical.cluster_id == "odd":
            raise OverflowError("date value out of range")
        return make(canonical)

    monkeypatch.setitem(gold_registry.GOLD, "gold_logs", fail)
    lines = []
    result = kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables", report=lines.append)
    reason = "OverflowError: date value out of range"
    assert (result.clusters, result.failed) == (("good",), {"odd": reason})
    assert [line for line in lines if line.startswith("odd: ") and line.endswith(reason)]
    rows = counted_rows(tmp_path / "tables")
    assert {row["cluster_id"]: row["end_offset"] for row in rows["gold_logs"]} == {"good": log.end, "odd": end}
    for name in ("gold_broker_history", "gold_leadership"):
        mine = [row for row in rows[name] if row["cluster_id"] == "odd"]
        assert mine == [row for row in before[name] if row["cluster_id"] == "odd"]
    step = last_step(tmp_path / "tables")
    arguments = ["run", "--input", str(tmp_path / "in"), "--tables", str(tmp_path / "tables")]
    shown = CliRunner().invoke(commands_of_spark, arguments)
    assert (shown.exit_code, "odd: OverflowError" in str(shown.exception)) == (1, True), shown.output
    assert last_step(tmp_path / "tables") == step
    monkeypatch.undo()
    assert kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables").clusters == ("odd",)
    rows = counted_rows(tmp_path / "tables")
    assert {row["cluster_id"]: row["end_offset"] for row in rows["gold_logs"]} == {"good": log.end, "odd": log.end}


def test_times_that_no_calendar_has_count_as_the_nearest_it_has(session, log, folder, tmp_path, call):
    other = folder.parent.parent / "c2" / folder.name
    other.mkdir(parents=True)
    (other.parent / "meta.properties").write_text("version=1\nnode.id=2\ncluster.id=far-future\n")
    late = encode_metadata_record(NoOpRecord(), 0)
    batches = [
        build_batch([late], timestamp_ms=time_ms, base_offset=number, leader_epoch=1)
        for number, time_ms in enumerate((0, 3 * 10**14, (1 << 63) - 1))
    ]
    (other / FIRST).write_bytes(b"".join(map(bytes, batches)))
    (folder / FIRST).write_bytes(log.data)
    result = kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables")
    assert (result.clusters, result.failed) == (("far-future", "odd"), {})
    sql = "SELECT first_time, last_time, records FROM gold_logs WHERE cluster_id = 'far-future'"
    (about,) = kraft.query(session, tmp_path / "tables", sql).collect()
    assert [one.astimezone(UTC) for one in about[:2]] == [datetime.fromtimestamp(0, UTC), YEARS[1]]
    bare = session.read.parquet(str(tmp_path / "tables/bronze_batches")).where("max_timestamp > '+10000-01-01'")
    assert bare.count() == 2  # as the log has them
    done = call("report", "--tables", tmp_path / "tables", "--to", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    assert "9999-01-01 00:00:00.000" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("name", ["a\\u0000b", "x" * 260, "__HIVE_DEFAULT_PARTITION__"], ids=range(3))
def test_a_cluster_of_any_name_has_its_gold(session, log, take, folder, tmp_path, name):
    other = folder.parent.parent / "c2" / folder.name
    other.mkdir(parents=True)
    (other.parent / "meta.properties").write_text(f"version=1\nnode.id=2\ncluster.id={name}\n")
    (other / FIRST).write_bytes(log.data)
    take(log.data)
    found = kraft.query(session, tmp_path / "tables", "SELECT cluster_id, end_offset FROM gold_logs").collect()
    (odd,) = {row.cluster_id: row.end_offset for row in found if row.cluster_id != "odd"}.items()
    assert odd == (name.replace("\\u0000", "\0"), log.end)
    assert len(found) == 2
    flaps(log, 5, 1)
    (other / FIRST).write_bytes(log.data)
    take(log.data)
    found = kraft.query(session, tmp_path / "tables", "SELECT cluster_id, end_offset FROM gold_logs").collect()
    assert {row.end_offset for row in found} == {log.end}
