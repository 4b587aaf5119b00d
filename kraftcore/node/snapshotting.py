"""When a node writes a snapshot and deletes what it made superfluous, and how without holding up the quorum."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from kraftcore.core.log import Log
from kraftcore.errors import LocalError, StorageError
from kraftcore.node.events import SnapshotTaken
from kraftcore.node.sessions import Session, session_batch_value
from kraftcore.raft.cleaning import Cleaner, CleaningConfig, SnapshotSchedule
from kraftcore.raft.events import SnapshotWritten
from kraftcore.raft.records import voter_entries
from kraftcore.storage.snapshot_batches import SnapshotReader, SnapshotWriter
from kraftcore.storage.snapshots import RawSnapshotWriter, SnapshotId, SnapshotStore

if TYPE_CHECKING:
    from kraftcore.node.node import Node

_LOOK_S = 0.5


class Snapshotting:
    """Writes snapshots: the state is gathered at once, by the node's task; a thread builds the file and syncs it.

    Args:
        node: whose state.
        config: thresholds.
        log: the node's log.
        store: its snapshots.
    """

    def __init__(self, node: Node, config: CleaningConfig, log: Log, store: SnapshotStore) -> None:
        self._node = node
        self._config = config
        self._log = log
        self._store = store
        self._schedule = SnapshotSchedule(config, node.now_ms())
        self._cleaner = Cleaner(config, log, store)
        self._due = trio.Event()
        self.is_running = False

    def applied(self, size: int) -> None:
        """So many bytes were applied."""
        self._schedule.applied(size)
        if not self.is_running and self._schedule.is_due(self._node.now_ms()):
            self._due.set()

    def begun(self) -> None:
        """A snapshot was loaded: count anew."""
        self._schedule.begun(self._node.now_ms())

    def open(self, snapshot_id: tuple[int, int]) -> SnapshotReader:
        """Read a snapshot."""
        return SnapshotReader(self._store.open(snapshot_id))

    async def run(self) -> None:
        """Write snapshots when they are due, and clean; until cancelled."""
        next_cleaning = trio.current_time() + self._config.period_ms / 1000
        while True:
            with trio.move_on_at(self._wake_at(next_cleaning)):
                await self._due.wait()
            self._due = trio.Event()
            if self._schedule.is_due(self._node.now_ms()) and not self.is_running:
                try:
                    await self.take()
                except (StorageError, LocalError) as error:
                    self._node.report(f"no snapshot was written: {error}")
            if trio.current_time() >= next_cleaning and not self._node.is_flushing and not self.is_running:
                next_cleaning = trio.current_time() + self._config.period_ms / 1000
                self._cleaner.clean(self._node.now_ms())

    def _wake_at(self, next_cleaning: float) -> float:
        due_ms = self._schedule.due_at()
        now = trio.current_time()
        if next_cleaning <= now:
            return now + _LOOK_S  # something is in the way: look again
        if due_ms is None:
            return next_cleaning
        return min(next_cleaning, max(now + (due_ms - self._node.now_ms()) / 1000, now + _LOOK_S))

    async def take(self) -> tuple[int, int]:
        """Write one now. See ``Node.snapshot_now``."""
        while self.is_running:
            await trio.sleep(_LOOK_S / 50)
        node = self._node
        end_offset, epoch = node.applier.offset, node.applier.epoch
        if end_offset == 0:
            raise LocalError("nothing is applied yet: there is nothing to write")
        self._schedule.begun(node.now_ms())
        if (end_offset, epoch) in self._store:
            return end_offset, epoch
        self.is_running = True
        try:
            version, voters = node.replica.state.voters_at(end_offset)
            values, sessions = node.applier.collect()
            now_ms = node.now_ms()
            with SnapshotWriter(
                self._store.create(SnapshotId(end_offset, epoch)),
                now_ms=now_ms,
                last_contained_log_timestamp_ms=node.applier.timestamp_ms,
                kraft_version=version,
                voters=voter_entries(voters) if version else None,
            ) as writer:
                await trio.to_thread.run_sync(_fill, writer, values, sessions, now_ms)
                if (end_offset, epoch) not in self._store:
                    writer.freeze(now_ms)
        finally:
            self.is_running = False
        node.feed(SnapshotWritten(end_offset, epoch))
        node.tell(SnapshotTaken(end_offset, epoch))
        return end_offset, epoch


def _fill(writer: SnapshotWriter, values: list[bytes], sessions: list[tuple[int, Session]], now_ms: int) -> None:
    writer.append(values, now_ms)
    for producer_id, session in sessions:
        writer.append_numbered(session_batch_value(session), session.timestamp_ms, producer_id, session.sequence)
    raw: RawSnapshotWriter = writer.raw
    raw.sync()  # what freezing has left to write is small
