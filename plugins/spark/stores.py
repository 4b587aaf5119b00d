"""Finds and reads files of log directories: local paths, globs and URIs that pyarrow knows."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import quote

import numpy as np
from pyarrow import fs

from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.storage.meta_properties import META_PROPERTIES, METADATA_PARTITION, MetaProperties
from kraftcore.storage.snapshots import SUFFIX, parse_name

LOG, SNAPSHOT, BOOTSTRAP = "log", "snapshot", "bootstrap"
BOOTSTRAP_FILE = "bootstrap.checkpoint"
PIECE_BYTES = 4 << 20
_SEGMENT = re.compile(r"(\d{20})\.log", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://", re.ASCII)


@dataclass(frozen=True, slots=True)
class Identity:
    """The cluster, node and directory that a file belongs to.

    Attributes:
        cluster_id: from ``meta.properties``; without that file ``path:`` and the folder, so that logs of unknown
            clusters never mix.
        node_id: -1 if not known.
        directory_id: empty if not known.
    """

    cluster_id: str
    node_id: int = -1
    directory_id: str = ""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A segment, snapshot or bootstrap file.

    Attributes:
        path: path or URI.
        source: ``log``, ``snapshot`` or ``bootstrap``.
        size: bytes, when the file was listed.
        identity: the cluster, node and directory that the file belongs to.
        base_offset: first offset of a segment; exclusive end offset of a snapshot; 0 for a bootstrap file.
        epoch: epoch of a snapshot's last record; 0 for a bootstrap file; -1 for a segment.
        next_offset: base offset of the folder's next segment; None for the last segment and for snapshots.
        first: path of the folder's first file, whose records tell metadata from an application's log; empty: ``path``.
        is_metadata: False: the data records are known to be an application's own.
    """

    path: str
    source: str
    size: int
    identity: Identity
    base_offset: int = 0
    epoch: int = -1
    next_offset: int | None = None
    first: str = ""
    is_metadata: bool = True

    @property
    def file_id(self) -> int:
        """A hash of the path, a signed number of 64 bits; tables hold it in place of the path."""
        return _number(self.path)

    @property
    def log_id(self) -> int:
        """A hash of the folder's path: two copies of one directory are two logs."""
        return _number(_parent(self.path))

    @property
    def may_grow(self) -> bool:
        """Whether the file is a folder's last segment, whose end may be torn or still being written."""
        return self.source == LOG and self.next_offset is None


def locate(path: str, settings: str = "") -> tuple[fs.FileSystem, str]:
    """The file system of a path or URI, and the name of the file there.

    A URI's path is not decoded, as in Hadoop: a store's names may hold brackets, spaces and percent signs. ``settings``
    are pyarrow's for a URI, from ``?`` on.

    Raises:
        LocalError: a URI of a file system that is not known.
    """
    found = _SCHEME.match(path)
    if not found:
        return _local(), path
    host, slash, name = path[found.end() :].partition("/")
    try:
        system, inside = fs.FileSystem.from_uri(found[0] + host + slash + quote(name) + settings)
    except (ValueError, OSError) as error:
        raise LocalError(f"{path}: no file system for it: {error}") from None
    return system, inside


@lru_cache(maxsize=1)
def _local() -> fs.FileSystem:
    return fs.LocalFileSystem(use_mmap=False)  # a mapped file that is cut off would end the process


