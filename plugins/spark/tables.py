"""The folder of tables: Parquet, one subfolder a table, in it one folder a micro-batch or, for gold, a cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, reduce
from pathlib import Path
from typing import Any, TypeGuard, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from kraftcore.core.disk.files import OsFiles
from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.plugins.spark.folders import UNFINISHED, HadoopFolder, LocalFolder, is_local
from kraftcore.plugins.spark.parquet import count_by_cluster, read_files, sql_of_share, to_bytes
from kraftcore.plugins.spark.views import RECORD_TYPES, typed_schema, view_schema
from kraftcore.storage.lock import lock_folders

BRONZE = {
    "bronze_files": "files",
    "bronze_batches": "batches",
    "bronze_records": "records",
    "errors": "errors",
}
"""Tables that are views of the data source."""
SILVER = {f"silver_{kind.view}": kind for kind in RECORD_TYPES}
TABLES_BY_VIEW = {view: name for name, view in BRONZE.items()} | {kind.view: name for name, kind in SILVER.items()}
"""By view of the data source, the table that it fills."""
COMMITS = "_commits"
"""Folder with a file for each micro-batch that is whole."""
_COMMITS_KEPT = 2
_SCHEMAS = "_schemas"
"""Folder of the columns of gold's tables, as JSON, one for each that was written."""
FORMAT = 2
_READABLE = (1, FORMAT)
ABOUT = "kraftcore-tables.json"
"""What a run notes in its folder of tables."""
_PARQUET = ".parquet"
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | frozenset(map(chr, range(1, 32)))
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
Starter = Callable[[], SparkSession]


