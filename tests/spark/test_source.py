"""The data source: views, identity, filters that spare reading, damage, and options that are none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from golden import GOLDEN
from metadata_replay import printed_log, printed_records
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan
from spark_parts import batches_of, without_java

import pyspark_kraft
from kraftcore.core.batch import build_batch, build_records_batch, stamp_batch
from kraftcore.core.crc32c import crc32c
from kraftcore.errors import CorruptDataError, LocalError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark.source import FilteringReader, KraftDataSource, Settings
from kraftcore.plugins.spark.stores import Source
from kraftcore.protocol.control import leader_change
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.no_op_record import NoOpRecord

C1 = GOLDEN / "dynamic" / "c1"
LOG = C1 / "__cluster_metadata-0"
SEGMENTS = sorted(LOG.glob("*.log"))


def direct(path, *pushed, monkeypatch=None, **options):
    """Rows and bytes that a reader gives, without Spark around it."""
    read = 0

    def counting(plain):
        def counted(self, position, size):
            nonlocal read
            data = plain(self, position, size)
            read += len(data) if self.path.endswith((".log", ".checkpoint")) else 0
            return data

        return counted

    with monkeypatch.context() if monkeypatch is not None else nullcontext() as patch:
        for name in ("read", "piece") if patch is not None else ():
            patch.setattr(Source, name, counting(getattr(Source, name)))
        reader = FilteringReader(Settings({"path": str(path), **options}))
        assert list(reader.pushFilters(list(pushed))) == list(pushed)  # Spark is to apply them again
        found = [batch for part in reader.partitions() for batch in reader.read(part)]
    return (pa.Table.from_batches(found).to_pylist() if found else []), read


def test_the_records_are_what_kafka_printed(session):
    rows = session.read.format("kraft").option("view", "events").option("sources", "log").load(str(C1)).collect()
    found = {row.offset: (row.epoch, row.type, row.version, json.loads(row.body)) for row in rows}
    printed = {one.offset: (one.epoch, one.type, one.version, one.data) for one in printed_log(C1)}
    assert found == printed
    assert {row.cluster_id for row in rows} == {_property(C1, "cluster.id")}
    assert {(row.node_id, row.directory_id, row.source) for row in rows} == {(1, _property(C1, "directory.id"), "log")}


def test_a_snapshot_file_alone_is_read_too(session):
    path = sorted(LOG.glob("*-*.checkpoint"))[1]
    rows = session.read.format("kraft").option("view", "events").load(str(path)).orderBy("offset").collect()
    printed = list(printed_records(C1 / "dump" / f"{path.name}.txt"))
    assert [json.loads(row.body) for row in rows] == [one.data for one in printed]
    assert {(row.source, row.snapshot_end_offset) for row in rows} == {("snapshot", int(path.name[:20]))}


def test_a_typed_view_has_the_fields_of_the_record(session):
    rows = session.read.format("kraft").option("view", "partition_change").option("sources", "log").load(str(C1))
    printed = {one.offset: one.data for one in printed_log(C1) if one.type == "PARTITION_CHANGE_RECORD"}
    assert printed
    assert {row.offset: (row.topic_id, row.partition_id, row.isr) for row in rows.collect()} == {
        offset: (data["topicId"], data["partitionId"], data.get("isr")) for offset, data in printed.items()
    }


def test_globs_and_many_clusters_keep_their_identity(session):
    path = json.dumps([str(GOLDEN / "*" / "c[12]"), str(GOLDEN / "static" / "c3")])
    rows = session.read.format("kraft").option("view", "batches").option("sources", "log").load(path)
    found = {tuple(row) for row in rows.select("cluster_id", "node_id").distinct().collect()}
    assert found == {
        (_property(GOLDEN / node, "cluster.id"), int(node[-1]))
        for node in ("dynamic/c1", "dynamic/c2", "nights/c1", "static/c1", "static/c2", "static/c3")
    }


def conditions():
    times = sorted(one.timestamp_ms for one in printed_log(C1))
    middle = datetime.fromtimestamp(times[len(times) // 2] / 1000, UTC)
    return [
        (F.col("offset") >= 100) & (F.col("offset") < 260),
        F.col("timestamp") > F.lit(middle),
        F.col("timestamp") <= F.lit(middle),
        F.col("epoch").isin(2, 3) & F.col("is_control"),
        F.col("type").isin("TOPIC_RECORD", "CONFIG_RECORD"),
        (F.col("type") == "NO_OP_RECORD") | (F.col("offset") == 7),
        (F.col("node_id") == 1) & (F.col("offset") == 42),
        F.col("node_id") == 7,
    ]


def test_one_load_serves_many_queries(session):
    # Spark keeps what one query pushed down for the next one of the same load: nothing may be pushed unasked.
    rows = session.read.format("kraft").option("sources", "log").load(str(C1))
    whole = rows.count()
    assert whole == len(printed_log(C1))
    assert rows.where("offset >= 500").count() == sum(one.offset >= 500 for one in printed_log(C1))
    assert rows.count() == whole
    assert rows.where("offset < 5").union(rows).count() == whole + 5


def test_pushed_conditions_give_what_the_same_query_gives_without_them(session):
    everything = session.read.format("kraft").load(str(C1)).cache()
    for condition in conditions():
        pushed = session.read.format("kraft").option("pushdown", "true").load(str(C1)).where(condition)
        assert sorted(map(repr, pushed.collect())) == sorted(map(repr, everything.where(condition).collect())), (
            condition
        )
    everything.unpersist()


@pytest.mark.parametrize(
    ("pushed", "segment"),
    [
        ([GreaterThanOrEqual(("offset",), 450)], 2),
        ([LessThan(("offset",), 150)], 0),
        ([EqualTo(("offset",), 300)], 1),
        ([GreaterThanOrEqual(("offset",), 250), LessThan(("offset",), 260)], 1),
    ],
)
def test_offset_filters_read_only_the_segment_they_need(pushed, segment, monkeypatch):
    rows, read = direct(C1, *pushed, monkeypatch=monkeypatch, sources="log")
    assert {row["offset"] for row in rows} >= {one for one in range(250, 260) if len(pushed) == 2}
    assert 0 < read <= SEGMENTS[segment].stat().st_size + 200  # headers where the index says that batches begin


def test_time_filters_skip_segments(monkeypatch):
    everything, whole = direct(C1, monkeypatch=monkeypatch, sources="log")
    assert whole >= sum(path.stat().st_size for path in SEGMENTS)
    last = max(row["timestamp"] for row in everything)
    rows, read = direct(C1, GreaterThanOrEqual(("timestamp",), last), monkeypatch=monkeypatch, sources="log")
    assert rows == [row for row in everything if row["timestamp"] >= last]
    assert 0 < read <= SEGMENTS[-1].stat().st_size
    first = min(row["timestamp"] for row in everything)
    early, read = direct(
        C1, monkeypatch=monkeypatch, sources="log", time_to=(first + timedelta(milliseconds=1)).isoformat(),
        clock_skew_ms="0",
    )  # fmt: skip
    assert early == [row for row in everything if row["timestamp"] == first]
    assert 0 < read <= SEGMENTS[0].stat().st_size + 200


def test_time_bounds_may_lie_between_milliseconds():
    times = [row["timestamp"] for row in direct(C1, sources="log")[0]]
    at = times[len(times) // 2]
    bound = (at + timedelta(microseconds=500)).isoformat()
    assert len(direct(C1, sources="log", time_to=bound)[0]) == sum(one <= at for one in times)
    assert len(direct(C1, sources="log", time_from=bound)[0]) == sum(one > at for one in times)


def test_other_clusters_and_nodes_are_not_opened(monkeypatch):
    rows, read = direct(GOLDEN, In(("node_id",), (4,)), monkeypatch=monkeypatch, sources="log")
    assert {row["node_id"] for row in rows} == {4}
    assert read <= sum(path.stat().st_size for path in GOLDEN.rglob("c4/*/*.log"))


def test_tasks_share_a_large_segment_without_gap_or_overlap():
    whole, _ = direct(C1, sources="log")
    reader = FilteringReader(Settings({"path": str(C1), "sources": "log", "range_bytes": "2048"}))
    parts = reader.partitions()
    assert len(parts) > 5
    offsets = [row for part in parts for batch in reader.read(part) for row in batch["offset"].to_pylist()]
    assert offsets == [row["offset"] for row in whole]


@pytest.fixture
def damaged(tmp_path):
    """A log with a wrong checksum in its first segment, an unknown record at the end of its last, and a torn batch."""
    node = tmp_path / "node"
    shutil.copytree(C1, node)
    first, *_, last = sorted((node / LOG.name).glob("*.log"))
    data = bytearray(first.read_bytes())
    spot = batches_of(data)[3]
    data[spot.position + 17] ^= 1  # of the checksum
    first.write_bytes(data)
    end = batches_of(last.read_bytes())[-1].last_offset + 1
    odd = bytes(build_batch([b"\x01\x7b\x00"], timestamp_ms=9, base_offset=end, leader_epoch=9))
    with last.open("ab") as file:
        file.write(odd + odd[:40])
    return node, spot, end


def test_damage_ends_a_read_and_says_where(session, damaged):
    node, spot, _ = damaged
    with pytest.raises(PySparkException) as caught:
        session.read.format("kraft").load(str(node)).collect()
    assert "CorruptDataError" in str(caught.value)
    assert f"byte {spot.position}" in str(caught.value)
    assert "00000000000000000000.log" in str(caught.value)
    with pytest.raises(CorruptDataError) as direct_error:
        direct(node, view="records")
    assert direct_error.value.position == spot.position


def test_damage_is_dropped_or_kept_and_listed(session, damaged):
    node, spot, odd_offset = damaged
    reader = session.read.format("kraft").option("sources", "log")
    lost = set(range(spot.base_offset, spot.last_offset + 1))
    everything = {one.offset for one in printed_log(C1)} | {odd_offset}
    dropped = {row.offset for row in reader.option("errors", "drop").load(str(node)).collect()}
    assert dropped == everything - lost
    kept = {row.offset for row in reader.option("errors", "keep").load(str(node)).collect()}
    assert kept == everything
    errors = reader.option("view", "errors").load(str(node)).orderBy("position").collect()
    assert {(row.kind, row.offset) for row in errors} == {("batch", None), ("record", odd_offset), ("torn", None)}
    (batch,) = [row for row in errors if row.kind == "batch"]
    assert (batch.position, batch.size) == (spot.position, spot.size)
    assert "123" in next(row.reason for row in errors if row.kind == "record")


def test_records_that_do_not_fit_their_batch_are_damage_though_the_checksum_is_right(tmp_path):
    path = tmp_path / "00000000000000000000.log"
    batch = bytearray(build_batch([b"one", b"two"], timestamp_ms=1, base_offset=0, leader_epoch=1))
    batch[61] = 0x7F  # the length of the first record
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    path.write_bytes(batch)
    assert direct(path, view="batches")[0][0]["is_valid"]
    with pytest.raises(CorruptDataError) as caught:
        direct(path)
    assert (caught.value.path, caught.value.position) == (str(path), 61)
    for policy in ("drop", "keep"):
        assert direct(path, errors=policy)[0] == []
        (error,) = direct(path, view="errors", errors=policy)[0]
        assert (error["kind"], error["position"], error["size"]) == ("batch", 0, len(batch))


def test_what_nodes_remember_of_clients_is_no_record_of_a_snapshot(tmp_path):
    path = tmp_path / "00000000000000000009-0000000001.checkpoint"
    value = encode_metadata_record(NoOpRecord(), 0)
    plain = build_batch([value], timestamp_ms=1, base_offset=0, leader_epoch=1)
    numbered = build_batch(
        [bytes(8)], timestamp_ms=1, base_offset=1, leader_epoch=1, producer_id=7, producer_epoch=0, base_sequence=3
    )
    path.write_bytes(bytes(plain) + bytes(numbered))
    assert [row["offset"] for row in direct(path)[0]] == [0]
    assert direct(path, view="errors")[0] == []
    assert [row["producer_id"] for row in direct(path, view="batches")[0]] == [-1, 7]


def test_all_types_are_read_in_one_pass_without_spark():
    found = {}
    for kind, batch in kraft.read_typed([C1], time_from="0"):
        for row in batch.to_pylist():
            if row["source"] == "log":
                found[row["offset"]] = kind.name
            if kind.view == "partition_change":
                assert row["topic_id"]
    assert found == {one.offset: one.type for one in printed_log(C1)}
    (only,) = {kind.view for kind, _ in kraft.read_typed([str(C1)], types="topic", offset_to="500")}
    assert only == "topic"
    code = f"""
