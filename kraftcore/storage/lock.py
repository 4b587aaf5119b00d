"""``.lock``: the lock by which one process owns a directory. Kafka takes the same, so the two exclude each other."""

from __future__ import annotations

import os
from collections.abc import Iterable
from types import TracebackType

from kraftcore.core.disk.files import FileLock, Files
from kraftcore.errors import LockedError
from kraftcore.ownership import Owned, belongs_here

LOCK_FILE = ".lock"


class FolderLocks(Owned):
    """Locks on all folders of a node, taken together. Also a context manager."""

    def __init__(self, locks: list[FileLock]) -> None:
        self._locks = locks

    @property
    def paths(self) -> tuple[str, ...]:
        """The lock files held."""
        return tuple(lock.path for lock in self._locks)

    def release(self) -> None:
        """Give all locks back and remove the files, as at a clean stop of Kafka. Idempotent."""
        while self._locks:
            self._locks.pop().release()

    def __enter__(self) -> FolderLocks:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if belongs_here(self):
            self.release()


def lock_folders(files: Files, folders: Iterable[str]) -> FolderLocks:
    """Lock every folder, or none.

    Args:
        files: where the folders are.
        folders: existing folders; one named twice is locked once.

    Raises:
        LockedError: another process, of kraftcore or Kafka, owns a folder; both are named.
        StorageError: a lock file cannot be made.
    """
    held = FolderLocks([])
    try:
        for folder in dict.fromkeys(folders):
            try:
                held._locks.append(files.lock(os.path.join(folder, LOCK_FILE)))
            except LockedError as error:
                raise LockedError(f"cannot use {folder}: {error}", error.pid) from None
    except BaseException:
        held.release()
        raise
    return held
