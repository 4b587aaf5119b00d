"""The folder of tables: Parquet, one subfolder a table, in it one folder a micro-batch or, for gold, a cluster."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property, reduce
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from kraftcore.core.disk.files import OsFiles
from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.plugins.spark.folders import HadoopFolder, LocalFolder, is_local
from kraftcore.plugins.spark.views import RECORD_TYPES, typed_schema, view_schema
from kraftcore.storage.lock import lock_folders

BRONZE = {
    "bronze_files": "files",
    "bronze_batches": "batches",
    "bronze_records": "records",
    "errors": "errors",
}
"""Tables that are views of the data source, one stream each."""
SILVER = {f"silver_{kind.view}": kind for kind in RECORD_TYPES}
CHECKPOINTS = "_checkpoints"
"""Folder of the streams' checkpoints, one for each bronze table."""
_SCHEMAS = "_schemas"
"""Folder of the columns of gold's tables, as JSON, one for each that was written."""
FORMAT = 1
ABOUT = "kraftcore-tables.json"
"""What a run notes in its folder of tables."""


class Tables:
    """A folder of tables.

    Args:
        session: Spark's.
        path: the folder: a path, or a URI that Spark knows.
    """

    def __init__(self, session: SparkSession, path: str | Path) -> None:
        self.session = session
        text = str(path).removeprefix("file://") if str(path).startswith("file:///") else str(path)
        self.path = str(Path(text).absolute()) if is_local(text) else text.rstrip("/")

    @cached_property
    def folder(self) -> LocalFolder | HadoopFolder:
        """Its small files.

        Raises:
            LocalError: Spark has no file system for the path.
        """
        return LocalFolder(self.path) if is_local(self.path) else HadoopFolder(self.session, self.path)

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
        if not is_local(self.path):
            yield
            return
        try:
            Path(self.path).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(error.errno or 0, error.strerror or str(error), self.path) from None
        with lock_folders(OsFiles(), [self.path]):
            yield

    def write_batch(self, name: str, rows: DataFrame, batch_id: int) -> None:
        """Write what one micro-batch adds to a table; again, if it was written before a crash."""
        rows.write.mode("overwrite").parquet(f"{self.place(name)}/batch={batch_id}")

    def write_clusters(self, name: str, rows: DataFrame, clusters: Iterable[str]) -> None:
        """Replace the rows of some clusters by ``rows``, which are theirs; a cluster may have none any more."""
        # Files alone do not tell an empty table's columns.
        self.folder.write(f"{_SCHEMAS}/{name}.json", rows.schema.json().encode())
        before = self._cluster_files(name)
        writer = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("cluster_id").parquet(self.place(name))
        after = self._cluster_files(name) if before else {}
        for cluster_id in clusters:
            # Spark leaves the folder of a cluster alone that has no new rows.
            kept = before.get(cluster_id, frozenset()) & after.get(cluster_id, frozenset())
            for file in kept:
                self.folder.delete(f"{name}/{file}")

    def _cluster_files(self, name: str) -> dict[str, frozenset[str]]:
        # By cluster, the files of a table of gold.
        found: dict[str, set[str]] = defaultdict(set)
        for file in self.folder.files(name):
            folder = file.partition("/")[0]
            if folder.startswith("cluster_id="):
                found[unquote(folder.removeprefix("cluster_id="))].add(file)
        return {cluster_id: frozenset(files) for cluster_id, files in found.items()}

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

    def last_commit(self, name: str) -> int:
        """The last micro-batch that is whole, silver included, as a bronze table's stream noted it; -1: none."""
        found = self.folder.files(f"{CHECKPOINTS}/{name}/commits")
        return max((int(one) for one in found if one.isdecimal()), default=-1)

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
        if about.get("format") != FORMAT:
            raise CorruptDataError(f"tables of format {about.get('format')}; known is {FORMAT}", path=self.path)
        return about

    def write_about(self, about: dict[str, Any]) -> None:
        """Say which batches gold was made of."""
        self.folder.write(ABOUT, json.dumps({"format": FORMAT, **about}).encode() + b"\n")


def table_schema(name: str) -> StructType | None:
    """Columns of a bronze or silver table; None for gold, which says itself."""
    if name in BRONZE:
        arrow = view_schema(BRONZE[name])
    elif name in SILVER:
        arrow = typed_schema(SILVER[name])
    else:
        return None
    schema: StructType = from_arrow_schema(arrow)
    return StructType([*schema.fields, StructField("batch", LongType())])


def union(frames: list[DataFrame]) -> DataFrame:
    """All rows of frames with the same columns."""
    return reduce(DataFrame.unionByName, frames)
