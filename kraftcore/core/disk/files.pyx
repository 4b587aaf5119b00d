"""What a disk does: the file operations that the log and the storage layer use.

``Files`` is the interface. `os_files` implements it by the operating system's calls, `simulated` by a disk in memory
that forgets and fails on purpose. Callers cannot tell the two apart. Rules for both:

* Every failure is a ``StorageError`` with errno, text and path.
* Interrupted calls (EINTR) are repeated, short transfers continued.
* A sync that failed is never repeated: the kernel may have dropped the dirty pages and would report success. The
  ``File`` then refuses everything but ``close``.
* Durability of a name (after create, rename, unlink) needs ``sync_folder``; durability of bytes needs ``File.sync``.
"""

import os
from typing import NamedTuple

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t

from kraftcore.errors import ClosedError, LocalError
from kraftcore.ownership import Owned, belongs_here, left_behind


class FileStat(NamedTuple):
    """The size, time and kind of a path, from ``Files.stat``.

    Attributes:
        size: bytes; 0 for a folder.
        mtime_ns: last modification, nanoseconds since 1970.
        read_only: no write permission is set on the file.
        is_folder: a folder, not a file.
    """

    size: int
    mtime_ns: int
    read_only: bool
    is_folder: bool


cdef class File:
    """One open file. Reads and writes name their position; there is no cursor.

    Safe for one thread that reads and writes while another one syncs: closing waits with the real close until running
    transfers are over.

    Attributes:
        path: the name it was opened under; a rename does not change it.
        closed: whether ``close`` was called.
    """

    def __cinit__(self):
        self.closed = True  # until an open succeeds

    cdef int64_t pread(self, uint8_t *target, int64_t size, int64_t position) except -1:
        raise NotImplementedError

    cdef int pwrite(self, const uint8_t *data, int64_t size, int64_t position) except -1:
        raise NotImplementedError

    cdef int64_t length(self) except -1:
        raise NotImplementedError

    cdef int resize(self, int64_t size) except -1:
        raise NotImplementedError

    cdef int write_out(self) except -1:
        return 0  # only a hint

    cdef int flush(self, bint whole) except -1:
        raise NotImplementedError

    cdef int release(self) except -1:
        raise NotImplementedError

    cdef int refuse(self) except -1:
        if self.owner:
            raise left_behind(self.path, self.owner)
        if self.closed:
            raise ClosedError(f"{self.path}: the file is closed")
        if self.failure is not None:
            raise ClosedError(f"{self.path}: refused after a failed sync ({self.failure}): reopen and recover")
        return 0

    def read_at(self, int64_t position, int64_t size):
        """Read up to ``size`` bytes from ``position``.

        Returns:
            The bytes; fewer than asked only at the end of the file.
        Raises:
            LocalError: a negative position or size; ClosedError when closed or failed.
            StorageError: the system refused.
        """
        cdef int64_t left, count
        cdef bytes data
        if position < 0 or size < 0:
            raise LocalError(f"{self.path}: cannot read {size} bytes at {position}: both must be at least 0")
        left = self.length() - position
        size = max(min(size, left), 0)
        data = PyBytes_FromStringAndSize(NULL, size)
        count = self.pread(<uint8_t *>PyBytes_AS_STRING(data), size, position) if size else 0
        return data if count == size else data[:count]

    def write_at(self, int64_t position, const uint8_t[::1] data not None):
        """Write all of ``data`` at ``position``, growing the file as needed; a gap reads as zeros.

        Raises:
            LocalError: a negative position; ClosedError when closed or failed.
            StorageError: the system refused; a part may have been written.
        """
        if position < 0:
            raise LocalError(f"{self.path}: cannot write at {position}: it must be at least 0")
        if data.shape[0] == 0:
            self.refuse()
        else:
            self.pwrite(&data[0], data.shape[0], position)

    def size(self):
        """Size in bytes."""
        return self.length()

    def truncate(self, int64_t size):
        """Cut the file to ``size`` bytes, or grow it with zeros.

        Raises:
            LocalError: a negative size; ClosedError when closed or failed.
            StorageError: the system refused.
        """
        if size < 0:
            raise LocalError(f"{self.path}: cannot be made {size} bytes long: it must be at least 0")
        self.resize(size)

    def sync(self, *, bint whole=False):
        """Wait until everything written so far is durable. Releases the GIL.

        Args:
            whole: also times and permissions, not only data and size.
        Raises:
            StorageError: the sync failed; bytes written since the last good sync may be lost, and the file refuses
                everything but ``close`` from now on.
        """
        self.flush(whole)

    def close(self):
        """Release the file. Idempotent. Does not sync."""
        if not self.closed:
            self.closed = True
            self.release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


