"""The state of clusters at an offset or a time, from the histories in gold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from kraftcore.errors import LocalError
from kraftcore.plugins.spark.engines import Engine, SparkEngine
from kraftcore.plugins.spark.tables import Tables

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
STATE_TABLES = " ".join(("gold_eras", "gold_logs", *(table for table, *_ in _QUORUM.values()), *HISTORIES.values()))
"""The names of the tables that tell states."""


def state_as_of(
    session: SparkSession,
    tables: str | Path,
    *,
    cluster_id: str | None = None,
    offset: int | None = None,
    time: datetime | None = None,
) -> dict[str, DataFrame]:
    """The state right after the record at ``offset``, or at ``time``; at the end of the log if neither is given.

    If the state at the end is not known (see ``States.unknown_ends``), the last known state is returned; leaders and
    voters are always those at the end.

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
    target = Tables(session, tables)
    target.check()
    target.register(STATE_TABLES)
    found = States(target, SparkEngine(session), cluster_id).texts(offset=offset, time=time)
    return {kind: session.sql(text) for kind, text in found.items()}


class States:
    """Asks what was in force.

    Args:
        tables: the tables.
        engine: answers SQL about them.
        cluster_id: the cluster; None: all clusters.

    Raises:
        LocalError: no such cluster.
    """

    def __init__(self, tables: Tables, engine: Engine, cluster_id: str | None = None) -> None:
        if cluster_id is not None and cluster_id not in (known := tables.clusters()):
            raise LocalError(unknown_cluster(tables.path, cluster_id, known))
        self._tables = tables
        self._engine = engine
        self._of = "" if cluster_id is None else f" WHERE cluster_id = {engine.literal(cluster_id)}"

    def texts(self, *, offset: int | None = None, time: datetime | None = None) -> dict[str, str]:
        """SQL by kind, for the state that ``state_as_of`` describes.

        Raises:
            LocalError: both an offset and a time, an offset out of range, or a time outside of the years 1 to 9999 in
                UTC.
        """
        if offset is not None and time is not None:
            raise LocalError("name an offset or a time, not both")
        if offset is not None and not 0 <= offset < 1 << 63:
            raise LocalError(f"offset {offset} is out of range: offsets are from 0 to {(1 << 63) - 1}")
        condition, join = "state.to_offset IS NULL", ""
        if offset is not None:
            condition = _in_force(str(offset))
        elif time is not None:
            join = f" JOIN ({self._limits(_in_utc(time))}) AS reached ON reached.cluster_id = state.cluster_id"
            condition = _in_force("reached.last_offset")
        found = {kind: f"SELECT state.* FROM ({self._history(kind)}) AS state" for kind in KINDS}
        found = {kind: f"{text}{join} WHERE {condition}" for kind, text in found.items()}
        if offset is None and time is None:
            for kind in HISTORIES:
                found[kind] = (
                    f"SELECT state.* FROM ({self._history(kind)}) AS state "
                    f"JOIN ({self._ends()}) AS ends ON ends.cluster_id = state.cluster_id "
                    "WHERE if(is_known, to_offset IS NULL, to_offset = known_end)"
                )
        return found

    def unknown_ends(self) -> dict[str, tuple[int, int | None]]:
        """The clusters whose state at the end is not known: their log has a hole without a snapshot behind it.

        Returns:
            By cluster: the offset from which on the state is not known, and the exclusive offset up to which the state
            was known last; None: it was never known.
        """
        (rows,) = self._engine.answers([f"SELECT * FROM ({self._ends()}) AS ends WHERE NOT is_known"])
        return {row["cluster_id"]: (row["unknown_from"], row["known_end"]) for row in rows}

    def beyond_log(self, *, offset: int | None = None, time: datetime | None = None) -> list[str]:
        """Messages about clusters whose log ends before an offset or a time, or begins after the time.

        Raises:
            LocalError: a time outside of the years 1 to 9999 in UTC.
        """
        ms = None if time is None else _in_utc(time).timestamp() * 1000
        text = (
            "SELECT cluster_id, max(end_offset) AS log_end, unix_millis(min(first_time)) AS first_ms, "
            f"unix_millis(max(last_time)) AS last_ms FROM gold_logs{self._of} GROUP BY cluster_id ORDER BY cluster_id"
        )
        (rows,) = self._engine.answers([text])
        said = []
        for cluster, end, first, last in map(dict.values, rows):
            if offset is not None and offset >= end:
                said.append(f"{cluster}: the log ends with offset {end - 1}: the state there is shown")
            elif ms is not None and last is not None and ms > last:
                said.append(f"{cluster}: the log ends at {_written(last)}: the state there is shown")
            elif ms is not None and first is not None and ms < first:
                said.append(f"{cluster}: the log begins at {_written(first)}: earlier changes are in snapshots only")
        return said

    def _history(self, kind: str) -> str:
        # All rows of a kind.
        if kind in HISTORIES:
            return f"SELECT * FROM {HISTORIES[kind]}{self._of}"
        table, *columns = _QUORUM[kind]
        renamed = dict(zip(columns, ("from_offset", "to_offset", "from_time"), strict=True))
        names = [f"{name} AS {renamed[name]}" if name in renamed else name for name in _names(self._tables, table)]
        of = f"{self._of} AND" if self._of else " WHERE"
        return f"SELECT {', '.join(names)} FROM {table}{of} status <> 'truncated'"

    def _ends(self) -> str:
        # By cluster, whether the state at the end is known, and the end of the last era with a known state.
        known_end = "max(if(is_complete, end_offset, null))"
        return (
            f"SELECT cluster_id, max_by(is_complete, era) AS is_known, {known_end} AS known_end, "
            f"coalesce({known_end}, min(start_offset)) AS unknown_from FROM gold_eras{self._of} GROUP BY cluster_id"
        )

    def _limits(self, moment: datetime) -> str:
        # By cluster, the offset of the last begin or end of a state up to a moment.
        changes = [f"SELECT cluster_id, from_offset AS change, from_time AS time FROM ({self._history(kind)}) AS begun"
                   for kind in KINDS]  # fmt: skip
        changes += [f"SELECT cluster_id, to_offset, to_time FROM {table}{self._of}" for table in HISTORIES.values()]
        return (
            f"SELECT cluster_id, max(change) AS last_offset FROM ({' UNION ALL '.join(changes)}) AS changes "
            f"WHERE time <= cast('{moment.isoformat(sep=' ')}' AS timestamp) GROUP BY cluster_id"
        )


def _names(tables: Tables, table: str) -> list[str]:
    return StructType.fromJson(json.loads(tables.read_columns(table))).names


def _in_force(limit: str) -> str:
    return f"state.from_offset <= {limit} AND (state.to_offset IS NULL OR state.to_offset > {limit})"


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
