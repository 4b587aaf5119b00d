"""A cluster's log as rows: of each offset one record, and the state's records with their era."""

from __future__ import annotations

from functools import cached_property

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from kraftcore.plugins.spark.lineage import ABORT, BEGIN, END, Lineage, aborted_spans, without_cuts, without_dead
from kraftcore.plugins.spark.tables import Tables

_SPANS = "cluster_id string, era int, log_id long, span_from long, span_to long, state_from long"
_BASES = "cluster_id string, era int, file_id long, base_end long"
_ENDS = "cluster_id string, era int, era_end long, era_last_time timestamp"


class Canonical:
    """Silver, resolved.

    Args:
        tables: the tables.
        clusters: whose.
        lineage: of these clusters.
    """

    def __init__(self, tables: Tables, clusters: list[str], lineage: Lineage) -> None:
        self.tables = tables
        self.clusters = clusters
        self.lineage = lineage
        make = tables.session.createDataFrame
        eras = lineage.eras
        self._spans = make(
            [(era.cluster_id, era.number, *span, era.state_from) for era in eras for span in era.spans], _SPANS
        )
        self._bases = make(
            [(era.cluster_id, era.number, era.base.file_id, era.base.end_offset) for era in eras if era.base], _BASES
        )
        self._cached: list[DataFrame] = []

    def keep(self, rows: DataFrame) -> DataFrame:
        """Rows that are used more than once."""
        rows.cache()
        self._cached.append(rows)
        return rows

    def prepare(self) -> None:
        """Find out what several tables need, before they are made side by side."""
        _ = self.committed, self._aborted, self._era_ends

    def close(self) -> None:
        """Let go of what was kept."""
        for rows in self._cached:
            rows.unpersist()

    def raw(self, name: str) -> DataFrame:
        """All rows of a table that belong to the clusters."""
        return self.tables.read(name).where(F.col("cluster_id").isin(self.clusters))

    def log(self, kind: str, offset: str = "offset") -> DataFrame:
        """Records of one type in the clusters' logs, each once, with ``era`` and ``state_from``.

        Args:
            kind: view of the record type, or a bronze table.
            offset: the column with the offset.
        """
        name = kind if kind.startswith("bronze_") else f"silver_{kind}"
        rows = self.raw(name).where("source = 'log'")
        rows = without_dead(self.tables, rows, self.lineage.dead, offset)
        rows = without_cuts(self.tables, rows, self.lineage.cuts, offset)
        spans = self._spans.drop("cluster_id").withColumnRenamed("log_id", "span_log")
        condition = (
            (rows["log_id"] == spans["span_log"])
            & (rows[offset] >= spans["span_from"])
            & (rows[offset] < spans["span_to"])
        )
        return rows.join(F.broadcast(spans), condition).drop("span_log", "span_from", "span_to")

    def state(self, kind: str) -> DataFrame:
        """Records of one type that make up the state: of the logs, without aborted transactions, and of the snapshots
        that eras begin with.

        Returns:
            Its rows with ``era``, ``at`` (the offset at which it takes effect) and ``seq`` (order within that).
        """
        applied = self.log(kind).where("offset >= state_from").drop("state_from")
        for begin, end, cluster_id in self._aborted:
            inside = (F.col("cluster_id") == cluster_id) & F.col("offset").between(begin, end)
            applied = applied.where(~inside)
        applied = applied.withColumn("at", F.col("offset")).withColumn("seq", F.lit(0).cast("long"))
        bases = self._bases.drop("cluster_id").withColumnRenamed("file_id", "base_file")
        rows = self.raw(f"silver_{kind}").where("source = 'snapshot'")
        rows = without_dead(self.tables, rows, self.lineage.dead, "offset")  # of one that was seen half-written
        base = (
            rows.join(F.broadcast(bases), rows["file_id"] == bases["base_file"])
            .withColumn("at", F.col("base_end") - 1)
            .withColumn("seq", F.col("offset"))
            .drop("base_file", "base_end")
        )
        return applied.unionByName(base)

    @cached_property
    def _aborted(self) -> list[tuple[int, int, str]]:
        # (first offset, last offset, cluster) of transactions that were dropped.
        aborts = self.log("abort_transaction").select("cluster_id", "era").distinct().collect()
        if not aborts:
            return []
        marks: dict[tuple[str, int], list[tuple[int, str]]] = {(row.cluster_id, row.era): [] for row in aborts}
        for kind in (BEGIN, END, ABORT):
            for row in self.log(f"{kind}_transaction").select("cluster_id", "era", "offset").collect():
                if (row.cluster_id, row.era) in marks:
                    marks[row.cluster_id, row.era].append((row.offset, kind))
        starts = {(era.cluster_id, era.number): era.start for era in self.lineage.eras}
        return [
            (begin, end, cluster_id)
            for (cluster_id, era), found in marks.items()
            for begin, end in aborted_spans(found, starts[cluster_id, era])
        ]

    @cached_property
    def _era_ends(self) -> DataFrame:
        # Where each era ends, and when its last record was written.
        batches = self.log("bronze_batches", "base_offset").groupBy("cluster_id", "era")
        times = {row[:2]: row[2] for row in batches.agg(F.max("max_timestamp")).collect()}
        rows = [
            (era.cluster_id, era.number, era.end, times.get((era.cluster_id, era.number))) for era in self.lineage.eras
        ]
        return self.tables.session.createDataFrame(rows, _ENDS)

    @cached_property
    def voters(self) -> dict[str, list[int]]:
        """By cluster, the node ids of the last voter set known."""
        rows = self.log("kraft_voters").selectExpr("cluster_id", "offset", "voters.voter_id as ids")
        rows = rows.unionByName(
            self.log("leader_change")
            .selectExpr("cluster_id", "offset", "voters.voter_id as ids")
            .where(~F.col("cluster_id").isin(self._dynamic))
        )
        latest = rows.groupBy("cluster_id").agg(F.max_by("ids", "offset").alias("ids")).collect()
        return {row.cluster_id: list(row.ids) for row in latest}

    @cached_property
    def _dynamic(self) -> list[str]:
        rows = self.log("kraft_voters").select("cluster_id").distinct().collect()
        return [row.cluster_id for row in rows]

    @cached_property
    def committed(self) -> dict[str, int]:
        """By cluster, the offset below which records are known to be committed."""
        return self.lineage.committed(self.voters)

    def status(self, rows: DataFrame) -> DataFrame:
        """Add ``status``: committed, uncommitted (not known to be committed) or, where ``era`` is null, truncated."""
        known = list(self.committed.items()) or [("", 0)]
        limits = self.tables.session.createDataFrame(known, "cluster_id string, committed_end long")
        status = (
            F.when(F.col("era").isNull(), "truncated")
            .when(F.col("offset") < F.coalesce("committed_end", F.lit(0)), "committed")
            .otherwise("uncommitted")
        )
        return rows.join(F.broadcast(limits), "cluster_id", "left").withColumn("status", status).drop("committed_end")

    def history(self, rows: DataFrame, keys: list[str], columns: list[str], *, gone: Column | None = None) -> DataFrame:
        """States in force, one after the other.

        Args:
            rows: as ``state`` gives them: each is the whole state of what ``keys`` name.
            keys: columns that name a thing.
            columns: columns of its state.
            gone: where a row means that the thing is no more.

        Returns:
            cluster_id, keys, columns, ``from_offset``, ``to_offset``, ``from_time``, ``to_time``, ``duration_ms``: of
            what still lasts, up to the last record. Times are the leaders' clocks'; a clock that went back counts 0.
        """
        order = Window.partitionBy("cluster_id", "era", *keys).orderBy("at", "seq")
        lead = {"next_at": F.lead("at").over(order), "to_time": F.lead("timestamp").over(order)}
        rows = rows.withColumns(lead).join(F.broadcast(self._era_ends), ["cluster_id", "era"])
        last_time = F.greatest("era_last_time", "timestamp")
        lasted_ms = F.unix_millis(F.coalesce("to_time", last_time)) - F.unix_millis("timestamp")
        if gone is not None:
            rows = rows.where(~gone)
        return rows.select(
            "cluster_id",
            *keys,
            *columns,
            F.col("at").alias("from_offset"),
            F.coalesce("next_at", "era_end").alias("to_offset"),
            F.col("timestamp").alias("from_time"),
            "to_time",
            F.greatest(lasted_ms, F.lit(0)).alias("duration_ms"),
        )
