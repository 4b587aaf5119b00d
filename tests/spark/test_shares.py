"""A large cluster's tables are made in shares, and by workers; they are those that are made at once."""

from __future__ import annotations

import pickle
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from golden import GOLDEN
from spark_parts import counted_rows

from kraftcore.errors import LocalError
from kraftcore.plugins import spark as kraft
from kraftcore.plugins.spark import gold_registry, intake, parquet, work
from kraftcore.plugins.spark.arrow_batches import KEEP, LAYERS, RangeReader
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.frames import except_lists
from kraftcore.plugins.spark.gold_registry import SHARED, Making, makings_of
from kraftcore.plugins.spark.parquet import BUCKETS, bucket_of, groups_for, in_share, read_files, sql_of_share, to_bytes
from kraftcore.plugins.spark.ranges import split_into_ranges
from kraftcore.plugins.spark.stores import Inventory
from kraftcore.plugins.spark.tables import Tables, arrow_schema

IDS = pa.list_(pa.field("element", pa.int32()))


def no_spark():
    pytest.fail("so little is done without Spark")


def rows(folder: Path) -> dict[str, Counter[str]]:
    return {name: Counter(map(repr, found)) for name, found in counted_rows(folder).items()}


def test_shares_and_their_files_make_the_same_rows(tmp_path, monkeypatch):
    kraft.run(no_spark, [GOLDEN / "dynamic"], tmp_path / "whole")
    monkeypatch.setattr(parquet, "BUCKET_ROWS_MIN", 2)
    monkeypatch.setattr(gold_registry, "SHARE_RECORDS", 200)
    tasks: list[object] = []

    def pickled(call, shares):
        for share in shares:
            tasks.append(share)
            yield pickle.loads(pickle.dumps(call))(pickle.loads(pickle.dumps(share)))

    monkeypatch.setattr(work, "map", pickled, raising=False)
    kraft.run(no_spark, [GOLDEN / "dynamic"], tmp_path / "shared")
    shares = [one.share for one in tasks if isinstance(one, Making) and one.names == (SHARED,)]
    assert len(shares) == 12
    for name in ("gold_partition_history", "gold_config_history", "silver_partition_change", "gold_logs"):
        assert rows(tmp_path / "shared")[name] == rows(tmp_path / "whole")[name], name
    assert len(list((tmp_path / "shared/gold_partition_history").rglob("*.parquet"))) > 3


def test_columns_that_are_never_null_are_stored_so():
    files = Inventory().files([str(GOLDEN)])
    reader = RangeReader(LAYERS, Filters(), KEEP)
    required: dict[str, set[str]] = {}
    for part in split_into_ranges(files, Filters()):
        for stored in reader.read_layers(part):
            stored.batch.validate(full=True)
            for field, column in zip(stored.batch.schema, stored.batch.columns, strict=True):
                assert field.nullable or column.null_count == 0, (stored.view, field.name)
            required[stored.view] = {field.name for field in stored.batch.schema if not field.nullable}
    always = {"cluster_id", "node_id", "directory_id", "source", "log_id", "file_id", "generation"}
    place = {"offset", "timestamp", "epoch", "version"}
    fields = {"partition_id", "topic_id", "leader", "leader_recovery_state"}
    assert required["partition_change"] == always | place | fields
    assert required["records"] == always | place | {"is_control", "position"}


