"""Verifies received snapshots and replaces the log by them, in threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import trio

from kraftcore.raft.events import InstallSnapshot, SnapshotInstalled, SnapshotVerified, VerifySnapshot
from kraftcore.raft.installing import completed, installing, verifying
from kraftcore.raft.ports import LogPort, SnapshotPort
from kraftcore.storage.snapshot_batches import verify_and_close


class Installer:
    """Verifies received snapshots and replaces the log by them, in threads.

    Args:
        log: the node's log.
        store: the log's snapshots.
        now_ms: returns milliseconds since 1970.
        when_flushed: calls back when no flush runs, at once or later.
        verified: called in the node's task with the outcome of a check.
        installed: called in the node's task after the log was replaced.
        failed: called in the node's task with an error after which the log must not be used.
    """

    def __init__(
        self,
        log: LogPort,
        store: SnapshotPort,
        now_ms: Callable[[], int],
        when_flushed: Callable[[Callable[[], None]], None],
        verified: Callable[[SnapshotVerified], None],
        installed: Callable[[SnapshotInstalled], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._store = store
        self._now_ms = now_ms
        self._when_flushed = when_flushed
        self._verified = verified
        self._installed = installed
        self._failed = failed
        self._token = trio.lowlevel.current_trio_token()
        self._installing: threading.Thread | None = None

    def verify(self, wanted: VerifySnapshot) -> None:
        """See `Ports`."""
        self._begin(verifying(wanted, verify_and_close), self._verified)

    def install(self, wanted: InstallSnapshot) -> None:
        """See `Ports`."""
        self._when_flushed(partial(self._install, wanted))

    def _install(self, wanted: InstallSnapshot) -> None:
        steps = installing(wanted, self._log, self._store, self._now_ms())
        self._installing = self._begin(steps, self._installed)

    def close(self) -> None:
        """Wait until no snapshot is being installed. One that is being verified is not waited for."""
        if self._installing is not None:
            self._installing.join()

    def _begin(self, steps: Generator[str, None, Any], done: Callable[[Any], None]) -> threading.Thread:
        thread = threading.Thread(target=self._work, args=(steps, done), name="kraftcore snapshot", daemon=True)
        thread.start()
        return thread

    def _work(self, steps: Generator[str, None, Any], done: Callable[[Any], None]) -> None:
        try:
            action = partial(done, completed(steps))
        except BaseException as error:
            action = partial(self._failed, error)
        try:
            self._token.run_sync_soon(action)
        except trio.RunFinishedError:
            return
