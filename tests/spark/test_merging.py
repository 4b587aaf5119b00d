"""Small files of many runs are merged: rows stay, kills do no harm, and who reads goes on reading."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fleet import Fleet, comparable
from golden import GOLDEN
from spark_parts import batches_of, copy_as, counted_rows

from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import gold_registry, merging
from kraftcore.plugins.spark import tables as opened
from kraftcore.plugins.spark.commits import RUNS, step_of, task_of
from kraftcore.plugins.spark.delta import TableLog
from kraftcore.plugins.spark.folders import LocalFolder
from kraftcore.plugins.spark.tables import BRONZE, SILVER, Tables

SEGMENT = "__cluster_metadata-0/00000000000000000000.log"
MOST = 3


def no_spark():
    pytest.fail("so little is done without Spark")


class Growing:
    """A node whose log grows a little, again and again, and its tables."""

    def __init__(self, folder, steps):
        self.node = copy_as(GOLDEN / "static" / "c3", folder / "in" / "c3", "growing")
        self.tables = folder / "tables"
        self._data = (self.node / SEGMENT).read_bytes()
        ends = [spot.position for spot in batches_of(self._data)]
        self._ends = [*ends[-steps:-1], len(self._data)]

    def grow(self):
        (self.node / SEGMENT).write_bytes(self._data[: self._ends.pop(0)])

    def run(self, **options):
        return kraft.run(no_spark, [self.node], self.tables, **options)

    def rows(self):
        return comparable(counted_rows(self.tables))

    def commit(self):
        return Tables(None, self.tables).commit

    def files(self):
        """By table of bronze and silver: those that count."""
        return {name: files for name, files in self.commit().files.items() if name in BRONZE or name in SILVER}

    def on_disk(self):
        files = {str(file.relative_to(self.tables)) for file in self.tables.rglob("*.parquet")}
        return {name for name in files if not name.startswith(f"{RUNS}/")}


def expected(growing, folder):
    kraft.run(no_spark, [growing.node], folder)
    return comparable(counted_rows(folder))


def test_many_runs_leave_few_files_and_all_rows(tmp_path):
    growing = Growing(tmp_path, 12)
    most = merged = 0
    for number in range(12):
        growing.grow()
        lines = []
        growing.run(merge_files=MOST, report=lines.append)
        merged += any("files merged into 1" in line for line in lines)
        most = max(most, *(len(files) for files in growing.files().values()))
        if number % 4 == 3:
            assert growing.rows() == expected(growing, tmp_path / f"whole-{number}")
    assert merged >= 2
    assert most == MOST


def test_files_are_merged_where_gold_cannot_be_made(tmp_path, monkeypatch):
    growing = Growing(tmp_path, 6)

    def fails(*_):
        raise OverflowError("date value out of range")

    monkeypatch.setitem(gold_registry.GOLD, "gold_logs", fails)
    for _ in range(6):
        growing.grow()
        assert growing.run(merge_files=MOST).failed.keys() == {"growing"}
    assert max(len(files) for files in growing.files().values()) <= MOST
    assert growing.commit().stale == ("growing",)
    monkeypatch.undo()
    assert growing.run(merge_files=MOST).clusters == ("growing",)
    assert growing.rows() == expected(growing, tmp_path / "whole")


def test_by_default_and_with_zero_a_few_runs_are_left_alone(tmp_path):
    growing = Growing(tmp_path, 6)
    for number in range(6):
        growing.grow()
        growing.run(**({"merge_files": 0} if number == 5 else {}))
    assert len(growing.files()["bronze_records"]) == 6 < merging.FILES_MAX
    with pytest.raises(LocalError, match="merge_files=-1 is negative"):
        growing.run(merge_files=-1)


def test_large_files_stay(tmp_path, monkeypatch):
    growing = Growing(tmp_path, 6)
    for _ in range(5):
        growing.grow()
        growing.run()
    before = growing.files()["bronze_records"]
    first = next(iter(before))
    monkeypatch.setattr(merging, "SMALL_BYTES", before[first].size)
    growing.grow()
    growing.run(merge_files=MOST)
    after = growing.files()["bronze_records"]
    assert set(after) & set(before) == {first}
    assert len(after) == 2
    assert growing.rows() == expected(growing, tmp_path / "whole")


def test_what_is_merged_at_a_time_is_bounded(tmp_path, monkeypatch):
    growing = Growing(tmp_path, 6)
    for number in range(6):
        growing.grow()
        if number == 5:
            sizes = [file.size for file in growing.files()["bronze_records"].values()]
            monkeypatch.setattr(merging, "MERGED_BYTES", 2 * max(sizes))
        growing.run(merge_files=5)
    assert 1 < len(growing.files()["bronze_records"]) < 6
    assert growing.rows() == expected(growing, tmp_path / "whole")


class Killed(BaseException):
    """In place of a signal."""


def test_a_run_that_merges_may_be_killed_at_any_step(tmp_path, monkeypatch):
    growing = Growing(tmp_path, 5)
    for _ in range(4):
        growing.grow()
        growing.run()
    growing.grow()
    wanted = expected(growing, tmp_path / "whole")
    made, last = 0, 0

    def counted(original):
        def step(folder, *arguments):
            nonlocal made
            made += 1
            if made <= last:
                return original(folder, *arguments)
            if original is put:  # half of the files are there
                original(folder, dict(list(arguments[0].items())[: len(arguments[0]) // 2]))
            raise Killed

        return step

    put = LocalFolder.put
    for owner, name in ((LocalFolder, "write"), (LocalFolder, "put"), (TableLog, "commit")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))
    while True:  # each run goes one step further than the one before
        made, last = 0, last + 1
        try:
            growing.run(merge_files=MOST)
        except Killed:
            assert growing.commit().names() <= growing.on_disk()
            last += 6 if last > 20 else 0  # many of a step's tables are alike
        else:
            break
    assert last > 8
    last = 10**6
    growing.run(merge_files=MOST)
    assert growing.rows() == wanted
    assert [len(files) for files in growing.files().values()] == [1] * len(growing.files())
    kraft.clean(growing.tables, hours=0)
    assert growing.on_disk() == growing.commit().names()


def test_who_read_before_goes_on_beside_a_run_that_merges(tmp_path):
    growing = Growing(tmp_path, 5)
    for _ in range(4):
        growing.grow()
        growing.run()
    reader = Tables(None, growing.tables)
    assert reader.commit.number == 7
    before = growing.rows()
    growing.grow()
    growing.run(merge_files=MOST)
    assert reader.commit.names() <= growing.on_disk()
    for name, wanted in before.items():
        if not name.startswith("gold_"):
            assert len(reader.arrow(name, ["growing"])) == sum(rows.total() for rows in wanted.values())


def test_gold_of_some_clusters_reads_only_files_that_may_hold_them(tmp_path, monkeypatch):
    fleet, tables = Fleet(tmp_path / "in", 4), tmp_path / "tables"
    first, *others = fleet.names
    for name in fleet.names:  # a run a cluster
        kraft.run(no_spark, [fleet.folder / f"{fleet.names.index(name):03}"], tables)
    read = set()
    original = opened.read_files

    def read_files(paths, *arguments, **options):
        read.update(step_of(Path(path).name) for path in paths)
        return original(paths, *arguments, **options)

    monkeypatch.setattr(opened, "read_files", read_files)
    fleet.grow([first])
    kraft.run(no_spark, [fleet.folder], tables)
    assert len(read) == 2  # of the first run, and of this one
    read.clear()
    fleet.grow(others[:1])
    kraft.run(no_spark, [fleet.folder], tables, merge_files=1)
    merged = Tables(None, tables).commit
    assert {len(files) for name, files in merged.files.items() if name in BRONZE or name in SILVER} == {1}
    assert set(merged.clusters.popitem()[1]) == set(fleet.names)
    fleet.grow(others)
    assert kraft.run(no_spark, [fleet.folder], tables).clusters == tuple(sorted(others[1:]))
    whole = tmp_path / "whole"
    kraft.run(no_spark, [fleet.folder], whole)
    assert comparable(counted_rows(tables)) == comparable(counted_rows(whole))


def maker(tables, path):
    """The task that wrote a file of bronze or silver, or the step."""
    return task_of(str(Path(path).relative_to(tables)).partition("/")[2])


def test_gold_of_one_cluster_reads_only_its_own_files_of_a_run_about_many(tmp_path, monkeypatch):
    fleet, tables = Fleet(tmp_path / "in", 4), tmp_path / "tables"
    kraft.run(no_spark, [fleet.folder], tables, options={"range_bytes": "4096"})  # a task for one or two clusters
    read = set()
    original = opened.read_files

    def read_files(paths, *arguments, **options):
        read.update(map(str, paths))
        return original(paths, *arguments, **options)

    monkeypatch.setattr(opened, "read_files", read_files)
    first = fleet.names[0]
    fleet.grow([first])
    kraft.run(no_spark, [fleet.folder], tables)
    whose = {path: set(pq.read_table(path, partitioning=None)["cluster_id"].to_pylist()) for path in read}
    own = {maker(tables, path) for path, clusters in whose.items() if first in clusters}
    assert {maker(tables, path) for path in whose} == own
    assert len({maker(tables, path) for path in (tables / "bronze_records").rglob("*.parquet")} - own) > 1
    whole = tmp_path / "whole"
    kraft.run(no_spark, [fleet.folder], whole)
    assert comparable(counted_rows(tables)) == comparable(counted_rows(whole))


@pytest.mark.parametrize(("content", "error", "words"), [
    (b"not Parquet", CorruptDataError, "not whole Parquet"), (None, StorageError, "a commit names it, and it is gone"),
])  # fmt: skip
def test_a_damaged_file_is_named(tmp_path, content, error, words):
    growing = Growing(tmp_path, 2)
    growing.grow()
    growing.run()
    growing.grow()
    path = growing.tables / "bronze_batches" / next(iter(growing.files()["bronze_batches"]))
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(error, match=words) as told:
        growing.run()
    assert str(path) in (str(told.value) if content else told.value.filename)
