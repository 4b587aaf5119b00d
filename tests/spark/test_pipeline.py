"""Runs over growing, torn, overridden and killed input: nothing is lost, nothing counts twice."""

from __future__ import annotations

import errno
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from golden import GOLDEN
from metadata_replay import printed_log, replay
from pyspark.errors import PySparkException
from spark_parts import LIMIT_S, batches_of, copy_as, counted_rows

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import CorruptDataError, LocalError, LockedError, MissingDependencyError, StorageError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import gold_registry
from kraftcore.plugins.spark.folders import LocalFolder
from kraftcore.plugins.spark.tables import Tables
from kraftcore.plugins.spark.work import tried, worker_error
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.storage.lock import lock_folders

NODE = GOLDEN / "static" / "c3"
SEGMENT = "__cluster_metadata-0/00000000000000000000.log"


def offsets(session, tables, name="bronze_records"):
    rows = Tables(session, tables).read(name).where("source = 'log'").select("node_id", "offset").collect()
    return [tuple(row) for row in rows]


@pytest.fixture(autouse=True)
def some_gold(monkeypatch):
    # What gold says is tested elsewhere; most of a small run's time is spent planning it.
    some = ("gold_leadership", "gold_logs", "gold_divergence", "gold_config_history")
    monkeypatch.setattr(gold_registry, "GOLD", {name: gold_registry.GOLD[name] for name in some})


