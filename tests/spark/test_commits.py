"""Commits of a local folder without its lock: late writers, killed writers, readers beside a run, power cuts."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

import pytest
from deltalake import DeltaTable
from golden import GOLDEN
from spark_parts import batches_of, copy_as, counted_rows

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import CorruptDataError, LocalError, LockedError, StorageError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import commits, delta, folders
from kraftcore.plugins.spark.commits import RUNS, Commits, gold_file, step_file
from kraftcore.plugins.spark.delta import APPLICATION, File, TableLog
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.folders import LocalFolder
from kraftcore.plugins.spark.gold_registry import refresh_gold
from kraftcore.plugins.spark.intake import Intake, shares_between
from kraftcore.plugins.spark.pipeline import input_options
from kraftcore.plugins.spark.ranges import Tracker
from kraftcore.plugins.spark.source import Settings
from kraftcore.plugins.spark.tables import Tables, columns_of, fed_columns, gold_mark
from kraftcore.plugins.spark.views import view_schema

SEGMENT = "__cluster_metadata-0/00000000000000000000.log"
GOLD = {"gold_logs": columns_of(view_schema("files"))}


class Killed(BaseException):
    """In place of a signal, which would end the tests, too."""


def no_spark():
    pytest.fail("so little is done without Spark")


def next_commit(tables, writing):
    """A step that adds a file to bronze and replaces gold's, with the files on the disk."""
    added, replaced = step_file(writing, 0), gold_file(writing, gold_mark("one"), 0)
    tables.folder.put({f"bronze_records/{added}": b"added", f"gold_logs/{replaced}": b"replaced"})
    bronze = {**tables.commit.files.get("bronze_records", {}), added: File(5, 1)}
    columns = {"bronze_records": fed_columns()["bronze_records"], **GOLD}
    return replace(
        tables.commit, files={"bronze_records": bronze, "gold_logs": {replaced: File(8, 1)}}, columns=columns
    )


def step(tables):
    tables.forget()
    writing = tables.begin()
    tables.end(writing, next_commit(tables, writing))


def last(path):
    return Tables(None, path).commit


def on_disk(path):
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet") if "_delta_log" not in str(file)}


def in_logs(path):
    """What any reader of Delta finds."""
    tables = ("bronze_records", "gold_logs")
    return {f"{name}/{os.path.basename(file)}" for name in tables for file in DeltaTable(path / name).file_uris()}


@pytest.fixture
def made(tmp_path):
    """A folder of tables with one commit, and a writer that knows it."""
    path = tmp_path / "tables"
    step(Tables(None, path))
    late = Tables(None, path)
    assert late.commit.number == 0
    return path, late


@pytest.mark.parametrize("between", [1, 2, 20])
@pytest.mark.parametrize("has_begun", [False, True], ids=["idle", "at work"])
def test_a_late_writer_is_refused_however_many_commits_it_missed(made, between, has_begun):
    path, late = made
    writing = late.begin() if has_begun else None
    for _ in range(between):
        step(Tables(None, path))
    before, wanted = on_disk(path), last(path)
    with pytest.raises(LockedError, match=r"kraftcore_runs: another run wrote these tables meanwhile \(step 1\)"):
        late.end(writing, next_commit(late, writing)) if writing else late.begin()
    assert on_disk(path) == before
    assert last(path) == wanted
    assert in_logs(path) == wanted.names()
    step(Tables(None, path))
    assert last(path).number == between + 1


def test_of_two_writers_that_commit_at_once_one_is_refused(made, monkeypatch):
    path, mine = made
    add, seen = TableLog.add, []

    def slow(log, *arguments):
        monkeypatch.setattr(TableLog, "add", add)
        step(Tables(None, path))  # after this writer has looked at the log
        seen.append(last(path))
        return add(log, *arguments)

    monkeypatch.setattr(TableLog, "add", slow)
    with pytest.raises(LockedError):
        step(mine)
    assert [last(path)] == seen
    assert in_logs(path) == seen[0].names()
    replaced = {name for name in on_disk(path) if name.startswith("gold_logs/")} - seen[0].names()
    assert len(replaced) == 1, "of the first step; the refused one left no file"
    assert sum(name.startswith(RUNS) for name in on_disk(path)) == 2


def test_a_commit_whose_answer_got_lost_is_ones_own(made, monkeypatch):
    path, mine = made
    add = TableLog.add
    monkeypatch.setattr(TableLog, "add", lambda *arguments: add(*arguments) and False)
    step(mine)
    assert last(path).number == 1
    assert in_logs(path) == last(path).names()


