"""The three layers: bronze and silver follow the files as checkpointed streams, gold is made anew for what changed.

A micro-batch writes a folder named by its number, in each table, replacing what a run that was killed had left there;
Spark's checkpoint gives a repeated micro-batch the same number and the same bytes. So nothing is lost or doubled.
"""

from __future__ import annotations

import json
import re
import threading
from ast import literal_eval
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from kraftcore import errors
from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.plugins.spark.arrow_batches import DROP, typed_from_bronze
from kraftcore.plugins.spark.gold import refresh_gold
from kraftcore.plugins.spark.source import Settings
from kraftcore.plugins.spark.tables import BRONZE, CHECKPOINTS, SILVER, Tables
from kraftcore.plugins.spark.views import RECORD_TYPES, RecordType, typed_schema

_JOBS_AT_ONCE = 4
_STARTS_MAX = 3
_SLOW_WORKER = "failed to connect back"  # Spark gives a worker 10 s to start, which a busy machine may need
_WORKER_ERROR = re.compile(r"kraftcore\.errors\.(\w+): (.*)")
_OS_ERROR = re.compile(r"\[Errno (-?\d+)\] (.*): ('.*'|\".*\")")
Report = Callable[[str], None]
Progress = Callable[[float, str], None]


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
    progress: Progress | None = None,
) -> RunResult:
    """Take in what is new below the paths and bring all tables up to date.

    Args:
        session: Spark's; ``kraftcore.plugins.spark.session()`` makes one.
        paths: as the data source takes them. A later run may name others: what was read stays in the tables.
        tables: folder of the tables.
        errors: ``fail``, ``drop`` or ``keep`` what is damaged; it is listed in the table ``errors`` in any case.
        options: more options of the data source.
        report: called with a line for each step.
        progress: called several times a second with the share of tasks that are done, 0 to 1, and a label.

    Raises:
        LocalError: nothing to read, or an unknown option.
        CorruptDataError: damage, with ``errors="fail"``; or tables of a version that is not known.
        LockedError: another run is writing these tables.
    """
    settings = check_input(paths, errors, options)
    target = Tables(session, tables)
    say = report or (lambda _: None)
    batches: dict[str, int] = {}
    rows: dict[str, int] = {}
    with target.locked(), _watched(session, progress):
        target.about()  # of a version that is known
        for name in BRONZE:
            done = _complete(target, name, settings)
            batches[name] = sum(1 for one in done if one["numInputRows"])
            rows[name] = sum(int(one["numInputRows"]) for one in done)
            say(f"{name}: {rows[name]} new rows")
        clusters = refresh_gold(target, say)
    return RunResult(batches, rows, tuple(clusters))


def follow(
    session: SparkSession,
    paths: Sequence[str | Path],
    tables: str | Path,
    *,
    every_s: float = 10.0,
    stop: threading.Event | None = None,
    errors: str = DROP,
    options: dict[str, str] | None = None,
    report: Report | None = None,
) -> None:
    """Like ``run``, but look for more every so many seconds, until stopped.

    Args:
        session, paths, tables, errors, options, report: as of ``run``.
        every_s: seconds from one look to the next, and the least time from one making of gold to the next.
        stop: ends it; None: only an exception does. What was taken in stays, and the next run goes on from there.

    Raises:
        LocalError, CorruptDataError, LockedError: as ``run``.
    """
    settings = check_input(paths, errors, options)
    target = Tables(session, tables)
    say = report or (lambda _: None)
    stop = stop or threading.Event()
    queries: dict[str, StreamingQuery] = {}
    with target.locked():
        target.about()  # of a version that is known
        finished = {name: target.last_commit(name) for name in BRONZE}
        refresh_gold(target, say, dict(finished))  # of a run that was killed
        begin = partial(start, target, settings=settings, continuous_s=every_s, finished=finished)
        starts = {name: Starts(finished[name]) for name in BRONZE}
        try:
            for name in BRONZE:
                queries[name] = begin(name)
            while not stop.wait(every_s):
                for name, stream in queries.items():
                    error = stream.exception()
                    if error is not None:
                        starts[name].failed(error, finished[name])
                        queries[name] = begin(name)
                refresh_gold(target, say, dict(finished))
        finally:
            for stream in queries.values():
                stream.stop()
        refresh_gold(target, say, finished)