@pytest.mark.parametrize("groups", [1, 4, BUCKETS])
def test_each_partition_is_in_one_share(tmp_path, monkeypatch, groups):
    monkeypatch.setattr(parquet, "BUCKET_ROWS_MIN", 2)
    monkeypatch.setattr(intake, "groups_for", lambda size: groups)
    kraft.run(no_spark, [GOLDEN / "dynamic"], tmp_path / "tables")
    name = "silver_partition_change"
    files = [str(file) for file in (tmp_path / "tables" / name).rglob("*.parquet")]
    (file,) = files
    schema = arrow_schema(name)
    whole = read_files(files, schema)
    there = set(bucket_of(whole) * groups // BUCKETS)
    assert parquet.pq.ParquetFile(file).num_row_groups == len(there) == min(groups, len(set(bucket_of(whole))))
    # A file without a list of its buckets, as small ones are, and one of an earlier version give the same.
    plain, earlier = Path(file).with_name("plain.parquet"), Path(file).with_name("earlier.parquet")
    plain.write_bytes(to_bytes_plainly(whole, monkeypatch))
    write_as_earlier(earlier, whole)
    for shares in (1, 3, 8, BUCKETS):
        found = [read_files(files, schema, share=(number, shares)) for number in range(shares)]
        for other in (plain, earlier):
            assert [one.sort_by("offset") for one in found] == [
                read_files([str(other)], schema, share=(number, shares)).sort_by("offset") for number in range(shares)
            ]
        assert sum(map(len, found)) == len(whole)
        keys = [set(zip(*(one[key].to_pylist() for key in ("topic_id", "partition_id")), strict=True)) for one in found]
        assert sum(map(len, keys)) == len(set().union(*keys))
        assert found[0].sort_by("offset") == in_share(whole, (0, shares)).sort_by("offset")


def write_as_earlier(place, table):
    """A row group a bucket, and the bucket's number for each."""
    buckets = bucket_of(table)
    there = sorted(set(buckets.tolist()))
    with parquet.pq.ParquetWriter(place, table.schema) as writer:
        for bucket in there:
            writer.write_table(table.filter(pa.array(buckets == bucket)))
        writer.add_key_value_metadata({"kraftcore.buckets": str(there)})


def test_a_row_group_is_of_half_of_what_a_share_of_gold_is_made_of():
    record_bytes = 48
    share = gold_registry.SHARE_RECORDS * record_bytes
    assert [groups_for(share * count) for count in (1, 2, 3, 16, 500)] == [2, 4, 8, BUCKETS, BUCKETS]
    assert [groups_for(size) for size in (0, 1, parquet.GROUP_BYTES)] == [1, 1, 1]


def to_bytes_plainly(table, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(parquet, "BUCKET_ROWS_MIN", 1 << 30)
        return to_bytes(table)


def test_workers_make_the_same_tables(session, tmp_path, monkeypatch):
    kraft.run(no_spark, [GOLDEN / "static"], tmp_path / "here")
    monkeypatch.setattr(work, "LITTLE_BYTES", 0)
    kraft.run(session, [GOLDEN / "static"], tmp_path / "there", options={"range_bytes": "8192"})
    here, there = rows(tmp_path / "here"), rows(tmp_path / "there")
    assert here.keys() == there.keys()
    for name in sorted(here.keys() - {"gold_divergence"}):
        assert here[name] == there[name], name
    assert len(list((tmp_path / "there/bronze_records").rglob("*.parquet"))) > 1


def test_spark_tells_shares_apart_as_we_do(session, tmp_path):
    kraft.run(no_spark, [GOLDEN / "dynamic"], tmp_path / "tables")
    tables, name = Tables(session, tmp_path / "tables"), "silver_partition_change"
    (cluster,) = tables.clusters()
    by_spark = Tables(session, tmp_path / "tables", is_sparks_own=True)
    for number in range(3):
        ours = tables.arrow(name, [cluster], (number, 3))
        assert len(ours) > 0
        assert by_spark.arrow(name, [cluster], (number, 3)).sort_by("offset") == ours.sort_by("offset")


def test_spark_tells_partitions_of_any_number_apart_as_we_do(session):
    rows = pa.table({
        "topic_id": ["L55mWRwaSjyaU2psX6jwAQ", None, "", "zürich"] * 4,
        "partition_id": pa.array([-1, 0, 2**31 - 1, -(2**31), None, 7, 31, 32] * 2, pa.int32()),
    })  # fmt: skip
    frame = session.createDataFrame(rows)
    for number in range(5):
        found = frame.where(sql_of_share((number, 5))).toArrow().to_pylist()
        assert Counter(map(repr, found)) == Counter(map(repr, in_share(rows, (number, 5)).to_pylist()))


def test_work_is_cut_by_cluster_and_large_clusters_by_partition():
    names = (SHARED, "gold_logs")
    records = {"tiny": 10, "small": 400_000, "large": 1_200_000, "huge": 10**9}
    found = makings_of(list(records), records, names)
    assert found[0] == Making(("huge",), (SHARED,), (0, BUCKETS))
    assert [one.share for one in found if one.clusters == ("large",) and one.names == (SHARED,)] == [
        (0, 3), (1, 3), (2, 3)
    ]  # fmt: skip
    assert Making(("large",), ("gold_logs",)) in found
    assert found[-1] == Making(("small", "tiny"), names)
    assert makings_of(["tiny", "small"], records, names, many=True) == [
        Making(("small",), names), Making(("tiny",), names)
    ]  # fmt: skip


def test_what_one_list_has_and_another_has_not():
    first = [[1, 2, 3], None, [], [4, 4, 5], [9, *range(20)], [1], [7] * 40, None]
    second = [[2], [1], [1], [5], [3, 4], None, [6, *range(50, 90)], None]
    expected = [
        None if one is None or other is None else [value for value in dict.fromkeys(one) if value not in other]
        for one, other in zip(first, second, strict=True)
    ]
    left, right = pa.array(first, IDS), pa.array(second, IDS)
    assert except_lists(left, right).to_pylist() == expected
    for low, high in pairwise(range(len(first))):
        assert except_lists(left[low:high], right[low:high]).to_pylist() == expected[low:high]


def test_tables_without_a_session_say_so(tmp_path):
    with pytest.raises(LocalError, match="takes a Spark session"):
        _ = Tables(None, tmp_path).session