def test_a_refused_run_leaves_the_tables_as_the_others_made_them(tmp_path):
    node, path = copy_as(GOLDEN / "static" / "c3", tmp_path / "in" / "c3", "one"), tmp_path / "tables"
    data = (node / SEGMENT).read_bytes()
    cuts = [spot.position for spot in batches_of(data)][-3:]
    (node / SEGMENT).write_bytes(data[: cuts[0]])
    kraft.run(no_spark, [node], path)
    late = Tables(no_spark, path)
    late.__dict__["commit"] = replace(late.commit, stale=("one",))
    for cut in (*cuts[1:], len(data)):
        (node / SEGMENT).write_bytes(data[:cut])
        before = last(path)
        kraft.run(no_spark, [node], path)
        assert before.names() <= on_disk(path)
    wanted = counted_rows(path)
    with pytest.raises(LockedError):
        refresh_gold(late, str)
    assert counted_rows(path) == wanted
    assert kraft.run(no_spark, [node], path).clusters == ()
    assert counted_rows(path) == wanted


@pytest.mark.parametrize("change", [lambda file: file.unlink(), lambda file: file.write_bytes(b"add")])
def test_a_step_whose_files_are_not_whole_does_not_count(made, change):
    path, writer = made
    writing = writer.begin()
    commit = next_commit(writer, writing)
    (name,) = [name for name in commit.files["bronze_records"] if writing.run in name]
    change(path / "bronze_records" / name)
    with pytest.raises(StorageError, match="not here, or not whole"):
        writer.end(writing, commit)
    assert last(path).number == 0
    writer.folder.put({f"bronze_records/{name}": b"added"})
    writer.end(writing, commit)
    assert last(path).number == 1


def test_an_attempt_at_a_task_writes_files_of_its_own(made):
    path, writer = made
    node = GOLDEN / "static" / "c3"
    files = Settings(input_options([node], "drop", None)).files()
    (share,) = shares_between({}, Tracker().advance({}, files), files, 1 << 30)
    before, writing = on_disk(path), writer.begin()
    work = Intake(str(path), writing, Filters(), "drop")
    given_up, counts = work(share).files, work(share).files
    assert len(counts) == len(given_up) > 3
    assert not given_up.keys() & counts.keys()
    assert on_disk(path) == before | given_up.keys() | counts.keys()
    assert {name: (path / name).stat().st_size for name in counts} == {name: file.size for name, file in counts.items()}


@pytest.mark.parametrize("at", range(5))
def test_a_writer_that_is_killed_between_two_logs_leaves_the_rest_to_the_next(made, monkeypatch, at):
    path, writer = made
    before, commit, done = last(path), TableLog.commit, []

    def killed(log, *arguments):
        done.append(log)
        if len(done) > at:
            raise Killed
        made = commit(log, *arguments)
        assert made
        return made

    monkeypatch.setattr(commits, "at_once", lambda action, what: [action(one) for one in what])
    monkeypatch.setattr(TableLog, "commit", killed)
    if at < 3:  # the row, and two tables
        with pytest.raises(Killed):
            step(writer)
    else:
        step(writer)
    monkeypatch.undo()
    assert last(path).number == (0 if at == 0 else 1)
    if at == 0:
        assert last(path) == before
    elif at < 3:
        assert in_logs(path) != last(path).names()
    Tables(None, path).settle()
    assert in_logs(path) == last(path).names()
    versions = {name: DeltaTable(path / name).version() for name in ("bronze_records", "gold_logs")}
    Tables(None, path).settle()
    assert versions == {name: DeltaTable(path / name).version() for name in versions}
    for name in versions:
        assert DeltaTable(path / name).transaction_version(APPLICATION) == last(path).number
    step(Tables(None, path))
    assert in_logs(path) == last(path).names()


def test_whoever_brings_logs_to_an_old_commit_changes_nothing(made):
    path, idle = made
    old = idle.commit
    step(Tables(None, path))
    Commits(idle.folder).publish(old)
    assert in_logs(path) == last(path).names()


def test_a_log_that_somebody_else_changed_is_brought_back(made):
    path, writer = made
    table = DeltaTable(path / "gold_logs")
    name = os.path.basename(table.file_uris()[0])
    assert TableLog(str(path / "gold_logs")).drop(0, [name])
    assert DeltaTable(path / "gold_logs").file_uris() == []
    step(writer)
    assert in_logs(path) == last(path).names()


def test_the_columns_of_a_later_version_are_added(made):
    path, writer = made
    writing = writer.begin()
    commit = next_commit(writer, writing)
    more = columns_of(view_schema("files").append(view_schema("batches").field("crc")))
    writer.end(writing, replace(commit, columns={**commit.columns, "gold_logs": more}))
    assert "crc" in [field.name for field in DeltaTable(path / "gold_logs").schema().fields]
    assert in_logs(path) == last(path).names()


