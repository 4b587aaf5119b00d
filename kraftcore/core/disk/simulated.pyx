"""A disk in memory that forgets, tears, reorders, fills up and fails, all drawn from one injected random source.

Of each file it models the content that readers see (page cache), the content that would survive a crash (durable), and
the writes and truncations between the two, in order. Of each folder it models the names that readers see, the names
that would survive, and the creations, renames and removals between the two. Only ``File.sync`` makes a file's content
durable, and only ``sync_folder`` a folder's names. ``crash`` draws which other changes survive, and returns the disk
after the restart.

More hostile than real file systems on purpose: names and contents are independent (a synced file whose name was not
synced is gone), a grown file may end in zeros or in garbage, a failed sync forgets some of the writes while readers
still see them. Kinder in one point: bytes that were durable are not damaged by a torn write beside them.
"""

import errno as _errno
import os
from contextlib import contextmanager

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy, memset

from kraftcore.core.disk.files cimport File, Files

from kraftcore.core.disk.files import FileLock, FileStat
from kraftcore.errors import LocalError, LockedError, StorageError

SECTOR_BYTES = 512  # a disk writes a sector as a whole
CRASH_MODES = ("lost", "kept", "torn", "reordered", "mixed")


cdef class _Inode:
    cdef int64_t number
    cdef bytearray seen             # the content that readers see
    cdef bytearray durable          # the content that survives a crash
    cdef list pending               # since the last sync: (position, bytes) or (new size, None)
    cdef int64_t mtime_ns, durable_mtime_ns
    cdef bint read_only, is_folder
    cdef int links                  # names and open files

    def __cinit__(self, int64_t number, bint is_folder=False):
        self.number = number
        self.is_folder = is_folder
        self.seen = bytearray()
        self.durable = bytearray()
        self.pending = []


cdef int _write(bytearray content, int64_t position, const uint8_t *data, int64_t size) except -1:
    cdef int64_t before = PyByteArray_GET_SIZE(content)
    if position + size > before:
        PyByteArray_Resize(content, position + size)
        if position > before:
            memset(PyByteArray_AS_STRING(content) + before, 0, position - before)
    memcpy(PyByteArray_AS_STRING(content) + position, data, size)
    return 0


cdef int _truncate(bytearray content, int64_t size) except -1:
    cdef int64_t before = PyByteArray_GET_SIZE(content)
    PyByteArray_Resize(content, size)
    if size > before:
        memset(PyByteArray_AS_STRING(content) + before, 0, size - before)
    return 0


cdef int _apply(bytearray content, int64_t position, bytes data) except -1:
    if data is None:
        _truncate(content, position)
    else:
        _write(content, position, <const uint8_t *>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data))
    return 0


class Fault:
    """One planned failure; made by ``SimulatedDisk.inject``.

    Attributes:
        hits: how often it struck.
    """

    def __init__(self, operation, after, times, code, path):
        self.operation = operation
        self.after = after
        self.times = times
        self.code = code
        self.path = path
        self.hits = 0

    def strikes(self, operation, path):
        """Whether this operation fails; counts it."""
        if self.hits == self.times or self.operation not in ("any", operation) or self.path not in path:
            return False
        if self.after > 0:
            self.after -= 1
            return False
        self.hits += 1
        return True


cdef class SimulatedFile(File):
    """An open file of a ``SimulatedDisk``."""

    cdef SimulatedDisk disk
    cdef _Inode inode
    cdef bint read_only

    def __init__(self):
        raise LocalError("open files through SimulatedDisk.open")

    cdef int64_t pread(self, uint8_t *target, int64_t size, int64_t position) except -1:
        cdef int64_t left
        if self.closed or self.failure is not None:
            self.refuse()
        self.disk.step("read", self.path)
        left = PyByteArray_GET_SIZE(self.inode.seen) - position
        size = max(min(size, left), 0)
        memcpy(target, PyByteArray_AS_STRING(self.inode.seen) + position, size)
        return size

    cdef int pwrite(self, const uint8_t *data, int64_t size, int64_t position) except -1:
        cdef int code
        cdef int64_t grown, part = size
        if self.closed or self.failure is not None:
            self.refuse()
        if self.read_only:
            raise _failure(_errno.EBADF, self.path)
        code = self.disk.begin("write", self.path)
        if code:
            part = self.disk.draw(0, size)
        grown = position + size - PyByteArray_GET_SIZE(self.inode.seen)
        if grown > 0 and self.disk.capacity is not None and self.disk.used_bytes + grown > self.disk.capacity:
            code = _errno.ENOSPC
            part = min(part, max(size - (self.disk.used_bytes + grown - <int64_t>self.disk.capacity), 0))
        if part > 0:
            self.disk.write(self.inode, position, PyBytes_FromStringAndSize(<const char *>data, part))
        if code:
            raise _failure(code, self.path)
        return 0

    cdef int64_t length(self) except -1:
        self.refuse()
        return PyByteArray_GET_SIZE(self.inode.seen)

    cdef int resize(self, int64_t size) except -1:
        self.refuse()
        if self.read_only:
            raise _failure(_errno.EINVAL, self.path)
        self.disk.step("truncate", self.path)
        self.disk.write(self.inode, size, None)
        return 0

    cdef int flush(self, bint whole) except -1:
        cdef int code
        self.refuse()
        code = self.disk.begin("sync", self.path)
        if code:
            self.failure = _failure(code, self.path)
            self.disk.forget_some(self.inode)
            raise self.failure
        self.disk.sync(self.inode, whole)
        if self.disk.sync_latency_ms is not None:
            self.disk.latency_ms += self.disk.sync_latency_ms(self.path)
        return 0

    cdef int release(self) except -1:
        self.disk.unlink_inode(self.inode)
        return 0


