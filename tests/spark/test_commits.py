"""Commits of a local folder without its lock: late writers, readers beside a run, power cuts, two who make one file."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import MagicMock, Mock

import pytest
from golden import GOLDEN
from py4j.protocol import Py4JJavaError
from spark_parts import batches_of, copy_as, counted_rows

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import CorruptDataError, LockedError, StorageError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import folders
from kraftcore.plugins.spark.commits import COMMITS, Commit, Commits, gold_file
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.folders import HadoopFolder, LocalFolder
from kraftcore.plugins.spark.gold_registry import refresh_gold
from kraftcore.plugins.spark.intake import Intake, batch_file, shares_between
from kraftcore.plugins.spark.pipeline import input_options
from kraftcore.plugins.spark.ranges import Tracker
from kraftcore.plugins.spark.source import Settings
from kraftcore.plugins.spark.tables import Tables

SEGMENT = "__cluster_metadata-0/00000000000000000000.log"


def no_spark():
    pytest.fail("so little is done without Spark")


def write(tables, writing):
    """The files of a step that adds to bronze and replaces gold."""
    added = batch_file("bronze_records", writing.number, f"00000-{writing.run}")
    replaced = f"gold_logs/cluster_id=one/{gold_file(writing, 0)}"
    tables.folder.put({added: b"added", replaced: b"replaced"})
    return {name.partition("/")[0]: name.partition("/")[2] for name in (added, replaced)}


def end(tables, writing):
    new, before = write(tables, writing), tables.counted()
    bronze = (*before.files.get("bronze_records", ()), new["bronze_records"])
    files = {"bronze_records": bronze, "gold_logs": (new["gold_logs"],)}
    tables.end(writing, Commit(writing.number, "{}", files))


def step(tables):
    end(tables, tables.begin())


def on_disk(path):
    return {str(file.relative_to(path)) for file in path.rglob("*.parquet")}


def in_commits(path):
    return sorted(file.name for file in (path / COMMITS).iterdir())


@pytest.fixture
def made(tmp_path):
    """A folder of tables with one commit, and a writer that knows it."""
    path = tmp_path / "tables"
    step(Tables(None, path))
    late = Tables(None, path)
    assert late.counted().number == 0
    return path, late


@pytest.mark.parametrize("between", [1, 2, 3, 20])
@pytest.mark.parametrize("has_begun", [False, True], ids=["idle", "at work"])
def test_a_late_writer_is_refused_however_many_commits_it_missed(made, between, has_begun):
    path, late = made
    writing = late.begin() if has_begun else None
    for _ in range(between):
        other = Tables(None, path)
        step(other)
        other.remove_leftovers()
    before = on_disk(path)
    with pytest.raises(LockedError, match="_commits/1: another run wrote these tables meanwhile"):
        end(late, writing) if writing else late.begin()
    assert on_disk(path) == before
    assert Tables(None, path).counted() == other.counted()
    assert other.counted().names() <= before
    assert in_commits(path) == sorted(map(str, (between - 1, between)))
    step(Tables(None, path))
    assert in_commits(path) == sorted(map(str, (between, between + 1)))


def test_a_refused_run_leaves_the_tables_as_the_others_made_them(tmp_path):
    node, path = copy_as(GOLDEN / "static" / "c3", tmp_path / "in" / "c3", "one"), tmp_path / "tables"
    data = (node / SEGMENT).read_bytes()
    cuts = [spot.position for spot in batches_of(data)][-3:]
    (node / SEGMENT).write_bytes(data[: cuts[0]])
    kraft.run(no_spark, [node], path)
    late = Tables(no_spark, path)
    late.__dict__["commit"] = Commit(late.counted().number, "{}", late.counted().files, ("one",))
    for cut in (*cuts[1:], len(data)):
        (node / SEGMENT).write_bytes(data[:cut])
        before = Tables(None, path).counted()
        kraft.run(no_spark, [node], path)
        assert before.names() <= on_disk(path)
    wanted = counted_rows(path)
    with pytest.raises(LockedError):
        refresh_gold(late, str)
    assert counted_rows(path) == wanted
    assert kraft.run(no_spark, [node], path).clusters == ()
    assert counted_rows(path) == wanted


@pytest.mark.parametrize("after", [0, 1, 5])
def test_a_step_that_others_went_on_from_counts(made, monkeypatch, after):
    path, mine = made
    create = LocalFolder.create

    def slow(folder, name, data):
        assert create(folder, name, data)
        monkeypatch.setattr(LocalFolder, "create", create)
        for _ in range(after):
            step(Tables(None, path))
        return create(folder, name, data) if not after else True

    monkeypatch.setattr(LocalFolder, "create", slow)
    step(mine)
    assert mine.counted().number == 1
    last = Tables(None, path).counted()
    assert set(mine.counted().files["bronze_records"]) <= set(last.files["bronze_records"])
    assert last.names() <= on_disk(path)
    assert len(in_commits(path)) == 2


@pytest.mark.parametrize("change", [lambda file: file.unlink(), lambda file: file.write_bytes(b"add")])
def test_a_step_whose_files_are_not_whole_does_not_count(made, change):
    path, writer = made
    writing = writer.begin()
    file = batch_file("bronze_records", writing.number, f"00000-{writing.run}")
    writer.folder.put({file: b"added"})
    change(path / file)
    commit = Commit(writing.number, "{}", {"bronze_records": (file.partition("/")[2],)})
    with pytest.raises(StorageError, match="not here, or not whole"):
        writer.end(writing, commit, {file: 5})
    assert Tables(None, path).counted().number == 0
    writer.folder.put({file: b"added"})
    writer.end(writing, commit, {file: 5})
    assert Tables(None, path).counted().number == 1


def test_an_attempt_at_a_task_writes_files_of_its_own(made):
    path, writer = made
    node = GOLDEN / "static" / "c3"
    files = Settings(input_options([node], "drop", None)).files()
    (share,) = shares_between({}, Tracker().advance({}, files), files, 1 << 30)
    before, writing = on_disk(path), writer.begin()
    work = Intake(str(path), writing.number, writing.run, Filters(), "drop")
    given_up, counts = work(share).files, work(share).files
    assert len(counts) == len(given_up) > 3
    assert not given_up.keys() & counts.keys()
    assert on_disk(path) == before | given_up.keys() | counts.keys()
    assert [(path / name).stat().st_size for name in counts] == list(counts.values())
    left = f"gold_logs/cluster_id=one/{gold_file(writing, 0)}"
    writer.folder.put({left: b"given up"})
    named = {name.partition("/")[0]: (name.partition("/")[2],) for name in counts}
    named["bronze_records"] = (*writer.counted().files["bronze_records"], *named["bronze_records"])
    commit = Commit(writing.number, "{}", {**writer.counted().files, **named})
    writer.end(writing, commit, counts, by_workers=True)
    assert given_up.keys() <= on_disk(path)
    writer.remove_leftovers()
    assert on_disk(path) == before | counts.keys()
    assert in_commits(path) == ["0", "1"]


def test_what_a_commit_replaces_stays_until_the_next_one(made):
    path, reader = made
    writer = Tables(None, path)
    killed = Tables(None, path).begin()
    write(reader, killed)
    step(writer)
    writer.remove_leftovers()
    assert on_disk(path) == reader.counted().names() | writer.counted().names()
    assert in_commits(path) == ["0", "1"]
    step(writer)
    assert not reader.counted().names() <= on_disk(path)
    assert len(on_disk(path)) == 3 + 2  # of bronze all, of gold those of the last two


def test_what_a_killed_writer_did_not_come_to_remove_is_removed(made, monkeypatch):
    path, writer = made
    delete = LocalFolder.delete

    def killed(folder, name):
        if name.startswith("gold_logs/"):
            raise KeyboardInterrupt
        delete(folder, name)

    step(writer)
    monkeypatch.setattr(LocalFolder, "delete", killed)
    with pytest.raises(KeyboardInterrupt):
        step(writer)
    monkeypatch.setattr(LocalFolder, "delete", delete)
    (path / COMMITS / "_2-0123456789ab").touch()
    (path / COMMITS / "_3-0123456789ab").touch()  # of one at work
    Tables(None, path).remove_leftovers()
    assert in_commits(path) == ["1", "2", "_3-0123456789ab"]
    assert len(on_disk(path)) == 3 + 2


def test_leftovers_are_told_by_the_commits_that_are_there_now(made):
    path, idle = made
    writer = Tables(None, path)
    for _ in range(3):
        write(writer, Tables(None, path).begin())
        step(writer)
    idle.remove_leftovers()
    assert len(on_disk(path)) == 4 + 2
    assert in_commits(path) == ["2", "3"]


def test_a_commit_that_is_removed_while_it_is_looked_for_is_not_the_last(made, monkeypatch):
    path, _ = made
    read = LocalFolder.read

    def late(folder, name):
        monkeypatch.setattr(LocalFolder, "read", read)
        for _ in range(2):
            step(Tables(None, path))
        return read(folder, name)

    monkeypatch.setattr(LocalFolder, "read", late)
    assert Commits(LocalFolder(str(path))).last().number == 2


class NotFound(Py4JJavaError):
    """As py4j tells of Java's exception."""

    def __init__(self):
        self.java_exception = Mock()
        self.java_exception.getClass.return_value.getName.return_value = "java.io.FileNotFoundException"
        self.java_exception.toString.return_value = "java.io.FileNotFoundException: Permission denied"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_file_that_cannot_be_opened_is_none_if_it_is_gone(is_there):
    system = Mock()
    system.exists.return_value = is_there
    system.open.side_effect = NotFound()
    session = MagicMock(**{"_jvm.org.apache.hadoop.fs.Path.return_value.getFileSystem.return_value": system})
    folder = HadoopFolder(session, "s3a://tables")
    if is_there:
        with pytest.raises(StorageError, match="Permission denied"):
            folder.read("_commits/0")
    else:
        assert folder.read("_commits/0") is None