import sys
from kraftcore.plugins import spark
print(len(list(spark.read_typed([{str(C1)!r}]))) > 0, "pyspark" in sys.modules)
"""
    assert subprocess.check_output([sys.executable, "-P", "-c", code], text=True).split() == ["True", "False"]
    for options, words in (({"errors": "no"}, "errors='no'"), ({"ofset_from": "1"}, "unknown filter 'ofset_from'")):
        with pytest.raises(LocalError, match=words):
            next(kraft.read_typed([C1], **options))


def test_an_applications_records_are_no_damaged_metadata(tmp_path):
    for folder, value in (("ours", b"an order"), ("kafkas", encode_metadata_record(NoOpRecord(), 0))):
        log = tmp_path / folder / LOG.name  # kraftcore's logs have this name too, unless another is given
        log.mkdir(parents=True)
        leader = build_records_batch([leader_change(1, (1,), (1,))], timestamp_ms=1, control=True)
        stamp_batch(leader, 0, 1)
        odd = build_batch([b"\x07 odd"], timestamp_ms=1, base_offset=2, leader_epoch=1)
        first = build_batch([value], timestamp_ms=1, base_offset=1, leader_epoch=1)
        (log / f"{0:020}.log").write_bytes(bytes(leader) + bytes(first))
        (log / f"{2:020}.log").write_bytes(bytes(odd))
    assert direct(tmp_path / "ours", view="errors")[0] == []
    assert [row["offset"] for row in direct(tmp_path / "kafkas", view="errors")[0]] == [2]


def test_what_cannot_be_read_is_told_before_any_task_runs(session, tmp_path):
    for options, path, words in (
        ({"view": "nonsense"}, C1, "no view 'nonsense'"),
        ({"ofset_from": "3"}, C1, "unknown option 'ofset_from'"),
        ({"errors": "ignore"}, C1, "errors='ignore'"),
        ({"offset_from": "x"}, C1, "offset_from='x'"),
        ({}, tmp_path / "absent", "no such file"),
    ):
        with pytest.raises(AnalysisException, match=words):
            session.read.format("kraft").options(**options).load(str(path)).collect()
    for options, words in (
        ({"range_bytes": "-4"}, "range_bytes"),
        ({"sources": "log,logs"}, "'logs'"),
        ({"paths": "/backup"}, "no JSON list"),
        ({"path": "[glob]"}, "no JSON list"),
        ({"time_from": "--5"}, "ISO 8601"),
    ):
        with pytest.raises(LocalError, match=words):
            Settings({"path": str(C1), **options})


@pytest.mark.deep
def test_a_plain_session_finds_the_source_by_itself(tmp_path):
    code = f"""
from kraftcore.plugins.spark.startup import find_java
from pyspark.sql import SparkSession
find_java()
spark = SparkSession.builder.master("local[1]").getOrCreate()
for _ in range(2):
    rows = spark.read.format("kraft").option("pushdown", "true").load({str(C1)!r})
    print(rows.where("source = 'log' and offset >= 500").count())
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
"""
    # An editable install hides top-level modules from the search that Spark makes: lay the module beside the program.
    assert pyspark_kraft.DefaultSource is KraftDataSource
    shutil.copy(pyspark_kraft.__file__, tmp_path)
    done = without_java([code], tmp_path, PYTHONPATH=str(tmp_path))
    wanted = sum(one.offset >= 500 for one in printed_log(C1))
    assert wanted
    assert done.stdout.split() == [str(wanted), str(wanted)], done.stderr


def _property(node, name):
    lines = (node / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith(f"{name}="))
