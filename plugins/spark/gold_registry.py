"""The third layer, gold: each table is made anew for the clusters that have new records.

A row of a history is a state that held from ``from_offset`` (the record that began it) to ``to_offset`` (exclusive;
null: it still holds). The state at an offset is the rows whose span contains the offset.

All tables of a cluster are made together, so that rows that several tables need are read once. The table of partitions
of a large cluster is made in shares of its partitions, which bounds memory and lets workers divide the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kraftcore.errors import StorageError
from kraftcore.plugins.spark import gold_audit, gold_partitions, gold_quorum, gold_state
from kraftcore.plugins.spark.canonical import Canonical
from kraftcore.plugins.spark.cluster_rows import ClusterRows
from kraftcore.plugins.spark.commits import Writing, gold_file
from kraftcore.plugins.spark.delta import File
from kraftcore.plugins.spark.merging import FILES_MAX, merge_small
from kraftcore.plugins.spark.parquet import BUCKETS, to_bytes
from kraftcore.plugins.spark.tables import Tables, columns_of, gold_mark
from kraftcore.plugins.spark.work import is_done_here, spread

GOLD: dict[str, Callable[[Canonical], pa.Table]] = {
    "gold_leadership": gold_quorum.leadership,
    "gold_voter_sets": gold_quorum.voter_sets,
    "gold_logs": gold_audit.logs,
    "gold_eras": gold_audit.eras,
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
SHARED = "gold_partition_history"
"""The table that is made in shares: a partition's states need the records of that partition and few others."""
SHARE_RECORDS = 500_000
"""The number of a cluster's records for one task."""
_RECORD_BYTES = 48
"""About the bytes of one record of a metadata log."""


@dataclass(frozen=True)
class Making:
    """The work of one task.

    Attributes:
        clusters: ids of the clusters.
        names: the tables to make.
        share: (number from 0, number of shares) of the partitions, for ``SHARED``.
    """

    clusters: tuple[str, ...]
    names: tuple[str, ...]
    share: tuple[int, int] = (0, 1)


@dataclass
class Made:
    """The result of one task.

    Attributes:
        columns: Arrow's schema by table.
        files: by table, its new files by name relative to the table's folder.
        failed: by cluster whose tables could not be made, the reason.
    """

    columns: dict[str, pa.Schema] = field(default_factory=dict)
    files: dict[str, dict[str, File]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Refreshed:
    """The result of ``refresh_gold``.

    Attributes:
        clusters: the clusters whose tables were made anew, sorted.
        failed: by cluster whose tables could not be made and stay as they were, the reason.
    """

    clusters: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Maker:
    """Makes tables of gold when called with a ``Making``, in this process or in a worker.

    Attributes:
        tables: the folder of tables to read and to write.
        writing: the step that the files belong to.
    """

    tables: Tables
    writing: Writing

    def __call__(self, making: Making) -> Made:
        """Make tables and write their files. An error about one cluster does not affect the others.

        Raises:
            StorageError: a file cannot be read or written.
        """
        number, shares = making.share
        made = Made(files={name: {} for name in making.names})
        content: dict[str, bytes] = {}
        source = ClusterRows(self.tables, making.clusters, making.share if shares > 1 else None)
        for cluster_id in making.clusters:
            try:
                canonical = Canonical(cluster_id, source.of(cluster_id), self.tables.masking_key)
                found = {name: GOLD[name](canonical) for name in making.names}
            except (StorageError, MemoryError):
                raise
            except Exception as error:  # a log may hold records that the code does not expect
                made.failed[cluster_id] = f"{type(error).__name__}: {error}"
                continue
            file = gold_file(self.writing, gold_mark(cluster_id), number)
            for name, rows in found.items():
                made.columns[name] = rows.schema
                if len(rows):
                    data = content[f"{name}/{file}"] = to_bytes(rows)
                    made.files[name][file] = File(len(data), len(rows))
        self.tables.folder.put(content)
        return made


def refresh_gold(tables: Tables, say: Callable[[str], None], merge_files: int = FILES_MAX) -> Refreshed:
    """Make gold anew for clusters with new records, and merge small files of bronze and silver in the same commit.

    Args:
        tables: the folder of tables.
        say: called with a line for each table, and for each cluster whose tables could not be made.
        merge_files: a table of bronze or silver may have small files of this many steps; 0: of any number.
    """
    before = tables.commit
    changed, failed = list(before.stale), dict[str, str]()
    if not changed:
        return Refreshed()
    writing = tables.begin()
    records = tables.records_by_cluster(changed)
    here = is_done_here(tables, _RECORD_BYTES * sum(records.values()))
    makings = makings_of(changed, records, tuple(GOLD), many=not here)
    schemas: dict[str, pa.Schema] = {}
    new: dict[str, dict[str, File]] = {name: {} for name in GOLD}
    by_workers = not here and tables.is_local
    work = Maker(tables.for_workers() if tables.is_local else tables, writing)
    for made in spread(tables, work, makings, here=not by_workers):
        schemas |= made.columns
        failed |= made.failed
        for name, files in made.files.items():
            new[name] |= files
    changed = [one for one in changed if one not in failed]
    for cluster_id, reason in sorted(failed.items()):
        say(f"{cluster_id}: its tables of gold stay as they were, for they cannot be made: {reason}")
    replaced = tuple(f"{gold_mark(one)}-" for one in changed)
    counted = {
        name: {file: about for file, about in before.files.get(name, {}).items() if not file.startswith(replaced)}
        # A cluster made in shares may have files though one share failed.
        | {file: about for file, about in new[name].items() if file.startswith(replaced)}
        for name in GOLD
    }
    merged = merge_small(tables, writing, merge_files)
    if changed or merged.files:
        made_anew = {name: columns_of(schema) for name, schema in schemas.items()} if changed else {}
        commit = replace(
            before,
            files={**before.files, **counted, **merged.files},
            stale=tuple(sorted(failed)),
            columns={**before.columns, **made_anew},
            clusters=merged.clusters,
        )
        tables.end(writing, commit)
    else:
        tables.give_up(f"{name}/{file}" for name, files in new.items() for file in files)
    for name, found in merged.files.items():
        say(f"{name}: {len(before.files[name])} files merged into {len(found)}")
    for name in schemas if changed else ():
        say(f"{name}: made anew for {len(changed)} cluster{'s' * (len(changed) > 1)}")
    return Refreshed(tuple(changed), failed)


def makings_of(
    clusters: Sequence[str], records: dict[str, int], names: Sequence[str], *, many: bool = False
) -> list[Making]:
    """Cut the work into tasks, the longest first.

    Args:
        clusters: ids of the clusters.
        records: number of records in bronze by cluster.
        names: the tables to make.
        many: whether workers do the tasks: then small clusters have a task each.
    """
    found: list[Making] = []
    group: list[str] = []
    size = 0
    others = tuple(name for name in names if name != SHARED)
    for cluster_id in sorted(clusters, key=lambda one: -records.get(one, 0)):
        count = records.get(cluster_id, 0)
        shares = min(BUCKETS, -(-count // SHARE_RECORDS))
        if shares > 1 and SHARED in names:
            found += [Making((cluster_id,), (SHARED,), (number, shares)) for number in range(shares)]
            found.append(Making((cluster_id,), others))
            continue
        if group and (many or size + count > SHARE_RECORDS):
            found.append(Making(tuple(group), tuple(names)))
            group, size = [], 0
        group.append(cluster_id)
        size += count
    return [*found, Making(tuple(group), tuple(names))] if group else found
