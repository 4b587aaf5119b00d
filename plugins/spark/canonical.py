"""One cluster's log as tables: one record for each offset, and the records that make up the state, by era."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftcore.plugins.spark.frames import (
    NONE,
    Integers,
    Mask,
    after,
    codes,
    equals,
    integers,
    ordered,
    pick,
    starts,
    take,
    where,
)
from kraftcore.plugins.spark.lineage import (
    ABORT,
    BEGIN,
    END,
    Lineage,
    aborted_spans,
    is_alive,
    is_uncut,
    read_lineage,
)
from kraftcore.plugins.spark.views import TIMESTAMP, TYPES_BY_VIEW

EVENT = ["era", "at", "seq", "timestamp"]
"""Columns of a change of state: era, offset at which it takes effect, order within that offset, time."""
COMMITTED, UNCOMMITTED, TRUNCATED = "committed", "uncommitted", "truncated"
_MS = 1000
YEARS = (datetime(2, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC))
"""The times that Python can hold in any time zone. Times outside, written by broken clocks, count as the nearer end."""
Read: TypeAlias = Callable[..., pa.Table]
"""Reads one cluster's rows: takes the name of a table and perhaps an expression that rows must meet."""


class Canonical:
    """The tables of one cluster without the rows that were overridden.

    Args:
        cluster_id: the cluster.
        read: reads the cluster's rows of a table of bronze or silver; of tables about partitions perhaps a share.
        masking_key: returns the key of ``masking.masked``.
    """

    def __init__(self, cluster_id: str, read: Read, masking_key: Callable[[], bytes]) -> None:
        self.cluster_id = cluster_id
        self.masking_key = masking_key
        self._read = read
        self._kept: dict[str, pa.Table] = {}

    def raw(self, name: str) -> pa.Table:
        """All rows of a table, with times within ``YEARS``; read once."""
        if name not in self._kept:
            self._kept[name] = _within_years(self._read(name).combine_chunks())
        return self._kept[name]

    @cached_property
    def lineage(self) -> Lineage:
        """The eras, logs and cuts of the cluster."""
        return read_lineage(self.raw("bronze_batches"), self.raw("bronze_files"))

    def alive(self, name: str, offset: str = "offset") -> pa.Table:
        """The rows of logs that were not cut off and written anew."""
        rows = self.raw(name)
        rows = where(rows, equals(rows["source"], "log"))
        return where(rows, is_alive(rows, self.lineage.dead, offset))

    def records(self, log_id: int, first: int, last: int) -> pa.Table:
        """A log's rows of ``bronze_records`` from offset ``first`` to ``last``, without rows that were cut off."""
        inside = (pc.field("offset") >= first) & (pc.field("offset") <= last)
        rows = self._read("bronze_records", inside & (pc.field("log_id") == log_id) & (pc.field("source") == "log"))
        return where(rows.combine_chunks(), is_alive(rows, self.lineage.dead, "offset"))

    def log(self, kind: str, offset: str = "offset") -> pa.Table:
        """Records of one type in the cluster's log, each offset once, with ``era``.

        Args:
            kind: view of the record type, or name of a table of bronze.
            offset: name of the column with the offset.
        """
        key = f"{kind} of the log"
        if key not in self._kept:
            rows = self.alive(kind if kind.startswith("bronze_") else f"silver_{kind}", offset)
            rows = where(rows, is_uncut(rows, self.lineage.cuts, offset))
            eras = np.full(len(rows), NONE)
            logs, offsets = integers(rows["log_id"]), integers(rows[offset])
            for era in self.lineage.eras:
                for log_id, low, high in era.spans:
                    eras[(logs == log_id) & (offsets >= low) & (offsets < high)] = era.number
            rows = rows.append_column("era", pa.array(eras, pa.int32()))
            self._kept[key] = where(rows, eras != NONE)
        return self._kept[key]

    def state(self, kind: str) -> pa.Table:
        """Records of one type that make up the state: those of the log, without aborted transactions, and those of the
        snapshots that eras begin with.

        Returns:
            Rows with ``era``, ``at`` (the offset at which the record takes effect) and ``seq`` (order within ``at``).
        """
        applied = self.log(kind)
        offsets, eras = integers(applied["offset"]), integers(applied["era"])
        mask = np.ones(len(applied), bool)
        for era in self.lineage.eras:
            mask &= (eras != era.number) | (offsets >= era.state_from)
        # Control records belong to no transaction.
        for begin, end in () if TYPES_BY_VIEW[kind].is_control else self._aborted:
            mask &= (offsets < begin) | (offsets > end)
        applied = where(applied, mask)
        offsets = integers(applied["offset"])
        parts = [applied.append_column("at", pa.array(offsets)).append_column("seq", pa.array(offsets * 0))]
        snapshots = self.raw(f"silver_{kind}")
        bases = [(era, era.base) for era in self.lineage.eras if era.base is not None]
        if bases:
            snapshots = where(snapshots, equals(snapshots["source"], "snapshot"))
            # A snapshot may have been listed half-written: only the rows of its whole file count.
            snapshots = where(snapshots, is_alive(snapshots, self.lineage.dead, "offset"))
        for era, base in bases:
            rows = where(snapshots, equals(snapshots["file_id"], base.file_id))
            added = {
                "era": pa.array(np.full(len(rows), era.number), pa.int32()),
                "at": pa.array(np.full(len(rows), base.end_offset - 1), pa.int64()),
                "seq": rows["offset"],
            }
            for name, column in added.items():
                rows = rows.append_column(name, column)
            parts.append(rows.select(parts[0].column_names))
        return pa.concat_tables(parts).combine_chunks()

    @cached_property
    def _aborted(self) -> list[tuple[int, int]]:
        # First and last offset of each aborted transaction.
        aborts = set(self.log("abort_transaction")["era"].to_pylist())
        marks: dict[int, list[tuple[int, str]]] = {number: [] for number in aborts}
        for kind in (BEGIN, END, ABORT) if aborts else ():
            rows = self.log(f"{kind}_transaction")
            for number, offset in zip(rows["era"].to_pylist(), rows["offset"].to_pylist(), strict=True):
                if number in marks:
                    marks[number].append((offset, kind))
        begins = {era.number: era.start for era in self.lineage.eras}
        return [span for number, found in marks.items() for span in aborted_spans(found, begins[number])]

    @cached_property
    def _era_times(self) -> dict[int, int]:
        # By era, the time of its last record in microseconds since 1970.
        batches = self.log("bronze_batches", "base_offset")
        found = batches.group_by("era").aggregate([("max_timestamp", "max")])
        return dict(zip(found["era"].to_pylist(), integers(found["max_timestamp_max"]).tolist(), strict=True))

    @cached_property
    def voters(self) -> list[int]:
        """Node ids of the last known voter set."""
        rows = self.log("kraft_voters")
        if not len(rows):
            rows = self.log("leader_change")
        if not len(rows):
            return []
        last = int(np.argmax(integers(rows["offset"])))
        return [voter["voter_id"] for voter in rows["voters"][last].as_py() or []]

    @cached_property
    def committed(self) -> int | None:
        """The offset below which records are known to be committed; None: no record is."""
        return self.lineage.committed(self.voters)

    def status(self, era: int | None, offset: int) -> str:
        """``committed``, ``uncommitted`` (not known to be committed) or, without an era, ``truncated``."""
        if era is None:
            return TRUNCATED
        return COMMITTED if offset < (self.committed or 0) else UNCOMMITTED

    def named(self, rows: pa.Table) -> pa.Table:
        """The rows with ``cluster_id`` as the first column."""
        return rows.add_column(0, "cluster_id", pa.repeat(pa.scalar(self.cluster_id), len(rows)))

    def history(
        self, rows: pa.Table, keys: Sequence[str], columns: Sequence[str], *, gone: Mask | None = None
    ) -> pa.Table:
        """The states of things, one row for each time that a state was in force.

        Args:
            rows: as ``state`` returns them; each row is the whole state of one thing.
            keys: columns that identify a thing.
            columns: columns of the state.
            gone: which rows mean that the thing was removed.

        Returns:
            ``cluster_id``, keys, columns, ``from_offset``, ``to_offset``, ``from_time``, ``to_time``,
            ``duration_ms``; a state that still holds lasts up to the last record. Times are those of the leaders'
            clocks; if a clock went back, the duration is 0.
        """
        things = [integers(rows["era"]), *(codes(rows[name]) for name in keys)]
        order = ordered(*things, integers(rows["at"]), integers(rows["seq"]))
        begins = starts(*(key[order] for key in things))
        kept = np.arange(len(order)) if gone is None else np.flatnonzero(~gone[order])
        lasting = self.lasting(rows, order, begins, kept)
        return self.named(pa.table({name: take(rows[name], order[kept]) for name in (*keys, *columns)} | lasting))

    def lasting(self, rows: pa.Table, order: Integers, begins: Mask, kept: Integers) -> dict[str, pa.Array]:
        """The columns of ``history`` that say from when to when states held.

        Args:
            rows: as for ``history``.
            order: indices of rows, by thing and then by time.
            begins: for each of ``order``, whether it is the first of a thing.
            kept: indices into ``order`` of the rows that are wanted.
        """
        at, times, eras = (integers(rows[name])[order] for name in ("at", "timestamp", "era"))
        following = after(begins)[kept]
        ends = {era.number: era.end for era in self.lineage.eras}
        numbers = pa.array(eras[kept])
        era_ends = pa.array([ends[number] for number in range(len(ends))], pa.int64()).take(numbers)
        last = np.array([self._era_times.get(number, 0) for number in range(len(ends))] or [0])
        until = np.where(following == NONE, np.maximum(last[eras[kept]], times[kept]), times[np.maximum(following, 0)])
        lasted_ms = np.maximum(until // _MS - times[kept] // _MS, 0)
        return {
            "from_offset": pa.array(at[kept]),
            "to_offset": pc.coalesce(pick(at, following), era_ends),
            "from_time": pa.array(times[kept]).cast(TIMESTAMP),
            "to_time": pick(times, following).cast(TIMESTAMP),
            "duration_ms": pa.array(lasted_ms),
        }


def _within_years(rows: pa.Table) -> pa.Table:
    for number, column in enumerate(rows.schema):
        if pa.types.is_timestamp(column.type):
            first, last = (pa.scalar(moment, column.type).cast(pa.int64()) for moment in YEARS)
            times = pc.max_element_wise(rows[column.name].cast(pa.int64()), first, skip_nulls=False)
            times = pc.min_element_wise(times, last, skip_nulls=False).cast(column.type)
            rows = rows.set_column(number, column, times)
    return rows
