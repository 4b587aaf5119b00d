"""Histories of brokers, controllers, topics, configs, features, quotas, credentials and ACLs."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from kraftcore.plugins.spark.canonical import Canonical

_EVENT = ["cluster_id", "era", "at", "seq", "timestamp"]
UNFENCE, FENCE = -1, 1


def topics(canonical: Canonical) -> DataFrame:
    """One row a topic: from its creation to its deletion."""
    made = canonical.state("topic").select(
        *_EVENT, "topic_id", F.col("name").alias("topic"), F.lit(False).alias("gone")
    )
    gone = canonical.state("remove_topic").select(
        *_EVENT, "topic_id", F.lit(None).cast("string").alias("topic"), F.lit(True).alias("gone")
    )
    return canonical.history(made.unionByName(gone), ["topic_id"], ["topic"], gone=F.col("gone"))


def brokers(canonical: Canonical) -> DataFrame:
    """One row a state of a broker; ``event`` says what brought it about.

    A registration starts anew; the records of fencing and controlled shutdown change what they name.
    """
    fields = ["incarnation_id", "broker_epoch", "rack", "end_points", "features", "log_dirs", "cordoned_log_dirs"]
    registered = canonical.state("register_broker").select(
        *_EVENT, "broker_id", *fields, "fenced", "in_controlled_shutdown", F.lit("registered").alias("event"),
    )  # fmt: skip
    own = ("log_dirs", "cordoned_log_dirs")
    nothing = [F.lit(None).cast(registered.schema[name].dataType).alias(name) for name in fields if name not in own]
    changes = canonical.state("broker_registration_change")
    fenced = F.when(F.col("fenced") == FENCE, True).when(F.col("fenced") == UNFENCE, False)
    shutdown = F.when(F.col("in_controlled_shutdown") == 1, True)
    changed = changes.select(
        *_EVENT,
        "broker_id",
        *nothing,
        F.when(F.size("log_dirs") > 0, F.col("log_dirs")).alias("log_dirs"),
        "cordoned_log_dirs",
        fenced.alias("fenced"),
        shutdown.alias("in_controlled_shutdown"),
        F.when(F.col("fenced") == FENCE, "fenced")
        .when(F.col("fenced") == UNFENCE, "unfenced")
        .when(F.col("in_controlled_shutdown") == 1, "controlled shutdown")
        .otherwise("directories changed")
        .alias("event"),
    )

    def plain(kind: str, key: str, event: str, fence: bool | None) -> DataFrame:
        return canonical.state(kind).select(
            *_EVENT,
            F.col(key).alias("broker_id"),
            *[F.lit(None).cast(registered.schema[name].dataType).alias(name) for name in fields],
            F.lit(fence).cast("boolean").alias("fenced"),
            F.lit(None).cast("boolean").alias("in_controlled_shutdown"),
            F.lit(event).alias("event"),
        )

    rows = (
        registered.unionByName(changed)
        .unionByName(plain("fence_broker", "id", "fenced", True))
        .unionByName(plain("unfence_broker", "id", "unfenced", False))
        .unionByName(plain("unregister_broker", "broker_id", "unregistered", None))
    )
    order = Window.partitionBy("cluster_id", "era", "broker_id").orderBy("at", "seq")
    rows = rows.withColumn("life", F.sum(F.when(F.col("event") == "registered", 1).otherwise(0)).over(order))
    life = Window.partitionBy("cluster_id", "era", "broker_id", "life").orderBy("at", "seq")
    filled = (*fields, "fenced", "in_controlled_shutdown")
    rows = rows.withColumns({name: F.last(name, ignorenulls=True).over(life) for name in filled})
    columns = ["event", *fields, "fenced", "in_controlled_shutdown"]
    return canonical.history(rows, ["broker_id"], columns, gone=F.col("event") == "unregistered")


def controllers(canonical: Canonical) -> DataFrame:
    """One row a registration of a controller (KIP-919)."""
    rows = canonical.state("register_controller")
    return canonical.history(
        rows, ["controller_id"], ["incarnation_id", "zk_migration_ready", "end_points", "features"]
    )


def configs(canonical: Canonical) -> DataFrame:
    """One row a value of a config; a deleted topic's configs end with it."""
    rows = canonical.state("config").select(*_EVENT, "resource_type", "resource_name", "name", "value")
    names = canonical.state("topic").select("cluster_id", "era", "topic_id", F.col("name").alias("resource_name"))
    removed = (
        canonical.state("remove_topic")
        .select(*_EVENT, "topic_id")
        .join(names.dropDuplicates(["cluster_id", "era", "topic_id"]), ["cluster_id", "era", "topic_id"])
    )
    keys = rows.select("cluster_id", "era", "resource_type", "resource_name", "name").distinct()
    ends = removed.join(
        keys.where(F.col("resource_type") == RESOURCE_TOPIC), ["cluster_id", "era", "resource_name"]
    ).select(*_EVENT, "resource_type", "resource_name", "name", F.lit(None).cast("string").alias("value"))
    return canonical.history(
        rows.unionByName(ends), ["resource_type", "resource_name", "name"], ["value"], gone=F.col("value").isNull()
    )


RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4


def features(canonical: Canonical) -> DataFrame:
    """One row a finalized level of a feature; kraft.version comes from its control record."""
    rows = canonical.state("feature_level").select(*_EVENT, "name", "feature_level")
    kraft = canonical.state("kraft_version").select(
        *_EVENT, F.lit("kraft.version").alias("name"), F.col("kraft_version").alias("feature_level")
    )
    return canonical.history(rows.unionByName(kraft), ["name"], ["feature_level"], gone=F.col("feature_level") == 0)


def quotas(canonical: Canonical) -> DataFrame:
    """One row a value of a client quota."""
    entity = F.array_sort("entity")
    rows = canonical.state("client_quota").withColumn("entity", entity).withColumnRenamed("value", "quota")
    return canonical.history(rows, ["entity", "key"], ["quota"], gone=F.col("remove"))


def scram_credentials(canonical: Canonical) -> DataFrame:
    """One row a SCRAM credential, without its secrets."""
    keys = ["name", "mechanism"]
    rows = canonical.state("user_scram_credential").select(*_EVENT, *keys, "iterations")
    gone = canonical.state("remove_user_scram_credential").select(
        *_EVENT, *keys, F.lit(None).cast("int").alias("iterations")
    )
    return canonical.history(rows.unionByName(gone), keys, ["iterations"], gone=F.col("iterations").isNull())


def acls(canonical: Canonical) -> DataFrame:
    """One row an access control entry."""
    columns = ["resource_type", "resource_name", "pattern_type", "principal", "host", "operation", "permission_type"]
    rows = canonical.state("access_control_entry").select(*_EVENT, "id", *columns)
    gone = canonical.state("remove_access_control_entry").select(
        *_EVENT, "id", *[F.lit(None).cast(rows.schema[name].dataType).alias(name) for name in columns]
    )
    return canonical.history(rows.unionByName(gone), ["id"], columns, gone=F.col("principal").isNull())


def delegation_tokens(canonical: Canonical) -> DataFrame:
    """One row a state of a delegation token."""
    columns = ["owner", "requester", "renewers", "issue_timestamp", "max_timestamp", "expiration_timestamp"]
    rows = canonical.state("delegation_token").select(*_EVENT, "token_id", *columns)
    gone = canonical.state("remove_delegation_token").select(
        *_EVENT, "token_id", *[F.lit(None).cast(rows.schema[name].dataType).alias(name) for name in columns]
    )
    return canonical.history(rows.unionByName(gone), ["token_id"], columns, gone=F.col("owner").isNull())


def producer_ids(canonical: Canonical) -> DataFrame:
    """One row a block of producer ids."""
    rows = canonical.state("producer_ids")
    return canonical.history(rows, [], ["broker_id", "broker_epoch", "next_producer_id"])
