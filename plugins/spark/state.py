"""The state of clusters at an offset or a time, from the histories in gold."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kraftcore.errors import LocalError
from kraftcore.plugins.spark.tables import Tables, union

HISTORIES = {
    "topics": "gold_topic_history",
    "partitions": "gold_partition_history",
    "brokers": "gold_broker_history",
    "controllers": "gold_controller_history",
    "configs": "gold_config_history",
    "features": "gold_feature_history",
    "quotas": "gold_quota_history",
    "scram_credentials": "gold_scram_history",
    "acls": "gold_acl_history",
    "delegation_tokens": "gold_token_history",
    "producer_ids": "gold_producer_ids_history",
}
_QUORUM = {
    "leader": ("gold_leadership", "epoch_start_offset", "epoch_end_offset", "start_time"),
    "voters": ("gold_voter_sets", "offset", "to_offset", "timestamp"),
}
_KNOWN_MAX = 5
KINDS = (*_QUORUM, *HISTORIES)
"""The kinds of things that have a state."""


def state_as_of(
    session: SparkSession,
    tables: str | Path,
    *,
    cluster_id: str | None = None,
    offset: int | None = None,
    time: datetime | None = None,
) -> dict[str, DataFrame]:
    """The state right after the record at ``offset``, or at ``time``; at the end of the log if neither is given.

    If the state at the end is not known (see ``unknown_ends``), the last known state is returned; leaders and voters
    are always those at the end.

    Leaders' clocks may differ, so a time stands for the last change in the log with that time or an earlier one.

    Args:
        session: Spark's session.
        tables: folder of the tables.
        cluster_id: the cluster; None: all clusters.
        offset: offset in the metadata log, 0 to 2**63 - 1.
        time: a moment; a naive one is UTC.

    Returns:
        By kind (``KINDS``), the rows of its history that were in force.

    Raises:
        LocalError: both an offset and a time, an offset out of range, a time outside of the years 1 to 9999 in UTC, no
            such cluster, or no tables.
    """
    if offset is not None and time is not None:
        raise LocalError("name an offset or a time, not both")
    if offset is not None and not 0 <= offset < 1 << 63:
        raise LocalError(f"offset {offset} is out of range: offsets are from 0 to {(1 << 63) - 1}")
    moment = None if time is None else _in_utc(time)
    target = Tables(session, tables)
    target.check()
    if cluster_id is not None and _history(target, "bronze_files", cluster_id).isEmpty():
        raise LocalError(unknown_cluster(target.path, cluster_id, target.clusters()))
    histories = {name: _history(target, table, cluster_id) for name, table in HISTORIES.items()}
    for name, (table, *columns) in _QUORUM.items():
        rows = _history(target, table, cluster_id).where("status <> 'truncated'")
        renamed = dict(zip(columns, ("from_offset", "to_offset", "from_time"), strict=True))
        histories[name] = rows.withColumnsRenamed(renamed)
    if offset is None and time is None:
        ends = F.broadcast(_known_ends(target, cluster_id))
        return {
            name: rows.where("to_offset is null") if name in _QUORUM else _last_known(rows, ends)
            for name, rows in histories.items()
        }
    if moment is not None:
        limits = F.broadcast(_offsets_at(histories, moment))
        histories = {name: rows.join(limits, "cluster_id") for name, rows in histories.items()}
    limit = F.col("limit") if time is not None else F.lit(offset)
    in_force = (F.col("from_offset") <= limit) & (F.col("to_offset").isNull() | (F.col("to_offset") > limit))
    return {name: rows.where(in_force).drop("limit") for name, rows in histories.items()}


def beyond_log(
    session: SparkSession,
    tables: str | Path,
    *,
    cluster_id: str | None = None,
    offset: int | None = None,
    time: datetime | None = None,
) -> list[str]:
    """Messages about clusters whose log ends before an offset or a time, or begins after the time.

    Args:
        session, tables, cluster_id, offset, time: as for ``state_as_of``.

    Raises:
        LocalError: no tables, or a time outside of the years 1 to 9999 in UTC.
    """
    moment = None if time is None else _in_utc(time)
    rows = _history(Tables(session, tables), "gold_logs", cluster_id).groupBy("cluster_id")
    spans = rows.agg(
        F.max("end_offset").alias("end"), F.unix_millis(F.min("first_time")).alias("first"),
        F.unix_millis(F.max("last_time")).alias("last"),
    )  # fmt: skip
    said = []
    for cluster, end, first, last in spans.orderBy("cluster_id").collect():
        if offset is not None and offset >= end:
            said.append(f"{cluster}: the log ends with offset {end - 1}: the state there is shown")
        elif moment is not None and last is not None and moment.timestamp() * 1000 > last:
            said.append(f"{cluster}: the log ends at {_written(last)}: the state there is shown")
        elif moment is not None and first is not None and moment.timestamp() * 1000 < first:
            said.append(f"{cluster}: the log begins at {_written(first)}: earlier changes are in snapshots only")
    return said


def _written(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def unknown_cluster(path: str, cluster_id: str, known: Sequence[str]) -> str:
    """The message about an unknown cluster; lists all known clusters if they are few, else those with similar names."""
    near = known if len(known) <= _KNOWN_MAX else get_close_matches(cluster_id, known, _KNOWN_MAX)
    said = f": {'known are' if near is known else 'of a name much like it are'} {', '.join(near)}" if near else ""
    return f"{path}: there is no cluster {cluster_id!r}{said}"


def _in_utc(time: datetime) -> datetime:
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:
        raise LocalError(f"time {time.isoformat()}: in UTC it is not of the years 1 to 9999") from None


def unknown_ends(
    session: SparkSession, tables: str | Path, *, cluster_id: str | None = None
) -> dict[str, tuple[int, int | None]]:
    """The clusters whose state at the end is not known: their log has a hole without a snapshot behind it.

    Args:
        session, tables, cluster_id: as for ``state_as_of``.

    Returns:
        By cluster: the offset from which on the state is not known, and the exclusive offset up to which the state was
        known last; None: it was never known.

    Raises:
        LocalError: no tables.
    """
    target = Tables(session, tables)
    target.check()
    rows = _known_ends(target, cluster_id).where("not is_known").collect()
    return {row["cluster_id"]: (row["unknown_from"], row["known_end"]) for row in rows}


def _known_ends(target: Tables, cluster_id: str | None) -> DataFrame:
    # By cluster, whether the state at the end is known, and the end of the last era with a known state.
    known_end = F.expr("max(if(is_complete, end_offset, null))")
    return (
        _history(target, "gold_eras", cluster_id)
        .groupBy("cluster_id")
        .agg(
            F.max_by("is_complete", "era").alias("is_known"),
            known_end.alias("known_end"),
            F.coalesce(known_end, F.min("start_offset")).alias("unknown_from"),
        )
    )


def _last_known(rows: DataFrame, ends: DataFrame) -> DataFrame:
    known = rows.join(ends, "cluster_id").where("if(is_known, to_offset is null, to_offset = known_end)")
    return known.select(*rows.columns)


def _history(target: Tables, table: str, cluster_id: str | None) -> DataFrame:
    rows = target.read(table)
    return rows if cluster_id is None else rows.where(F.col("cluster_id") == cluster_id)


def _offsets_at(histories: dict[str, DataFrame], moment: datetime) -> DataFrame:
    # By cluster, the offset of the last begin or end of a state up to a moment.
    changes = [rows.selectExpr("cluster_id", "from_offset as limit", "from_time as at") for rows in histories.values()]
    changes += [
        rows.selectExpr("cluster_id", "to_offset as limit", "to_time as at")
        for rows in histories.values()
        if "to_time" in rows.columns
    ]
    return union(changes).where(F.col("at") <= F.lit(moment)).groupBy("cluster_id").agg(F.max("limit").alias("limit"))