def _failure(int code, str path):
    return StorageError(code, os.strerror(code), path)


cdef class SimulatedDisk(Files):
    """Files in memory, with crashes and faults.

    Args:
        rng: a ``random.Random``; every choice is drawn from it.
        capacity: bytes of file content that fit, or None for no limit. A write that does not fit is done in part and
            raises ENOSPC.
        record: keep a trace of all changes in ``trace``.

    Attributes:
        capacity: as above; may be changed at any time.
        used_bytes: file content now, unlinked files that are still open included.
        operations: how many operations were begun, reads included.
        sync_latency_ms: called with a path at each sync; its result is added to ``latency_ms``. None: syncs are free.
        latency_ms: the time that slow syncs would have taken; the caller reads it and sets it back to 0.
        trace: list of changes for ``replay``, or None.
        crashed: whether ``crash`` was called, after which nothing works any more.
    """

    cdef dict names, durable_names      # path -> _Inode
    cdef dict pending_names             # folder -> [{path: _Inode or None}], in order
    cdef dict inodes                    # number -> _Inode; only kept for replay
    cdef set locks
    cdef object rng
    cdef list faults
    cdef int64_t numbers, clock_ns
    cdef readonly int64_t operations, used_bytes
    cdef public object capacity, sync_latency_ms
    cdef public double latency_ms
    cdef readonly bint crashed
    cdef readonly list trace

    def __init__(self, rng, *, capacity=None, bint record=False):
        self.rng = rng
        self.capacity = capacity
        self.sync_latency_ms = None
        self.trace = [] if record else None
        self.names, self.durable_names, self.pending_names, self.inodes = {}, {}, {}, {}
        self.locks = set()
        self.faults = []
        self.clock_ns = 1_000_000_000

    # ---- faults

    def inject(self, operation, *, int after=0, int times=1, int code=_errno.EIO, path=""):
        """Plan a failure.

        Args:
            operation: ``read``, ``write``, ``truncate``, ``sync``, ``open``, ``rename``, ``unlink``, ``sync_folder``,
                ``stat``, ``list`` or ``any``.
            after: how many matching operations succeed first.
            times: how many fail from then on; -1 for all.
            code: errno of the failure. A failing write leaves a part behind; a failing sync forgets a part.
            path: only paths that contain this text.
        Returns:
            The ``Fault``; its ``hits`` tells whether it struck.
        """
        fault = Fault(operation, after, times, code, path)
        self.faults.append(fault)
        return fault

    def clear_faults(self):
        """Drop all planned failures."""
        self.faults.clear()

    @contextmanager
    def without_faults(self):
        """A context without planned failures, for code that is not under test; its operations are not counted."""
        held, self.faults = self.faults, []
        try:
            yield
        finally:
            self.faults[:0] = held

    cdef int begin(self, str operation, str path) except -1:
        # Counts an operation; the errno that it must fail with, or 0.
        self.operations += 1
        if self.crashed:
            raise StorageError(_errno.EIO, "the simulated machine has crashed", path)
        if self.faults:
            for fault in self.faults:
                if fault.strikes(operation, path):
                    return fault.code
        return 0

    cdef int step(self, str operation, str path) except -1:
        cdef int code = self.begin(operation, path)
        if code:
            raise _failure(code, path)
        return 0

    cdef int64_t draw(self, int64_t low, int64_t high) except -1:
        return self.rng.randint(low, high)

    cdef int forget_some(self, _Inode inode) except -1:
        # After a failed sync any of the writes may be durable, and none of the others will ever be.
        for position, data in inode.pending:
            if self.rng.random() < 0.5:
                _apply(inode.durable, position, data)
        inode.pending.clear()
        return 0

    # ---- changes; each one is a line of the trace

    cdef int64_t tick(self) noexcept:
        self.clock_ns += 1_000_000
        return self.clock_ns

    cdef int write(self, _Inode inode, int64_t position, bytes data) except -1:
        cdef int64_t before = PyByteArray_GET_SIZE(inode.seen)
        _apply(inode.seen, position, data)
        inode.pending.append((position, data))
        inode.mtime_ns = self.tick()
        self.used_bytes += PyByteArray_GET_SIZE(inode.seen) - before
        if self.trace is not None:
            self.trace.append(("write", inode.number, position, data))
        return 0

    cdef int sync(self, _Inode inode, bint whole) except -1:
        for position, data in inode.pending:
            _apply(inode.durable, position, data)
        inode.pending.clear()
        if whole:
            inode.durable_mtime_ns = inode.mtime_ns
        if self.trace is not None:
            self.trace.append(("sync", inode.number, whole))
        return 0

    cdef _Inode create(self, str path, bint is_folder):
        cdef _Inode inode = _Inode(self.numbers, is_folder)
        self.numbers += 1
        inode.mtime_ns = inode.durable_mtime_ns = self.tick()
        self.change_names(path, {path: inode})
        if self.trace is not None:
            self.inodes[inode.number] = inode
            self.trace.append(("create", path, is_folder))
        return inode

    cdef int change_names(self, str path, dict change) except -1:
        for name, inode in change.items():
            old = self.names.pop(name, None)
            if inode is not None:
                (<_Inode>inode).links += 1
                self.names[name] = inode
            if old is not None:
                self.unlink_inode(old)
        self.pending_names.setdefault(_parent(path), []).append(change)
        return 0

    cdef int unlink_inode(self, _Inode inode) except -1:
        inode.links -= 1
        if inode.links == 0:
            self.used_bytes -= PyByteArray_GET_SIZE(inode.seen)
        return 0

    cdef int sync_names(self, str folder) except -1:
        for change in self.pending_names.pop(folder, ()):
            _change(self.durable_names, change)
        if self.trace is not None:
            self.trace.append(("sync_folder", folder))
        return 0

    cdef int move(self, str source, str target) except -1:
        cdef dict change = {source: None, target: self.names[source]}
        self.change_names(target, change)
        if (<_Inode>self.names[target]).is_folder:
            self.move_contents(source, target, change)
        if self.trace is not None:
            self.trace.append(("rename", source, target))
        return 0

    cdef int move_contents(self, str source, str target, dict change) except -1:
        # The content of a folder moves with it: durable names when the folder's new name becomes durable, other names
        # when they are synced by themselves.
        cdef str inside = source + "/"
        cdef Py_ssize_t cut = len(source)
        for name in [name for name in self.names if name.startswith(inside)]:
            self.names[target + name[cut:]] = self.names.pop(name)
        for name in [name for name in self.durable_names if name.startswith(inside)]:
            change[name] = None
            change[target + name[cut:]] = self.durable_names[name]
        for folder in [folder for folder in self.pending_names if folder == source or folder.startswith(inside)]:
            self.pending_names[target + folder[cut:]] = [
                {target + name[cut:]: inode for name, inode in part.items()} for part in self.pending_names.pop(folder)
            ]
        return 0

    cdef int remove(self, str path) except -1:
        self.change_names(path, {path: None})
        if self.trace is not None:
            self.trace.append(("unlink", path))
        return 0

    # ---- the interface

    cdef _Inode find(self, str path):
        inode = self.names.get(path)
        if inode is None:
            raise _failure(_errno.ENOENT, path)
        return inode

    def open(self, str path not None, *, bint create=False, bint exclusive=False, bint truncate=False,
             bint read_only=False, int mode=0o644):
        cdef SimulatedFile file
        cdef _Inode inode
        path = _clean(path)
        self.step("open", path)
        found = self.names.get(path)
        if found is None:
            if not create:
                raise _failure(_errno.ENOENT, path)
            if _parent(path) not in self.names and _parent(path) not in ("", "/"):
                raise _failure(_errno.ENOENT, path)
            inode = self.create(path, False)
        else:
            inode = found
            if create and exclusive:
                raise _failure(_errno.EEXIST, path)
            if inode.is_folder:
                raise _failure(_errno.EISDIR, path)
            if inode.read_only and not read_only:
                raise _failure(_errno.EACCES, path)
        file = SimulatedFile.__new__(SimulatedFile)
        file.path, file.disk, file.inode, file.read_only = path, self, inode, read_only
        file.closed = False
        inode.links += 1
        if truncate and PyByteArray_GET_SIZE(inode.seen):
            self.write(inode, 0, None)
        return file

    def rename(self, str source not None, str target not None):
        source, target = _clean(source), _clean(target)
        self.step("rename", target)
        self.find(source)
        self.move(source, target)

    def unlink(self, str path not None):
        path = _clean(path)
        self.step("unlink", path)
        if self.find(path).is_folder:
            raise _failure(_errno.EISDIR, path)
        self.remove(path)

    def list_folder(self, str path not None):
        path = _clean(path)
        self.step("list", path)
        if not self.find(path).is_folder:
            raise _failure(_errno.ENOTDIR, path)
        return sorted(name[len(path):].lstrip("/") for name in self.names if name != path and _parent(name) == path)

    def exists(self, str path not None):
        return _clean(path) in self.names

    def stat(self, str path not None):
        cdef _Inode inode
        path = _clean(path)
        self.step("stat", path)
        inode = self.find(path)
        return FileStat(PyByteArray_GET_SIZE(inode.seen), inode.mtime_ns, inode.read_only, inode.is_folder)

    def make_folder(self, str path not None):
        path = _clean(path)
        missing = []
        while path not in ("", "/") and path not in self.names:
            missing.append(path)
            path = _parent(path)
        for name in reversed(missing):
            self.step("open", name)
            self.create(name, True)
            self.sync_folder(_parent(name))

    def add_folders(self, list folders not None):
        made = []
        for folder, name, content in folders:
            path = _clean(folder)
            self.step("open", path)
            is_new = path not in self.names
            made.append(is_new)
            if is_new:
                self.find(_parent(path))
                self.create(path, True)
                if name:
                    with self.open(f"{path}/{name}", create=True, exclusive=True) as file:
                        file.write_at(0, content)
        return made

    def remove_folder(self, str path not None):
        path = _clean(path)
        self.step("unlink", path)
        if not self.find(path).is_folder:
            raise _failure(_errno.ENOTDIR, path)
        if self.list_folder(path):
            raise _failure(_errno.ENOTEMPTY, path)
        self.remove(path)

    def sync_folder(self, str path not None):
        path = _clean(path)
        self.step("sync_folder", path)
        self.sync_names(path)

    def set_read_only(self, str path not None):
        self.find(_clean(path)).read_only = True

    def lock(self, str path not None):
        path = _clean(path)
        if path in self.locks:
            raise LockedError(f"{path}: another object holds the lock: close the other user of the folder")
        self.open(path, create=True).close()
        self.locks.add(path)

        def release():
            self.locks.discard(path)
            if not self.crashed and path in self.names:
                self.remove(path)

        return FileLock(path, release)

    # ---- crash and replay

    def crash(self, mode="mixed"):
        """Cut the power. This disk is dead afterwards; so are its open files and locks.

        Args:
            mode: which unsynced changes survive. ``lost``: none. ``kept``: all. ``torn``: of each file and folder, the
                first few, the next one partly. ``reordered``: any subset, writes by the sector. ``mixed``: drawn anew
                for each file and folder.
        Returns:
            The disk as the next start finds it, with the same random source, capacity and no faults.
        Raises:
            LocalError: an unknown mode.
        """
        cdef _Inode inode, copy
        cdef SimulatedDisk disk
        if mode not in CRASH_MODES:
            raise LocalError(f"crash mode {mode!r} is none of {', '.join(CRASH_MODES)}")
        self.crashed = True
        disk = SimulatedDisk(self.rng, capacity=self.capacity, record=self.trace is not None)
        disk.clock_ns = self.clock_ns + 1_000_000_000
        names = dict(self.durable_names)
        for folder in sorted(self.pending_names):
            for change in self.surviving_changes(self.pending_names[folder], self.pick(mode)):
                _change(names, change)
        copies = {}
        for path in sorted(names):
            if _parent(path) not in ("", "/") and _parent(path) not in copies:
                continue  # its folder did not survive
            inode = names[path]
            copy = _Inode(disk.numbers, inode.is_folder)
            disk.numbers += 1
            self.survive(inode, copy, self.pick(mode))
            copies[path] = copy
            copy.links = 1
            disk.used_bytes += PyByteArray_GET_SIZE(copy.seen)
            if disk.trace is not None:
                # The trace starts with the surviving content, so that it replays on an empty disk.
                disk.inodes[copy.number] = copy
                disk.trace.append(("create", path, inode.is_folder))
                disk.trace.append(("write", copy.number, 0, bytes(copy.seen)))
                disk.trace.append(("sync", copy.number, True))
        disk.names = copies
        disk.durable_names = dict(copies)
        if disk.trace is not None:
            for folder in sorted({_parent(path) for path in copies}):
                disk.trace.append(("sync_folder", folder))
        return disk

    cdef str pick(self, str mode):
        return self.rng.choice(("lost", "kept", "torn", "reordered")) if mode == "mixed" else mode

    cdef list surviving_changes(self, list changes, str mode):
        if mode == "lost":
            return []
        if mode == "kept":
            return changes
        if mode == "torn":
            return changes[: self.draw(0, len(changes))]
        return [change for change in changes if self.rng.random() < 0.5]

    cdef int survive(self, _Inode inode, _Inode copy, str mode) except -1:
        cdef bytearray content = bytearray(inode.durable)
        cdef list pending = inode.pending
        cdef int64_t whole
        copy.read_only = inode.read_only
        copy.mtime_ns = inode.durable_mtime_ns
        if mode == "kept":
            content = bytearray(inode.seen)
            copy.mtime_ns = inode.mtime_ns
        elif mode == "torn" and pending:
            whole = self.draw(0, len(pending))
            for position, data in pending[:whole]:
                _apply(content, position, data)
            if whole < len(pending):
                position, data = pending[whole]
                if data is not None:
                    self.tear(content, position, data)
        elif mode == "reordered":
            for position, data in pending:
                if data is None or len(data) <= SECTOR_BYTES:
                    if self.rng.random() < 0.5:
                        _apply(content, position, data)
                else:
                    self.scatter(content, position, data)
        if mode != "lost" and self.rng.random() < 0.5:
            copy.mtime_ns = inode.mtime_ns
        copy.seen = content
        copy.durable = bytearray(content)
        copy.durable_mtime_ns = copy.mtime_ns
        return 0

    cdef int tear(self, bytearray content, int64_t position, bytes data) except -1:
        # A prefix arrived, cut at any byte or at a sector; the size may be the new one already, the rest zeros or
        # garbage.
        cdef int64_t size = len(data)
        cdef int64_t cut = self.draw(0, size)
        if self.rng.random() < 0.5:
            cut = max((position + cut) // SECTOR_BYTES * SECTOR_BYTES - position, 0)
        filling = self.draw(0, 2)
        if filling and position + size > len(content):
            tail = max(position + cut, len(content))
            _truncate(content, position + size)
            if filling == 2 and position + size > tail:
                content[tail:] = self.rng.randbytes(position + size - tail)
        _apply(content, position, data[:cut])
        return 0

    cdef int scatter(self, bytearray content, int64_t position, bytes data) except -1:
        # Sectors arrive in any order: some are there, holes read as zeros or as garbage.
        cdef int64_t start = 0, end, size = len(data), old = len(content)
        garbage = self.rng.random() < 0.5
        while start < size:
            end = min((position + start) // SECTOR_BYTES * SECTOR_BYTES + SECTOR_BYTES - position, size)
            if self.rng.random() < 0.5:
                _apply(content, position + start, data[start:end])
            elif garbage and position + start >= old:
                _apply(content, position + start, self.rng.randbytes(end - start))
            start = end
        return 0

    @staticmethod
    def replay(trace, rng, *, count=None):
        """Build the disk that the first ``count`` changes of a recorded trace lead to, synced or not.

        Args:
            trace: the ``trace`` of a disk made with ``record=True``.
            rng: random source of the new disk.
            count: how many changes; None for all.
        Raises:
            LocalError: not a trace.
        """
        cdef SimulatedDisk disk = SimulatedDisk(rng)
        cdef dict inodes = {}
        for entry in trace[:count]:
            kind = entry[0]
            if kind == "create":
                inodes[len(inodes)] = disk.create(entry[1], entry[2])
            elif kind == "write":
                disk.write(inodes[entry[1]], entry[2], entry[3])
            elif kind == "sync":
                disk.sync(inodes[entry[1]], entry[2])
            elif kind == "rename":
                disk.move(entry[1], entry[2])
            elif kind == "unlink":
                disk.remove(entry[1])
            elif kind == "sync_folder":
                disk.sync_names(entry[1])
            else:
                raise LocalError(f"{entry!r} is no line of a trace")
        return disk


cdef int _change(dict names, dict change) except -1:
    for name, inode in change.items():
        if inode is None:
            names.pop(name, None)
        else:
            names[name] = inode
    return 0


cdef str _clean(str path):
    return os.path.normpath(path)


cdef str _parent(str path):
    return os.path.dirname(path)
