"""Chooses, for each offset, the replica whose log is the cluster's log, and the snapshots that its state begins with.

Replicas agree on committed records; ends that were never committed may differ. A leader would be elected with the log
of the highest last epoch and, among those, the highest end, so that log is the cluster's log; offsets that it no longer
has are taken from the next best log. An era is a stretch of offsets without a hole. The state of an era begins with a
snapshot, unless the era begins at offset 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kraftcore.plugins.spark.frames import Mask, equals, integers, ordered, starts, where

BEGIN, END, ABORT = "begin", "end", "abort"
"""Kinds of marker records of metadata transactions; the names of their views begin with these words."""


@dataclass(frozen=True)
class Stretch:
    """Offsets ``start`` to ``end`` (exclusive) that one log has without a hole."""

    log_id: int
    start: int
    end: int


@dataclass(frozen=True)
class LogEnd:
    """The end of a log and its epochs.

    Attributes:
        end: exclusive end offset.
        epochs: (epoch, first offset of the epoch in this log), ascending.
    """

    log_id: int
    node_id: int
    end: int
    epochs: tuple[tuple[int, int], ...]

    @property
    def last_epoch(self) -> int:
        """The epoch of the log's last batch."""
        return self.epochs[-1][0]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot file that was read."""

    file_id: int
    end_offset: int
    epoch: int


@dataclass(frozen=True)
class Era:
    """A stretch of the cluster's log without a hole, or a snapshot alone.

    Attributes:
        number: number within the cluster, from 0.
        end: exclusive end offset; None for the last era.
        base: the snapshot that the state begins with, or None.
        state_from: first offset whose records are applied to the state.
        spans: the parts of logs that make up the era: (log_id, first offset, exclusive end offset).
    """

    number: int
    end: int | None
    base: Snapshot | None
    state_from: int
    spans: tuple[tuple[int, int, int], ...] = ()

    @property
    def start(self) -> int:
        """The first offset of the era's logs."""
        return self.spans[0][1] if self.spans else self.state_from

    @property
    def is_complete(self) -> bool:
        """Whether the whole state is known: the era begins with a snapshot or at offset 0."""
        return self.base is not None or self.state_from == 0

    @property
    def known_end(self) -> int:
        """The exclusive end offset of the era's logs."""
        return self.spans[-1][2] if self.spans else self.state_from


