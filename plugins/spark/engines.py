"""Who answers the SQL of reports and states: DuckDB in this process for small local tables, else Spark.

The SQL is Spark's; of it the texts use only what DuckDB reads as well, with ``_MACROS``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeAlias

import duckdb
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from kraftcore.errors import CorruptDataError
from kraftcore.plugins.spark.printing import Rows
from kraftcore.plugins.spark.tables import Tables, table_schema

Row: TypeAlias = dict[str, Any]
"""One row of an answer as Python values, by column; moments are in UTC."""
SMALL_BYTES = 256 << 20
"""Parquet files of at most this many bytes are read in this process."""
_JOBS_AT_ONCE = 4
_MACROS = """
CREATE MACRO explode(list) AS unnest(list);
CREATE MACRO max_by(value, place) AS arg_max_null(value, place);
CREATE MACRO min_by(value, place) AS arg_min_null(value, place);
CREATE MACRO size(list) AS len(list);
CREATE MACRO struct(a, b, c) AS row(a, b, c);
CREATE MACRO timestamp_millis(ms) AS CAST(make_timestamp(ms * 1000) AS TIMESTAMPTZ);
CREATE MACRO unix_millis(moment) AS epoch_ms(moment);
"""
"""Spark's functions for DuckDB. Its own max_by and min_by skip rows whose value is null."""
_RESERVED = re.compile(r"'(?:[^']|'')*'|\b(at|offset)\b")
"""A literal, or a name of a column that DuckDB takes for a word of SQL."""


class Engine(Protocol):
    """Answers SQL about the tables of one folder."""

    def literal(self, text: str) -> str:
        """A text as a literal of SQL."""

    def answers(self, texts: Sequence[str]) -> list[list[Row]]:
        """The rows of each query."""

    def rows(self, text: str) -> Rows:
        """The rows of a query, to be printed."""


def spark_literal(text: str) -> str:
    """A text as a literal of Spark's SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


class SparkEngine:
    """Spark; the tables must be views of the session."""

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def literal(self, text: str) -> str:
        """A text as a literal of SQL."""
        return spark_literal(text)

    def answers(self, texts: Sequence[str]) -> list[list[Row]]:
        """The rows of each query."""
        with ThreadPoolExecutor(_JOBS_AT_ONCE) as pool:
            return list(pool.map(self._answer, texts))

    def _answer(self, text: str) -> list[Row]:
        # PySpark hands out naive times of this process's zone.
        return [
            {name: one.astimezone(UTC) if isinstance(one, datetime) else one for name, one in row.asDict(True).items()}
            for row in self._session.sql(text).collect()
        ]

    def rows(self, text: str) -> Rows:
        """The rows of a query, to be printed."""
        return Rows.of_spark(self._session.sql(text))


class LocalEngine:
    """DuckDB in this process.

    Args:
        connection: has the tables as views.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def literal(self, text: str) -> str:
        """A text as a literal of SQL."""
        return _literal(text)

    def answers(self, texts: Sequence[str]) -> list[list[Row]]:
        """The rows of each query."""
        return [self._answer(text) for text in texts]

    def _answer(self, text: str) -> list[Row]:
        found = _told(lambda: self._connection.execute(_quoted(text)))
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in _told(found.fetchall)]

    def rows(self, text: str) -> Rows:
        """The rows of a query, to be printed."""
        return Rows.of_arrow(_told(lambda: self._connection.sql(_quoted(text)).to_arrow_table()))


@contextmanager
def engine_for(tables: Tables, text: str) -> Iterator[Engine]:
    """An engine for queries of the tables that the text names.

    Raises:
        CorruptDataError: a file of a local table cannot be read.
    """
    names = [name for name in tables.names() if name in text]
    if not _is_small(tables, names):
        tables.register(text)
        yield SparkEngine(tables.session)
        return
    with TemporaryDirectory(prefix="kraftcore-duckdb-", ignore_cleanup_errors=True) as scratch:
        # Nothing is fetched from the network. What does not fit into memory goes to the folder.
        settings = {"autoinstall_known_extensions": "false", "temp_directory": scratch}
        with duckdb.connect(config=settings) as connection:  # type: ignore[arg-type]
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")  # as Spark's
            connection.execute(_MACROS)
            for name in names:
                _make_view(connection, tables, name)
            yield LocalEngine(connection)


def _is_small(tables: Tables, names: Sequence[str]) -> bool:
    size = sum(file.size for name in names for file in tables.commit.files.get(name, {}).values())
    return tables.is_local and not tables.is_on_cluster and size <= SMALL_BYTES


def _make_view(connection: duckdb.DuckDBPyConnection, tables: Tables, name: str) -> None:
    schema = table_schema(name) or T.StructType.fromJson(json.loads(tables.read_columns(name)))
    if not (files := tables.files(name)):
        empty = [f'CAST(null AS {_duckdb_type(one.dataType)}) AS "{one.name}"' for one in schema]
        connection.execute(f"CREATE VIEW {name} AS SELECT {', '.join(empty)} WHERE false")
        return
    columns = ", ".join(f'"{one}"' for one in schema.names)
    paths = ", ".join(map(_literal, files))
    read = f"read_parquet([{paths}], union_by_name = true, hive_partitioning = false)"
    _told(lambda: connection.execute(f"CREATE VIEW {name} AS SELECT {columns} FROM {read}"))


def _duckdb_type(kind: T.DataType) -> str:
    if isinstance(kind, T.ArrayType):
        return f"{_duckdb_type(kind.elementType)}[]"
    if isinstance(kind, T.MapType):
        return f"MAP({_duckdb_type(kind.keyType)}, {_duckdb_type(kind.valueType)})"
    if isinstance(kind, T.StructType):
        fields = (f'"{one.name}" {_duckdb_type(one.dataType)}' for one in kind)
        return f"STRUCT({', '.join(fields)})"
    others = {"timestamp": "TIMESTAMPTZ", "binary": "BLOB"}
    return others.get(kind.simpleString(), kind.simpleString())


def _quoted(text: str) -> str:
    # DuckDB reserves names of ours.
    return _RESERVED.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text)


def _literal(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"


def _told(call: Callable[[], Any]) -> Any:
    # Files that cannot be read are told in one line.
    try:
        return call()
    except (duckdb.IOException, duckdb.InvalidInputException) as error:
        raise CorruptDataError(str(error).partition("\n")[0]) from None
