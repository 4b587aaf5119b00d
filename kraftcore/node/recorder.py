"""Writes a node's inputs to a file, so that its run can be repeated: ``kraftcore simulate --replay FILE``."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from typing import IO, Any

from kraftcore.core.log import Log
from kraftcore.errors import StorageError
from kraftcore.executor.driver import Probe
from kraftcore.executor.recording import beginning, effects_lines, event_entry
from kraftcore.ownership import close_in_children, no_forks
from kraftcore.raft.events import Effects, Event, RaftConfig, SnapshotWritten
from kraftcore.raft.snapshot_schedule import CleaningConfig
from kraftcore.storage.committed import COMMITTED
from kraftcore.storage.quorum_state import QUORUM_STATE
from kraftcore.storage.snapshots import SnapshotStore

_KEPT = (".log", ".checkpoint")


class Recorder(Probe):
    """Writes every event of a replica, when it is handled, with its effects.

    Args:
        path: of the file, which is replaced.
        log: the replica's log.
        store: the log's snapshots.

    Raises:
        StorageError: the file cannot be written.
    """

    def __init__(self, path: str, log: Log, store: SnapshotStore) -> None:
        self._path = path
        self._log = log
        self._store = store
        self._entry: dict[str, Any] = {}
        try:
            with no_forks:
                self._file: IO[str] = open(path, "w", buffering=1, encoding="ascii")  # noqa: SIM115  # until ``close``
                close_in_children(self, Recorder._let_go)
        except OSError as error:
            raise StorageError(error.errno, error.strerror, path) from error

    def begin(
        self, config: RaftConfig, seed: int, cleaning: CleaningConfig, *, may_have_forgotten: bool = False
    ) -> None:
        """Write the beginning, with the present log, snapshots and election state."""
        files, folder = self._store.files, self._store.folder
        names = [
            name for name in files.list_folder(folder) if name.endswith(_KEPT) or name in (QUORUM_STATE, COMMITTED)
        ]
        found = {name: files.read_file(os.path.join(folder, name)) for name in names}
        self._write(beginning(config, seed, self._log.config, cleaning, found, may_have_forgotten=may_have_forgotten))

    def handling(self, event: Event, now_ms: int) -> None:
        """See `Probe`."""
        self._entry = {"now_ms": now_ms, "durable": self._log.flushed_offset, **event_entry(event)}
        if isinstance(event, SnapshotWritten):
            with self._store.open((event.end_offset, event.epoch)) as reader:
                self._entry["snapshot"] = b64encode(reader.read_at(0, reader.size)).decode()

    def handled(self, event: Event, effects: Effects) -> None:
        """See `Probe`."""
        self._write(json.dumps({**self._entry, "effects": effects_lines(effects)}))

    def cleaning(self, now_ms: int) -> None:
        """See `Probe`."""
        self._write(json.dumps({"event": "cleaning", "now_ms": now_ms, "durable": self._log.flushed_offset}))

    def _write(self, line: str) -> None:
        try:
            self._file.write(line + "\n")
        except OSError as error:
            raise StorageError(error.errno, error.strerror, self._path) from error

    def _let_go(self) -> None:
        # The parent process writes the buffered rest.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._file.fileno())
        os.close(nowhere)
        self._file.close()

    def close(self) -> None:
        """Close the file. Idempotent."""
        self._file.close()
