"""The demo's verdict, from the files that the stopped replicas left, not from what running nodes say."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass

from kraftcore.cli.demo.stream import Acknowledged
from kraftcore.core.batch import RecordBatch, iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.log import Log
from kraftcore.storage.meta_properties import METADATA_PARTITION

_READ_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """The content of a replica's directory.

    Attributes:
        node_id: of the replica.
        end_offset: of its log.
        records: the client's records in it, each counted once.
        repeated: batches that are in the log twice, because they were sent again; they were applied once.
        hashes: SHA-256 of all batches' bytes up to each of the requested offsets.
        problems: faults, in words; empty if there are none.
    """

    node_id: int
    end_offset: int
    records: int
    repeated: int
    hashes: dict[int, str]
    problems: tuple[str, ...]


def log_end(directory: str) -> int:
    """The end offset of the log in a replica's directory."""
    with _open(directory) as log:
        return log.log_end_offset


def check_replica(
    node_id: int, directory: str, acknowledged: Sequence[Acknowledged], lines: Sequence[bytes], hash_at: Sequence[int]
) -> Finding:
    """Read a replica's log from its first to its last byte, and compare it with the client's acknowledgements.

    Args:
        node_id: of the replica.
        directory: its directory; no process uses it now.
        acknowledged: by offset.
        lines: the input.
        hash_at: offsets to note the hash of everything before them at; batches end there.

    Raises:
        CorruptDataError: a batch's checksum or length is wrong.
    """
    walk = _Walk(acknowledged, lines)
    digest = hashlib.sha256()
    hashes: dict[int, str] = {}
    with _open(directory) as log:
        end = log.log_end_offset
        position = log.log_start_offset
        if position != 0:
            walk.problems.append(f"the log starts at offset {position}")
        while position < end:
            for batch in iter_batches(log.read(position, _READ_BYTES)):
                if batch.base_offset != position:
                    walk.problems.append(f"offsets {position} to {batch.base_offset - 1} are missing")
                digest.update(batch.raw)
                position = batch.next_offset
                if position in hash_at:
                    hashes[position] = digest.hexdigest()
                if not batch.is_control:
                    walk.take(batch)
    walk.finish(end)
    return Finding(node_id, end, walk.records, walk.repeated, hashes, tuple(walk.problems[:5]))


def _open(directory: str) -> Log:
    return Log.open(OsFiles(), os.path.join(directory, METADATA_PARTITION), now_ms=time.time_ns() // 1_000_000)


class _Walk:
    """Compares data batches and acknowledgements, both in order of offset."""

    def __init__(self, acknowledged: Sequence[Acknowledged], lines: Sequence[bytes]) -> None:
        self._acknowledged = acknowledged
        self._lines = lines
        self._at = 0
        self._sequences: dict[int, int] = {}
        self.records = 0
        self.repeated = 0
        self.problems: list[str] = []

    def take(self, batch: RecordBatch) -> None:
        if batch.base_sequence <= self._sequences.get(batch.producer_id, -1):
            self.repeated += 1
            return
        self._sequences[batch.producer_id] = batch.last_sequence
        values = batch.values()
        self.records += len(values)
        self._skip_to(batch.base_offset)
        known = self._acknowledged[self._at] if self._at < len(self._acknowledged) else None
        if known is None or known.offset != batch.base_offset or known.length != len(values):
            self.problems.append(f"the batch at offset {batch.base_offset} is nothing that was acknowledged")
            return
        self._at += 1
        count = len(self._lines)
        for index, value in enumerate(values):
            if value != self._lines[(known.first + index) % count]:
                self.problems.append(f"the record at offset {known.offset + index} is not the line that was sent")

    def _skip_to(self, offset: int) -> None:
        while self._at < len(self._acknowledged) and self._acknowledged[self._at].offset < offset:
            lost = self._acknowledged[self._at]
            self.problems.append(f"{lost.length} acknowledged records at offset {lost.offset} are missing")
            self._at += 1

    def finish(self, end: int) -> None:
        self._skip_to(end)
