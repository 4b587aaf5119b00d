"""What the replicas hold, where they differ, and how the log grew."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kraftcore.plugins.spark.canonical import Canonical
from kraftcore.plugins.spark.lineage import without_cuts, without_dead


def logs(canonical: Canonical) -> DataFrame:
    """One row a log: what part of the cluster's history it holds, and how much of it is known to be committed."""
    rows = canonical.raw("bronze_batches").where("source = 'log' and is_valid")
    rows = without_dead(canonical.tables, rows, canonical.lineage.dead, "base_offset")
    rows = without_cuts(canonical.tables, rows, canonical.lineage.cuts, "base_offset")
    limits = _committed(canonical)
    best = [(log.log_id,) for log in canonical.lineage.best.values()] or [(0,)]
    chosen = canonical.tables.session.createDataFrame(best, "log_id long").withColumn("is_reference", F.lit(True))
    return (
        rows.groupBy("cluster_id", "node_id", "directory_id", "log_id")
        .agg(
            F.min("base_offset").alias("start_offset"),
            (F.max("last_offset") + 1).alias("end_offset"),
            F.max("epoch").alias("last_epoch"),
            F.count("*").alias("batches"),
            F.sum("count").alias("records"),
            F.sum("size").alias("bytes"),
            F.min("base_timestamp").alias("first_time"),
            F.max("max_timestamp").alias("last_time"),
        )
        .join(F.broadcast(limits), "cluster_id", "left")
        .join(F.broadcast(chosen), "log_id", "left")
        .withColumn("is_reference", F.coalesce("is_reference", F.lit(False)))
    )


def _committed(canonical: Canonical) -> DataFrame:
    known = list(canonical.committed.items()) or [("", 0)]
    return canonical.tables.session.createDataFrame(known, "cluster_id string, committed_end long")


def divergence(canonical: Canonical) -> DataFrame:
    """One row a pair of logs that have different bytes at an offset: the first such offset, and both sides.

    What one log lacks is no difference. A difference at or above ``committed_end`` is an end that was never committed;
    below it, data was damaged or lost.
    """
    rows = canonical.raw("bronze_batches").where("source = 'log'")
    rows = without_dead(canonical.tables, rows, canonical.lineage.dead, "base_offset")
    rows = canonical.keep(
        rows.select("cluster_id", "log_id", "node_id", "base_offset", "last_offset", "epoch", "crc", "size", "is_valid")
    )
    differing = (
        rows.groupBy("cluster_id", "base_offset")
        .agg(
            F.count_distinct("epoch", "crc", "size").alias("kinds"),
            F.max((~F.col("is_valid")).cast("int")).alias("bad"),
        )
        .where("kinds > 1 or bad = 1")
        .select("cluster_id", "base_offset")
    )
    suspects = rows.join(F.broadcast(differing), ["cluster_id", "base_offset"])
    left, right = _sides(suspects, "a"), _sides(suspects, "b")
    pairs = left.join(right, ["cluster_id", "base_offset"]).where(
        "log_id_a < log_id_b and (epoch_a <> epoch_b or crc_a <> crc_b or size_a <> size_b or is_valid_a <> is_valid_b)"
    )
    first = pairs.groupBy("cluster_id", "log_id_a", "log_id_b").agg(
        F.min_by(
            F.struct(
                *[name for name in pairs.columns if name[:-2] not in ("log_id", "cluster_id") and name != "cluster_id"]
            ),
            "base_offset",
        ).alias("first"),
        F.count("*").alias("batches"),
    )
    found = first.select("cluster_id", "log_id_a", "log_id_b", "first.*", "batches")
    found = canonical.keep(found)
    found = found.join(_first_record(canonical, found), ["cluster_id", "log_id_a", "log_id_b"], "left")
    found = found.withColumn("offset", F.coalesce("first_record", "base_offset"))
    limits = _committed(canonical)
    return found.join(F.broadcast(limits), "cluster_id", "left").select(
        "cluster_id", "offset", "base_offset", "node_id_a", "node_id_b", "log_id_a", "log_id_b", "epoch_a", "epoch_b",
        "crc_a", "crc_b", "last_offset_a", "last_offset_b", "is_valid_a", "is_valid_b",
        F.col("batches").alias("batches_differing"), "committed_end",
        (F.col("offset") < F.coalesce("committed_end", F.lit(0))).alias("is_below_committed"),
    )  # fmt: skip


def _sides(rows: DataFrame, side: str) -> DataFrame:
    names = [name for name in rows.columns if name not in ("cluster_id", "base_offset")]
    return rows.select("cluster_id", "base_offset", *[F.col(name).alias(f"{name}_{side}") for name in names])


def _first_record(canonical: Canonical, found: DataFrame) -> DataFrame:
    # Two batches of one epoch may begin with equal records: the first record that differs.
    spots = found.select("cluster_id", "log_id_a", "log_id_b", "base_offset", "last_offset_a", "last_offset_b")
    records = canonical.raw("bronze_records").where("source = 'log'")
    records = without_dead(canonical.tables, records, canonical.lineage.dead, "offset").select(
        "cluster_id",
        "log_id",
        "offset",
        F.xxhash64("epoch", "timestamp", "is_control", "key", "value").alias("content"),
    )

    def side(name: str) -> DataFrame:
        spot = F.broadcast(spots).alias("spot")
        rows = records.alias("rows").join(
            spot,
            (F.col("rows.log_id") == F.col(f"spot.log_id_{name}"))
            & F.col("rows.offset").between(F.col("spot.base_offset"), F.col(f"spot.last_offset_{name}")),
        )
        return rows.select("spot.cluster_id", "log_id_a", "log_id_b", "offset", F.col("content").alias(name))

    keys = ["cluster_id", "log_id_a", "log_id_b"]
    both = side("a").join(side("b"), [*keys, "offset"], "full").where("not (a <=> b)")
    return both.groupBy(keys).agg(F.min("offset").alias("first_record"))


def batch_stats(canonical: Canonical) -> DataFrame:
    """How the log grew by minute and epoch: records, how many of them are known to be committed, batches, bytes, and
    the pauses between batches.
    """
    limits = _committed(canonical)
    rows = canonical.log("bronze_batches", "base_offset").join(F.broadcast(limits), "cluster_id", "left")
    inside = F.least(F.col("last_offset") + 1, "committed_end") - F.col("base_offset")
    order = Window.partitionBy("cluster_id").orderBy("base_offset")
    pause = F.unix_millis("base_timestamp") - F.unix_millis(F.lag("max_timestamp").over(order))
    return (
        rows.withColumn("pause_ms", pause)
        .withColumn("minute", F.date_trunc("minute", "base_timestamp"))
        .groupBy("cluster_id", "minute", "epoch")
        .agg(
            F.min("base_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.count("*").alias("batches"),
            F.sum("count").alias("records"),
            F.sum(F.greatest(F.coalesce(inside, F.lit(0)), F.lit(0))).alias("committed_records"),
            F.sum("size").alias("bytes"),
            F.max("size").alias("batch_bytes_max"),
            F.max("pause_ms").alias("pause_ms_max"),
            F.sum(F.col("is_control").cast("int")).alias("control_batches"),
        )
    )