def test_what_is_cleaned_up_is_what_no_kept_state_has(made):
    path, _ = made
    killed = Tables(None, path)
    next_commit(killed, killed.begin())
    for _ in range(3):
        step(Tables(None, path))
    everything = on_disk(path)
    assert Tables(None, path).clean(hours=1) == 0
    assert on_disk(path) == everything
    assert Tables(None, path).clean(hours=0) == 3
    rows = {name for name in on_disk(path) if name.startswith(f"{RUNS}/")}
    assert on_disk(path) - rows == last(path).names()
    assert len(rows) == 1
    assert in_logs(path) == last(path).names()
    assert Tables(None, path).clean(hours=0) == 0
    step(Tables(None, path))
    assert in_logs(path) == last(path).names()


def test_a_moment_has_the_state_of_the_last_commit_before_it(made, monkeypatch):
    path, _ = made
    begin = commits.now()
    states = [last(path)]
    for hours in (1, 2, 3):
        monkeypatch.setattr(commits, "now", lambda hours=hours: begin + timedelta(hours=hours))
        step(Tables(None, path))
        states.append(last(path))
    monkeypatch.undo()
    for hours, state in enumerate(states):
        found = Tables(None, path, at=begin + timedelta(hours=hours, minutes=30))
        assert found.commit == state
        assert [os.path.basename(file) for file in found.files("gold_logs")] == list(state.files["gold_logs"])
    with pytest.raises(LocalError, match="no state of .* is known: the first one that is kept was made at"):
        Tables(None, path, at=begin - timedelta(days=1)).commit  # noqa: B018


def test_steps_are_in_order_though_the_clock_goes_back(made, monkeypatch):
    path, _ = made
    monkeypatch.setattr(commits, "now", lambda: last(path).time - timedelta(days=1))
    before = last(path).time
    step(Tables(None, path))
    assert last(path).time > before


def test_a_row_that_is_cleaned_up_while_it_is_looked_for_is_not_the_last(made, monkeypatch):
    path, _ = made
    read = LocalFolder.read

    def late(folder, name):
        monkeypatch.setattr(LocalFolder, "read", read)
        step(Tables(None, path))
        Tables(None, path).clean(hours=0)
        return read(folder, name)

    monkeypatch.setattr(LocalFolder, "read", late)
    assert Commits(LocalFolder(str(path))).last().number == 1


def test_a_last_commit_that_nobody_can_read_is_damage(made):
    path, _ = made
    (row,) = (path / RUNS).glob("*.parquet")
    row.write_bytes(b"")
    with pytest.raises(CorruptDataError, match="not what a run writes") as told:
        Tables(None, path).commit  # noqa: B018
    assert row.name in str(told.value)


class Synced:
    """What is synced, in place of ``OsFiles``."""

    def __init__(self, root):
        self.root, self.names = root, []

    def note(self, path):
        self.names.append(os.path.relpath(path, self.root))

    def files(self):
        synced, whole = self, OsFiles()

        class Files(OsFiles):
            def open(self, path, **how):
                return File(whole.open(path, **how))

            def sync_folder(self, path):
                synced.note(path)
                whole.sync_folder(path)

        class File:
            def __init__(self, file):
                self.file, self.write_at, self.size = file, file.write_at, file.size

            def sync(self):
                self.file.sync()
                synced.note(self.file.path)

            def __enter__(self):
                return self

            def __exit__(self, *error):
                self.file.close()

        return Files


def test_all_that_a_commit_names_is_synced_before_it_and_then_its_logs(tmp_path, monkeypatch):
    path, synced, rows = tmp_path / "tables", Synced(tmp_path / "tables"), []
    add = TableLog.add

    def commit(log, *arguments):
        rows.append(set(synced.names))
        return add(log, *arguments)

    monkeypatch.setattr(folders, "OsFiles", synced.files())
    monkeypatch.setattr(delta, "OsFiles", synced.files())
    monkeypatch.setattr(TableLog, "add", commit)
    kraft.run(no_spark, [GOLDEN / "static" / "c3"], path)
    assert len(rows) == 2
    named = last(path).names()
    assert named <= rows[1]
    assert {name for name in named if not name.startswith("gold_")} <= rows[0]
    assert {os.path.dirname(name) for name in named} <= rows[1]
    logs = {str(file.relative_to(path)) for file in path.glob("*/_delta_log/*.json")}
    assert logs <= set(synced.names)
    assert {os.path.dirname(name) for name in logs} <= set(synced.names)
    assert f"{RUNS}/_delta_log" in rows[1], "the row before was on the disk"