def test_a_last_commit_that_nobody_can_read_is_damage(made):
    path, _ = made
    (path / COMMITS / "1").touch()
    with pytest.raises(CorruptDataError, match="not what a run writes"):
        Tables(None, path).counted()


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


def test_all_that_a_commit_names_is_synced_before_it_and_then_its_name(tmp_path, monkeypatch):
    path, link, commits = tmp_path / "tables", os.link, []
    synced = Synced(path)

    def commit(begun, place):
        commits.append((os.path.relpath(begun, path), place.name, set(synced.names)))
        synced.names.clear()
        link(begun, place)

    monkeypatch.setattr(folders, "OsFiles", synced.files(), raising=False)
    monkeypatch.setattr(os, "link", commit)
    delete = LocalFolder.delete

    def after(folder, name):
        assert not commits or name.startswith(f"{COMMITS}/_") or COMMITS in synced.names
        delete(folder, name)

    monkeypatch.setattr(LocalFolder, "delete", after)
    kraft.run(no_spark, [GOLDEN / "static" / "c3"], path)
    assert [name for _, name, _ in commits] == ["0", "1"]
    named, seen = Tables(None, path).counted().names(), set()
    for begun, _, names in commits:
        assert {begun, COMMITS, "."} <= names
        seen |= names
    parents = {os.path.dirname(name) for name in named}
    assert named | parents | {os.path.dirname(name) or "." for name in parents} <= seen
    assert any(name.startswith("_commits/_begun-0") for name in seen)


def test_of_many_who_make_one_file_one_does(tmp_path):
    folder, many = LocalFolder(str(tmp_path)), 8
    together = threading.Barrier(many)

    def create(data):
        together.wait()
        return data if folder.create(name, data) else None

    with ThreadPoolExecutor(many) as pool:
        for name in map(str, range(30)):
            (made,) = {*pool.map(create, [bytes([65 + one]) * 9999 for one in range(many)])} - {None}
            assert folder.read(name) == made
    assert sorted(folder.files(""), key=int) == list(map(str, range(30)))


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_files_are_made_once_where_there_are_no_links(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    folder = LocalFolder(str(tmp_path))
    assert folder.create("0", b"one")
    assert not folder.create("0", b"other")
    assert (folder.read("0"), folder.files("")) == (b"one", ["0"])


def test_a_file_that_cannot_be_made_leaves_nothing(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "link", fail)
    folder = LocalFolder(str(tmp_path))
    with pytest.raises(StorageError, match="No space left"):
        folder.create("0", b"one")
    assert folder.files("") == []
