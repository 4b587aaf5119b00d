"""Runs over growing, torn, overridden and killed input: nothing is lost, nothing counts twice."""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from datetime import timedelta

import pytest
from golden import GOLDEN
from metadata_replay import printed_log, replay
from pyspark.errors import PySparkException
from spark_parts import LIMIT_S, batches_of, copy_as, counted_rows

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import CorruptDataError, LocalError, LockedError, MissingDependencyError, StorageError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import commits, gold_registry
from kraftcore.plugins.spark.commits import Commits
from kraftcore.plugins.spark.delta import TableLog
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
from kraftcore.plugins.spark.delta import TableLog
add = Commits.add
def add_or_end(commits, writing, before, commit):
    if writing.number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return add(commits, writing, before, commit)
Commits.add = add_or_end
options = {{"max_bytes_per_trigger": "49152"}}
kraft.run(lambda: None, [{str(inputs)!r}], {str(tables)!r}, options=options)
"""
    child = subprocess.run([sys.executable, "-P", "-c", code], cwd=tmp_path, timeout=LIMIT_S, check=False)
    assert child.returncode == -signal.SIGKILL
    assert list((tables / "bronze_records").glob("step-1-*.parquet"))
    assert Commits(LocalFolder(str(tables))).last().number == 0
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


def test_following_forgets_what_was_replaced_more_than_a_day_ago(tmp_path, monkeypatch):
    now, nothing, tables = commits.now(), lambda: pytest.fail("Spark was started"), tmp_path / "t"
    inputs = [GOLDEN / "static" / "c1", GOLDEN / "static" / "c2", GOLDEN / "static" / "c3"]
    for hours, count in ((30, 1), (28, 2), (2, 3)):
        monkeypatch.setattr(commits, "now", lambda hours=hours: now - timedelta(hours=hours))
        kraft.run(nothing, inputs[:count], tables)
    monkeypatch.undo()

    def logs(hours):
        return len(Tables(None, tables, at=now - timedelta(hours=hours)).files("gold_logs"))

    assert [logs(hours) for hours in (29, 3, 1)] == [1, 1, 1]
    stop = threading.Event()
    stop.set()
    kraft.follow(nothing, inputs, tables, stop=stop)
    assert [logs(hours) for hours in (3, 1)] == [1, 1]
    with pytest.raises(LocalError, match="no state of .* is known"):
        logs(29)
    with pytest.raises(LocalError, match="keep_hours=0: name at least 1"):
        kraft.follow(nothing, inputs, tables, stop=stop, keep_hours=0)


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
    monkeypatch.setattr(commits, "at_once", lambda action, what: [action(one) for one in what])
    for owner, name in ((LocalFolder, "begun"), (LocalFolder, "write"), (LocalFolder, "sync"), (TableLog, "commit")):
        monkeypatch.setattr(owner, name, found.before(getattr(owner, name)))
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
    for last in range(0, total, 3):
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
    """All rows of all tables that any reader finds, in no order."""
    return {name: Counter(map(repr, rows)) for name, rows in counted_rows(tables).items()}


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


def test_tables_where_there_is_no_file_system_are_refused(session):
    with pytest.raises(LocalError, match="nosuch://place/tables.*: no file system for it"):
        kraft.run(session, [NODE], "nosuch://place/tables")


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


def test_tables_of_a_later_version_are_refused(session, tmp_path, monkeypatch):
    monkeypatch.setattr(commits, "FORMAT", 99)
    kraft.run(session, [NODE], tmp_path)
    monkeypatch.undo()
    before = sorted(tmp_path.rglob("*.parquet"))
    for use in (
        lambda: kraft.query(session, tmp_path, "SELECT * FROM errors"),
        lambda: kraft.run(session, [NODE], tmp_path),
    ):
        with pytest.raises(CorruptDataError, match="tables of format 99, and known is 5: a later version"):
            use()
    assert sorted(tmp_path.rglob("*.parquet")) == before