cdef class Files:
    """The interface. Paths are ``str``, slash-separated; folders are never removed."""

    def open(self, str path not None, *, bint create=False, bint exclusive=False, bint truncate=False,
             bint read_only=False, int mode=0o644):
        """Open a file for reading and writing, or for reading only.

        Args:
            path: the file.
            create: make it if it is missing.
            exclusive: with ``create``: fail with EEXIST when it is there.
            truncate: empty it.
            read_only: no writing.
            mode: permissions of a new file, before the umask.
        Raises:
            StorageError: ENOENT, EEXIST, EACCES, EISDIR, ...
        """
        raise NotImplementedError

    def rename(self, str source not None, str target not None):
        """Rename atomically, replacing ``target``. Durable after ``sync_folder``."""
        raise NotImplementedError

    def unlink(self, str path not None):
        """Remove a file. Durable after ``sync_folder``.

        Raises:
            StorageError: ENOENT when it is missing.
        """
        raise NotImplementedError

    def list_folder(self, str path not None):
        """Names in a folder, sorted.

        Raises:
            StorageError: ENOENT when it is missing.
        """
        raise NotImplementedError

    def exists(self, str path not None):
        """Whether a file or folder has this name."""
        raise NotImplementedError

    def stat(self, str path not None):
        """A ``FileStat``.

        Raises:
            StorageError: ENOENT when it is missing.
        """
        raise NotImplementedError

    def make_folder(self, str path not None):
        """Make a folder and its parents, durably. An existing one is fine."""
        raise NotImplementedError

    def add_folders(self, list folders not None):
        """Make many folders in one call, each in an existing folder, with a file in it or none.

        Args:
            folders: a tuple for each: its path, the name of the file, empty for none, and the file's content.
        Returns:
            For each whether it was made; False: it existed, and stays as it is. A folder's name is durable after
            ``sync_folder`` of its parent; the files in the folders are not durable.
        Raises:
            StorageError: a folder cannot be made, and no later one was; a part of it may be there.
        """
        raise NotImplementedError

    def rename_all(self, list renames not None):
        """Rename many paths, given as (source, target), in order. Durable after ``sync_folder``.

        Raises:
            StorageError: a path cannot be renamed, and no later one was; the error names the target.
        """
        for source, target in renames:
            self.rename(source, target)

    def remove_folder(self, str path not None):
        """Remove an empty folder. Durable after ``sync_folder`` of its parent.

        Raises:
            StorageError: ENOENT when it is missing, ENOTEMPTY when something is in it.
        """
        raise NotImplementedError

    def sync_folder(self, str path not None):
        """Wait until the names made, changed and removed in this folder are durable."""
        raise NotImplementedError

    def set_read_only(self, str path not None):
        """Take all write permissions away (0644 becomes 0444, 0600 becomes 0400), as Kafka freezes snapshots."""
        raise NotImplementedError

    def lock(self, str path not None):
        """Take an exclusive lock on a file, made if missing, without waiting. A Kafka process respects and holds the
        same lock.

        Returns:
            A ``FileLock``.
        Raises:
            LockedError: another process or another object of this process has it.
        """
        raise NotImplementedError

    def read_file(self, str path not None):
        """The whole content of a file.

        Raises:
            StorageError: ENOENT when it is missing.
        """
        cdef File file = self.open(path, read_only=True)
        try:
            return file.read_at(0, file.length())
        finally:
            file.close()

    def replace_file(self, str path not None, data, *, bint name_waits=False):
        """Replace a file's content so that a crash leaves the old or the new one: write ``path`` + ``.tmp``, sync,
        rename, sync the folder.

        Args:
            path: of the file.
            data: its new content.
            name_waits: leave syncing the folder to the caller; until then a crash leaves either content.

        Raises:
            StorageError: the content is the old or the new one; the ``.tmp`` file may be left over.
        """
        cdef str part = path + ".tmp"
        cdef File file = self.open(part, create=True, truncate=True)
        try:
            file.write_at(0, data)
            file.flush(True)
        finally:
            file.close()
        self.rename(part, path)
        if not name_waits:
            self.sync_folder(os.path.dirname(path) or ".")


class FileLock(Owned):
    """A lock that is held until ``release``.

    Attributes:
        path: the locked file.
    """

    def __init__(self, path, release):
        self.path = path
        self._release = release

    def release(self):
        """Give the lock back and remove the file, as Kafka does at a clean stop. Idempotent."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if belongs_here(self):
            self.release()
