"""A folder of tables: Parquet files, one subfolder for each table, in it one folder for each micro-batch or cluster."""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, reduce
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from types import MappingProxyType
from typing import TypeGuard, cast
from weakref import finalize

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import CorruptDataError, LocalError, LockedError, StorageError
from kraftcore.plugins.spark.commits import Commit, Commits, Writing
from kraftcore.plugins.spark.folders import UNFINISHED, HadoopFolder, LocalFolder, is_local
from kraftcore.plugins.spark.masking import KEY_BYTES
from kraftcore.plugins.spark.parquet import count_by_cluster, read_files, sql_of_share
from kraftcore.plugins.spark.views import RECORD_TYPES, typed_schema, view_schema
from kraftcore.storage.lock import lock_folders

BRONZE = {
    "bronze_files": "files",
    "bronze_batches": "batches",
    "bronze_records": "records",
    "errors": "errors",
}
"""The view of the data source for each table of bronze."""
SILVER = {f"silver_{kind.view}": kind for kind in RECORD_TYPES}
TABLES_BY_VIEW = {view: name for name, view in BRONZE.items()} | {kind.view: name for name, kind in SILVER.items()}
"""The table that each view of the data source fills."""
_SCHEMAS = "_schemas"
"""In earlier formats, the folder with the columns of gold's tables as JSON."""
FORMAT = 4
_WITH_COMMITS = (3, FORMAT)
"""Formats with commits that name the files that count. Gold of format 3 holds secrets and lacks columns."""
_READABLE = (1, 2, *_WITH_COMMITS)
ABOUT = "kraftcore-tables.json"
"""The file in a folder of tables that tells the format."""
_MASKING_KEY = f"{UNFINISHED}masking-key"
_PARQUET = ".parquet"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(32)))
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
_TELLING = "cluster_id="
ESCAPED_BYTES = 200
"""Most bytes of an escaped cluster id in a folder's name: file systems take names of 255 bytes."""
_LITERAL = {"__globPaths__": "false"}
"""Option of Spark's reader: paths are no patterns. Names of folders and clusters may hold signs of patterns."""
_UNKNOWN: Mapping[str, int] = MappingProxyType({})
Starter = Callable[[], SparkSession]


