"""The files of the operating system, by its calls.

Transfers and syncs that take long run without the GIL. The module knows every descriptor that it opened, so that a
forked child closes those of its parent.
"""

import os
import stat as _stat

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.errno cimport EACCES, EAGAIN, EEXIST, EINTR, EIO, ENOENT, errno
from libc.stdint cimport int64_t, uint8_t

from kraftcore.core.disk.files cimport GIL_BYTES, File, Files

from kraftcore.core.disk.files import FileLock, FileStat
from kraftcore.core.disk.lock_holder import holder_of
from kraftcore.errors import LocalError, LockedError, StorageError
from kraftcore.ownership import close_in_children, forked_from, no_forks

cdef extern from "os_calls.h":
    int kraft_sync(int fd, int whole) noexcept nogil
    int64_t kraft_add_folders(const char **folders, const char **paths, const char **data, const int64_t *sizes,
                              int64_t first, int64_t count, int *code) noexcept nogil
    int64_t kraft_rename_all(const char **sources, const char **targets, int64_t count) noexcept nogil
    void kraft_write_out(int fd) noexcept nogil
    int64_t kraft_size(int fd) noexcept nogil
    int kraft_lock(int fd) noexcept nogil
    int kraft_lock_owner(int fd) noexcept nogil

cdef extern from "unistd.h" nogil:
    ssize_t c_pread "pread"(int fd, void *target, size_t size, int64_t position)
    ssize_t c_pwrite "pwrite"(int fd, const void *data, size_t size, int64_t position)
    int c_ftruncate "ftruncate"(int fd, int64_t size)
    int c_close "close"(int fd)

cdef enum:
    TRANSFER_BYTES = 1 << 30  # the most that one system call is asked to move


def _failure(int code, str path):
    return StorageError(code, os.strerror(code), path)


cdef object _os_call(function, path, more=()):
    try:
        return function(path, *more)
    except OSError as error:
        raise StorageError(error.errno or EIO, error.strerror or str(error), path) from None
    except ValueError as error:  # a NUL in the path, a lone surrogate
        raise StorageError(ENOENT, str(error), path) from None


cdef class OsFile(File):
    """An open file of the operating system."""

    cdef int fd
    cdef int busy           # transfers that run without the GIL: the descriptor must outlive them
    cdef bint is_volatile   # a sync does nothing
    cdef void *before       # link in the list of all files with a descriptor, for forked children
    cdef void *after

    def __cinit__(self):
        self.fd = -1

    def __init__(self):
        raise LocalError("open files through OsFiles().open")

    def __dealloc__(self):
        if self.fd >= 0:
            c_close(self.forget())

    cdef void hold(self, int fd) noexcept:
        """Take a descriptor, and join the list of open files."""
        global first_open
        self.fd = fd
        self.closed = False
        self.before = NULL
        self.after = first_open
        if first_open is not NULL:
            (<OsFile>first_open).before = <void *>self
        first_open = <void *>self

    cdef int forget(self) noexcept:
        """Leave the list of open files; returns the descriptor, to be closed."""
        global first_open
        cdef int fd = self.fd
        self.fd = -1
        if self.before is NULL:
            first_open = self.after
        else:
            (<OsFile>self.before).after = self.after
        if self.after is not NULL:
            (<OsFile>self.after).before = self.before
        return fd

    cdef int end_transfer(self) except -1:
        self.busy -= 1
        if self.closed and self.busy == 0:
            self.release()
        return 0

    cdef int64_t pread(self, uint8_t *target, int64_t size, int64_t position) except -1:
        cdef int64_t done = 0
        cdef int code = 0
        if self.closed or self.failure is not None:
            self.refuse()
        if size < GIL_BYTES:
            code = read_all(self.fd, target, size, position, &done)
        else:
            self.busy += 1
            with nogil:
                code = read_all(self.fd, target, size, position, &done)
            self.end_transfer()
        if code:
            raise _failure(code, self.path)
        return done

    cdef int pwrite(self, const uint8_t *data, int64_t size, int64_t position) except -1:
        cdef int code
        if self.closed or self.failure is not None:
            self.refuse()
        if size < GIL_BYTES:
            code = write_all(self.fd, data, size, position)
        else:
            self.busy += 1
            with nogil:
                code = write_all(self.fd, data, size, position)
            self.end_transfer()
        if code:
            raise _failure(code, self.path)
        return 0

    cdef int64_t length(self) except -1:
        cdef int64_t size
        if self.closed or self.failure is not None:
            self.refuse()
        size = kraft_size(self.fd)
        if size < 0:
            raise _failure(errno, self.path)
        return size

    cdef int resize(self, int64_t size) except -1:
        self.refuse()
        while c_ftruncate(self.fd, size) < 0:
            if errno != EINTR:
                raise _failure(errno, self.path)
        return 0

    cdef int write_out(self) except -1:
        if not self.closed and self.failure is None:
            self.busy += 1
            with nogil:
                kraft_write_out(self.fd)
            self.end_transfer()
        return 0

    cdef int flush(self, bint whole) except -1:
        cdef int code = 0
        self.refuse()
        if self.is_volatile:
            return 0
        self.busy += 1
        with nogil:
            while kraft_sync(self.fd, whole) < 0:
                if errno != EINTR:
                    code = errno
                    break
        if code:
            self.failure = _failure(code, self.path)
        self.end_transfer()
        if code:
            raise self.failure
        return 0

    cdef int release(self) except -1:
        if self.busy or self.fd < 0:
            return 0
        if c_close(self.forget()) < 0 and errno != EINTR:  # after EINTR the descriptor is gone all the same (Linux)
            raise _failure(errno, self.path)
        return 0


