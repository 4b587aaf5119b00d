"""A folder of tables: a Delta table in each subfolder, one of them that of the commits."""

from __future__ import annotations

import errno
import json
import secrets
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache, cached_property, reduce
from hashlib import blake2b
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import TypeGuard, cast
from weakref import finalize

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import CorruptDataError, LocalError, LockedError, StorageError
from kraftcore.plugins.spark.commits import CLEAN_HOURS_MIN, Commit, Commits, Writing
from kraftcore.plugins.spark.earlier import refuse_earlier, take_over
from kraftcore.plugins.spark.folders import UNFINISHED, LocalFolder, StoreFolder, at_once, is_local
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
_MASKING_KEY = f"{UNFINISHED}masking-key"
_PARQUET = ".parquet"
_LITERAL = {"__globPaths__": "false"}
"""Option of Spark's reader: paths are no patterns. Names of folders and clusters may hold signs of patterns."""
Starter = Callable[[], SparkSession]


class Tables:
    """A folder of tables.

    Args:
        session: Spark's session; or a function that starts one when it is needed; None: a local folder is used without
            Spark.
        path: path of the folder, or a URI that Spark knows.
        at: the moment whose tables are read; None: the last commit's.
        is_sparks_own: whether Spark's streams wrote the tables: then only Spark knows which files count.
    """

    def __init__(
        self,
        session: SparkSession | Starter | None,
        path: str | Path,
        *,
        at: datetime | None = None,
        is_sparks_own: bool = False,
    ) -> None:
        self._session = session
        self._at = at if at is None or at.tzinfo else at.replace(tzinfo=UTC)
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
    def folder(self) -> LocalFolder | StoreFolder:
        """The folder's files.

        Raises:
            LocalError: pyarrow has no file system for the path.
        """
        return LocalFolder(self.path) if self.is_local else StoreFolder(self.path)

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
            self.folder.write(_MASKING_KEY, secrets.token_bytes(KEY_BYTES))
            found = self.folder.read(_MASKING_KEY)  # a store's last writer wins
        if found is None or len(found) != KEY_BYTES:
            raise CorruptDataError("not the key that a run drew", path=self.place(_MASKING_KEY))
        self._masking_key = found
        return found

    @cached_property
    def _commits(self) -> Commits:
        return Commits(self.folder)

    @cached_property
    def commit(self) -> Commit:
        """The last commit when this was first called, or that of the moment ``at``; of a new folder an empty one.

        Raises:
            CorruptDataError: the commit is not what a run wrote, or of a later format.
            LocalError: tables of an earlier format; or there was no commit at that moment.
        """
        found = self._commits.last() if self._at is None else self._commits.at(self._at)
        if found.number < 0:
            refuse_earlier(self.folder)
        return found

    def for_workers(self) -> Tables:
        """The same tables with the same commit and key, without Spark, to be sent to other processes."""
        found = Tables(None, self.path)
        found.__dict__["commit"] = self.commit
        found._masking_key = self.masking_key()
        return found

    def settle(self) -> None:
        """Before a run: take over tables of an earlier format, and bring the logs of all tables to the last commit.

        Raises:
            LocalError, CorruptDataError: as ``take_over``.
            StorageError: the disk or store failed.
        """

        def clusters_of(files: Sequence[str]) -> Sequence[str]:
            return _clusters_in(self._here(files))

        self._commits.last()  # of a store that does not answer, deltalake tells within seconds, pyarrow within minutes
        take_over(self.folder, fed_columns(), clusters_of)
        self.forget()
        self._commits.publish(self.commit)

    def forget(self) -> None:
        """Let ``commit`` be read anew."""
        self.__dict__.pop("commit", None)

    def begin(self) -> Writing:
        """Begin a step, before its first file is written.

        Raises:
            LockedError: another run has written these tables since ``commit``.
        """
        return self._commits.begin(self.commit)

    def end(self, writing: Writing, commit: Commit) -> None:
        """Make a step's commit.

        Args:
            writing: the step.
            commit: the step's commit.

        Raises:
            LockedError: another run has written these tables since the step began.
            StorageError: a file of the step does not exist or is not whole.
        """
        sizes = {
            f"{table}/{name}": file.size
            for table, files in commit.files.items()
            for name, file in files.items()
            if f"-{writing.run}-" in name
        }
        lost = self.folder.sync(sizes)
        if lost:
            raise StorageError(
                errno.ENOENT,
                "this file was written and is not here, or not whole: workers must see the folder of tables under the "
                "same path as this process",
                self.place(lost[0]),
            )
        try:
            self.__dict__["commit"] = self._commits.add(writing, self.commit, commit)
        except LockedError:
            self.give_up(sizes)
            raise

    def give_up(self, names: Iterable[str]) -> None:
        """Remove the files of a step that does not become a commit."""
        at_once(self.folder.delete, names)

    def clean(self, hours: int) -> int:
        """Forget the states that were replaced more than ``hours`` ago, and delete the files that no other state has.

        Returns:
            The number of states that were forgotten.

        Raises:
            LocalError: there are no tables; or ``hours`` is below ``CLEAN_HOURS_MIN`` and the folder is behind a URI.
            LockedError: another run is writing these tables.
        """
        if hours < CLEAN_HOURS_MIN and not self.is_local:
            raise LocalError(
                f"{self.path}: hours={hours}: nothing keeps a run from writing there meanwhile, and the clean-up would "
                f"delete the files of a step before its commit names them: name at least {CLEAN_HOURS_MIN}"
            )
        self.check()
        with self.locked():
            self.settle()
            return self.drop_states(hours)

    def drop_states(self, hours: int) -> int:
        """What ``clean`` does, for a run: it has locked and settled the tables."""
        return self._commits.clean(hours)

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
            return read_files(self.files(name, clusters), schema, where=wanted, share=share)
        rows = self.read(name).where(F.col("cluster_id").isin(list(clusters)))
        rows = rows if share is None else rows.where(sql_of_share(share))
        return rows.select(*schema.names).toArrow().cast(schema).filter(wanted)

    def clusters(self) -> list[str]:
        """The ids of all clusters with a file, sorted."""
        return _clusters_in(self.files("bronze_files"))

    def records_by_cluster(self, clusters: Sequence[str]) -> dict[str, int]:
        """Number of records in bronze by cluster."""
        return count_by_cluster(self.files("bronze_batches", clusters), clusters)

    def rows_of(self, name: str, files: Iterable[str]) -> pa.Table:
        """All rows of some files of a table of bronze or silver; ``files`` are relative to the table's folder."""
        return read_files(self._here([f"{name}/{file}" for file in files]), arrow_schema(name))

    def files(self, name: str, clusters: Container[str] | None = None) -> list[str]:
        """Local paths of the files of a table that count. Files of a store are copied once, for files never change.

        Args:
            name: name of the table.
            clusters: of a table of bronze or silver, only files that may have rows of these clusters; None: all.
        """
        return self._here(self._counted(name, clusters))

    def _counted(self, name: str, clusters: Container[str] | None = None) -> list[str]:
        # Relative to the folder of tables.
        commit = self.commit
        files = commit.files.get(name, {})
        return [f"{name}/{file}" for file in files if clusters is None or commit.may_hold(file, clusters)]

    def _here(self, files: Sequence[str]) -> list[str]:
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
        if self.is_sparks_own:
            places = [self.place(name)] if LocalFolder(self.path).has(name) else []
        else:
            places = [self.place(file) for file in self._counted(name)]
        if not places:
            return self.session.createDataFrame([], schema)
        return self.session.read.schema(schema).options(**_LITERAL).parquet(*places)

    def read_columns(self, name: str) -> str:
        """The columns of a table of gold, as Spark's JSON.

        Raises:
            LocalError: no such table.
        """
        text = self.commit.columns.get(name)
        if not text:
            raise LocalError(f"there is no table {name} in {self.path}: run 'kraftcore spark run' first")
        return text

    def names(self) -> list[str]:
        """The names of all tables: all of bronze and silver, and those of gold that were written."""
        fed = (*BRONZE, *SILVER)
        return [*fed, *sorted(self.commit.columns.keys() - set(fed))]

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
            LocalError: no tables, or tables of an earlier format.
            CorruptDataError: tables of a later format.
        """
        if self.commit.number < 0:
            raise LocalError(f"{self.path} holds no tables: make some with 'kraftcore spark run'")


def _clusters_in(files: Sequence[str]) -> list[str]:
    schema = pa.schema([("cluster_id", pa.string())])
    return sorted(pc.unique(read_files(files, schema)["cluster_id"]).to_pylist())


def _is_starter(session: SparkSession | Starter) -> TypeGuard[Starter]:
    return callable(session)


def columns_of(schema: pa.Schema) -> str:
    """An Arrow schema as Spark's JSON."""
    return str(from_arrow_schema(schema).json())


def gold_mark(cluster_id: str) -> str:
    """The first part of the names of a cluster's files of gold: a hash, for cluster ids may hold any signs."""
    return blake2b(cluster_id.encode(), digest_size=16).hexdigest()


def arrow_schema(name: str) -> pa.Schema:
    """Arrow's schema of a table of bronze or silver."""
    return view_schema(BRONZE[name]) if name in BRONZE else typed_schema(SILVER[name])


def table_schema(name: str) -> StructType | None:
    """Spark's schema of a table of bronze or silver; None for gold, whose schema is in the commit."""
    if name not in BRONZE and name not in SILVER:
        return None
    found: StructType = from_arrow_schema(arrow_schema(name))
    return found


@cache
def fed_columns() -> Mapping[str, str]:
    """The columns of all tables of bronze and silver as Spark's JSON."""
    return {name: columns_of(arrow_schema(name)) for name in (*BRONZE, *SILVER)}


def union(frames: list[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns."""
    return reduce(DataFrame.unionByName, frames)
