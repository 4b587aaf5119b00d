"""Snapshot files (``.checkpoint``): names, writing, serving, deleting. Source: KIP-630; Kafka 4.3.1, Snapshots.

A snapshot is written under a name ending in ``.checkpoint.part`` and gets its own name only when it is complete,
durable and read-only, so a ``.checkpoint`` file is never half a snapshot. ``snapshot_batches`` has the content.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

from kraftcore.core.disk.files import File, Files
from kraftcore.errors import ClosedError, LocalError
from kraftcore.storage.closing import Closing

SUFFIX = ".checkpoint"
PART_SUFFIX = ".checkpoint.part"
DELETED_SUFFIX = ".checkpoint.deleted"
DELETE_DELAY_MS = 60_000

_NAME = re.compile(r"(\d{20})-(\d{10})(-\d+)?(\.checkpoint(?:\.part|\.deleted)?)", re.ASCII)


class SnapshotId(NamedTuple):
    """The part of the log that a snapshot replaces.

    Attributes:
        end_offset: exclusive, >= 0: records below it are contained.
        epoch: leader epoch of the last contained record, >= 0.
    """

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        """Name of the finished file."""
        return f"{self.end_offset:020d}-{self.epoch:010d}{SUFFIX}"


BOOTSTRAP_SNAPSHOT_ID = SnapshotId(0, 0)
"""The 0-0 checkpoint: the voters a quorum was formatted with. Local only, never served to others."""


class SnapshotName(NamedTuple):
    """A file name that belongs to a snapshot.

    Attributes:
        id: of the snapshot.
        suffix: ``SUFFIX``, ``PART_SUFFIX`` (being written, or left over) or ``DELETED_SUFFIX`` (to be unlinked).
    """

    id: SnapshotId
    suffix: str


def parse_name(file_name: str) -> SnapshotName | None:
    """Read a snapshot's file name, without its folder.

    Returns:
        None for another name; also for an offset or epoch beyond 63 or 31 bits, and for ``bootstrap.checkpoint``.
    """
    match = _NAME.fullmatch(file_name)
    if match is None or (match[3] is not None) != (match[4] == PART_SUFFIX):
        return None
    found = SnapshotId(int(match[1]), int(match[2]))
    if found.end_offset >= 1 << 63 or found.epoch >= 1 << 31:
        return None
    return SnapshotName(found, match[4])


class SnapshotStore:
    """The snapshots in one partition's folder.

    Opening removes files that a crash left: unfinished ``.part`` files and ``.deleted`` ones. Only one thread may use
    it at a time; its readers and writers may be used in other threads.

    Args:
        files: where the folder is.
        folder: of the partition; made if it is missing.
        delete_delay_ms: how long a deleted snapshot stays, renamed, before it is unlinked.
        randbytes: for the names of part files.

    Raises:
        StorageError: the folder cannot be read or cleaned.
    """

    def __init__(
        self,
        files: Files,
        folder: str,
        *,
        delete_delay_ms: int = DELETE_DELAY_MS,
        randbytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._files = files
        self.folder = folder
        self._delete_delay_ms = delete_delay_ms
        self._randbytes = randbytes
        self._sizes: dict[SnapshotId, int] = {}
        self._ids: tuple[SnapshotId, ...] | None = None  # kept, for every Fetch asks for them
        self._deleted: dict[str, int] = {}  # path -> when to unlink
        self._parts: set[str] = set()  # unfinished writers of this object
        files.make_folder(folder)
        leftovers = False
        for name in files.list_folder(folder):
            found = parse_name(name)
            if found is None:
                continue
            path = os.path.join(folder, name)
            if found.suffix == SUFFIX:
                self._sizes[found.id] = files.stat(path).size
            else:
                files.unlink(path)
                leftovers = True
        if leftovers:
            files.sync_folder(folder)

    @property
    def files(self) -> Files:
        """Where the folder is."""
        return self._files

    @property
    def ids(self) -> tuple[SnapshotId, ...]:
        """Finished snapshots, oldest first."""
        if self._ids is None:
            self._ids = tuple(sorted(self._sizes))
        return self._ids

    @property
    def latest(self) -> SnapshotId | None:
        """The newest snapshot, which may be the 0-0 checkpoint; or None."""
        return self.ids[-1] if self._sizes else None

    @property
    def earliest(self) -> SnapshotId | None:
        """The oldest snapshot, or None."""
        return self.ids[0] if self._sizes else None

    def __contains__(self, snapshot_id: object) -> bool:
        return snapshot_id in self._sizes

    def size(self, snapshot_id: tuple[int, int]) -> int:
        """Bytes of a finished snapshot.

        Raises:
            LocalError: there is no such snapshot.
        """
        return self._sizes[self._known(snapshot_id)]

    def path(self, snapshot_id: SnapshotId) -> str:
        """The path of a snapshot, whether or not it exists."""
        return os.path.join(self.folder, snapshot_id.file_name)

    def create(self, snapshot_id: tuple[int, int]) -> RawSnapshotWriter:
        """Begin to write a snapshot, this node's own or one received in chunks.

        Two unfinished writers for one id do not disturb each other; the first to freeze wins.

        Raises:
            LocalError: the snapshot exists already, or the id is out of range.
            StorageError: the part file cannot be made.
        """
        snapshot_id = SnapshotId(*snapshot_id)
        if not (0 <= snapshot_id.end_offset < 1 << 63 and 0 <= snapshot_id.epoch < 1 << 31):
            raise LocalError(f"{snapshot_id} is out of range")
        if snapshot_id in self._sizes:
            raise LocalError(f"snapshot {snapshot_id.file_name} exists already in {self.folder}")
        number = int.from_bytes(self._randbytes(8), "big")
        stem = snapshot_id.file_name.removesuffix(SUFFIX)
        path = os.path.join(self.folder, f"{stem}-{number}{PART_SUFFIX}")
        file = self._files.open(path, create=True, exclusive=True, mode=0o600)
        self._parts.add(path)
        return RawSnapshotWriter(self, snapshot_id, path, file)

    def open(self, snapshot_id: tuple[int, int]) -> RawSnapshotReader:
        """Open a finished snapshot. An open one stays readable when the snapshot is deleted.

        Raises:
            LocalError: there is no such snapshot.
            StorageError: the file cannot be opened.
        """
        snapshot_id = self._known(snapshot_id)
        path = self.path(snapshot_id)
        return RawSnapshotReader(snapshot_id, self._files.open(path, read_only=True))

    def delete(self, snapshot_id: SnapshotId, now_ms: int) -> None:
        """Delete a snapshot: rename it at once, unlink it when ``delete_delay_ms`` have passed (``unlink_due``).

        Args:
            snapshot_id: a finished snapshot.
            now_ms: time on the caller's clock, the same as in ``unlink_due``.

        Raises:
            LocalError: there is no such snapshot.
            StorageError: the rename failed; the snapshot is still there.
        """
        path = self.path(self._known(snapshot_id))
        target = path.removesuffix(SUFFIX) + DELETED_SUFFIX
        self._files.rename(path, target)
        del self._sizes[snapshot_id]
        self._ids = None
        self._deleted[target] = now_ms + self._delete_delay_ms

    def delete_before(self, end_offset: int, now_ms: int) -> tuple[SnapshotId, ...]:
        """Delete every snapshot whose end offset is below ``end_offset``; see ``delete``."""
        old = tuple(each for each in self.ids if each.end_offset < end_offset)
        for snapshot_id in old:
            self.delete(snapshot_id, now_ms)
        return old

    def unlink_due(self, now_ms: int) -> int | None:
        """Unlink deleted snapshots whose delay has passed.

        Returns:
            When to call again, on the caller's clock; None if nothing is waiting.

        Raises:
            StorageError: a file could not be removed; it stays due.
        """
        for path in [path for path, due_ms in self._deleted.items() if due_ms <= now_ms]:
            self._files.unlink(path)
            del self._deleted[path]
        return min(self._deleted.values(), default=None)

    def _known(self, pair: tuple[int, int]) -> SnapshotId:
        snapshot_id = SnapshotId(*pair)
        if snapshot_id not in self._sizes:
            raise LocalError(f"there is no snapshot {snapshot_id.file_name} in {self.folder}")
        return snapshot_id

    def _finish(self, snapshot_id: SnapshotId, part: str, size: int) -> None:
        if snapshot_id in self._sizes:
            raise LocalError(f"snapshot {snapshot_id.file_name} was written by someone else meanwhile")
        self._files.set_read_only(part)
        self._files.rename(part, self.path(snapshot_id))
        self._parts.discard(part)
        self._files.sync_folder(self.folder)
        self._sizes[snapshot_id] = size
        self._ids = None

    def _discard(self, part: str) -> None:
        if part in self._parts:
            self._parts.discard(part)
            self._files.unlink(part)


class RawSnapshotWriter(Closing):
    """A snapshot that is being written, as bytes. Also a context manager: leaving it unfrozen discards it.

    Attributes:
        id: of the snapshot.
        size: bytes so far, which is the position of the next ones.
    """

    def __init__(self, store: SnapshotStore, snapshot_id: SnapshotId, path: str, file: File) -> None:
        self._store = store
        self._path = path
        self._file = file
        self._frozen = False
        self.id = snapshot_id
        self.size = 0

    @property
    def is_frozen(self) -> bool:
        """Whether ``freeze`` succeeded."""
        return self._frozen

    def append(self, data: bytes | bytearray | memoryview, *, position: int | None = None) -> None:
        """Add bytes, batch-aligned or not.

        Args:
            data: the next bytes.
            position: their position, if the sender gave one; it must be ``size``.

        Raises:
            LocalError: the position is another; nothing was written, ask the sender for ``size``. ClosedError when
                frozen or closed.
            StorageError: nothing counts as written; the same bytes may be tried again.
        """
        self._require_open()
        if position is not None and position != self.size:
            raise LocalError(
                f"bytes for position {position} of snapshot {self.id.file_name}, which has {self.size}: ask for those"
            )
        self._file.write_at(self.size, data)
        self.size += len(memoryview(data).cast("B")) if isinstance(data, memoryview) else len(data)

    def sync(self) -> None:
        """Make the bytes so far durable, so that ``freeze`` has little left to do; may run in another thread.

        Raises:
            StorageError: the disk failed; close the writer and start again.
        """
        self._require_open()
        self._file.sync(whole=True)

    def freeze(self) -> None:
        """Make the snapshot durable and read-only, and give it its name.

        Raises:
            LocalError: another writer has finished the same snapshot. ClosedError when frozen or closed.
            StorageError: the disk failed; close the writer and start again.
        """
        self._require_open()
        self._file.truncate(self.size)  # a failed append may have left bytes behind
        self._file.sync(whole=True)
        self._file.close()
        self._store._finish(self.id, self._path, self.size)
        self._frozen = True

    def read_back(self) -> RawSnapshotReader:
        """Open a reader of the bytes so far, to check them before ``freeze``."""
        self._require_open()
        return RawSnapshotReader(self.id, self._store._files.open(self._path, read_only=True))

    def close(self) -> None:
        """Remove the part file, unless the snapshot is frozen. Idempotent."""
        self._file.close()
        if not self._frozen:
            self._store._discard(self._path)

    def _require_open(self) -> None:
        if self._frozen:
            raise ClosedError(f"snapshot {self.id.file_name} is frozen")
        if self._file.closed:
            raise ClosedError(f"the writer of snapshot {self.id.file_name} is closed")


class RawSnapshotReader(Closing):
    """An open snapshot, as bytes, from which FetchSnapshot is answered. Also a context manager.

    Attributes:
        id: of the snapshot.
        size: bytes.
    """

    def __init__(self, snapshot_id: SnapshotId, file: File) -> None:
        self.id = snapshot_id
        self.file = file
        self.size = file.size()

    def read_at(self, position: int, max_bytes: int) -> bytes:
        """Read a chunk.

        Args:
            position: 0 <= position < ``size``.
            max_bytes: most bytes to read, >= 0; fewer are returned only at the end.

        Raises:
            LocalError: the position is outside the snapshot (POSITION_OUT_OF_RANGE to a peer), or ``max_bytes`` < 0.
            StorageError: the disk failed.
        """
        if not 0 <= position < self.size:
            raise LocalError(f"position {position} is outside snapshot {self.id.file_name} of {self.size} bytes")
        return self.file.read_at(position, min(max_bytes, self.size - position) if max_bytes >= 0 else max_bytes)

    def close(self) -> None:
        """Release the file. Idempotent."""
        self.file.close()
