"""Tables of gold about the quorum: its leaders and its voter sets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import datetime
from itertools import pairwise

import pyarrow as pa

from kraftcore.plugins.spark.canonical import Canonical
from kraftcore.plugins.spark.frames import Row, equals, where
from kraftcore.plugins.spark.meanings import gold
from kraftcore.plugins.spark.tables import arrow_schema
from kraftcore.plugins.spark.views import TIMESTAMP

RESIGNATION_MS = 1500
"""If the log was silent for less, the old leader resigned: a silent leader is missed after 2 s only (KIP-595)."""
_IDS = pa.list_(pa.field("element", pa.int32()))
_LEADERSHIP = pa.schema([
    ("cluster_id", pa.string()), ("epoch", pa.int32()), ("leader_id", pa.int32()), ("epoch_start_offset", pa.int64()),
    ("epoch_end_offset", pa.int64()), ("start_time", TIMESTAMP), ("end_time", TIMESTAMP),
    ("last_write_time", TIMESTAMP), ("records", pa.int64()), ("batches", pa.int64()), ("voters", _IDS),
    ("granting_voters", _IDS), ("previous_leader_id", pa.int32()), ("silent_ms", pa.int64()),
    ("failed_elections", pa.int32()), ("reason", pa.string()), ("status", pa.string()),
])  # fmt: skip
_VOTERS = arrow_schema("silver_kraft_voters").field("voters").type
_VOTER_SETS = pa.schema([
    ("cluster_id", pa.string()), ("offset", pa.int64()), ("to_offset", pa.int64()), ("epoch", pa.int32()),
    ("timestamp", TIMESTAMP), ("voter_ids", _IDS), ("voters", _VOTERS), ("added", _IDS), ("removed", _IDS),
    ("source", pa.string()), ("status", pa.string()),
])  # fmt: skip


@gold(
    epoch="the epoch",
    leader_id="its leader",
    epoch_start_offset="its first record, the LeaderChange record",
    epoch_end_offset="the offset behind its last record; null: it lasts, or was truncated",
    start_time="the time of its first record",
    end_time="the time of the next epoch's first record; before a hole, of its last one; null: as `epoch_end_offset`",
    last_write_time="the time of its last record; null: none is left",
    records="its records in the cluster's log; null: none is left",
    batches="its batches there; null: none is left",
    voters="the node ids of the voters",
    granting_voters="those that voted for the leader",
    previous_leader_id="the leader of the epoch before; null: not known",
    silent_ms="how long nobody wrote before its first record; 0 if the new leader's clock is behind; null: not known",
    failed_elections="the epochs since the one before in which no leader is known; null: not known",
    reason="why this leader: `first leader known`, `the previous leader resigned`, "
    "`the previous leader fell silent`, `the previous leader left the voter set`, `the same leader was elected again`, "
    "`its records were overridden by a later leader's`, `not known: the log has a hole`",
)
def leadership(canonical: Canonical) -> pa.Table:
    """One row an epoch with a known LeaderChange record, truncated epochs included.

    ``reason`` follows from the log: who led before, who may vote, and ``silent_ms``, the time without a record before
    the new leader's first; 0 if the new leader's clock is behind. ``failed_elections`` counts the epochs since the one
    before without a known leader. Behind a hole in the log ``reason`` says so, the columns about the epoch before are
    null, and that epoch ends where the log before the hole does.
    """
    batches = canonical.log("bronze_batches", "base_offset")
    found = batches.group_by("epoch").aggregate([
        ("max_timestamp", "max"), ("count", "sum"), ("count", "count"), ("era", "max"),
    ])  # fmt: skip
    written = {row["epoch"]: row for row in found.to_pylist()}
    firsts = batches.group_by("era").aggregate([("epoch", "min")])
    first_epochs = dict(zip(firsts["era"].to_pylist(), firsts["epoch_min"].to_pylist(), strict=True))
    changes = _with_truncated(canonical, "leader_change")
    won = sorted({row["epoch"] for row in changes})
    ends = {era.number: era.end for era in canonical.lineage.eras}
    rows: list[Row] = []
    for alive, group in zip((True, False), _by_life(changes, "epoch", "offset"), strict=True):
        is_next = [
            row["era"] == one["era"] or first_epochs[row["era"]] == one["epoch"]  # the hole lies within one epoch
            for one, row in pairwise(group)
        ]
        for number, row in enumerate(group):
            follows = number > 0 and is_next[number - 1]
            made = _epoch(canonical, group[number - 1] if follows else None, row, written, won)
            if number > 0 and not follows:
                made["reason"] = "not known: the log has a hole"
            if alive and number < len(is_next) and is_next[number]:
                made |= {"epoch_end_offset": group[number + 1]["offset"], "end_time": group[number + 1]["timestamp"]}
            elif alive and (end := ends[written[row["epoch"]]["era_max"]]) is not None:
                made |= {"epoch_end_offset": end, "end_time": made["last_write_time"]}
            rows.append(made)
    return pa.Table.from_pylist(rows, schema=_LEADERSHIP)


def _epoch(canonical: Canonical, before: Row | None, row: Row, written: dict[int, Row], won: list[int]) -> Row:
    last = written.get(row["epoch"], {})
    previous_write = None if before is None else written.get(before["epoch"], {}).get("max_timestamp_max")
    silent_ms = None if previous_write is None else max(_ms(row["timestamp"]) - _ms(previous_write), 0)
    voters = _ids(row["voters"])
    alive = row["era"] is not None
    if not alive:
        reason = "its records were overridden by a later leader's"
    elif before is None:
        reason = "first leader known"
    elif row["leader_id"] == before["leader_id"]:
        reason = "the same leader was elected again"
    elif voters is not None and before["leader_id"] not in voters:
        reason = "the previous leader left the voter set"
    elif silent_ms is not None and silent_ms < RESIGNATION_MS:
        reason = "the previous leader resigned"
    else:
        reason = "the previous leader fell silent"
    return {
        "cluster_id": canonical.cluster_id,
        "epoch": row["epoch"],
        "leader_id": row["leader_id"],
        "epoch_start_offset": row["offset"],
        "epoch_end_offset": None,
        "start_time": row["timestamp"],
        "end_time": None,
        "last_write_time": last.get("max_timestamp_max"),
        "records": last.get("count_sum"),
        "batches": last.get("count_count"),
        "voters": voters,
        "granting_voters": _ids(row["granting_voters"]),
        "previous_leader_id": None if before is None else before["leader_id"],
        "silent_ms": silent_ms,
        "failed_elections": None if before is None else _without_winner(before["epoch"], row["epoch"], won),
        "reason": reason,
        "status": canonical.status(row["era"], row["offset"]),
    }


def _without_winner(before: int, epoch: int, won: list[int]) -> int:
    # The number of epochs between two epochs that have no known leader; `won` is sorted.
    return epoch - before - 1 - (bisect_left(won, epoch) - bisect_right(won, before))


@gold(
    offset="the record that holds it; for a snapshot the last offset covered; -1: a directory was formatted with it",
    to_offset="the record with the next voter set; null: none, or this one was truncated",
    epoch="the epoch of that record",
    timestamp="the time of that record",
    voter_ids="the node ids of the voters, ascending",
    voters="the voters with what the record says about each; of a LeaderChange record only the ids",
    added="the node ids that the set before lacked",
    removed="the node ids of the set before that this one lacks",
    source="what holds it: `kraft_voters` or `leader_change` (a record of that type), `snapshot`",
)
def voter_sets(canonical: Canonical) -> pa.Table:
    """One row a voter set, from KRaftVoters records and from the snapshots that eras begin with.

    Below kraft.version 1, from LeaderChange records whose set differs from the one before.
    """
    rows = [row | {"source": "kraft_voters"} for row in _with_truncated(canonical, "kraft_voters")]
    state = canonical.state("kraft_voters")
    bases = where(state, equals(state["source"], "snapshot")).to_pylist()
    snapshots = canonical.raw("silver_kraft_voters")
    formatted = where(snapshots, equals(snapshots["source"], "snapshot") & equals(snapshots["snapshot_end_offset"], 0))
    bases += [row | {"at": -1, "era": 0} for row in formatted.slice(0, 1).to_pylist()]
    rows += [row | {"offset": row["at"], "source": "snapshot"} for row in bases]
    rows += _static(canonical)
    found: list[Row] = []
    for group in _by_life(rows, "offset"):
        sets: list[Row] = []
        before: list[int] = []
        for row in group:
            ids = sorted(_ids(row["voters"]) or [])
            if row["source"] != "leader_change" or ids != before:
                sets.append(_voter_set(canonical, row, ids, before))
            before = ids
        for row, after in pairwise(sets):
            row["to_offset"] = None if row["status"] == "truncated" else after["offset"]
        found += sets
    return pa.Table.from_pylist(found, schema=_VOTER_SETS)


def _voter_set(canonical: Canonical, row: Row, ids: list[int], before: list[int]) -> Row:
    return {
        "cluster_id": canonical.cluster_id,
        **{name: row[name] for name in ("offset", "epoch", "timestamp", "voters", "source")},
        "to_offset": None,
        "voter_ids": ids,
        "added": [one for one in dict.fromkeys(ids) if one not in before],
        "removed": [one for one in dict.fromkeys(before) if one not in ids],
        "status": canonical.status(row["era"], row["offset"]),
    }


def _static(canonical: Canonical) -> list[Row]:
    # LeaderChange records before the first KRaftVoters record, in the shape of KRaftVoters records.
    dynamic_from = min(canonical.log("kraft_voters")["offset"].to_pylist(), default=None)
    rows = canonical.log("leader_change").to_pylist()
    return [
        row | {"voters": [{"voter_id": number} for number in _ids(row["voters"]) or []], "source": "leader_change"}
        for row in rows
        if dynamic_from is None or row["offset"] < dynamic_from
    ]


def _with_truncated(canonical: Canonical, kind: str) -> list[Row]:
    # Records of the cluster's log and records that were overridden; the latter have no era.
    rows: list[Row] = canonical.log(kind).to_pylist()
    known = {(row["offset"], row["epoch"]) for row in rows}
    others = canonical.raw(f"silver_{kind}")
    for row in where(others, equals(others["source"], "log")).to_pylist():
        if (row["offset"], row["epoch"]) not in known:
            known.add((row["offset"], row["epoch"]))
            rows.append(row | {"era": None})
    return rows


def _by_life(rows: list[Row], *order: str) -> list[list[Row]]:
    # Two sorted lists: the rows of the log, and the rows that were overridden.
    ordered = sorted(rows, key=lambda row: tuple(row[name] for name in order))
    return [[row for row in ordered if (row["era"] is None) is lost] for lost in (False, True)]


def _ids(voters: list[Row] | None) -> list[int] | None:
    return None if voters is None else [one["voter_id"] for one in voters]


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000 // 1)
