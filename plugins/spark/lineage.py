"""Which replica tells a cluster's story at which offset, and from where its state can be rebuilt.

Replicas agree on what is committed; ends that were never committed differ. The log with the highest last epoch, and the
highest end among those, is the one a leader would be elected with, so it is taken as the cluster's log; offsets it no
longer has are taken from the next best. Where there is a hole, or no log from the start, the state begins with a
snapshot: each such stretch is an era.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from kraftcore.plugins.spark.frames import Mask, equals, integers, ordered, starts, where

BEGIN, END, ABORT = "begin", "end", "abort"
"""What a metadata transaction's marker records do; also how their tables' names begin."""


@dataclass(frozen=True)
class Stretch:
    """Offsets ``start`` to ``end`` (exclusive) of one log, without a hole."""

    cluster_id: str
    log_id: int
    node_id: int
    start: int
    end: int


@dataclass(frozen=True)
class LogEnd:
    """Where a log ends.

    Attributes:
        epochs: (epoch, first offset of it in this log), ascending.
    """

    cluster_id: str
    log_id: int
    node_id: int
    end: int
    epochs: tuple[tuple[int, int], ...]

    @property
    def last_epoch(self) -> int:
        """The epoch of its last batch."""
        return self.epochs[-1][0]


@dataclass(frozen=True)
class Snapshot:
    """A snapshot file that was read."""

    cluster_id: str
    file_id: int
    end_offset: int
    epoch: int


@dataclass(frozen=True)
class Era:
    """A stretch of history whose state can be told.

    Attributes:
        number: within the cluster, from 0.
        end: exclusive offset at which the state is unknown again; None for the last era.
        base: the snapshot it begins with, or None.
        state_from: first offset whose records are applied.
        spans: the logs that tell it: (log_id, first offset, end offset).
    """

    cluster_id: str
    number: int
    end: int | None
    base: Snapshot | None
    state_from: int
    spans: tuple[tuple[int, int, int], ...] = ()

    @property
    def start(self) -> int:
        """The first offset that its logs have."""
        return self.spans[0][1] if self.spans else self.state_from

    @property
    def is_complete(self) -> bool:
        """Whether all of the state is known in it: it begins with a snapshot, or where the log does."""
        return self.base is not None or self.state_from == 0

    @property
    def known_end(self) -> int:
        """The exclusive offset up to which its logs reach."""
        return self.spans[-1][2] if self.spans else self.state_from


@dataclass
class Lineage:
    """What the logs and snapshots of some clusters amount to.

    Attributes:
        eras: of all clusters.
        logs: ends of all logs.
        cuts: (log_id, epoch, offset): rows of that epoch from there on were cut off later.
        dead: (file_id, generation, offset): rows of earlier generations from there on were cut off later.
        best: by cluster, the log that counts most.
    """

    eras: list[Era] = field(default_factory=list)
    logs: list[LogEnd] = field(default_factory=list)
    cuts: list[tuple[int, int, int]] = field(default_factory=list)
    dead: list[tuple[int, int, int]] = field(default_factory=list)
    best: dict[str, LogEnd] = field(default_factory=dict)
    snapshots: list[Snapshot] = field(default_factory=list)

    def committed(self, voters: dict[str, list[int]]) -> dict[str, int]:
        """By cluster, the offset below which everything is known to be committed.

        Snapshots hold committed records only; and what a majority of the voters has is committed once it reaches into
        the last epoch (Raft, section 5.4.2).

        Args:
            voters: by cluster, the node ids of its last voter set.
        """
        known: dict[str, int] = defaultdict(int)
        for snapshot in self.snapshots:
            known[snapshot.cluster_id] = max(known[snapshot.cluster_id], snapshot.end_offset)
        for cluster_id, best in self.best.items():
            ends: dict[int, int] = {}
            for log in self.logs:
                if log.cluster_id == cluster_id:
                    ends[log.node_id] = max(ends.get(log.node_id, 0), _agreed_end(log, best))
            ids = voters.get(cluster_id) or []
            held = sorted((ends.get(node_id, 0) for node_id in ids), reverse=True)
            if held and held[len(held) // 2] > best.epochs[-1][1]:
                known[cluster_id] = max(known[cluster_id], held[len(held) // 2])
        return dict(known)


def _agreed_end(log: LogEnd, best: LogEnd) -> int:
    # Up to where a log has what the best one has, going by epochs.
    after = [start for epoch, start in best.epochs if epoch > log.last_epoch]
    return min([log.end, best.end, *after])


def read_lineage(cluster_id: str, batches: pa.Table, files: pa.Table) -> Lineage:
    """Work out the lineage of a cluster from what bronze knows.

    Args:
        cluster_id: whose.
        batches: its rows of ``bronze_batches``.
        files: its rows of ``bronze_files``.
    """
    logs = where(batches, equals(batches["source"], "log") & equals(batches["is_valid"], True))
    lineage = Lineage(dead=_dead(files, logs))
    alive = where(logs, is_alive(logs, lineage.dead, "base_offset"))
    lineage.logs, lineage.cuts = _log_ends(cluster_id, _epochs(alive))
    stretches = _stretches(cluster_id, where(alive, is_uncut(alive, lineage.cuts, "base_offset")))
    names = where(files, equals(files["source"], "snapshot")).select(["file_id", "base_offset", "epoch"])
    snapshots = dict.fromkeys(tuple(row.values()) for row in names.to_pylist())
    lineage.snapshots = [Snapshot(cluster_id, *row) for row in snapshots]
    best = sorted(lineage.logs, key=lambda log: (log.last_epoch, log.end, -log.log_id), reverse=True)
    if best:
        lineage.best[cluster_id] = best[0]
    lineage.eras = find_eras(cluster_id, best, stretches, lineage.snapshots)
    return lineage


def _dead(files: pa.Table, logs: pa.Table) -> list[tuple[int, int, int]]:
    # A file was cut off behind a batch that is still there, though perhaps some that cannot be read lie between, or
    # right at its start. Snapshots count from 0.
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
        rows = earlier & alive & (behind <= rewound_to)  # what an earlier cut took was not there any more
        columns = (behind[rows].tolist(), generations[rows].tolist(), lasts[rows].tolist())
        last = max(zip(*columns, strict=True), default=None)
        first = file_start if last is None else last[2] + 1
        alive &= ~earlier | (bases < first)
        found.append((file_id, generation, first))
    return found


def is_alive(rows: pa.Table, dead: list[tuple[int, int, int]], offset: str) -> Mask:
    """Which rows were not cut off and written anew in their own file, as a mask."""
    mask = np.ones(len(rows), bool)
    if dead:
        files, generations, offsets = (integers(rows[name]) for name in ("file_id", "generation", offset))
        for file_id, generation, first in dead:
            mask &= (files != file_id) | (generations >= generation) | (offsets < first)
    return mask


def is_uncut(rows: pa.Table, cuts: list[tuple[int, int, int]], offset: str) -> Mask:
    """Which rows no later epoch of the same log overrode, as a mask."""
    mask = np.ones(len(rows), bool)
    if cuts:
        logs, epochs, offsets = (integers(rows[name]) for name in ("log_id", "epoch", offset))
        for log_id, epoch, first in cuts:
            mask &= (logs != log_id) | (epochs != epoch) | (offsets < first)
    return mask


def _epochs(batches: pa.Table) -> dict[tuple[int, int], list[tuple[int, int, int]]]:
    # By log and node: epoch, first and last offset of it.
    found = batches.group_by(["log_id", "node_id", "epoch"]).aggregate([("base_offset", "min"), ("last_offset", "max")])
    logs: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    for row in found.to_pylist():
        logs[row["log_id"], row["node_id"]].append((row["epoch"], row["base_offset_min"], row["last_offset_max"]))
    return logs


def _log_ends(
    cluster_id: str, logs: dict[tuple[int, int], list[tuple[int, int, int]]]
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
        ends.append(LogEnd(cluster_id, log_id, node_id, epochs[-1][2] + 1, tuple(reversed(kept))))
    return ends, cuts


def _stretches(cluster_id: str, batches: pa.Table) -> list[Stretch]:
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
            found.append(Stretch(cluster_id, int(logs[rows[0]]), int(nodes[rows[0]]), *span))
    return found


def find_eras(cluster_id: str, logs: list[LogEnd], stretches: list[Stretch], snapshots: list[Snapshot]) -> list[Era]:
    """Lay the logs of one cluster over each other.

    Args:
        cluster_id: whose.
        logs: best first.
        stretches: of these logs.
        snapshots: of the same cluster.

    Returns:
        Eras by offset. A snapshot that no log reaches is an era of its own.
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
        Era(cluster_id, number, None if number == len(found) - 1 else end, base, state_from, log_spans)
        for number, (_, end, base, state_from, log_spans) in enumerate(found)
    ]


def aborted_spans(marks: Iterable[tuple[int, str]], start: int) -> list[tuple[int, int]]:
    """The transactions of one era that were dropped (KIP-868), as first and last offset.

    Args:
        marks: offset and ``BEGIN``, ``END`` or ``ABORT`` of its marker records.
        start: the era's first offset. Above 0, the era may begin inside a transaction, and all up to its end belongs to
            it: transactions do not nest.
    """
    found = []
    begin = start if start > 0 else None
    for offset, kind in sorted(marks):
        if kind == ABORT and begin is not None:
            found.append((begin, offset))
        begin = offset if kind == BEGIN else None
    return found


def _uncovered(start: int, end: int, spans: list[tuple[int, int, int]]) -> list[tuple[int, int]]:
    # What of [start, end) no span holds.
    parts = [(start, end)] if start < end else []
    for low, high, _ in spans:
        parts = [
            piece
            for left, right in parts
            for piece in ((left, min(right, low)), (max(left, high), right))
            if piece[0] < piece[1]
        ]
    return parts
