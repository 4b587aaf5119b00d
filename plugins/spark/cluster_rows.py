"""Rows of bronze and silver of some clusters: each table is read once and divided by cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from kraftcore.plugins.spark.canonical import Read
from kraftcore.plugins.spark.parquet import is_bucketed
from kraftcore.plugins.spark.tables import Tables, arrow_schema


class ClusterRows:
    """Reads tables of some clusters.

    Args:
        tables: the folder of tables.
        clusters: ids of the clusters.
        share: (number from 0, number of shares): only this share of the partitions is read; None: all partitions.
    """

    def __init__(self, tables: Tables, clusters: Sequence[str], share: tuple[int, int] | None = None) -> None:
        self._tables = tables
        self._clusters = clusters
        self._share = share
        self._known: dict[str, pa.Table] = {}

    def of(self, cluster_id: str) -> Read:
        """A function that reads one cluster's rows of a table."""
        return partial(self._read, cluster_id)

    def _read(self, cluster_id: str, name: str, condition: pc.Expression | None = None) -> pa.Table:
        if condition is not None:  # few rows of a large table, which is not kept
            return self._tables.arrow(name, [cluster_id], condition=condition)
        if name not in self._known:
            share = self._share if is_bucketed(arrow_schema(name)) else None
            self._known[name] = self._tables.arrow(name, self._clusters, share)
        rows = self._known[name]
        if len(self._clusters) == 1:
            del self._known[name]  # the caller keeps the rows
            return rows
        return rows.filter(pc.equal(rows["cluster_id"], cluster_id))