cdef int read_all(int fd, uint8_t *target, int64_t size, int64_t position, int64_t *done) noexcept nogil:
    cdef ssize_t count
    done[0] = 0
    while done[0] < size:
        count = c_pread(fd, target + done[0], <size_t>min(size - done[0], <int64_t>TRANSFER_BYTES), position + done[0])
        if count == 0:
            return 0
        if count > 0:
            done[0] += count
        elif errno != EINTR:
            return errno
    return 0


cdef int write_all(int fd, const uint8_t *data, int64_t size, int64_t position) noexcept nogil:
    cdef ssize_t count
    while size > 0:
        count = c_pwrite(fd, data, <size_t>min(size, <int64_t>TRANSFER_BYTES), position)
        if count > 0:
            data += count
            position += count
            size -= count
        elif count == 0:
            return EIO
        elif errno != EINTR:
            return errno
    return 0


cdef bytes _os_path(str path):
    cdef bytes found
    try:
        found = os.fsencode(path)
        if b"\0" in found:
            raise ValueError("embedded null byte")
    except ValueError as error:  # a NUL raises ValueError, too; here it is a lone surrogate
        raise StorageError(ENOENT, str(error), path) from None
    return found


cdef class _Texts:
    # The addresses of the bytes objects in a list, for calls without the GIL: the list must outlive this object.
    cdef list held
    cdef const char **texts
    cdef int64_t *sizes

    def __cinit__(self, list held):
        cdef Py_ssize_t number
        self.held = held
        self.texts = <const char **>PyMem_Malloc(max(len(held), 1) * sizeof(char *))
        self.sizes = <int64_t *>PyMem_Malloc(max(len(held), 1) * sizeof(int64_t))
        if self.texts == NULL or self.sizes == NULL:
            raise MemoryError
        for number in range(len(held)):
            self.texts[number] = PyBytes_AS_STRING(held[number])
            self.sizes[number] = PyBytes_GET_SIZE(held[number])

    def __dealloc__(self):
        PyMem_Free(self.texts)
        PyMem_Free(self.sizes)


cdef void *first_open = NULL

# The locks of this process, by (device, inode): where locks belong to processes, one process could lock a file twice.
_held = {}


class _Descriptors:
    """All descriptors of this module."""

    def close(self):
        """Close all descriptors in a forked child: locks and open files belong to the parent alone."""
        cdef OsFile file
        for descriptor in _held.values():
            c_close(descriptor)  # not unlocked: the lock belongs to the open file, which the parent shares
        _held.clear()
        while first_open is not NULL:
            file = <OsFile>first_open
            file.closed, file.owner = True, forked_from()
            c_close(file.forget())  # even if a thread of the parent is busy with the file: it does not run here


_descriptors = close_in_children(_Descriptors(), _Descriptors.close)