class Tables:
    """A folder of tables.

    Args:
        session: Spark's session; or a function that starts one when it is needed; None: a local folder is used without
            Spark.
        path: path of the folder, or a URI that Spark knows.
        is_sparks_own: whether Spark's streams wrote the tables: then only Spark knows which files count.
    """

    def __init__(
        self, session: SparkSession | Starter | None, path: str | Path, *, is_sparks_own: bool = False
    ) -> None:
        self._session = session
        self.is_sparks_own = is_sparks_own
        self._masking_key: bytes | None = None
        text = str(path).removeprefix("file://") if str(path).startswith("file:///") else str(path)
        self.path = str(Path(text).absolute()) if is_local(text) else text.rstrip("/")

    @property
    def session(self) -> SparkSession:
        """Spark's session; started now if it is not running.

        Raises:
            LocalError: the tables have no session.
        """
        if self._session is None:
            raise LocalError(f"{self.path}: this takes a Spark session")
        found = self._session
        if _is_starter(found):
            found = self._session = found()
        return cast(SparkSession, found)

    @property
    def has_session(self) -> bool:
        """Whether Spark runs."""
        return self._session is not None and not _is_starter(self._session)

    @property
    def is_on_cluster(self) -> bool:
        """Whether Spark runs on other machines, which then do all of the work."""
        return self.has_session and not str(self.session.sparkContext.master).startswith("local")

    @property
    def is_local(self) -> bool:
        """Whether the folder has a path, so that other processes may write to it, not a URI."""
        return is_local(self.path)

    @cached_property
    def folder(self) -> LocalFolder | HadoopFolder:
        """The folder's files.

        Raises:
            LocalError: Spark has no file system for the path.
        """
        return LocalFolder(self.path) if self.is_local else HadoopFolder(self.session, self.path)

    def place(self, name: str) -> str:
        """The path of a table or file in the folder."""
        return f"{self.path}/{name}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock a local folder against other runs until the block ends. A folder behind a URI is not locked.

        Raises:
            LockedError: another process is writing these tables.
            StorageError: the folder cannot be made.
        """
        if not self.is_local:
            yield
            return
        self._make()
        with lock_folders(OsFiles(), [self.path]):
            yield

    def _make(self) -> None:
        # A new folder is for its owner only, for logs may hold passwords; an existing one keeps its mode.
        files, place = OsFiles(), Path(self.path)
        files.make_folder(str(place.parent))
        try:
            place.mkdir(0o700)
        except FileExistsError:
            files.make_folder(self.path)  # raises if the path is no folder
        except OSError as error:
            raise StorageError(error.errno or 0, error.strerror or str(error), self.path) from None
        else:
            files.sync_folder(str(place.parent))

    def masking_key(self) -> bytes:
        """The key that secrets in gold are masked with; a random key is written into the folder at the first call.

        Raises:
            CorruptDataError: the file does not hold a key.
            StorageError: the file cannot be read or written.
        """
        if self._masking_key is not None:
            return self._masking_key
        found = self.folder.read(_MASKING_KEY)
        if found is None:
            self.folder.create(_MASKING_KEY, secrets.token_bytes(KEY_BYTES))
            found = self.folder.read(_MASKING_KEY)  # another process may have been first
        if found is None or len(found) != KEY_BYTES:
            raise CorruptDataError("not the key that a run drew", path=self.place(_MASKING_KEY))
        self._masking_key = found
        return found

    @cached_property
    def commit(self) -> Commit | None:
        """The last commit when this was first called; None: the tables have no commits, and all files count.

        Raises:
            CorruptDataError: the file does not hold a commit.
        """
        about = None if self.is_sparks_own else self.about()
        return Commits(self.folder).last() if about is not None and about["format"] in _WITH_COMMITS else None

    def counted(self) -> Commit:
        """``commit`` for a writer; an empty commit for a new folder.

        Raises:
            CorruptDataError: as for ``commit``; or the tables are of an earlier format without commits.
        """
        if self.commit is None:
            if self.about() is not None:
                raise CorruptDataError("tables of an earlier format, which were not taken over", path=self.path)
            self.__dict__["commit"] = Commit()  # even if another writer makes tables there from now on
        return self.__dict__["commit"]  # type: ignore[no-any-return]

    def for_workers(self) -> Tables:
        """The same tables with the same commit and without Spark, to be sent to other processes."""
        found = Tables(None, self.path)
        found.__dict__["commit"] = self.commit
        return found

    def forget(self) -> None:
        """Let ``commit`` be read anew."""
        self.__dict__.pop("commit", None)

    def begin(self) -> Writing:
        """Begin a step, before its first file is written.

        Raises:
            LockedError: another run has written these tables since ``commit``.
        """
        before = self.counted()
        if before.number < 0 and self.about() is None:
            self.write_about()
        return Commits(self.folder).begin(before.number + 1, before.runs)

    def end(
        self, writing: Writing, commit: Commit, sizes: Mapping[str, int] = _UNKNOWN, *, by_workers: bool = False
    ) -> None:
        """Make a step's commit, and remove files that no kept commit names.

        Args:
            writing: the step.
            commit: the step's commit.
            sizes: bytes of the step's files by name, as far as they are known.
            by_workers: whether workers wrote the files: attempts that were given up may have left more files, so the
                mark of the step stays for ``remove_leftovers``.

        Raises:
            LockedError: another run has written these tables since the step began.
            StorageError: a file of the step does not exist or is not whole.
        """
        commits = Commits(self.folder)
        written = sorted(name for name in commit.names() if writing.run in name.rpartition("/")[2])
        lost = self.folder.sync({name: sizes.get(name) for name in written})
        if lost and commits.last().number < writing.number:  # a later commit's writer may have removed them
            raise StorageError(
                errno.ENOENT,
                "this file was written and is not here, or not whole: workers must see the folder of tables under the "
                "same path as this process",
                self.place(lost[0]),
            )
        try:
            self.__dict__["commit"] = commits.add(writing, commit)
        except LockedError:
            self._delete(commits.made_by(writing, commit))
            commits.end(writing)
            raise
        self._delete(commits.outdated())
        if not by_workers:
            commits.end(writing)

    def give_up(self, writing: Writing, names: Iterable[str], *, by_workers: bool = False) -> None:
        """End a step without a commit, and remove its files.

        Args:
            writing: the step.
            names: names of the step's files.
            by_workers: as for ``end``.
        """
        self._delete(names)
        if not by_workers:
            Commits(self.folder).end(writing)

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.folder.delete(name)

    def remove_leftovers(self) -> None:
        """Remove the files of runs that were killed or refused; files of a run at work stay."""
        self._delete(Commits(self.folder).left_by_others())

    def arrow(
        self,
        name: str,
        clusters: Sequence[str],
        share: tuple[int, int] | None = None,
        *,
        condition: pc.Expression | None = None,
    ) -> pa.Table:
        """Rows of some clusters in a table of bronze or silver.

        Args:
            name: name of the table.
            clusters: ids of the clusters.
            share: (number from 0, number of shares) of the partitions, for a table about partitions; None: all.
            condition: condition that rows must meet; None: no condition.
        """
        wanted = pc.field("cluster_id").isin(list(clusters))
        wanted = wanted if condition is None else wanted & condition
        schema = arrow_schema(name)
        if not self.is_sparks_own:
            return read_files(self._here(self._counted(name, clusters)), schema, where=wanted, share=share)
        rows = self.read(name).where(F.col("cluster_id").isin(list(clusters)))
        rows = rows if share is None else rows.where(sql_of_share(share))
        return rows.select(*schema.names).toArrow().cast(schema).filter(wanted)

    def clusters(self) -> list[str]:
        """The ids of all clusters with a file, sorted."""
        schema = pa.schema([("cluster_id", pa.string())])
        files = self._here(self._counted("bronze_files"))
        return sorted(pc.unique(read_files(files, schema)["cluster_id"]).to_pylist())

    def records_by_cluster(self, clusters: Sequence[str]) -> dict[str, int]:
        """Number of records in bronze by cluster."""
        return count_by_cluster(self._here(self._counted("bronze_batches", clusters)), clusters)

    def rows_of(self, name: str, files: Iterable[str]) -> pa.Table:
        """All rows of some files of a table of bronze or silver; ``files`` are relative to the table's folder."""
        return read_files(self._here([f"{name}/{file}" for file in files]), arrow_schema(name))

    def _counted(self, name: str, clusters: Container[str] | None = None) -> list[str]:
        # The files of a table that count, relative to the folder of tables; with `clusters`, of a table of bronze or
        # silver, only files that may have rows of these clusters.
        commit = self.commit
        if commit is None:
            return [f"{name}/{file}" for file in whole_files(self.folder.files(name))]
        files = commit.files.get(name, ())
        return [f"{name}/{file}" for file in files if clusters is None or commit.may_hold(file, clusters)]

    def _here(self, files: Sequence[str]) -> list[str]:
        # Local paths of files. Files of a URI are copied once, for files never change.
        if isinstance(self.folder, LocalFolder):
            return [self.place(file) for file in files]
        absent = [file for file in files if not Path(self._fetched, file).exists()]
        self.folder.fetch(absent, self._fetched)
        return [f"{self._fetched}/{file}" for file in files]

    @cached_property
    def _fetched(self) -> str:
        # A temporary folder, removed with this object.
        folder = mkdtemp(prefix="kraftcore-tables-")
        finalize(self, rmtree, folder, ignore_errors=True)
        return folder

    def read(self, name: str) -> DataFrame:
        """A table as a DataFrame. A table of bronze or silver without files is empty.

        Raises:
            LocalError: no such table.
        """
        schema = table_schema(name) or StructType.fromJson(json.loads(self.read_columns(name)))
        if self.commit is None:
            if not self.folder.has(name):
                return self.session.createDataFrame([], schema)
            return self.session.read.schema(schema).options(**_LITERAL).parquet(self.place(name))
        files = self._counted(name)
        is_gold = name not in BRONZE and name not in SILVER
        columns = [file for file in files if is_gold and not tells_cluster(file.partition("/")[2])]
        folders = sorted({*files} - {*columns})
        options = ({"basePath": self.place(name), **_LITERAL}, _LITERAL)
        found = [
            self.session.read.schema(schema).options(**how).parquet(*map(self.place, some))
            for how, some in zip(options, (folders, columns), strict=True)
            if some
        ]
        return union(found) if found else self.session.createDataFrame([], schema)

    def read_columns(self, name: str) -> str:
        """The columns of a table of gold, as Spark's JSON.

        Raises:
            LocalError: no such table.
        """
        if self.commit is not None:
            text = self.commit.columns.get(name)
        else:
            text = (self.folder.read(f"{_SCHEMAS}/{name}.json") or b"").decode()
        if not text:
            raise LocalError(f"there is no table {name} in {self.path}: run 'kraftcore spark run' first")
        return text

    def names(self) -> list[str]:
        """The names of all tables: all of bronze and silver, and those of gold that were written."""
        gold: Iterable[str] = () if self.commit is None else self.commit.columns
        if self.commit is None:
            gold = (name.removesuffix(".json") for name in self.folder.files(_SCHEMAS) if name.endswith(".json"))
        return [*BRONZE, *SILVER, *sorted(gold)]

    def register(self, sql: str | None = None) -> list[str]:
        """Register tables as temporary views.

        Args:
            sql: register only tables that this text names, for each takes a look at its files; None: all tables.

        Returns:
            The names.

        Raises:
            LocalError: the folder holds no tables.
        """
        self.check()
        registered = []
        for name in self.names():
            if sql is not None and name not in sql.lower():
                continue
            # A view of a query, not of files: SQL cannot insert into it or overwrite it.
            self.read(name).select("*").createOrReplaceTempView(name)
            registered.append(name)
        return registered

    def check(self) -> None:
        """Raise if the folder holds no tables, or tables of an unknown format.

        Raises:
            LocalError: no tables.
            CorruptDataError: tables of an unknown format.
        """
        if self.about() is None:
            raise LocalError(f"{self.path} holds no tables: make some with 'kraftcore spark run'")

    def check_gold(self) -> None:
        """``check``, and raise if gold is of an earlier format, which lacks columns.

        Raises:
            LocalError: no tables, or gold of an earlier format.
            CorruptDataError: tables of an unknown format.
        """
        self.check()
        about = self.about()
        if about is not None and about["format"] != FORMAT:
            raise LocalError(
                f"{self.path}: gold of an earlier version (format {about['format']}): "
                "'kraftcore spark run' makes it anew"
            )

    def about(self) -> dict[str, int] | None:
        """The content of the file ``ABOUT``; None for a folder without tables.

        Raises:
            CorruptDataError: tables of an unknown format.
        """
        data = self.folder.read(ABOUT)
        if data is None:
            return None
        try:
            about: dict[str, int] = dict(json.loads(data))
        except (ValueError, TypeError):
            raise CorruptDataError("not what a run notes about its tables", path=self.place(ABOUT)) from None
        if about.get("format") not in _READABLE:
            raise CorruptDataError(
                f"tables of format {about.get('format')}; known are {' and '.join(map(str, _READABLE))}", path=self.path
            )
        return about

    def write_about(self) -> None:
        """Write the file ``ABOUT`` with this format."""
        self.folder.write(ABOUT, json.dumps({"format": FORMAT}).encode() + b"\n")


