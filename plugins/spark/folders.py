"""The small files in a folder of tables: on this machine's disk, or wherever Spark's Hadoop file systems reach."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from kraftcore.errors import LocalError, StorageError

T = TypeVar("T")
UNFINISHED = "_"
"""How the names of files begin that are being written: Spark and pyarrow pass them over."""


def is_local(path: str) -> bool:
    """Whether it is a path of this machine, not a URI."""
    return "://" not in path


def unfinished(name: str) -> str:
    """What a file is called until it is whole."""
    folder, slash, last = name.rpartition("/")
    return f"{folder}{slash}{UNFINISHED}{last}"


class LocalFolder:
    """A folder of this machine. Names are relative to it.

    Raises:
        StorageError: of every method; the disk failed.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def read(self, name: str) -> bytes | None:
        """A file's content; None where there is none."""
        with _local_errors(self._path / name) as place:
            try:
                return place.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file, whole or not at all."""
        self.begin(name, data)
        self.finish(name)

    def begin(self, name: str, data: bytes) -> None:
        """Write a file that is not to be seen until ``finish``."""
        with _local_errors(Path(self.begun(name))) as place:
            place.write_bytes(data)

    def begun(self, name: str) -> str:
        """The path of a file that is about to be written and is not to be seen until ``finish``."""
        with _local_errors(self._path / unfinished(name)) as place:
            place.parent.mkdir(parents=True, exist_ok=True)
        return str(place)

    def finish(self, name: str) -> None:
        """Give a file that was begun its name, in place of what has it."""
        with _local_errors(self._path / name) as place:
            (self._path / unfinished(name)).replace(place)

    def has(self, name: str) -> bool:
        """Whether there is a folder of that name."""
        with _local_errors(self._path / name) as place:
            return place.is_dir()

    def make(self, name: str) -> None:
        """Make a folder if there is none."""
        with _local_errors(self._path / name) as place:
            place.mkdir(parents=True, exist_ok=True)

    def files(self, name: str) -> list[str]:
        """The names, relative to ``name``, of all files below it."""
        root = str(self._path / name)
        with _local_errors(self._path / name):
            return [
                os.path.relpath(os.path.join(folder, file), root)
                for folder, _, files in os.walk(root)
                for file in files
            ]

    def delete(self, name: str) -> None:
        """Remove a file."""
        with _local_errors(self._path / name) as place:
            place.unlink()


class HadoopFolder:
    """A folder that Spark reaches through Hadoop, as ``hdfs://`` or ``s3a://``. Its methods are `LocalFolder`'s.

    Raises:
        LocalError: Spark has no such file system, or the session is one of Spark Connect.
        StorageError: of every method; the file system failed.
    """

    def __init__(self, session: SparkSession, uri: str) -> None:
        self._uri = uri
        context = getattr(session, "_jsc", None)
        self._jvm: Any = getattr(session, "_jvm", None)
        if context is None or self._jvm is None:
            raise LocalError(f"{uri}: from a Spark Connect session only a folder of this machine can be reached")
        self._gateway: Any = session.sparkContext._gateway
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

    def _place(self, name: str) -> Any:
        return self._hadoop.Path(f"{self._uri}/{name}")

    def _try(self, name: str, action: Callable[[Any], T]) -> T:
        try:
            return action(self._place(name))
        except Py4JError as error:
            raise StorageError(0, _reason(error), f"{self._uri}/{name}") from None

    def read(self, name: str) -> bytes | None:
        """A file's content; None where there is none."""

        def read(place: Any) -> bytes | None:
            if not self._system.exists(place):
                return None
            stream = self._system.open(place)
            try:
                return bytes(stream.readAllBytes())
            finally:
                stream.close()

        return self._try(name, read)

    def write(self, name: str, data: bytes) -> None:
        """Make or replace a file, whole or not at all where the file system renames so."""
        self.begin(name, data)
        self.finish(name)

    def begin(self, name: str, data: bytes) -> None:
        """Write a file that is not to be seen until ``finish``."""

        def write(place: Any) -> None:
            stream = self._system.create(place, True)
            try:
                stream.write(bytearray(data))
            finally:
                stream.close()

        self._try(unfinished(name), write)

    def finish(self, name: str) -> None:
        """Give a file that was begun its name, in place of what has it."""

        def rename(place: Any) -> None:
            kind = getattr(self._jvm, "org.apache.hadoop.fs.Options$Rename")
            how = self._gateway.new_array(kind, 1)
            how[0] = kind.OVERWRITE
            self._context.rename(self._place(unfinished(name)), place, how)

        self._try(name, rename)

    def has(self, name: str) -> bool:
        """Whether there is a folder of that name."""
        return self._try(name, lambda place: bool(self._system.exists(place)))

    def make(self, name: str) -> None:
        """Make a folder if there is none."""
        self._try(name, lambda place: self._system.mkdirs(place))

    def files(self, name: str) -> list[str]:
        """The names, relative to ``name``, of all files below it."""

        def files(place: Any) -> list[str]:
            if not self._system.exists(place):
                return []
            root = self._system.makeQualified(place).toString()
            found, names = self._system.listFiles(place, True), []
            while found.hasNext():
                names.append(found.next().getPath().toString().removeprefix(root).lstrip("/"))
            return names

        return self._try(name, files)

    def delete(self, name: str) -> None:
        """Remove a file."""
        self._try(name, lambda place: self._system.delete(place, False))


@contextmanager
def _local_errors(place: Path) -> Iterator[Path]:
    try:
        yield place
    except OSError as error:
        raise StorageError(error.errno or 0, error.strerror or str(error), str(place)) from None


def _reason(error: Py4JError) -> str:
    # Java's words, without its stack.
    java = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return str(java).partition("\n")[0]