def check_input(paths: Sequence[str | Path], errors: str, options: dict[str, str] | None) -> dict[str, str]:
    """Options of the data source, after a look: what is not there is better told here than by a stream.

    Raises:
        LocalError: nothing to read, or an unknown option.
    """
    if not paths:
        raise LocalError("nothing to read: name at least one path")
    result = {"paths": json.dumps([str(path) for path in paths]), "errors": errors, **(options or {})}
    settings = Settings(result)
    if not settings.files():
        raise LocalError(
            f"no segment, snapshot or bootstrap file below {', '.join(map(str, paths))}: it looks in folders "
            f"named {settings.folder} and right in the folders that are named"
        )
    return result


def _complete(target: Tables, name: str, settings: dict[str, str]) -> list[Any]:
    # Run a stream until it has taken in what is there; the progress of its micro-batches.
    finished = {name: target.last_commit(name)}
    starts = Starts(finished[name])
    done: list[Any] = []
    while True:
        stream = start(target, name, settings, finished=finished)
        try:
            stream.awaitTermination()
            return done + list(stream.recentProgress)
        except StreamingQueryException as error:
            done += stream.recentProgress
            starts.failed(error, finished[name])
        finally:
            stream.stop()


class Starts:
    """Counts how often a stream was started in vain.

    Args:
        finished: its last whole micro-batch before the first start.
    """

    def __init__(self, finished: int) -> None:
        self._finished = finished
        self._failures = 0

    def failed(self, error: Exception, finished: int) -> None:
        """Return if it may be started again: a worker was slow to start, and not too often since something was done.

        Args:
            error: why it ended.
            finished: its last whole micro-batch.

        Raises:
            KraftError: what went wrong in a worker.
            StreamingQueryException: ``error``, if nothing of ours did.
        """
        if finished != self._finished:
            self._finished, self._failures = finished, 0
        self._failures += 1
        if self._failures >= _STARTS_MAX or _SLOW_WORKER not in str(error):
            raise worker_error(error) from None


def worker_error(error: Exception) -> Exception:
    """What went wrong in a worker, as the error it was there; ``error`` itself if that was none of ours."""
    found = _WORKER_ERROR.findall(str(error))
    if not found:
        return error
    name, text = found[-1]
    if name == "StorageError":
        parts = _OS_ERROR.fullmatch(text)
        return StorageError(int(parts[1]), parts[2], literal_eval(parts[3])) if parts else StorageError(text)
    known = getattr(errors, name, LocalError)
    if issubclass(known, CorruptDataError):  # position and path are in the text
        return CorruptDataError(text)
    made: Exception = next(one for one in known.__mro__ if _is_made_of_text(one))(text)
    return made


def _is_made_of_text(kind: type) -> bool:
    return not any("__init__" in vars(base) for base in kind.__mro__ if base.__module__ == errors.__name__)


@contextmanager
def _watched(session: SparkSession, progress: Progress | None) -> Iterator[None]:
    # Tells of Spark's running stages until the block ends.
    if progress is None:
        yield
        return
    stop = threading.Event()

    def watch() -> None:
        tracker = session.sparkContext.statusTracker()
        while not stop.wait(0.2):
            stages = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            total = sum(stage.numTasks for stage in stages if stage)
            if total:
                progress(sum(stage.numCompletedTasks for stage in stages if stage) / total, f"{total} tasks")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def rows_of(session: SparkSession, view: str, settings: dict[str, str]) -> DataFrame:
    """A view of the input as a stream."""
    return session.readStream.format("kraft").options(**settings).option("view", view).load()


def start(
    target: Tables,
    name: str,
    settings: dict[str, str],
    *,
    continuous_s: float | None = None,
    finished: dict[str, int] | None = None,
) -> StreamingQuery:
    """Start the stream of one bronze table; that of the records also fills silver.

    Args:
        target: the tables.
        name: of the bronze table.
        settings: options of the data source.
        continuous_s: look for more every so many seconds, until stopped; None: take what is there, and end.
        finished: where to note the last whole micro-batch, by table.
    """
    rows = rows_of(target.session, BRONZE[name], settings)
    writer = rows.writeStream.foreachBatch(partial(_write, target, name, finished)).queryName(name)
    writer = writer.option("checkpointLocation", target.place(f"{CHECKPOINTS}/{name}"))
    if continuous_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{continuous_s} seconds").start()


def _write(target: Tables, name: str, finished: dict[str, int] | None, rows: DataFrame, batch_id: int) -> None:
    target.write_batch(name, rows, batch_id)
    if name == "bronze_records":
        write_silver(target, batch_id)
    if finished is not None:
        finished[name] = batch_id


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
    listing = re.search(r"\bshow\s+(tables|views)\b", sql, re.IGNORECASE)
    Tables(session, tables).register(None if listing else sql)
    return session.sql(sql)
