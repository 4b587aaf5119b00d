"""A node's snapshots: written in a thread when they are due; old ones and old segments deleted once a period."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import trio

from kraftcore.errors import LocalError, NodeStoppedError, SnapshotLaterError, StateMachineError, StorageError
from kraftcore.executor.executor import Executor
from kraftcore.executor.snapshot_contents import SnapshotContents
from kraftcore.node.shell import Shell
from kraftcore.raft.snapshot_schedule import CleaningConfig
from kraftcore.storage.snapshot_batches import SnapshotWriter
from kraftcore.storage.snapshots import RawSnapshotWriter

_LOOK_S = 0.5


class Owner(Protocol):
    """The node whose snapshots are written."""

    def check_running(self) -> None:
        """Raise `NodeStoppedError` if the node stops or has stopped."""
        ...

    def note(self, text: str, error: BaseException | None = None) -> None:
        """Log a line for the operator; an application's error with its traceback."""
        ...

    def snapshot_taken(self, end_offset: int, epoch: int) -> None:
        """Tell that a snapshot was written."""
        ...


class Snapshotting:
    """Writes snapshots: the state is gathered or frozen at once, by the node's task; a thread builds the file.

    Args:
        executor: has the state.
        shell: runs the executor.
        config: thresholds.
        now_ms: returns milliseconds since 1970.
        owner: is told of each snapshot and failure.
    """

    def __init__(
        self, executor: Executor, shell: Shell, config: CleaningConfig, now_ms: Callable[[], int], owner: Owner
    ) -> None:
        self._executor = executor
        self._shell = shell
        self._config = config
        self._now_ms = now_ms
        self._owner = owner
        self._due = trio.Event()
        self.is_running = False

    def wake(self) -> None:
        """Have a snapshot written soon, for one is due."""
        if not self.is_running:
            self._due.set()

    async def run(self) -> None:
        """Write snapshots when they are due, and clean; until cancelled."""
        next_cleaning = trio.current_time() + self._config.period_ms / 1000
        while True:
            with trio.move_on_at(self._wake_at(next_cleaning)):
                await self._due.wait()
            self._due = trio.Event()
            if self._executor.snapshot_is_due(self._now_ms()) and not self.is_running:
                try:
                    await self.take()
                except NodeStoppedError:
                    return
                except SnapshotLaterError:
                    pass  # the snapshot stays due, and more records will be applied
                except (StorageError, LocalError) as error:
                    self._owner.note(f"no snapshot was written: {error}")
                except StateMachineError as error:
                    text = f"no snapshot was written, and the log is not shortened: {error}"
                    self._owner.note(text, error.__cause__)
            if trio.current_time() >= next_cleaning and not self._shell.has_log and not self.is_running:
                next_cleaning = trio.current_time() + self._config.period_ms / 1000
                self._shell.run(self._executor.clean)

    def _wake_at(self, next_cleaning: float) -> float:
        due_ms = self._executor.schedule.due_at()
        now = trio.current_time()
        if next_cleaning <= now:
            return now + _LOOK_S  # a flush or a snapshot is under way: look again
        if due_ms is None:
            return next_cleaning
        return min(next_cleaning, max(now + (due_ms - self._now_ms()) / 1000, now + _LOOK_S))

    async def take(self) -> tuple[int, int]:
        """Write a snapshot now; see ``Node.snapshot_now``."""
        while self.is_running:
            await trio.sleep(_LOOK_S / 50)
        self._owner.check_running()
        applier = self._executor.applier
        if applier.offset == 0:
            raise LocalError("nothing is applied yet: there is nothing to write")
        contents = self._executor.gather_snapshot(self._now_ms())
        if contents is None:
            return applier.offset, applier.epoch
        self.is_running = True
        try:
            with contents.begin(self._executor.store) as writer:
                await trio.to_thread.run_sync(_fill, contents, writer)
                while self._shell.driver.is_installing:
                    await trio.sleep(_LOOK_S / 50)
                if (contents.end_offset, contents.epoch) not in self._executor.store:
                    writer.freeze(contents.now_ms)
        finally:
            self.is_running = False
            if self._executor.snapshot_is_due(self._now_ms()):  # because of what was applied meanwhile
                self._due.set()
        self._shell.run(self._executor.snapshot_written, contents)
        self._owner.snapshot_taken(contents.end_offset, contents.epoch)
        return contents.end_offset, contents.epoch


def _fill(contents: SnapshotContents, writer: SnapshotWriter) -> None:
    contents.fill(writer)
    raw: RawSnapshotWriter = writer.raw
    raw.sync()  # freezing left little to write