class OsFiles(Files):
    """The files of the operating system."""

    __slots__ = ()

    def open(self, path, *, create=False, exclusive=False, truncate=False, read_only=False, mode=0o644):
        cdef OsFile file = OsFile.__new__(OsFile)
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR)
        if create:
            flags |= os.O_CREAT | (os.O_EXCL if exclusive else 0)
        if truncate:
            flags |= os.O_TRUNC
        file.path = path
        file.hold(_os_call(os.open, path, (flags, mode)))
        return file

    def rename(self, source, target):
        _os_call(os.replace, source, (target,))

    def unlink(self, path):
        _os_call(os.unlink, path)

    def list_folder(self, path):
        return sorted(_os_call(os.listdir, path))

    def exists(self, path):
        return os.path.exists(path)

    def stat(self, path):
        info = _os_call(os.stat, path)
        folder = _stat.S_ISDIR(info.st_mode)
        return FileStat(0 if folder else info.st_size, info.st_mtime_ns, not info.st_mode & 0o222, folder)

    def make_folder(self, path):
        missing = []
        while path and not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for name in reversed(missing):
            try:
                _os_call(os.mkdir, name)
            except StorageError:
                if not os.path.isdir(name):
                    raise
            self.sync_folder(os.path.dirname(name) or ".")

    def add_folders(self, list folders not None):
        # One step without the GIL: releasing it for each file would mean waiting for it after each file.
        cdef Py_ssize_t count = len(folders), number = 0
        cdef _Texts at = _Texts([_os_path(path) for path, _, _ in folders])
        cdef _Texts inside = _Texts([_os_path(os.path.join(path, name)) if name else b"" for path, name, _ in folders])
        cdef _Texts data = _Texts([bytes(content) for _, _, content in folders])
        cdef list made = [True] * count
        cdef int code = 0
        while number < count:
            with nogil:
                number = kraft_add_folders(at.texts, inside.texts, data.texts, data.sizes, number, count, &code)
            if code == EEXIST:
                made[number] = False
                number += 1
            elif code:
                raise _failure(code, folders[number][0])
        return made

    def rename_all(self, list renames not None):
        cdef _Texts old = _Texts([_os_path(source) for source, _ in renames])
        cdef _Texts new = _Texts([_os_path(target) for _, target in renames])
        cdef int64_t count = len(renames), done
        cdef int code
        with nogil:
            done = kraft_rename_all(old.texts, new.texts, count)
            code = errno
        if done < count:
            raise _failure(code, renames[done][1])

    def remove_folder(self, path):
        _os_call(os.rmdir, path)

    def sync_folder(self, path):
        cdef OsFile folder = OsFile.__new__(OsFile)
        folder.path = path
        folder.hold(_os_call(os.open, path, (os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY,)))
        try:
            folder.flush(True)
        finally:
            folder.close()

    def set_read_only(self, path):
        info = _os_call(os.stat, path)
        _os_call(os.chmod, path, (_stat.S_IMODE(info.st_mode) & ~0o222,))

    def lock(self, path):
        while (key := self._try_to_lock(path)) is None:
            pass  # the last holder removed the file between our open and our lock: try again

        def release():
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
            finally:
                os.close(_held.pop(key))

        return FileLock(path, release)

    def _try_to_lock(self, path):
        cdef int fd
        with no_forks:
            # Checked before the open: closing a second descriptor could drop a process-wide lock.
            if os.path.exists(path):
                info = _os_call(os.stat, path)
                if (info.st_dev, info.st_ino) in _held:
                    raise LockedError(
                        f"{path}: this process holds the lock already: close the other user of the folder", os.getpid()
                    )
            fd = _os_call(os.open, path, (os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644))
            info = os.fstat(fd)
            if kraft_lock(fd) < 0:
                code = errno
                owner = kraft_lock_owner(fd)
                os.close(fd)
                if code not in (EACCES, EAGAIN):
                    raise _failure(code, path)
            else:
                code = 0
                try:
                    now = os.stat(path)
                except FileNotFoundError:
                    now = None
                if now is None or (now.st_dev, now.st_ino) != (info.st_dev, info.st_ino):
                    os.close(fd)
                    return None
                _held[info.st_dev, info.st_ino] = fd
        if code:
            pid, who = holder_of(info.st_dev, info.st_ino, owner)
            raise LockedError(f"{path}: {who} holds the lock: stop it, or use another directory", pid)
        return info.st_dev, info.st_ino


class VolatileFiles(OsFiles):
    """The files of the operating system, never synced: for a folder that does not outlive its process."""

    __slots__ = ()

    def open(self, path, *, create=False, exclusive=False, truncate=False, read_only=False, mode=0o644):
        cdef OsFile file = OsFiles.open(
            self, path, create=create, exclusive=exclusive, truncate=truncate, read_only=read_only, mode=mode
        )
        file.is_volatile = True
        return file

    def sync_folder(self, path):
        """Do nothing."""
