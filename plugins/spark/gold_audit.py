"""Tables of gold about logs: what each replica holds, where replicas differ, how the log grew."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations

import numpy as np
import pyarrow as pa

from kraftcore.plugins.spark.canonical import Canonical
from kraftcore.plugins.spark.frames import NONE, Row, before, equals, integers, ordered, starts, where
from kraftcore.plugins.spark.lineage import Snapshot, is_uncut
from kraftcore.plugins.spark.meanings import gold
from kraftcore.plugins.spark.views import TIMESTAMP

_LOGS = pa.schema([
    ("log_id", pa.int64()), ("cluster_id", pa.string()), ("node_id", pa.int32()), ("directory_id", pa.string()),
    ("start_offset", pa.int64()), ("end_offset", pa.int64()), ("last_epoch", pa.int32()), ("batches", pa.int64()),
    ("records", pa.int64()), ("bytes", pa.int64()), ("first_time", TIMESTAMP), ("last_time", TIMESTAMP),
    ("committed_end", pa.int64()), ("is_reference", pa.bool_()),
])  # fmt: skip
_DIVERGENCE = pa.schema([
    ("cluster_id", pa.string()), ("offset", pa.int64()), ("base_offset", pa.int64()), ("node_id_a", pa.int32()),
    ("node_id_b", pa.int32()), ("log_id_a", pa.int64()), ("log_id_b", pa.int64()), ("epoch_a", pa.int32()),
    ("epoch_b", pa.int32()), ("crc_a", pa.int64()), ("crc_b", pa.int64()), ("last_offset_a", pa.int64()),
    ("last_offset_b", pa.int64()), ("is_valid_a", pa.bool_()), ("is_valid_b", pa.bool_()),
    ("batches_differing", pa.int64()), ("committed_end", pa.int64()), ("is_below_committed", pa.bool_()),
    ("is_overridden_end", pa.bool_()),
])  # fmt: skip
_ERAS = pa.schema([
    ("cluster_id", pa.string()), ("era", pa.int32()), ("start_offset", pa.int64()), ("end_offset", pa.int64()),
    ("snapshot_end_offset", pa.int64()), ("is_complete", pa.bool_()), ("is_last", pa.bool_()),
])  # fmt: skip
_BATCH = ["log_id", "node_id", "base_offset", "last_offset", "epoch", "crc", "size", "is_valid"]
_MINUTE_US = 60_000_000


@gold(
    log_id="the log: a hash of its folder's path",
    start_offset="its first offset",
    end_offset="the offset behind its last one",
    last_epoch="its last epoch",
    batches="its undamaged batches",
    records="their records",
    bytes="their bytes",
    first_time="the time of its first record",
    last_time="the latest time of a record",
    committed_end="the offset below which the cluster's records are known to be committed; null: none is",
    is_reference="whether it is the cluster's log",
)
def logs(canonical: Canonical) -> pa.Table:
    """One row a log: the offsets it holds, and the offset up to which records are known to be committed."""
    rows = canonical.alive("bronze_batches", "base_offset")
    rows = where(rows, equals(rows["is_valid"], True))
    rows = where(rows, is_uncut(rows, canonical.lineage.cuts, "base_offset"))
    found = rows.group_by(["node_id", "directory_id", "log_id"]).aggregate([
        ("base_offset", "min"), ("last_offset", "max"), ("epoch", "max"), ("count", "count"), ("count", "sum"),
        ("size", "sum"), ("base_timestamp", "min"), ("max_timestamp", "max"),
    ])  # fmt: skip
    best = canonical.lineage.best
    renamed = {
        "start_offset": "base_offset_min", "last_epoch": "epoch_max", "batches": "count_count", "records": "count_sum",
        "bytes": "size_sum", "first_time": "base_timestamp_min", "last_time": "max_timestamp_max",
    }  # fmt: skip
    result = [
        {name: row[other] for name, other in renamed.items()}
        | {name: row[name] for name in ("log_id", "node_id", "directory_id")}
        | {
            "cluster_id": canonical.cluster_id,
            "end_offset": row["last_offset_max"] + 1,
            "committed_end": canonical.committed,
            "is_reference": best is not None and row["log_id"] == best.log_id,
        }
        for row in found.to_pylist()
    ]
    return pa.Table.from_pylist(result, schema=_LOGS)


@gold(
    era="its number in the cluster, from 0",
    start_offset="its first offset",
    end_offset="the offset behind its last one",
    snapshot_end_offset="`snapshot_end_offset` of the snapshot that it begins with; null: it begins with none",
    is_complete="whether the whole state is known in it",
    is_last="whether it is the cluster's last era",
)
def eras(canonical: Canonical) -> pa.Table:
    """One row an era: a stretch of the cluster's log without a hole, or a snapshot alone.

    ``snapshot_end_offset`` is the end offset of the snapshot that the era begins with. An era without a snapshot that
    does not begin at offset 0 is not complete: only the state that its own records tell is known.
    """
    rows = [
        {
            "cluster_id": canonical.cluster_id,
            "era": era.number,
            "start_offset": era.start,
            "end_offset": era.known_end,
            "snapshot_end_offset": None if era.base is None else era.base.end_offset,
            "is_complete": era.is_complete,
            "is_last": era.end is None,
        }
        for era in canonical.lineage.eras
    ]
    return pa.Table.from_pylist(rows, schema=_ERAS)


@gold(
    offset="the first record that differs",
    base_offset="the first offset of the batches that hold it",
    **{
        f"{name}_{side}": f"of the {log} log: {meaning}"
        for side, log in (("a", "first"), ("b", "second"))
        for name, meaning in {
            "node_id": "its node",
            "log_id": "its id",
            "epoch": "the batch's epoch",
            "crc": "the batch's checksum",
            "last_offset": "the batch's last offset",
            "is_valid": "whether the batch has its checksum",
        }.items()
    },
    batches_differing="how many batches differ",
    committed_end="the offset below which records are known to be committed; null: none is",
    is_below_committed="whether data was damaged or lost",
    is_overridden_end="whether one log has only earlier epochs there, which Raft cuts off when its node returns",
)
def divergence(canonical: Canonical) -> pa.Table:
    """One row a pair of logs that have different bytes at an offset: the first such offset, and both batches.

    Records that one log lacks are no difference. A difference at or above ``committed_end`` is in an end that was never
    committed. Below it, ``is_overridden_end`` means that one log has only earlier epochs there, which Raft cuts off
    when the node returns; otherwise ``is_below_committed``: data was damaged or lost.
    """
    at: dict[int, list[Row]] = defaultdict(list)
    for row in _suspects(canonical.alive("bronze_batches", "base_offset")).to_pylist():
        at[row["base_offset"]].append(row)
    first: dict[tuple[int, int], tuple[Row, Row]] = {}
    count: dict[tuple[int, int], int] = defaultdict(int)
    for base_offset in sorted(at):
        for one, other in combinations(sorted(at[base_offset], key=lambda row: int(row["log_id"])), 2):
            if one["log_id"] < other["log_id"] and _content(one) != _content(other):
                pair = one["log_id"], other["log_id"]
                first.setdefault(pair, (one, other))
                count[pair] += 1
    end = canonical.committed
    last_epochs = {log.log_id: log.last_epoch for log in canonical.lineage.logs}
    rows = []
    for pair, (one, other) in first.items():
        offset = _first_record(canonical, one, other)
        is_overridden = _is_overridden_end(one, other, last_epochs, canonical.lineage.snapshots)
        rows.append(
            {f"{name}_{side}": row[name] for side, row in (("a", one), ("b", other)) for name in _BATCH}
            | {
                "cluster_id": canonical.cluster_id,
                "offset": offset,
                "base_offset": one["base_offset"],
                "batches_differing": count[pair],
                "committed_end": end,
                "is_below_committed": offset < (end or 0) and not is_overridden,
                "is_overridden_end": is_overridden,
            }
        )
    return pa.Table.from_pylist(rows, schema=_DIVERGENCE)


def _is_overridden_end(one: Row, other: Row, last_epochs: dict[int, int], snapshots: list[Snapshot]) -> bool:
    # Two valid batches of two epochs, and the log with the lower epoch has no batch of the higher one. Records in a
    # snapshot of an earlier epoch were committed: no later leader may have other records there.
    lower, higher = sorted((one, other), key=lambda row: int(row["epoch"]))
    if not (one["is_valid"] and other["is_valid"] and lower["epoch"] < higher["epoch"]):
        return False
    base = int(higher["base_offset"])
    if any(found.epoch < int(higher["epoch"]) and found.end_offset > base for found in snapshots):
        return False
    return last_epochs[lower["log_id"]] < int(higher["epoch"])


def _content(row: Row) -> tuple[object, ...]:
    return row["epoch"], row["crc"], row["size"], row["is_valid"]


def _suspects(rows: pa.Table) -> pa.Table:
    # Batches at offsets where the logs' batches differ, or one is damaged.
    keys = [integers(rows[name]) for name in ("base_offset", "epoch", "crc", "size")]
    bad = ~equals(rows["is_valid"], True)
    order = ordered(*keys)
    begins = starts(keys[0][order])
    odd = (starts(*(key[order] for key in keys)) & ~begins) | bad[order]
    groups = np.cumsum(begins) - 1
    some = np.zeros(int(begins.sum()), bool)
    some[groups[odd]] = True
    return rows.select(_BATCH).take(pa.array(np.sort(order[some[groups]]), pa.int64()))


def _first_record(canonical: Canonical, one: Row, other: Row) -> int:
    # The offset of the first record that differs: two batches of one epoch may begin with equal records.
    sides = []
    for row in (one, other):
        records = canonical.records(row["log_id"], one["base_offset"], row["last_offset"])
        found = records.select(["offset", "epoch", "is_control", "key", "value"]).to_pylist()
        times = integers(records["timestamp"]).tolist()  # to_pylist() fails for years that Python does not have
        sides.append({record["offset"]: (record, time) for record, time in zip(found, times, strict=True)})
    differing = (offset for offset in sides[0].keys() | sides[1].keys() if sides[0].get(offset) != sides[1].get(offset))
    return int(min(differing, default=one["base_offset"]))


@gold(
    minute="the minute in which the batches began",
    epoch="their epoch",
    first_offset="the first offset",
    last_offset="the last offset",
    batches="the number of batches",
    records="their records",
    committed_records="those that are known to be committed",
    bytes="their bytes",
    batch_bytes_max="the bytes of the largest batch",
    pause_ms_max="the longest time from the batch before; 0 if a clock went back; null: no batch is before them",
    control_batches="the number of control batches",
)
def batch_stats(canonical: Canonical) -> pa.Table:
    """One row a minute of an epoch: records, committed records, batches, bytes, and the longest pause between batches.

    If a clock went back, the pause is 0.
    """
    rows = canonical.log("bronze_batches", "base_offset")
    bases, lasts = integers(rows["base_offset"]), integers(rows["last_offset"])
    first, last = integers(rows["base_timestamp"]), integers(rows["max_timestamp"])
    order = ordered(bases)
    begins = starts(integers(rows["era"])[order])  # across a hole there is no pause
    previous = before(begins)
    pause = np.zeros(len(order), np.int64)
    pause[order] = np.maximum(first[order] // 1000 - last[order][np.maximum(previous, 0)] // 1000, 0)
    unknown = np.zeros(len(order), bool)
    unknown[order[previous == NONE]] = True
    committed = np.maximum(np.minimum(lasts + 1, canonical.committed or 0) - bases, 0)
    columns = rows.select(["epoch", "base_offset", "last_offset", "count", "size"])
    for name, column in {
        "minute": pa.array(first // _MINUTE_US * _MINUTE_US).cast(TIMESTAMP),
        "committed": pa.array(committed),
        "pause": pa.array(pause, mask=unknown),
        "control": rows["is_control"].cast(pa.int8()),
    }.items():
        columns = columns.append_column(name, column)
    found = columns.group_by(["minute", "epoch"]).aggregate([
        ("base_offset", "min"), ("last_offset", "max"), ("count", "count"), ("count", "sum"), ("committed", "sum"),
        ("size", "sum"), ("size", "max"), ("pause", "max"), ("control", "sum"),
    ])  # fmt: skip
    names = {
        "minute": "minute", "epoch": "epoch", "first_offset": "base_offset_min", "last_offset": "last_offset_max",
        "batches": "count_count", "records": "count_sum", "committed_records": "committed_sum", "bytes": "size_sum",
        "batch_bytes_max": "size_max", "pause_ms_max": "pause_max", "control_batches": "control_sum",
    }  # fmt: skip
    return canonical.named(pa.table({name: found[other] for name, other in names.items()}))
