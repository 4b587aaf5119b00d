"""The files of a folder of tables, on a local disk or on a file system that Spark reaches through Hadoop."""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import LocalError, StorageError

T = TypeVar("T")
Java: TypeAlias = Any
"""An object of Java, seen through Py4J: its methods are found when they are called."""
UNFINISHED = "_"
"""First character of the names of unfinished files; Spark and pyarrow skip such files."""

_STORES = frozenset({"s3", "s3a", "s3n", "gs", "oss", "cosn", "obs"})
"""Schemes of object stores, where a file exists once it is closed and a rename is a copy."""
_FIRST_TRIES = {
    "fs.s3a.attempts.maximum": "1",
    "fs.s3a.retry.limit": "1",
    "ipc.client.connect.max.retries": "1",
    "ipc.client.connect.max.retries.on.timeouts": "1",
}
"""Settings of the first request to a store, unless the user has set them: Hadoop's defaults would try for minutes."""

_BY_DEFAULT = {"core-default.xml", "hdfs-default.xml"}
_IF_ABSENT = "fs.option.create.conditional.overwrite"
_UNCHECKED = "fs.s3a.create.performance"  # skips checks for existing files
_NUMBERS = {
    "java.io.FileNotFoundException": errno.ENOENT,
    "java.nio.file.AccessDeniedException": errno.EACCES,
    "org.apache.hadoop.security.AccessControlException": errno.EACCES,
}
_AT_ONCE = 16
_ANSWERED: set[str] = set()
_CLASS = re.compile(r"(?:[a-z][\w$]*\.)+[A-Z][\w$]*(?:Exception|Error): ")
_NO_LINKS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}


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
        with self._written(name, data) as (begun, place):
            begun.replace(place)
        OsFiles().sync_folder(str(place.parent))

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, whole or not at all, and sync it; False: a file of that name exists.

        Of two writers at the same time one makes the file. On a file system without hard links a reader may see the
        file before it is whole.
        """
        with self._written(name, data) as (begun, place):
            OsFiles().sync_folder(str(place.parent))
            try:
                os.link(begun, place)
            except FileExistsError:
                return False
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                if not _fill_new(place, data):
                    return False
        OsFiles().sync_folder(str(place.parent))
        return True

    @contextmanager
    def _written(self, name: str, data: bytes) -> Iterator[tuple[Path, Path]]:
        # The path of a temporary file with the content, and the path of `name`.
        with _local_errors(self._path / name) as place:
            OsFiles().make_folder(str(place.parent))
            begun = place.with_name(f"{UNFINISHED}{place.name}-{uuid.uuid4().hex[:12]}")
            try:
                _fill_new(begun, data)
                yield begun, place
            finally:
                begun.unlink(missing_ok=True)

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

        with ThreadPoolExecutor(_AT_ONCE) as pool:  # a disk syncs many files at a time
            list(pool.map(sync, sizes))
            list(pool.map(sync_folder, folders))
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

    def sizes(self, name: str) -> dict[str, int]:
        """The sizes in bytes of all files below the folder ``name``, by name relative to that folder."""
        with _local_errors(self._path / name):
            return {file: (self._path / name / file).stat().st_size for file in self.files(name)}

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        with _local_errors(self._path / name) as place:
            place.unlink(missing_ok=True)


class HadoopFolder:
    """A folder that Spark reaches through Hadoop, as ``hdfs://`` or ``s3a://``, with the methods of `LocalFolder`.

    Raises:
        LocalError: Spark has no such file system, or the session is one of Spark Connect.
        StorageError: the file system does not answer; from every method: an operation failed.
    """

    def __init__(self, session: SparkSession, uri: str) -> None:
        self._uri = uri
        context = getattr(session, "_jsc", None)
        self._jvm: Java = getattr(session, "_jvm", None)
        if context is None or self._jvm is None:
            raise LocalError(f"{uri}: from a Spark Connect session only a folder of this machine can be reached")
        self._gateway: Java = session.sparkContext._gateway
        self._hadoop = self._jvm.org.apache.hadoop.fs
        root = self._hadoop.Path(uri)
        try:
            self._system = root.getFileSystem(context.hadoopConfiguration())
            self._context = self._hadoop.FileContext.getFileContext(root.toUri(), context.hadoopConfiguration())
        except Py4JError as error:
            raise LocalError(
                f"{uri}: Spark has no file system for it ({_reason(error)}): add its jar and its settings, by "
                "--conf spark.jars.packages=... and --conf spark.hadoop.fs...."
            ) from None

        self._is_store = str(root.toUri().getScheme()) in _STORES
        where = str(root.toUri().resolve("/").toString())
        if where not in _ANSWERED:
            self._ask(root, context.hadoopConfiguration())
            _ANSWERED.add(where)

    def _ask(self, root: Java, settings: Java) -> None:
        # Fails soon if the file system does not answer. Later requests are tried as often as Hadoop's settings say.
        few = self._jvm.org.apache.hadoop.conf.Configuration(settings)
        for name, value in _FIRST_TRIES.items():
            if _BY_DEFAULT.issuperset(settings.getPropertySources(name) or ()):
                few.set(name, value)

        def ask(place: Java) -> None:
            system = self._hadoop.FileSystem.newInstance(root.toUri(), few)
            try:
                system.exists(place)
            finally:
                system.close()

        try:
            self._try("", ask)
        except StorageError as error:
            if error.errno != errno.EACCES:  # a refusal is an answer
                raise

    def place(self, name: str) -> str:
        """The path of a file, which need not exist."""
        return f"{self._uri}/{name}" if name else self._uri

    def _place(self, name: str) -> Java:
        return self._hadoop.Path(self.place(name))

    def _try(self, name: str, action: Callable[[Java], T]) -> T:
        try:
            return action(self._place(name))
        except Py4JError as error:
            raise StorageError(
                _number(error), _reason(error).removeprefix(f"{self.place(name)}: "), self.place(name)
            ) from None

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is no such file."""

        def read(place: Java) -> bytes:
            stream = self._system.open(place)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        try:
            return self._try(name, read)
        except StorageError as error:
            if error.errno != errno.ENOENT or self.has(name):
                raise
            return None

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file, whole or not at all."""
        if self._is_store:
            self._try(name, lambda place: self._fill(self._system.createFile(place), data))
            return
        self._rename(self._begin(name, data), name, overwrite=True)

    def create(self, name: str, data: bytes) -> bool:
        """Make a file, whole or not at all; False: a file of that name exists.

        Of two writers at the same time one makes the file, on HDFS (by rename) and on a store that offers
        ``fs.option.create.conditional.overwrite`` (S3A of Hadoop 3.5.0).
        """
        try:
            if self._is_store:
                self._try(name, lambda place: self._create_in_store(place, data))
            else:
                self._rename(self._begin(name, data), name, overwrite=False)
        except StorageError:
            if self._try(name, lambda place: bool(self._system.exists(place))):
                return False
            raise
        return True

    def _create_in_store(self, place: Java, data: bytes) -> None:
        builder = self._system.createFile(place)
        if self._system.hasPathCapability(place, _IF_ABSENT):
            self._fill(builder.opt(_IF_ABSENT, "true"), data)
        else:
            self._fill(builder.overwrite(False), data)

    def put(self, files: Mapping[str, bytes]) -> None:
        """Make files with new names, many at a time."""

        def make(name: str) -> None:
            self._try(
                name, lambda place: self._fill(self._system.createFile(place).opt(_UNCHECKED, "true"), files[name])
            )

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(make, files))

    def sync(self, sizes: Mapping[str, int | None]) -> list[str]:
        """Does nothing: a file that was closed is as durable as the file system makes it."""
        return []

    def fetch(self, names: Iterable[str], target: str) -> None:
        """Copy files into a folder of this machine, under the same names; many at a time."""

        def copy(name: str) -> None:
            to = Path(target, name)
            to.parent.mkdir(parents=True, exist_ok=True)
            local = self._hadoop.Path(f"file://{to}")  # Hadoop's Path takes all characters as they are
            self._try(name, lambda place: self._system.copyToLocalFile(False, place, local, True))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(copy, names))

    def _fill(self, builder: Java, data: bytes) -> None:
        # On a store a file exists once its stream is closed; so after a failed write the stream is aborted.
        stream = builder.recursive().build()
        try:
            stream.write(bytearray(data))
        except Py4JError:
            with suppress(Py4JError):  # some streams have no abort
                stream.abort()
            raise
        stream.close()

    def _begin(self, name: str, data: bytes) -> str:
        # Writes a file under a temporary name and returns that name.
        folder, slash, last = name.rpartition("/")
        begun = f"{folder}{slash}{UNFINISHED}{last}-{uuid.uuid4().hex[:12]}"
        self._try(begun, lambda place: self._fill(self._system.createFile(place), data))
        return begun

    def _rename(self, begun: str, name: str, *, overwrite: bool) -> None:
        kind = getattr(self._jvm, "org.apache.hadoop.fs.Options$Rename")
        how = self._gateway.new_array(kind, 1)
        how[0] = kind.OVERWRITE if overwrite else kind.NONE
        try:
            self._try(name, lambda place: self._context.rename(self._place(begun), place, how))
        except StorageError:
            self.delete(begun)
            raise

    def has(self, name: str) -> bool:
        """Whether there is a folder of that name."""
        return self._try(name, lambda place: bool(self._system.exists(place)))

    def files(self, name: str) -> list[str]:
        """The names of all files below the folder ``name``, relative to that folder."""
        return list(self.sizes(name))

    def sizes(self, name: str) -> dict[str, int]:
        """The sizes in bytes of all files below the folder ``name``, by name relative to that folder."""

        def sizes(place: Java) -> dict[str, int]:
            root = self._system.makeQualified(place).toString()
            listed, found = self._system.listFiles(place, True), {}
            while listed.hasNext():
                one = listed.next()
                found[one.getPath().toString().removeprefix(root).lstrip("/")] = int(one.getLen())
            return found

        try:
            return self._try(name, sizes)
        except StorageError as error:
            if error.errno != errno.ENOENT or self.has(name):
                raise
            return {}

    def delete(self, name: str) -> None:
        """Remove a file if it exists."""
        self._try(name, lambda place: self._system.delete(place, False))


def _fill_new(place: Path, data: bytes) -> bool:
    # Makes a file and syncs it; False: the file exists.
    try:
        file = OsFiles().open(str(place), create=True, exclusive=True)
    except StorageError as error:
        if error.errno == errno.EEXIST:
            return False
        raise
    try:
        with file:
            file.write_at(0, data)
            file.sync()
    except StorageError:
        place.unlink(missing_ok=True)
        raise
    return True


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


def _number(error: Py4JError) -> int:
    # The errno of an error of Java; 0: none of those in `_NUMBERS`.
    return _NUMBERS.get(error.java_exception.getClass().getName(), 0) if isinstance(error, Py4JJavaError) else 0


def _reason(error: Py4JError) -> str:
    # Java's message, without stack and names of classes.
    java = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return _CLASS.sub("", str(java).partition("\n")[0])
