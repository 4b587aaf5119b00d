"""Who led when and why it changed; who could vote."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kraftcore.plugins.spark.canonical import Canonical

RESIGNATION_MS = 1500
"""A new leader within this time was let in by the old one; a silent one is missed only after 2 s (KIP-595)."""


def leadership(canonical: Canonical) -> DataFrame:
    """One row an epoch that a leader's first record is known of, truncated ones included.

    ``reason`` is told from what is in the log: who led before, who may vote, and how long nothing was written.
    ``failed_elections`` counts the epochs since the one before that no leader came out of.
    """
    changes = _with_truncated(canonical, "leader_change")
    changes = changes.select(
        "cluster_id",
        "epoch",
        "leader_id",
        F.col("offset").alias("epoch_start_offset"),
        F.col("timestamp").alias("start_time"),
        F.col("voters.voter_id").alias("voters"),
        F.col("granting_voters.voter_id").alias("granting_voters"),
        "offset",
        "era",
    )
    last = canonical.log("bronze_batches", "base_offset").groupBy("cluster_id", "epoch")
    last_batches = last.agg(
        F.max("max_timestamp").alias("last_write_time"),
        (F.max("last_offset") + 1).alias("written_end"),
        F.sum("count").alias("records"),
        F.count("*").alias("batches"),
    )
    rows = changes.join(last_batches, ["cluster_id", "epoch"], "left")
    alive = Window.partitionBy("cluster_id", F.col("era").isNull()).orderBy("epoch", "offset")
    rows = (
        rows.withColumn("previous_leader_id", F.lag("leader_id").over(alive))
        .withColumn("previous_write_time", F.lag("last_write_time").over(alive))
        .withColumn("epoch_end_offset", F.lead("offset").over(alive))
        .withColumn("end_time", F.lead("start_time").over(alive))
        .withColumn("silent_ms", _milliseconds("start_time") - _milliseconds("previous_write_time"))
        .withColumn("failed_elections", F.col("epoch") - F.lag("epoch").over(alive) - 1)
    )
    reason = (
        F.when(F.col("era").isNull(), "its records were overridden by a later leader's")
        .when(F.col("previous_leader_id").isNull(), "first leader known")
        .when(F.col("leader_id") == F.col("previous_leader_id"), "the same leader was elected again")
        .when(~F.array_contains("voters", F.col("previous_leader_id")), "the previous leader left the voter set")
        .when(F.col("silent_ms") < RESIGNATION_MS, "the previous leader resigned")
        .otherwise("the previous leader fell silent")
    )
    rows = canonical.status(rows.withColumn("reason", reason))
    return rows.select(
        "cluster_id", "epoch", "leader_id", "epoch_start_offset",
        F.when(F.col("era").isNotNull(), F.col("epoch_end_offset")).alias("epoch_end_offset"),
        "start_time", F.when(F.col("era").isNotNull(), F.col("end_time")).alias("end_time"),
        "last_write_time", "records", "batches", "voters", "granting_voters", "previous_leader_id", "silent_ms",
        "failed_elections", "reason", "status",
    )  # fmt: skip


def voter_sets(canonical: Canonical) -> DataFrame:
    """One row a voter set: from KRaftVoters records, from the snapshots that a history begins with, and, below
    kraft.version 1, from LeaderChange records where the set differs from the one before.
    """
    columns = ["cluster_id", "era", "offset", "epoch", "timestamp", "voters", "source"]
    records = _with_truncated(canonical, "kraft_voters").withColumn("source", F.lit("kraft_voters")).select(columns)
    bases = canonical.state("kraft_voters").where("source = 'snapshot'")
    formatted = canonical.raw("silver_kraft_voters").where("source = 'snapshot' and snapshot_end_offset = 0")
    formatted = formatted.withColumn("at", F.lit(-1).cast("long")).withColumn("era", F.lit(0))
    snapshots = bases.select("cluster_id", "era", "at", "epoch", "timestamp", "voters").unionByName(
        formatted.select("cluster_id", "era", "at", "epoch", "timestamp", "voters").dropDuplicates(["cluster_id"])
    )
    snapshots = snapshots.withColumnRenamed("at", "offset").withColumn("source", F.lit("snapshot")).select(columns)
    static = _static(canonical).select(columns)
    rows = records.unionByName(snapshots).unionByName(static)
    rows = rows.withColumn("voter_ids", F.array_sort(F.col("voters.voter_id")))
    order = Window.partitionBy("cluster_id", F.col("era").isNull()).orderBy("offset")
    before = F.coalesce(F.lag("voter_ids").over(order), F.array().cast("array<int>"))
    rows = rows.withColumn("before", before).where("source <> 'leader_change' or voter_ids <> before")
    rows = rows.withColumn("added", F.array_except("voter_ids", "before"))
    rows = rows.withColumn("removed", F.array_except("before", "voter_ids"))
    rows = rows.withColumn("to_offset", F.when(F.col("era").isNotNull(), F.lead("offset").over(order)))
    return canonical.status(rows).select(
        "cluster_id", "offset", "to_offset", "epoch", "timestamp", "voter_ids", "voters", "added", "removed", "source",
        "status",
    )  # fmt: skip


def _static(canonical: Canonical) -> DataFrame:
    # Voters of LeaderChange records, in the shape of KRaftVoters; only before the first KRaftVoters record.
    dynamic = canonical.log("kraft_voters").groupBy("cluster_id").agg(F.min("offset").alias("dynamic_from"))
    kind = canonical.raw("silver_kraft_voters").schema["voters"].dataType.simpleString()
    text = "transform(voters, v -> named_struct('voter_id', v.voter_id))"
    voters = F.from_json(F.to_json(F.expr(text)), kind)
    rows = canonical.log("leader_change").join(F.broadcast(dynamic), "cluster_id", "left")
    rows = rows.where("dynamic_from is null or offset < dynamic_from")
    return rows.withColumn("voters", voters).withColumn("source", F.lit("leader_change"))


def _with_truncated(canonical: Canonical, kind: str) -> DataFrame:
    # Records of the clusters' logs, and those that were overridden: these have no era.
    log = canonical.log(kind).drop("state_from")
    known = log.select("cluster_id", "offset", "epoch")
    others = (
        canonical.raw(f"silver_{kind}")
        .where("source = 'log'")
        .join(known, ["cluster_id", "offset", "epoch"], "left_anti")
    )
    others = others.dropDuplicates(["cluster_id", "offset", "epoch"]).withColumn("era", F.lit(None).cast("int"))
    return log.unionByName(others.select(log.columns))


def _milliseconds(name: str) -> Column:
    return F.unix_millis(F.col(name))
