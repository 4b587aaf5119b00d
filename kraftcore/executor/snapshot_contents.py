"""The contents of a snapshot of the state machine: gathered by the executor at once, written later in any thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from kraftcore.executor.sessions import Session, session_batch_value
from kraftcore.raft.control_records import voter_entries
from kraftcore.raft.quorum import VoterSet
from kraftcore.storage.snapshot_batches import SnapshotWriter
from kraftcore.storage.snapshots import SnapshotId, SnapshotStore


class SnapshotContents(NamedTuple):
    """A snapshot that is to be written; it holds everything below ``end_offset``.

    Attributes:
        end_offset: the offset after the last record in the snapshot.
        epoch: leader epoch of that record.
        now_ms: when the contents were gathered.
        last_timestamp_ms: the largest timestamp that was applied.
        version: the kraft.version in force below ``end_offset``.
        voters: the voter set in force below ``end_offset``.
        values: the state machine's records; they can be iterated once.
        sessions: of the clients that number their proposals.
    """

    end_offset: int
    epoch: int
    now_ms: int
    last_timestamp_ms: int
    version: int
    voters: VoterSet
    values: Iterable[bytes]
    sessions: list[tuple[int, Session]]

    def begin(self, store: SnapshotStore) -> SnapshotWriter:
        """Open the snapshot's file, a context manager: it becomes a snapshot when it is frozen, and vanishes otherwise.

        Raises:
            StorageError: the disk failed.
        """
        return SnapshotWriter(
            store.create(SnapshotId(self.end_offset, self.epoch)),
            now_ms=self.now_ms,
            last_contained_log_timestamp_ms=self.last_timestamp_ms,
            kraft_version=self.version,
            voters=voter_entries(self.voters) if self.version else None,
        )

    def fill(self, writer: SnapshotWriter) -> None:
        """Write all records into the file; may run in any thread."""
        writer.append(self.values, self.now_ms)
        for producer_id, session in self.sessions:
            value = session_batch_value(session)
            writer.append_numbered(value, session.timestamp_ms, producer_id, session.sequence, session.epoch)

    def write(self, store: SnapshotStore) -> None:
        """Write the whole snapshot.

        Raises:
            StorageError: the disk failed; there is no snapshot.
        """
        with self.begin(store) as writer:
            self.fill(writer)
            writer.freeze(self.now_ms)
