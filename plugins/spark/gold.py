"""The third layer: answers. Every table is made anew for the clusters that have new records.

Histories have a row for each state that something was in: from ``from_offset`` (the record that brought it about) to
``to_offset`` (exclusive; null: until now). The state as of an offset is the rows that hold it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from kraftcore.plugins.spark import gold_audit, gold_partitions, gold_quorum, gold_state
from kraftcore.plugins.spark.canonical import Canonical
from kraftcore.plugins.spark.lineage import read_lineage
from kraftcore.plugins.spark.tables import Tables

_JOBS_AT_ONCE = 4
GOLD: dict[str, Callable[[Canonical], DataFrame]] = {
    "gold_leadership": gold_quorum.leadership,
    "gold_voter_sets": gold_quorum.voter_sets,
    "gold_logs": gold_audit.logs,
    "gold_divergence": gold_audit.divergence,
    "gold_batch_stats": gold_audit.batch_stats,
    "gold_topic_history": gold_state.topics,
    "gold_partition_history": gold_partitions.partitions,
    "gold_broker_history": gold_state.brokers,
    "gold_controller_history": gold_state.controllers,
    "gold_config_history": gold_state.configs,
    "gold_feature_history": gold_state.features,
    "gold_quota_history": gold_state.quotas,
    "gold_scram_history": gold_state.scram_credentials,
    "gold_acl_history": gold_state.acls,
    "gold_token_history": gold_state.delegation_tokens,
    "gold_producer_ids_history": gold_state.producer_ids,
}


def _make(canonical: Canonical, name: str) -> None:
    canonical.tables.write_clusters(name, GOLD[name](canonical), canonical.clusters)


def refresh_gold(tables: Tables, say: Callable[[str], None], finished: Mapping[str, int] | None = None) -> list[str]:
    """Bring gold up to date with silver.

    Args:
        tables: all of them.
        say: called with a line for each table.
        finished: by bronze table, the last micro-batch that is whole, silver included; None: all are.

    Returns:
        The clusters that had anything new, in order.
    """
    about = tables.about() or {}
    done = {name: int(about.get(name, -1)) for name in ("bronze_records", "bronze_batches", "bronze_files")}
    latest = dict(done)
    clusters: set[str] = set()
    for name, batch in done.items():
        rows = tables.read(name).where(F.col("batch") > batch)
        if finished is not None:
            rows = rows.where(F.col("batch") <= finished.get(name, -1))
        found = rows.groupBy("cluster_id").agg(F.max("batch")).collect()
        clusters |= {row[0] for row in found}
        latest[name] = max([batch, *(row[1] for row in found)])
    changed = sorted(clusters)
    if changed:
        canonical = Canonical(tables, changed, read_lineage(tables, changed))
        canonical.prepare()
        try:
            with ThreadPoolExecutor(_JOBS_AT_ONCE) as pool:
                made = {name: pool.submit(_make, canonical, name) for name in GOLD}
                for name, job in made.items():
                    job.result()
                    say(f"{name}: made anew for {len(changed)} cluster{'s' * (len(changed) > 1)}")
        finally:
            canonical.close()
    tables.write_about(latest)
    return changed