def _number(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def storage_error(error: OSError, path: str) -> StorageError:
    """An error of pyarrow as one of ours: errors of object stores have no errno."""
    number = errno.ENOENT if isinstance(error, FileNotFoundError) else error.errno or 0
    return StorageError(number, error.strerror or str(error), path)


class Source:
    """One open file, read piece by piece.

    Raises:
        StorageError: the file cannot be opened or read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._memory = bytearray()
        system, inside = locate(path)
        try:
            self._file = system.open_input_file(inside)
            self.size: int = self._file.size()
        except OSError as error:
            raise storage_error(error, path) from None

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes from byte ``position`` on."""
        try:
            return bytes(self._file.read_at(size, position)) if size > 0 else b""
        except OSError as error:
            raise storage_error(error, self.path) from None

    def piece(self, position: int, size: int) -> memoryview:
        """As ``read``, in memory that the next call overwrites: new memory costs as much as reading."""
        if len(self._memory) < size:
            self._memory = bytearray(size)
        try:
            self._file.seek(position)
            got = self._file.readinto(memoryview(self._memory)[:size])
        except OSError as error:
            raise storage_error(error, self.path) from None
        return memoryview(self._memory)[:got]

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Memory:
    """Bytes in place of a file, with the methods of `Source`."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self._data = data
        self.size = len(data)

    def read(self, position: int, size: int) -> bytes:
        """Up to ``size`` bytes from byte ``position`` on."""
        whole = position == 0 and size >= self.size
        return self._data if whole else self._data[position : position + size]

    def piece(self, position: int, size: int) -> memoryview:
        """As ``read``, without a copy."""
        return memoryview(self._data)[position : position + size]

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


def read_small(path: str) -> bytes | None:
    """A small file's content; None if the file does not exist.

    Raises:
        StorageError: the file exists and cannot be read.
    """
    source = _open(path)
    if source is None:
        return None
    with source:
        return source.read(0, source.size)


def is_there(path: str) -> bool:
    """Whether a file exists.

    Raises:
        StorageError: the file exists and cannot be opened.
    """
    source = _open(path)
    if source is not None:
        source.close()
    return source is not None


def _open(path: str) -> Source | None:
    try:
        return Source(path)
    except StorageError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise


def has_folder(path: str) -> bool:
    """Whether the folder of a file exists; the file need not exist.

    Raises:
        StorageError: the file system failed.
    """
    system, inside = locate(_parent(path))
    try:
        return bool(system.get_file_info(inside).type != fs.FileType.NotFound)
    except OSError as error:
        raise storage_error(error, path) from None


def _join(folder: str, name: str) -> str:
    return posixpath.join(folder, name) if _SCHEME.match(folder) else os.path.join(folder, name)


def _parent(path: str) -> str:
    return posixpath.dirname(path) if _SCHEME.match(path) else os.path.dirname(path)


def _name(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]


def expand(paths: Iterable[str]) -> Iterator[str]:
    """Absolute paths with local globs resolved, in order, each once. A path that exists is not taken for a glob.

    Raises:
        LocalError: a path or glob that matches nothing.
    """
    seen: set[str] = set()
    for path in paths:
        found = _matching(path)
        if not found:
            raise LocalError(f"{path}: there is no such file or folder")
        for one in found:
            whole = one if _SCHEME.match(one) else os.path.abspath(one)
            if whole not in seen:
                seen.add(whole)
                yield whole


def from_anywhere(path: str) -> str:
    """An absolute path or glob, by which ``expand`` finds the same files in any working directory and for any user."""
    if _SCHEME.match(path):
        return path
    for existing in _existing(path):
        return os.path.abspath(existing)
    return os.path.normpath(os.path.join(glob.escape(os.getcwd()), _at_home(path)))


def _matching(path: str) -> list[str]:
    if _SCHEME.match(path):
        return [path.removeprefix("file://") if path.startswith("file:///") else path]
    return _existing(path) or sorted(glob.glob(_at_home(path), recursive=True))


def _existing(path: str) -> list[str]:
    # The path, as a list of one, if it exists.
    return [one for one in (path, os.path.expanduser(path)) if os.path.lexists(one)][:1]


def _at_home(path: str) -> str:
    # A glob with the user's home folder in place of ~; signs of a glob in that folder's path are escaped.
    home, slash, rest = path.partition("/")
    whole = os.path.expanduser(home)
    return path if whole == home else glob.escape(whole) + slash + rest


def _listing(path: str) -> list[tuple[str, int]]:
    # (path, size in bytes) of a file, or of all files below a folder.
    system, inside = locate(path)
    whole = path.rstrip("/")
    with_settings = f"{path}: settings in a URI are not known here: give them by the environment"
    if not whole.endswith(inside.rstrip("/")):
        raise LocalError(with_settings if "?" in path else f"{path}: in this kind of URI no file can be named")
    prefix = whole.removesuffix(inside.rstrip("/"))
    try:
        info = system.get_file_info(inside)
        if info.type == fs.FileType.File:
            return [(whole, info.size)]
        if info.type == fs.FileType.NotFound:
            if _SCHEME.match(path) and "?" in path:
                raise LocalError(with_settings)
            return []
        selector = fs.FileSelector(inside, recursive=True, allow_not_found=True)
        return [(prefix + one.path, one.size) for one in system.get_file_info(selector) if one.is_file]
    except OSError as error:
        raise storage_error(error, path) from None


class Inventory:
    """Finds the files of logs below paths, and the clusters that they belong to.

    Args:
        folder: name of the folders that hold a log. A path that is a file, or a folder with segments or snapshots right
            inside, may have any name.
        cluster_id, node_id: ids in place of those in ``meta.properties``; None: those.
    """

    def __init__(
        self, *, folder: str = METADATA_PARTITION, cluster_id: str | None = None, node_id: int | None = None
    ) -> None:
        self._folder = folder
        self._cluster_id = cluster_id
        self._node_id = node_id

    def files(self, paths: Iterable[str]) -> list[LogFile]:
        """All segments, snapshots and bootstrap files below the paths, by folder and offset.

        Raises:
            LocalError: a path that matches nothing.
            StorageError: a folder that cannot be read.
        """
        found: dict[str, LogFile] = {}
        identity = lru_cache(maxsize=None)(self._identity)  # meta.properties is read once a folder
        for path in expand(paths):
            for name, size in _listing(path):
                file = self._classify(path, name, size, identity)
                if file is not None:
                    found[name] = file
        return self._linked(found.values())

    def _classify(self, root: str, path: str, size: int, identity: Callable[[str], Identity]) -> LogFile | None:
        folder, name = _parent(path), _name(path)
        wanted = path == root or folder == root.rstrip("/") or _name(folder) == self._folder
        if name == BOOTSTRAP_FILE:
            return LogFile(path, BOOTSTRAP, size, identity(folder), epoch=0)
        segment = _SEGMENT.fullmatch(name)
        if segment is not None and wanted:
            return LogFile(path, LOG, size, identity(folder), int(segment[1]))
        snapshot = parse_name(name)
        if snapshot is not None and snapshot.suffix == SUFFIX and wanted:
            return LogFile(path, SNAPSHOT, size, identity(folder), *snapshot.id)
        return None

    def _identity(self, folder: str) -> Identity:
        return replace_known(_identity_of(folder), self._cluster_id, self._node_id)

    @staticmethod
    def _linked(files: Iterable[LogFile]) -> list[LogFile]:
        # The files by folder and offset, with `next_offset` and `first` set.
        ordered = sorted(files, key=lambda file: (_parent(file.path), file.source, file.base_offset, file.path))
        for i, file in enumerate(ordered[:-1]):
            after = ordered[i + 1]
            if file.source == after.source == LOG and _parent(file.path) == _parent(after.path):
                ordered[i] = replace(file, next_offset=after.base_offset)
        first: dict[str, str] = {}
        for file in ordered:
            if file.source != BOOTSTRAP:
                first.setdefault(_parent(file.path), file.path)
        return [replace(file, first=first.get(_parent(file.path), "")) for file in ordered]


def replace_known(identity: Identity, cluster_id: str | None, node_id: int | None) -> Identity:
    """The identity with the given ids; None: the identity's own."""
    if cluster_id is not None:
        identity = replace(identity, cluster_id=cluster_id)
    if node_id is not None:
        identity = replace(identity, node_id=node_id)
    return identity


def _identity_of(folder: str) -> Identity:
    # By meta.properties in the folder or in the folder above.
    for place in (folder, _parent(folder)):
        data = read_small(_join(place, META_PROPERTIES))
        if data is None:
            continue
        try:
            found = MetaProperties.decode(data, path=_join(place, META_PROPERTIES))
        except CorruptDataError:
            continue
        return Identity(
            found.cluster_id or f"path:{place}",
            -1 if found.node_id is None else found.node_id,
            "" if found.directory_id is None else str(found.directory_id),
        )
    return Identity(f"path:{folder}")


def index_entries(file: LogFile) -> list[tuple[int, int]]:
    """Entries (last offset, position) of a segment's offset index, ascending; empty if there is no index."""
    data = read_small(file.path.removesuffix(".log") + ".index") if file.source == LOG else None
    pairs = np.frombuffer(data or b"", ">i4", len(data or b"") // 8 * 2).reshape(-1, 2).astype(np.int64)
    positions = pairs[:, 1]
    whole = (np.diff(positions, prepend=0) > 0) & (positions < file.size)
    if not whole.all():
        pairs = pairs[: int(np.argmin(whole))]  # behind it are preallocated zeros, or damage
    return list(zip((pairs[:, 0] + file.base_offset).tolist(), pairs[:, 1].tolist(), strict=True))


def last_timestamp(file: LogFile) -> int | None:
    """The largest timestamp of a full segment in ms since 1970, from its time index; None if not known."""
    if file.source != LOG or file.next_offset is None:
        return None
    data = read_small(file.path.removesuffix(".log") + ".timeindex")
    if not data or len(data) % 12 or data[-12:] == bytes(12):
        return None
    return int.from_bytes(data[-12:-4], "big", signed=True)