@pytest.fixture
def growing(tmp_path):
    """A node whose log ends in the middle of a batch, and the rest of it."""
    node = copy_as(NODE, tmp_path / "in" / "c3", "growing")
    path = node / SEGMENT
    data = path.read_bytes()
    spots = batches_of(data)
    cut = spots[len(spots) // 2]
    path.write_bytes(data[: cut.position + cut.size // 2])
    return node, data, cut


def test_a_log_is_cut_and_is_overridden(session, growing, tmp_path):
    node, data, _ = growing
    path, tables = node / SEGMENT, tmp_path / "tables"
    states = replay(printed_log(NODE))

    path.write_bytes(data)
    end = batches_of(data)[-1].last_offset + 1
    result = kraft.run(session, [tmp_path / "in"], tables)
    assert result.clusters == ("growing",)
    assert sorted(offsets(session, tables)) == [(3, offset) for offset in range(end)]
    assert leader(session, tables) == states[end - 1].leader
    assert config_values(session, tables) == states[end - 1].configs

    again = kraft.run(session, [tmp_path / "in"], tables)
    assert again.clusters == ()
    assert set(again.rows.values()) == {0}

    # The tail was never committed: it is cut off, then another leader's records take its place.
    kept = next(spot for spot in batches_of(data) if spot.base_offset >= end - 6)
    path.write_bytes(data[: kept.position])
    kraft.run(session, [tmp_path / "in"], tables)
    assert log_end(session, tables) == kept.base_offset
    assert config_values(session, tables) == states[kept.base_offset - 1].configs

    late_config = encode_metadata_record(
        ConfigRecord(resource_type=2, resource_name="late", name="retention.ms", value="1"), 0
    )
    late = build_batch([late_config], timestamp_ms=1, base_offset=kept.base_offset, leader_epoch=99)
    path.write_bytes(data[: kept.position] + bytes(late))
    kraft.run(session, [tmp_path / "in"], tables)
    assert log_end(session, tables) == kept.base_offset + 1
    assert config_values(session, tables) == states[kept.base_offset - 1].configs | {(2, "late", "retention.ms"): "1"}


def leader(session, tables):
    rows = Tables(session, tables).read("gold_leadership").where("status <> 'truncated'").collect()
    return max((row.epoch, row.leader_id) for row in rows)


def config_values(session, tables):
    rows = Tables(session, tables).read("gold_config_history").where("to_offset is null").collect()
    return {(row.resource_type, row.resource_name, row.name): row.value for row in rows}


def log_end(session, tables):
    (row,) = Tables(session, tables).read("gold_logs").collect()
    return row.end_offset


def test_replicas_that_differ_are_told_and_forgotten_once_they_agree(session, tmp_path):
    inputs, tables = tmp_path / "in", tmp_path / "tables"
    for name in ("c1", "c2", "c3"):
        copy_as(GOLDEN / "static" / name, inputs / name, "differ")
    path = inputs / "c1" / SEGMENT
    data = bytearray(path.read_bytes())
    spot = batches_of(data)[20]
    odd = bytearray(build_batch([b"\x01\x14\x00\x00"] * (spot.last_offset - spot.base_offset + 1), timestamp_ms=7,
                                base_offset=spot.base_offset, leader_epoch=spot.epoch))  # fmt: skip
    path.write_bytes(data[: spot.position] + odd + data[spot.position + spot.size :])
    kraft.run(session, [inputs], tables)
    rows = Tables(session, tables).read("gold_divergence").collect()
    assert {(row.offset, row.node_id_a, row.node_id_b) for row in rows} <= {
        (spot.base_offset, a, b) for a, b in ((1, 2), (2, 1), (1, 3), (3, 1))
    }
    assert len(rows) == 2
    assert all(row.is_below_committed and row.crc_a != row.crc_b for row in rows)

    path.write_bytes(data)
    kraft.run(session, [inputs], tables)
    assert Tables(session, tables).read("gold_divergence").collect() == []


def test_damage_fails_a_run_that_is_told_so_and_is_listed_by_one_that_is_not(session, growing, tmp_path):
    node, data, cut = growing
    spoiled = bytearray(data)
    spoiled[cut.position + cut.size - 2] ^= 4
    (node / SEGMENT).write_bytes(spoiled)
    with pytest.raises(CorruptDataError, match=f"byte {cut.position}"):
        kraft.run(session, [tmp_path / "in"], tmp_path / "strict", errors="fail")
    kraft.run(session, [tmp_path / "in"], tmp_path / "tables")
    (error,) = Tables(session, tmp_path / "tables").read("errors").collect()
    assert (error.kind, error.position, error.size) == ("batch", cut.position, cut.size)
    everything = set(range(batches_of(data)[-1].last_offset + 1))
    lost = set(range(cut.base_offset, cut.last_offset + 1))
    assert {offset for _, offset in offsets(session, tmp_path / "tables")} == everything - lost


def test_a_killed_run_is_taken_up_where_it_stood(session, tmp_path):
    inputs, tables = GOLDEN / "dynamic", tmp_path / "tables"
    # At the end of a micro-batch: its files are there, and no commit names them.
    code = f"""
import os, signal
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.commits import Commits
add = Commits.add
def add_or_end(commits, writing, commit):
    if commit.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return add(commits, writing, commit)
Commits.add = add_or_end
options = {{"max_bytes_per_trigger": "49152"}}
kraft.run(lambda: None, [{str(inputs)!r}], {str(tables)!r}, options=options)
"""
    child = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, timeout=LIMIT_S, check=False)
    assert child.returncode == -signal.SIGKILL
    assert list((tables / "bronze_records").glob("batch=1/part-*.parquet"))
    assert [path.name for path in (tables / "_commits").iterdir() if path.name.isdecimal()] == ["0"]
    before = kraft.query(session, tables, "SELECT count(*) AS rows FROM bronze_records").collect()[0].rows
    kraft.run(session, [inputs], tables)
    expected = {(int(node.name[1:]), one.offset) for node in inputs.glob("c?") for one in printed_log(node)}
    found = offsets(session, tables)
    assert len(found) == len(expected) > before > 0  # what no commit names was not to be seen
    assert set(found) == expected
    typed = [row for row in offsets(session, tables, "silver_partition_change") if row[0] == 1]
    printed = [(1, one.offset) for one in printed_log(inputs / "c1") if one.type == "PARTITION_CHANGE_RECORD"]
    assert sorted(typed) == printed
    led = {
        (one.epoch, one.data["leaderId"])
        for node in inputs.glob("c?")
        for one in printed_log(node)
        if one.type == "LEADER_CHANGE"
    }
    rows = kraft.query(session, tables, "SELECT epoch, leader_id FROM gold_leadership").collect()
    assert sorted(tuple(row) for row in rows) == sorted(led)


@pytest.mark.deep
def test_following_takes_in_what_is_appended(session, growing, tmp_path):
    node, data, cut = growing
    tables = tmp_path / "tables"
    end = batches_of(data)[-1].last_offset + 1
    stop = threading.Event()
    failed: list[BaseException] = []

    def follow():
        try:
            kraft.follow(session, [tmp_path / "in"], tables, every_s=0.3, stop=stop)
        except BaseException as error:
            failed.append(error)

    def there(name):
        try:
            return Tables(session, tables).read(name).collect()
        except Exception:  # being replaced
            return []

    def ends():
        return [row.end_offset for row in there("gold_logs")]

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        wait_for(lambda: ends() == [cut.base_offset] and there("errors"), failed)
        (node / SEGMENT).write_bytes(data)
        wait_for(lambda: ends() == [end] and sum(row.source == "log" for row in there("bronze_records")) == end, failed)
    finally:
        stop.set()
        thread.join()
    assert not failed
    (torn,) = there("errors")
    assert (torn.kind, torn.position) == ("torn", cut.position)
    assert sorted(offsets(session, tables)) == [(3, offset) for offset in range(end)]
    state = replay(printed_log(NODE))[end - 1]
    assert leader(session, tables) == state.leader
    assert config_values(session, tables) == state.configs


def wait_for(condition, failed):
    limit = time.monotonic() + LIMIT_S
    while not condition():
        assert not failed
        assert time.monotonic() < limit
        time.sleep(0.1)


class Killed(BaseException):
    """In place of a signal, which would end the tests, too."""


class Steps:
    """What a run does on the disk, step by step; before the step ``last`` it is killed."""

    def __init__(self):
        self.made = 0
        self.last = None

    def count_from_here(self, last=None):
        self.made, self.last = 0, last

    def before(self, original):
        def step(folder, *arguments):
            if self.made == self.last:
                raise Killed
            self.made += 1
            return original(folder, *arguments)

        return step


@pytest.fixture
def steps(monkeypatch):
    found = Steps()
    for name in ("begun", "write", "create", "sync", "delete"):
        monkeypatch.setattr(LocalFolder, name, found.before(getattr(LocalFolder, name)))
    return found


@pytest.mark.deep
def test_a_run_may_be_killed_at_any_step(growing, steps, tmp_path):
    node, data, cut = growing

    def take(tables, content):
        (node / SEGMENT).write_bytes(content)
        kraft.run(no_spark, [tmp_path / "in"], tables)

    take(tmp_path / "whole", data[: cut.position])
    steps.count_from_here()
    take(tmp_path / "whole", data)
    total, expected = steps.made, contents(tmp_path / "whole")
    assert total > 15
    for last in range(0, total, 2):
        tables = tmp_path / f"killed-{last}"
        steps.count_from_here()
        take(tables, data[: cut.position])
        steps.count_from_here(last)
        with pytest.raises(Killed):
            take(tables, data)
        steps.count_from_here()
        take(tables, data)
        assert contents(tables) == expected, f"killed before step {last} of {total}"


def no_spark():
    pytest.fail("so little is done without Spark")


def contents(tables):
    """All rows of all files of all tables, in no order: those, too, that the commit before the last one names."""
    return {
        folder.name: Counter(map(repr, rows))
        for folder in tables.iterdir()
        if folder.is_dir() and not folder.name.startswith("_") and (rows := rows_of(folder))
    }


def counted(tables, name):
    """Rows of a table that the last commit counts, in no order."""
    return Counter(map(repr, counted_rows(tables)[name]))


def rows_of(folder):
    files = [str(file) for file in folder.rglob("*.parquet") if not file.name.startswith("_")]
    if not files:
        return []
    return ds.dataset(files, partitioning="hive", partition_base_dir=str(folder)).to_table().to_pylist()


def test_a_job_is_given_up_when_workers_are_slow_again_and_again():
    tries = []

    def job(*errors):
        def one():
            tries.append(len(tries))
            if len(tries) <= len(errors):
                raise errors[len(tries) - 1]
            return "done"

        tries.clear()
        return one

    slow, other = PySparkException("Python worker failed to connect back."), PySparkException("disk full")
    assert tried(job(slow, slow)) == "done"
    for errors, words in (((slow, slow, slow), "connect back"), ((slow, other), "disk full")):
        with pytest.raises(PySparkException, match=words):
            tried(job(*errors))
        assert len(tries) == len(errors)


@pytest.mark.parametrize(
    "error",
    [
        StorageError(errno.EIO, "Input/output error", "/backup/it's here/00000000000000000000.log"),
        StorageError(errno.EACCES, "Permission denied", "/backup/c1"),
        CorruptDataError("checksum differs", position=61, path="/backup/c1/00000000000000000000.log"),
        LocalError("/backup/absent: there is no such file or folder"),
        MissingDependencyError("zstd batches need zstandard"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_in_a_worker_is_the_same_error_here(error):
    lines = "".join(traceback.format_exception(error))
    found = worker_error(RuntimeError(f"[PYTHON_DATA_SOURCE_ERROR] Failed to plan:\n{lines}\n\tat org.apache.spark"))
    assert (type(found), str(found)) == (type(error), str(error))
    if isinstance(error, StorageError):
        assert (found.errno, found.filename) == (error.errno, error.filename)


@pytest.fixture
def mounted(session, tmp_path):
    """A file system that pyarrow does not know and Hadoop does."""
    settings = session.sparkContext._jsc.hadoopConfiguration()
    settings.set("fs.viewfs.mounttable.backup.link./data", f"file://{tmp_path}")
    yield "viewfs://backup/data"
    settings.unset("fs.viewfs.mounttable.backup.link./data")


@pytest.mark.deep
def test_tables_may_lie_where_only_spark_reaches(session, growing, mounted, tmp_path):
    node, data, _ = growing
    tables = f"{mounted}/tables"
    (node / SEGMENT).write_bytes(data)
    end = batches_of(data)[-1].last_offset + 1
    result = kraft.run(session, [tmp_path / "in"], tables)
    assert result.clusters == ("growing",)
    assert sorted(offsets(session, tables)) == [(3, offset) for offset in range(end)]
    kept = batches_of(data)[-3]
    (node / SEGMENT).write_bytes(data[: kept.position])
    kraft.run(session, [tmp_path / "in"], tables)
    assert log_end(session, tables) == kept.base_offset
    folder = Tables(session, tables).folder
    assert folder.files("_commits")
    assert Tables(session, tables).counted() == Tables(session, tmp_path / "tables").counted()
    assert Tables(session, tables).counted().number == 3  # a micro-batch and gold, twice
    names = set(folder.files("gold_divergence"))
    assert names == set(Tables(session, tmp_path / "tables").folder.files("gold_divergence"))
    for name in names:
        folder.delete(f"gold_divergence/{name}")
    assert not list((tmp_path / "tables/gold_divergence").glob("**/*.parquet"))


def test_tables_where_spark_has_no_file_system_are_refused(session):
    for path in ("nosuch://place/tables", "abfss://box@account.invalid/tables"):
        with pytest.raises(LocalError, match=f"{path}: Spark has no file system for it"):
            kraft.run(session, [NODE], path)


def test_what_a_run_refuses(session, tmp_path):
    with pytest.raises(LocalError, match="no such file or folder"):
        kraft.run(session, [tmp_path / "absent"], tmp_path / "t")
    (tmp_path / "empty").mkdir()
    with pytest.raises(LocalError, match="no segment, snapshot or bootstrap file"):
        kraft.run(session, [tmp_path / "empty"], tmp_path / "t")
    (tmp_path / "old.log").write_bytes(b"")
    with pytest.raises(LocalError, match=r"old\.log: .* the names that Kafka gives, as 0{20}\.log"):
        kraft.run(session, [tmp_path / "old.log"], tmp_path / "t")
    with pytest.raises(LocalError, match="name at least one path"):
        kraft.run(session, [], tmp_path / "t")
    with pytest.raises(LocalError, match="holds no tables"):
        kraft.query(session, tmp_path / "t", "SELECT 1")
    (tmp_path / "busy").mkdir()
    with lock_folders(OsFiles(), [str(tmp_path / "busy")]), pytest.raises(LockedError):
        kraft.run(session, [NODE], tmp_path / "busy")


def test_tables_of_another_version_are_refused(session, tmp_path):
    Path(tmp_path / "kraftcore-tables.json").write_text(json.dumps({"format": 99}))
    with pytest.raises(CorruptDataError, match="format 99"):
        kraft.query(session, tmp_path, "SELECT * FROM errors")
    with pytest.raises(CorruptDataError, match="format 99"):
        kraft.run(session, [NODE], tmp_path)
    assert not (tmp_path / "bronze_records").exists()


CHECKPOINTS = ("bronze_files", "bronze_batches", "bronze_records", "errors")


def note_columns_apart(tables):
    """Put the columns of gold where runs before format 3 noted them."""
    (tables / "_schemas").mkdir()
    for name, text in Tables(None, tables).counted().columns.items():
        (tables / f"_schemas/{name}.json").write_text(text)


def make_format_1(tables, different=None):
    """Put in place of what a run notes what runs of format 1 noted: a checkpoint for each stream."""
    progress = Tables(None, tables).counted().progress
    note_columns_apart(tables)
    shutil.rmtree(tables / "_commits")
    about = {"format": 1} | dict.fromkeys(CHECKPOINTS[:3], 0)
    (tables / "kraftcore-tables.json").write_text(json.dumps(about))
    for name in CHECKPOINTS:
        for kind in ("commits", "offsets"):
            (tables / "_checkpoints" / name / kind).mkdir(parents=True)
        (tables / "_checkpoints" / name / "commits" / "0").write_text("v1\n{}")
        offset = json.dumps({"progress": "{}" if name == different else progress})
        (tables / "_checkpoints" / name / "offsets" / "0").write_text(f'v1\n{{"batchWatermarkMs":0}}\n{offset}')


@pytest.mark.deep
def test_tables_of_format_1_are_gone_on_with(growing, tmp_path):
    node, data, cut = growing
    for name in ("tables", "killed"):
        kraft.run(no_spark, [tmp_path / "in"], tmp_path / name)
    make_format_1(tmp_path / "tables")
    make_format_1(tmp_path / "killed", "bronze_batches")
    (node / SEGMENT).write_bytes(data)
    end = batches_of(data)[-1].last_offset + 1
    result = kraft.run(no_spark, [tmp_path / "in"], tmp_path / "tables")
    assert result.rows["bronze_records"] == end - cut.base_offset
    kraft.run(no_spark, [tmp_path / "in"], tmp_path / "anew")
    for name in ("gold_config_history", "gold_logs"):
        assert counted(tmp_path / "tables", name) == counted(tmp_path / "anew", name), name
    offsets = sorted(row["offset"] for row in rows_of(tmp_path / "tables/bronze_records") if row["source"] == "log")
    assert offsets == list(range(end))
    with pytest.raises(CorruptDataError, match="format 1, whose last run did not end"):
        kraft.run(no_spark, [tmp_path / "in"], tmp_path / "killed")


def make_format_2(tables, left):
    """Put in place of the commits what runs of format 2 noted, and what a killed one leaves."""
    about = Tables(None, tables).counted()
    (batch,) = {int(file.partition("/")[0].removeprefix("batch=")) for file in about.files["bronze_records"]}
    note_columns_apart(tables)
    shutil.rmtree(tables / "_commits")
    (tables / "_commits").mkdir()
    (tables / f"_commits/{batch}").write_text(json.dumps({"clusters": ["growing"], "progress": about.progress}))
    (tables / "kraftcore-tables.json").write_text(json.dumps({"format": 2, "gold": batch}))
    for file in about.files["bronze_records"]:
        place = tables / "bronze_records" / f"batch={batch + 1}"
        place.mkdir()
        shutil.copy(tables / "bronze_records" / file, place / left)


@pytest.mark.parametrize("left", ["part-00000-killed.parquet", "_part-00000-killed.parquet"])
def test_tables_of_format_2_are_gone_on_with(session, growing, tmp_path, left):
    node, data, _ = growing
    tables = tmp_path / "tables"
    kraft.run(no_spark, [tmp_path / "in"], tables)
    before = sorted(offsets(session, tables))
    make_format_2(tables, left)
    (node / SEGMENT).write_bytes(data)
    kraft.run(no_spark, [tmp_path / "in"], tables)
    end = batches_of(data)[-1].last_offset + 1
    assert sorted(offsets(session, tables)) == [(3, offset) for offset in range(end)] > before
    kraft.run(no_spark, [tmp_path / "in"], tmp_path / "anew")
    for name in ("gold_config_history", "gold_logs"):
        assert counted(tables, name) == counted(tmp_path / "anew", name), name
    assert kraft.run(no_spark, [tmp_path / "in"], tables).clusters == ()
