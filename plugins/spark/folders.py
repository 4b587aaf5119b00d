"""The files of a folder of tables, on a local disk or in an object store."""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pyarrow.fs import FileSelector

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import StorageError
from kraftcore.plugins.spark.stores import locate, storage_error

T = TypeVar("T")
R = TypeVar("R")
UNFINISHED = "_"
"""First character of the names of unfinished files; Spark and pyarrow skip such files."""
_HADOOPS = re.compile(r"^s3[an]://")
_AT_ONCE = 16
_SMALL_AT_ONCE = "?allow_delayed_open=true"
"""pyarrow's setting for S3: a small file is written by one request, not three."""


def is_local(path: str) -> bool:
    """Whether a path is one of this machine, not a URI."""
    return "://" not in path


class LocalFolder:
    """A local folder. Names are relative to the folder.

    Raises:
        StorageError: from every method: the disk failed.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        with _local_errors(self._path / name) as place:
            try:
                return place.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def place(self, name: str) -> str:
        """The path of a file, which need not exist."""
        return str(self._path / name)

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file, whole or not at all, and sync it."""
        with _local_errors(self._path / name) as place:
            OsFiles().make_folder(str(place.parent))
            begun = place.with_name(f"{UNFINISHED}{place.name}-{uuid.uuid4().hex[:12]}")
            try:
                with OsFiles().open(str(begun), create=True, exclusive=True) as file:
                    file.write_at(0, data)
                    file.sync()
                begun.replace(place)
            finally:
                begun.unlink(missing_ok=True)
        OsFiles().sync_folder(str(place.parent))

    def sync(self, sizes: Mapping[str, int | None]) -> list[str]:
        """Sync files and their folders to the disk.

        Args:
            sizes: by name of a file, its expected size in bytes; None: not known.

        Returns:
            The names of files that do not exist or have another size, sorted.
        """
        folders = {folder for name in sizes for folder in Path(name).parents}
        lost: list[str] = []

        def sync(name: str) -> None:
            lost.append(name)
            with _unless_gone(), OsFiles().open(str(self._path / name), read_only=True) as file:
                file.sync()
                if sizes[name] in (None, file.size()):
                    lost.remove(name)

        def sync_folder(folder: Path) -> None:
            with _unless_gone():
                OsFiles().sync_folder(str(self._path / folder))

        at_once(sync, sizes)  # a disk syncs many files at a time
        at_once(sync_folder, folders)
        return sorted(lost)

    def put(self, files: Mapping[str, bytes]) -> None:
        """Make files with new names. They are not synced: ``sync`` does so before a commit names them."""
        for name, data in files.items():
            with _local_errors(Path(self.begun(name))) as place:
                place.write_bytes(data)

    def begun(self, name: str) -> str:
        """The path of a file that is about to be written; makes its folder."""
        with _local_errors(self._path / name) as place:
            place.parent.mkdir(parents=True, exist_ok=True)
        return str(place)

    def has(self, name: str) -> bool:
        """Whether there is a folder of that name."""
        with _local_errors(self._path / name) as place:
            return place.is_dir()

    def files(self, name: str) -> list[str]:
        """The names of all files below the folder ``name``, relative to that folder."""
        root = str(self._path / name)
        with _local_errors(self._path / name):
            return [
                os.path.relpath(os.path.join(folder, file), root)
                for folder, _, files in os.walk(root)
                for file in files
            ]

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        with _local_errors(self._path / name) as place:
            place.unlink(missing_ok=True)


class StoreFolder:
    """A folder of an object store or of another file system that pyarrow knows, with the methods of `LocalFolder`.

    Its settings come from the environment, as ``AWS_ENDPOINT_URL``.

    Raises:
        LocalError: pyarrow has no such file system.
        StorageError: from every method: an operation failed.
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri
        found = object_uri(uri)
        self._system, self._root = locate(found, _SMALL_AT_ONCE if found.startswith("s3://") else "")

    def place(self, name: str) -> str:
        """The URI of a file, which need not exist."""
        return f"{self._uri}/{name}" if name else self._uri

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is no such file."""
        with _store_errors(self.place(name)):
            try:
                with self._system.open_input_file(self._inside(name)) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file, whole or not at all."""
        with _store_errors(self.place(name)), self._system.open_output_stream(self._inside(name)) as file:
            file.write(data)

    def put(self, files: Mapping[str, bytes]) -> None:
        """Make files with new names, many at a time."""
        at_once(lambda name: self.write(name, files[name]), files)

    def sync(self, sizes: Mapping[str, int | None]) -> list[str]:
        """Does nothing: a file that was closed is as durable as the store makes it."""
        return []

    def fetch(self, names: Iterable[str], target: str) -> None:
        """Copy files into a folder of this machine, under the same names; many at a time."""

        def copy(name: str) -> None:
            to = Path(target, name)
            to.parent.mkdir(parents=True, exist_ok=True)
            data = self.read(name)
            if data is None:
                raise StorageError(errno.ENOENT, "a commit names it, and it is gone", self.place(name))
            to.write_bytes(data)

        at_once(copy, names)

    def files(self, name: str) -> list[str]:
        """The names of all files below the folder ``name``, relative to that folder."""
        root = self._inside(name).rstrip("/")
        with _store_errors(self.place(name)):
            found = self._system.get_file_info(FileSelector(root, allow_not_found=True, recursive=True))
        return [one.path.removeprefix(f"{root}/") for one in found if one.is_file]

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        with _store_errors(self.place(name)), suppress(FileNotFoundError):
            self._system.delete_file(self._inside(name))

    def _inside(self, name: str) -> str:
        return f"{self._root}/{name}"


def object_uri(uri: str) -> str:
    """The URI as pyarrow and deltalake spell it: Hadoop's ``s3a://`` and ``s3n://`` are ``s3://`` there."""
    return _HADOOPS.sub("s3://", uri)


def at_once(action: Callable[[T], R], what: Iterable[T]) -> list[R]:
    """Do something to many files or tables side by side; the first error is raised."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(action, what))


@contextmanager
def _unless_gone() -> Iterator[None]:
    try:
        yield
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise


@contextmanager
def _local_errors(place: Path) -> Iterator[Path]:
    try:
        yield place
    except OSError as error:
        raise StorageError(error.errno or 0, error.strerror or str(error), str(place)) from None


@contextmanager
def _store_errors(place: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_error(error, place) from None
