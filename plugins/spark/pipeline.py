"""The three layers: bronze and silver follow the files as checkpointed streams, gold is made anew for what changed.

A micro-batch writes a folder named by its number, in each table, replacing what a run that was killed had left there;
Spark's checkpoint gives a repeated micro-batch the same number and the same bytes. So nothing is lost or doubled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
import json

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming import StreamingQuery

from kraftcore.errors import LocalError
from kraftcore.plugins.spark.decode import DROP, typed_from_bronze
from kraftcore.plugins.spark.gold import refresh_gold
from kraftcore.plugins.spark.tables import BRONZE, SILVER, Tables
from kraftcore.plugins.spark.views import RECORD_TYPES, RecordType, typed_schema

_JOBS_AT_ONCE = 4
Report = Callable[[str], None]


@dataclass(frozen=True)
class RunResult:
    """What a run did.

    Attributes:
        batches: micro-batches by table.
        rows: rows read by table.
        clusters: clusters whose gold tables were made anew.
    """

    batches: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()


def run(
    session: SparkSession,
    paths: Sequence[str | Path],
    tables: str | Path,
    *,
    errors: str = DROP,
    options: dict[str, str] | None = None,
    report: Report | None = None,
) -> RunResult:
    """Take in what is new below the paths and bring all tables up to date.

    Args:
        session: Spark's; ``kraftcore.plugins.spark.session()`` makes one.
        paths: as the data source takes them. A later run may name others: what was read stays in the tables.
        tables: folder of the tables.
        errors: ``fail``, ``drop`` or ``keep`` what is damaged; it is listed in the table ``errors`` in any case.
        options: more options of the data source.
        report: called with a line for each step.

    Raises:
        LocalError: nothing to read, or an option that is none.
        CorruptDataError: damage, with ``errors="fail"``.
    """
    if not paths:
        raise LocalError("nothing to read: name at least one path")
    target = Tables(session, tables)
    say = report or (lambda _: None)
    settings = {"paths": json.dumps([str(path) for path in paths]), "errors": errors, **(options or {})}
    result = RunResult()
    queries = [start(target, name, settings) for name in BRONZE]
    for name, query in zip(BRONZE, queries, strict=True):
        query.awaitTermination()
        progress = query.recentProgress
        result.batches[name] = sum(1 for one in progress if one["numInputRows"])
        result.rows[name] = sum(int(one["numInputRows"]) for one in progress)
        say(f"{name}: {result.rows[name]} new rows")
    clusters = refresh_gold(target, say)
    return RunResult(result.batches, result.rows, tuple(clusters))


def start(
    target: Tables, name: str, settings: dict[str, str], *, continuous_s: float | None = None
) -> StreamingQuery:
    """Start the stream of one bronze table; that of the records also fills silver.

    Args:
        target: the tables.
        name: of the bronze table.
        settings: options of the data source.
        continuous_s: look for more every so many seconds, until stopped; None: take what is there, and end.
    """
    rows = target.session.readStream.format("kraft").options(**settings).option("view", BRONZE[name]).load()
    writer = rows.writeStream.foreachBatch(partial(_write, target, name)).queryName(name)
    writer = writer.option("checkpointLocation", target.place(f"_checkpoints/{name}"))
    if continuous_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{continuous_s} seconds").start()


def _write(target: Tables, name: str, rows: DataFrame, batch_id: int) -> None:
    target.write_batch(name, rows, batch_id)
    if name == "bronze_records":
        write_silver(target, batch_id)


def write_silver(target: Tables, batch_id: int) -> None:
    """Decode one micro-batch of ``bronze_records`` into a table for each record type."""
    rows = target.read("bronze_records").where(f"batch = {batch_id}")
    present = {name for (name,) in rows.select("type").distinct().collect()}
    kinds = [kind for kind in RECORD_TYPES if kind.name in present]
    with ThreadPoolExecutor(_JOBS_AT_ONCE) as pool:
        list(pool.map(lambda kind: _write_type(target, rows, kind, batch_id), kinds))


def _write_type(target: Tables, rows: DataFrame, kind: RecordType, batch_id: int) -> None:
    wanted = rows.where(rows["type"] == kind.name).drop("batch", "key", "position", "is_control", "type")
    schema = from_arrow_schema(typed_schema(kind))
    typed = wanted.mapInArrow(partial(typed_from_bronze, kind), schema)
    name = next(name for name, other in SILVER.items() if other is kind)
    target.write_batch(name, typed, batch_id)


def query(session: SparkSession, tables: str | Path, sql: str) -> DataFrame:
    """Ask the tables; each is a view of its name.

    Raises:
        LocalError: the folder holds no tables.
        CorruptDataError: tables of a version that is not known.
    """
    Tables(session, tables).register()
    return session.sql(sql)


def to_json_lines(rows: DataFrame) -> Iterable[str]:
    """A result as one JSON object a line, nulls included."""
    for row in rows.toJSON().toLocalIterator():
        yield str(row)


