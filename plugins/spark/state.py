"""The state of a cluster as of an offset or a time, from the histories."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kraftcore.errors import LocalError
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


def state_as_of(
    session: SparkSession,
    tables: str | Path,
    *,
    cluster_id: str | None = None,
    offset: int | None = None,
    time: datetime | None = None,
) -> dict[str, DataFrame]:
    """What was in force right after the record at ``offset``, or at ``time``; or now, if neither is given.

    Args:
        session: Spark's.
        tables: folder of the tables.
        cluster_id: whose; None for all.
        offset: of the metadata log, >= 0.
        time: a moment; naive ones are UTC.

    Returns:
        For each kind of thing (``topics``, ``partitions``, ``brokers``, ...) the rows of its history in force then.

    Raises:
        LocalError: both an offset and a time, a negative offset, or no tables.
    """
    if offset is not None and time is not None:
        raise LocalError("name an offset or a time, not both")
    if offset is not None and offset < 0:
        raise LocalError(f"offset {offset} is negative")
    target = Tables(session, tables)
    target.check()
    result = {}
    for name, table in HISTORIES.items():
        rows = target.read(table)
        if cluster_id is not None:
            rows = rows.where(F.col("cluster_id") == cluster_id)
        if offset is not None:
            rows = rows.where((F.col("from_offset") <= offset) & (F.coalesce("to_offset", F.lit(1 << 62)) > offset))
        elif time is not None:
            moment = F.lit(time)
            rows = rows.where(
                (F.col("from_time") <= moment) & (F.col("to_time").isNull() | (F.col("to_time") > moment))
            )
        else:
            rows = rows.where("to_offset is null")
        result[name] = rows
    return result
