"""Leader and in-sync replicas of every partition over time, and how long it was offline or short of replicas."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kraftcore.plugins.spark.canonical import Canonical
from kraftcore.plugins.spark.gold_state import RESOURCE_BROKER, RESOURCE_TOPIC

_EVENT = ["cluster_id", "era", "at", "seq", "timestamp"]
_KEY = ["topic_id", "partition_id"]
_LISTS = ["isr", "replicas", "removing_replicas", "adding_replicas", "eligible_leader_replicas", "last_known_elr"]
_STATE = [*_LISTS, "directories", "leader", "leader_recovery_state"]
NO_LEADER, NO_LEADER_CHANGE, NO_RECOVERY_CHANGE = -1, -2, -1
_MIN_ISR = "min.insync.replicas"


def partitions(canonical: Canonical) -> DataFrame:
    """One row a state of a partition, with what it meant: offline, under-replicated, under min ISR, and how long.

    ``change`` names what brought the state about; ``min_isr`` is in force: the topic's, else the cluster's, else 1.
    """
    events = canonical.keep(_records(canonical).unionByName(_changes(canonical), allowMissingColumns=True))
    keys = canonical.keep(events.select("cluster_id", "era", *_KEY).distinct())
    topics = canonical.keep(_named_topics(canonical))
    for more in (_ends(canonical, keys), _elr_cleared(canonical, keys, topics), _min_isr(canonical, keys, topics)):
        events = events.unionByName(more, allowMissingColumns=True)
    names = topics.drop("made_at").dropDuplicates(["cluster_id", "era", "topic_id"])
    rows = _filled(events).join(names, ["cluster_id", "era", "topic_id"], "left")
    columns = [
        "topic", "change", *_STATE, "leader_epoch", "partition_epoch", "min_isr", "previous_leader", "previous_isr",
    ]  # fmt: skip
    known = rows.where("leader is not null or change in ('created', 'changed', 'removed')")  # else: not created yet
    states = canonical.history(known, _KEY, columns, gone=F.col("change") == "removed")
    return _judged(states)


def _judged(states: DataFrame) -> DataFrame:
    rows = (
        states.withColumn("is_offline", F.col("leader") == NO_LEADER)
        .withColumn("is_under_replicated", F.size("isr") < F.size(F.array_except("replicas", "adding_replicas")))
        .withColumn("is_under_min_isr", F.size("isr") < F.col("min_isr"))
        .withColumn("is_leader_change", F.coalesce(~F.col("leader").eqNullSafe(F.col("previous_leader")), F.lit(True)))
        .withColumn("isr_removed", F.array_except("previous_isr", "isr"))
        .withColumn("isr_added", F.array_except("isr", "previous_isr"))
    )
    return rows.withColumnRenamed("partition_id", "partition")


def _records(canonical: Canonical) -> DataFrame:
    # Whole states. Lists that an old version does not have are empty.
    full = canonical.state("partition")
    lists = [F.coalesce(name, F.array().cast("array<int>")).alias(name) for name in _LISTS]
    return full.select(
        *_EVENT, *_KEY, *lists, "directories", "leader", "leader_recovery_state", "leader_epoch", "partition_epoch",
        F.lit("created").alias("change"),
    )  # fmt: skip


def _changes(canonical: Canonical) -> DataFrame:
    rows = canonical.state("partition_change")
    leader = F.when(F.col("leader") != NO_LEADER_CHANGE, F.col("leader"))
    recovery = F.when(F.col("leader_recovery_state") != NO_RECOVERY_CHANGE, F.col("leader_recovery_state"))
    return rows.select(
        *_EVENT, *_KEY, *_LISTS, "directories", leader.alias("leader"), recovery.alias("leader_recovery_state"),
        F.lit("changed").alias("change"),
    )  # fmt: skip


def _ends(canonical: Canonical, keys: DataFrame) -> DataFrame:
    gone = canonical.state("remove_topic").select(*_EVENT, "topic_id")
    return gone.join(keys, ["cluster_id", "era", "topic_id"]).withColumn("change", F.lit("removed"))


def _named_topics(canonical: Canonical) -> DataFrame:
    return canonical.state("topic").select(
        "cluster_id", "era", "topic_id", F.col("name").alias("topic"), F.col("at").alias("made_at")
    )


def _elr_cleared(canonical: Canonical, keys: DataFrame, topics: DataFrame) -> DataFrame:
    # Of one topic, or of all (KIP-966).
    cleared = canonical.state("clear_elr").select(*_EVENT, "topic_name")
    hit = cleared.join(topics, ["cluster_id", "era"]).where("made_at <= at and (topic_name = '' or topic_name = topic)")
    nothing = F.array().cast("array<int>")
    return (
        hit.join(keys, ["cluster_id", "era", "topic_id"])
        .select(*_EVENT, *_KEY, F.lit("elr cleared").alias("change"))
        .withColumn("eligible_leader_replicas", nothing)
        .withColumn("last_known_elr", nothing)
    )


def _min_isr(canonical: Canonical, keys: DataFrame, topics: DataFrame) -> DataFrame:
    # Each value of the config is an event of all partitions that it is about.
    values = canonical.state("config").where(F.col("name") == _MIN_ISR)
    number = F.coalesce(F.col("value").cast("int"), F.lit(0))
    of_topic = (
        values.where(F.col("resource_type") == RESOURCE_TOPIC)
        .join(topics.withColumnRenamed("topic", "resource_name"), ["cluster_id", "era", "resource_name"])
        .join(keys, ["cluster_id", "era", "topic_id"])
        .select(*_EVENT, *_KEY, number.alias("topic_min_isr"), F.lit("configured").alias("change"))
    )
    of_all = (
        values.where((F.col("resource_type") == RESOURCE_BROKER) & (F.col("resource_name") == ""))
        .join(keys, ["cluster_id", "era"])
        .select(*_EVENT, *_KEY, number.alias("cluster_min_isr"), F.lit("configured").alias("change"))
    )
    return of_topic.unionByName(of_all, allowMissingColumns=True)


def _filled(events: DataFrame) -> DataFrame:
    # From changes to whole states, and the epochs that changes raise without saying so.
    order = Window.partitionBy("cluster_id", "era", *_KEY).orderBy("at", "seq")
    rows = events.withColumn("life", F.sum(F.when(F.col("change") == "created", 1).otherwise(0)).over(order))
    life = Window.partitionBy("cluster_id", "era", *_KEY, "life").orderBy("at", "seq")
    elected = F.when((F.col("change") == "changed") & F.col("leader").isNotNull(), 1).otherwise(0)
    changed = F.when(F.col("change") == "changed", 1).otherwise(0)
    filled = {name: F.last(name, ignorenulls=True).over(life) for name in (*_STATE, "leader_epoch", "partition_epoch")}
    filled |= {name: F.last(name, ignorenulls=True).over(order) for name in ("topic_min_isr", "cluster_min_isr")}
    filled |= {"elections": F.sum(elected).over(life), "changes": F.sum(changed).over(life)}
    no_zero = [F.when(F.col(name) > 0, F.col(name)) for name in ("topic_min_isr", "cluster_min_isr")]
    return rows.withColumns(filled).withColumns(
        {
            "leader_epoch": F.col("leader_epoch") + F.col("elections"),
            "partition_epoch": F.col("partition_epoch") + F.col("changes"),
            "min_isr": F.coalesce(*no_zero, F.lit(1)),
            "previous_leader": F.lag("leader").over(life),
            "previous_isr": F.lag("isr").over(life),
        }
    )