@dataclass
class Lineage:
    """The eras of one cluster, and the rows that were cut off.

    Attributes:
        eras: the eras by offset.
        logs: the ends of all logs.
        cuts: (log_id, epoch, offset): the log's rows of that epoch from the offset on were cut off later.
        dead: (file_id, generation, offset): the file's rows of earlier generations from the offset on were cut off.
        best: the log that is the cluster's log; None: the cluster has no log.
        snapshots: all snapshots.
    """

    eras: list[Era] = field(default_factory=list)
    logs: list[LogEnd] = field(default_factory=list)
    cuts: list[tuple[int, int, int]] = field(default_factory=list)
    dead: list[tuple[int, int, int]] = field(default_factory=list)
    best: LogEnd | None = None
    snapshots: list[Snapshot] = field(default_factory=list)

    def committed(self, voters: Sequence[int]) -> int | None:
        """The offset below which all records are known to be committed; None: no record is.

        Snapshots hold committed records only; records that a majority of the voters has are committed once that
        majority has a record of the last epoch (Raft, section 5.4.2).

        Args:
            voters: node ids of the last voter set.
        """
        known = [snapshot.end_offset for snapshot in self.snapshots]
        if self.best is not None and voters:
            ends: dict[int, int] = defaultdict(int)
            for log in self.logs:
                ends[log.node_id] = max(ends[log.node_id], _agreed_end(log, self.best))
            held = sorted((ends[node_id] for node_id in voters), reverse=True)[len(voters) // 2]
            if held > self.best.epochs[-1][1]:
                known.append(held)
        return max(known, default=None)


def _agreed_end(log: LogEnd, best: LogEnd) -> int:
    # The offset up to which a log agrees with the best one, by their epochs.
    after = [start for epoch, start in best.epochs if epoch > log.last_epoch]
    return min([log.end, best.end, *after])


def read_lineage(batches: pa.Table, files: pa.Table) -> Lineage:
    """The lineage of one cluster.

    Args:
        batches: the cluster's rows of ``bronze_batches``.
        files: the cluster's rows of ``bronze_files``.
    """
    logs = where(batches, equals(batches["source"], "log") & equals(batches["is_valid"], True))
    lineage = Lineage(dead=_dead(files, logs))
    alive = where(logs, is_alive(logs, lineage.dead, "base_offset"))
    lineage.logs, lineage.cuts = _log_ends(_epochs(alive))
    stretches = _stretches(where(alive, is_uncut(alive, lineage.cuts, "base_offset")))
    names = where(files, equals(files["source"], "snapshot")).select(["file_id", "base_offset", "epoch"])
    snapshots = dict.fromkeys(tuple(row.values()) for row in names.to_pylist())
    lineage.snapshots = [Snapshot(*row) for row in snapshots]
    best = sorted(lineage.logs, key=lambda log: (log.last_epoch, log.end, -log.log_id), reverse=True)
    lineage.best = best[0] if best else None
    lineage.eras = find_eras(best, stretches, lineage.snapshots)
    return lineage


def _dead(files: pa.Table, logs: pa.Table) -> list[tuple[int, int, int]]:
    # A file was cut off behind its last remaining batch, perhaps with unreadable batches between, or at its start.
    # The records of a snapshot are numbered from 0.
    cut = where(files, integers(files["generation"]) > 0)
    cuts: dict[tuple[int, int, int], int] = {}
    for row in cut.select(["file_id", "generation", "rewound_to", "base_offset", "source"]).to_pylist():
        key = row["file_id"], row["generation"], row["base_offset"] if row["source"] == "log" else 0
        cuts[key] = max(cuts.get(key, 0), row["rewound_to"])
    file_ids, generations = integers(logs["file_id"]), integers(logs["generation"])
    behind, lasts = integers(logs["position"]) + integers(logs["size"]), integers(logs["last_offset"])
    bases, alive = integers(logs["base_offset"]), np.ones(len(logs), bool)
    found: list[tuple[int, int, int]] = []
    for (file_id, generation, file_start), rewound_to in sorted(cuts.items()):
        earlier = (file_ids == file_id) & (generations < generation)
        rows = earlier & alive & (behind <= rewound_to)  # rows that an earlier cut removed do not count
        columns = (behind[rows].tolist(), generations[rows].tolist(), lasts[rows].tolist())
        last = max(zip(*columns, strict=True), default=None)
        first = file_start if last is None else last[2] + 1
        alive &= ~earlier | (bases < first)
        found.append((file_id, generation, first))
    return found


def is_alive(rows: pa.Table, dead: list[tuple[int, int, int]], offset: str) -> Mask:
    """Which rows were not cut off from their file; ``offset`` names the column with the offset."""
    mask = np.ones(len(rows), bool)
    if dead:
        files, generations, offsets = (integers(rows[name]) for name in ("file_id", "generation", offset))
        for file_id, generation, first in dead:
            mask &= (files != file_id) | (generations >= generation) | (offsets < first)
    return mask


def is_uncut(rows: pa.Table, cuts: list[tuple[int, int, int]], offset: str) -> Mask:
    """Which rows were not overridden by a later epoch of the same log; ``offset`` names the column with the offset."""
    mask = np.ones(len(rows), bool)
    if cuts:
        logs, epochs, offsets = (integers(rows[name]) for name in ("log_id", "epoch", offset))
        for log_id, epoch, first in cuts:
            mask &= (logs != log_id) | (epochs != epoch) | (offsets < first)
    return mask


def _epochs(batches: pa.Table) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    # By log and node: (epoch, first offset, last offset).
    found = batches.group_by(["log_id", "node_id", "epoch"]).aggregate([("base_offset", "min"), ("last_offset", "max")])
    logs: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for row in found.to_pylist():
        logs[row["log_id"], row["node_id"]].append((row["epoch"], row["base_offset_min"], row["last_offset_max"]))
    return logs


def _log_ends(
    logs: dict[tuple[int, int], list[tuple[int, int, int]]],
) -> tuple[list[LogEnd], list[tuple[int, int, int]]]:
    ends, cuts = [], []
    for (log_id, node_id), epochs in logs.items():
        epochs.sort()
        kept: list[tuple[int, int]] = []
        limit: int | None = None
        for epoch, first, last in reversed(epochs):
            if limit is not None and last >= limit:
                cuts.append((log_id, epoch, limit))
            if limit is None or first < limit:
                kept.append((epoch, first))
            limit = first if limit is None else min(limit, first)
        ends.append(LogEnd(log_id, node_id, epochs[-1][2] + 1, tuple(reversed(kept))))
    return ends, cuts


def _stretches(batches: pa.Table) -> list[Stretch]:
    logs, nodes, bases, lasts = (
        integers(batches[name]) for name in ("log_id", "node_id", "base_offset", "last_offset")
    )
    order = ordered(logs, nodes, bases)
    found: list[Stretch] = []
    bounds = np.append(np.flatnonzero(starts(logs[order], nodes[order])), len(order))
    for low, high in pairwise(bounds.tolist()):
        rows = order[low:high]
        reached = np.maximum.accumulate(lasts[rows])
        begins = np.append(0, np.flatnonzero(bases[rows][1:] > reached[:-1] + 1) + 1)
        for first, end in pairwise([*begins.tolist(), len(rows)]):
            span = int(bases[rows][first]), int(lasts[rows][first:end].max()) + 1
            found.append(Stretch(int(logs[rows[0]]), *span))
    return found


def find_eras(logs: list[LogEnd], stretches: list[Stretch], snapshots: list[Snapshot]) -> list[Era]:
    """The eras of one cluster, by offset. A snapshot that no log reaches is an era of its own.

    Args:
        logs: the cluster's logs, the best first.
        stretches: the stretches of these logs.
        snapshots: the cluster's snapshots.
    """
    spans: list[tuple[int, int, int]] = []  # start, end, log_id; disjoint
    for log in logs:
        for stretch in sorted(stretches, key=lambda one: one.start):
            if stretch.log_id != log.log_id:
                continue
            end = min(stretch.end, logs[0].end)
            spans += [(low, high, log.log_id) for low, high in _uncovered(stretch.start, end, spans)]
    spans.sort()
    runs: list[list[tuple[int, int, int]]] = []
    for span in spans:
        if runs and runs[-1][-1][1] == span[0]:
            runs[-1].append(span)
        else:
            runs.append([span])
    found: list[tuple[int, int, Snapshot | None, int, tuple[tuple[int, int, int], ...]]] = []
    inside: set[int] = set()
    for run in runs:
        start, end = run[0][0], run[-1][1]
        inside |= {one.end_offset for one in snapshots if start <= one.end_offset <= end}
        base = min(
            (one for one in snapshots if start <= one.end_offset <= end and start > 0),
            key=lambda one: (one.end_offset, -one.epoch, one.file_id),
            default=None,
        )
        state_from = start if base is None else base.end_offset
        found.append((start, end, base, state_from, tuple((log_id, low, high) for low, high, log_id in run)))
    alone = {one.end_offset: one for one in snapshots if one.end_offset > 0 and one.end_offset not in inside}
    found += [(end, end, one, end, ()) for end, one in alone.items()]
    found.sort(key=lambda one: (one[0], one[1]))
    return [
        Era(number, None if number == len(found) - 1 else end, base, state_from, log_spans)
        for number, (_, end, base, state_from, log_spans) in enumerate(found)
    ]


def aborted_spans(marks: Iterable[tuple[int, str]], start: int) -> list[tuple[int, int]]:
    """First and last offset of each aborted transaction of one era (KIP-868).

    Args:
        marks: (offset, ``BEGIN``, ``END`` or ``ABORT``) of the era's marker records.
        start: the era's first offset. An era that begins above 0 may begin inside a transaction; transactions do not
            nest, so all records up to the first end or abort belong to that transaction.
    """
    found = []
    begin = start if start > 0 else None
    for offset, kind in sorted(marks):
        if kind == ABORT and begin is not None:
            found.append((begin, offset))
        begin = offset if kind == BEGIN else None
    return found


def _uncovered(start: int, end: int, spans: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    # The parts of [start, end) that are in no span.
    parts = [(start, end)] if start < end else []
    for low, high, _ in spans:
        parts = [
            piece
            for left, right in parts
            for piece in ((left, min(right, low)), (max(left, high), right))
            if piece[0] < piece[1]
        ]
    return parts