class Tables:
    """A folder of tables.

    Args:
        session: Spark's; what starts one when it is needed; None: a folder of this machine is read without.
        path: the folder: a path, or a URI that Spark knows.
        is_sparks_own: whether Spark's streams wrote the tables: then only Spark knows which of their files count.
    """

    def __init__(
        self, session: SparkSession | Starter | None, path: str | Path, *, is_sparks_own: bool = False
    ) -> None:
        self._session = session
        self.is_sparks_own = is_sparks_own
        text = str(path).removeprefix("file://") if str(path).startswith("file:///") else str(path)
        self.path = str(Path(text).absolute()) if is_local(text) else text.rstrip("/")

    @property
    def session(self) -> SparkSession:
        """Spark's session; started now if it was not yet.

        Raises:
            LocalError: there is none: the work is to be done without.
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
        """Whether Spark runs on other machines, which then do all work."""
        return self.has_session and not str(self.session.sparkContext.master).startswith("local")

    @property
    def is_local(self) -> bool:
        """Whether every process that sees the same disk can write here."""
        return is_local(self.path)

    @cached_property
    def folder(self) -> LocalFolder | HadoopFolder:
        """Its small files.

        Raises:
            LocalError: Spark has no file system for the path.
        """
        return LocalFolder(self.path) if self.is_local else HadoopFolder(self.session, self.path)

    def place(self, name: str) -> str:
        """Where a table, or something else of the folder, is."""
        return f"{self.path}/{name}"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out until the block ends, where the folder is a local one: elsewhere nobody else does.

        Raises:
            LockedError: another process is writing these tables.
            StorageError: the folder cannot be made.
        """
        if not self.is_local:
            yield
            return
        try:
            Path(self.path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(error.errno or 0, error.strerror or str(error), self.path) from None
        with lock_folders(OsFiles(), [self.path]):
            yield

    def batch_files(self, name: str, batch: int) -> list[str]:
        """What there is of a table's part of one micro-batch, as names in the folder."""
        return [f"{name}/batch={batch}/{file}" for file in self.folder.files(f"{name}/batch={batch}")]

    def begin_gold(self, name: str, rows: Any, cluster_id: str, mark: str) -> None:
        """Write rows of a cluster in a table of gold, not to be seen until ``end_gold``.

        Args:
            name: the table.
            rows: an Arrow table without ``cluster_id``.
            cluster_id: whose rows they are.
            mark: the file is named by it.
        """
        self.folder.begin(f"{gold_place(name, cluster_id)}/{mark}{_PARQUET}", to_bytes(rows))

    def end_gold(self, name: str, schema: Any, clusters: Iterable[str], run: str) -> None:
        """Replace what a table of gold has of some clusters by what was written; that may be nothing.

        Args:
            name: the table.
            schema: its columns, of Arrow.
            clusters: whose rows are replaced.
            run: the marks of what was written begin so.
        """
        # Files alone do not tell an empty table's columns.
        self.folder.write(f"{_SCHEMAS}/{name}.json", from_arrow_schema(schema).json().encode())
        self.folder.make(name)
        for cluster_id in clusters:
            place = gold_place(name, cluster_id)
            files = self.folder.files(place)
            written = {file for file in files if file.startswith(UNFINISHED + run)}
            for file in set(files) - written:
                self.folder.delete(f"{place}/{file}")
            for file in written:
                self.folder.finish(f"{place}/{file.removeprefix(UNFINISHED)}")

    def arrow(
        self, name: str, clusters: Sequence[str], share: tuple[int, int] | None = None, *, condition: Any = None
    ) -> Any:
        """Rows of a bronze or silver table that belong to some clusters, as an Arrow table.

        Args:
            name: the table.
            clusters: whose.
            share: of a table about partitions: this one of so many equal shares of all partitions; None: all.
            condition: an expression of pyarrow that rows must meet, too; None: none.
        """
        wanted = pc.field("cluster_id").isin(list(clusters))
        wanted = wanted if condition is None else wanted & condition
        schema = arrow_schema(name)
        if self.is_local and not self.is_sparks_own:
            return read_files(self._paths(name), schema, where=wanted, share=share)
        if not self.folder.has(name):
            return schema.empty_table()
        rows = self.read(name).where(F.col("cluster_id").isin(list(clusters)))
        rows = rows if share is None else rows.where(sql_of_share(share))
        return rows.select(*schema.names).toArrow().cast(schema).filter(wanted)

    def clusters(self) -> list[str]:
        """All clusters of whom there is a file, in order."""
        if self.is_local:
            schema = pa.schema([("cluster_id", pa.string())])
            return sorted(pc.unique(read_files(self._paths("bronze_files"), schema)["cluster_id"]).to_pylist())
        return sorted(row[0] for row in self.read("bronze_files").select("cluster_id").distinct().collect())

    def records_by_cluster(self, clusters: Sequence[str]) -> dict[str, int]:
        """How many records some clusters have in bronze."""
        if self.is_local:
            return count_by_cluster(self._paths("bronze_batches"), clusters)
        rows = self.read("bronze_batches").where(F.col("cluster_id").isin(list(clusters)))
        return {row[0]: int(row[1]) for row in rows.groupBy("cluster_id").agg(F.sum("count")).collect()}

    def _paths(self, name: str) -> list[str]:
        # The whole files of a table.
        files = sorted(self.folder.files(name))
        return [
            f"{self.path}/{name}/{file}"
            for file in files
            if file.endswith(_PARQUET) and not file.rpartition("/")[2].startswith(UNFINISHED)
        ]

    def read(self, name: str) -> DataFrame:
        """A table. One of bronze or silver that nothing was written to is empty.

        Raises:
            LocalError: no such table.
        """
        schema = table_schema(name) or self._written_schema(name)
        if not self.folder.has(name):
            return self.session.createDataFrame([], schema)
        return self.session.read.schema(schema).parquet(self.place(name))

    def _written_schema(self, name: str) -> StructType:
        text = self.folder.read(f"{_SCHEMAS}/{name}.json")
        if text is None:
            raise LocalError(f"there is no table {name} in {self.path}: run 'kraftcore spark run' first")
        return StructType.fromJson(json.loads(text))

    def last_commit(self) -> int:
        """The last micro-batch that is whole; -1: none."""
        return max(self._commits(), default=-1)

    def _commits(self) -> list[int]:
        return sorted(int(name) for name in self.folder.files(COMMITS) if name.isdecimal())

    def read_commit(self, batch: int) -> dict[str, Any]:
        """What is known of a micro-batch that is whole.

        Raises:
            CorruptDataError: the file is not what a run wrote.
        """
        place = f"{COMMITS}/{batch}"
        try:
            found: dict[str, Any] = json.loads(self.folder.read(place) or b"")
            return {"clusters": list(found["clusters"]), "progress": str(found["progress"])}
        except (ValueError, KeyError, TypeError):
            raise CorruptDataError("not what a run writes about a micro-batch", path=self.place(place)) from None

    def write_commit(self, batch: int, clusters: Sequence[str], progress: str) -> None:
        """Note that a micro-batch is whole.

        Args:
            batch: its number.
            clusters: whose rows it has.
            progress: how far it comes in each file.
        """
        data = json.dumps({"clusters": list(clusters), "progress": progress}).encode()
        self.folder.write(f"{COMMITS}/{batch}", data)

    def changed_since(self, batch: int) -> list[str]:
        """The clusters that later micro-batches have rows of, in order."""
        later = [one for one in self._commits() if one > batch]
        return sorted({name for one in later for name in self.read_commit(one)["clusters"]})

    def forget_commits(self, batch: int) -> None:
        """Remove what nobody needs any more: gold has been made of all up to ``batch``."""
        for one in self._commits()[:-_COMMITS_KEPT]:
            if one <= batch:
                self.folder.delete(f"{COMMITS}/{one}")

    def names(self) -> list[str]:
        """All tables: those of bronze and silver, written to or not, and those of gold that were written."""
        gold = (name.removesuffix(".json") for name in self.folder.files(_SCHEMAS) if name.endswith(".json"))
        return [*BRONZE, *SILVER, *sorted(gold)]

    def register(self, sql: str | None = None) -> list[str]:
        """Make tables temporary views of their names, as ``names`` lists them.

        Args:
            sql: only the tables that this text names, for each takes a look at its files; None: all.

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
            self.read(name).createOrReplaceTempView(name)
            registered.append(name)
        return registered

    def check(self) -> None:
        """Fail if the folder holds no tables, or those of another version.

        Raises:
            LocalError: no tables.
            CorruptDataError: tables that this version cannot read.
        """
        if self.about() is None:
            raise LocalError(f"{self.path} holds no tables: make some with 'kraftcore spark run'")

    def about(self) -> dict[str, Any] | None:
        """What the folder says about itself; None for a folder without tables.

        Raises:
            CorruptDataError: tables that this version cannot read.
        """
        data = self.folder.read(ABOUT)
        if data is None:
            return None
        about: dict[str, Any] = json.loads(data)
        if about.get("format") not in _READABLE:
            raise CorruptDataError(
                f"tables of format {about.get('format')}; known are {' and '.join(map(str, _READABLE))}", path=self.path
            )
        return about

    def write_about(self, gold: int) -> None:
        """Say up to which micro-batch gold was made."""
        self.folder.write(ABOUT, json.dumps({"format": FORMAT, "gold": gold}).encode() + b"\n")


def _is_starter(session: SparkSession | Starter) -> TypeGuard[Starter]:
    return callable(session)


def gold_place(name: str, cluster_id: str) -> str:
    """The folder of a cluster's rows in a table of gold, named as Spark does."""
    escaped = "".join(f"%{ord(one):02X}" if one in _ESCAPED else one for one in cluster_id)
    return f"{name}/cluster_id={escaped or _NO_VALUE}"


def arrow_schema(name: str) -> Any:
    """Columns of a bronze or silver table as Arrow's, without ``batch``."""
    return view_schema(BRONZE[name]) if name in BRONZE else typed_schema(SILVER[name])


def table_schema(name: str) -> StructType | None:
    """Columns of a bronze or silver table; None for gold, which says itself."""
    if name not in BRONZE and name not in SILVER:
        return None
    schema: StructType = from_arrow_schema(arrow_schema(name))
    return StructType([*schema.fields, StructField("batch", LongType())])


def union(frames: list[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns."""
    return reduce(DataFrame.unionByName, frames)