def _is_starter(session: SparkSession | Starter) -> TypeGuard[Starter]:
    return callable(session)


def columns_of(schema: pa.Schema) -> str:
    """An Arrow schema as Spark's JSON."""
    return str(from_arrow_schema(schema).json())


def gold_folder(cluster_id: str) -> str:
    """The folder of a cluster's rows within a table of gold: named as Spark does, or a hash (``tells_cluster``)."""
    escaped = "".join(f"%{ord(one):02X}" if one in _ESCAPED else one for one in cluster_id)
    if escaped == _NO_VALUE or len(escaped.encode()) > ESCAPED_BYTES:
        return f"cluster-{blake2b(cluster_id.encode(), digest_size=16).hexdigest()}"
    return f"{_TELLING}{escaped or _NO_VALUE}"


def tells_cluster(name: str) -> bool:
    """Whether the name of a folder of gold, or of a file in it, holds the cluster id.

    Ids that are too long for a file system, or that Spark takes for null, are in a column of the files instead.
    """
    return name.startswith(_TELLING)


def whole_files(files: Iterable[str]) -> list[str]:
    """A table's whole Parquet files, sorted, for tables without commits."""
    return sorted(one for one in files if one.endswith(_PARQUET) and not one.rpartition("/")[2].startswith(UNFINISHED))


def arrow_schema(name: str) -> pa.Schema:
    """Arrow's schema of a table of bronze or silver, without the column ``batch``."""
    return view_schema(BRONZE[name]) if name in BRONZE else typed_schema(SILVER[name])


def table_schema(name: str) -> StructType | None:
    """Spark's schema of a table of bronze or silver; None for gold, whose schema is in the commit."""
    if name not in BRONZE and name not in SILVER:
        return None
    schema: StructType = from_arrow_schema(arrow_schema(name))
    return StructType([*schema.fields, StructField("batch", LongType())])


def union(frames: list[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns."""
    return reduce(DataFrame.unionByName, frames)
