"""One Spark session for all cases, and kraftcore's data source in it."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

from bench.harness import Missing, Operation, loop
from bench.metadata_log import MetadataLog
from bench.peers.spark import ready
from bench.peers.spark.dump import digest_of_types
from kraftcore.plugins.spark.arrow_batches import FAIL, RangeReader
from kraftcore.plugins.spark.commits import Writing
from kraftcore.plugins.spark.direct import read_typed
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.intake import Intake, shares_between
from kraftcore.plugins.spark.ranges import Tracker, pack, split_into_ranges
from kraftcore.plugins.spark.source import Settings
from kraftcore.plugins.spark.stores import Inventory
from kraftcore.plugins.spark.tables import SILVER, Tables
from kraftcore.plugins.spark.work import spread

CEILING = "Spark, ready-made batches"
CORES = 2
WARM_S = 20.0
"""The JVM compiles what a query does only after some rounds of it."""


class Session:
    """Started when first asked for.

    Args:
        folder: for Spark's own files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @cached_property
    def spark(self) -> SparkSession:
        """The session, on two cores."""
        from kraftcore.plugins.spark import session

        cloudpickle.register_pickle_by_value(ready)  # workers cannot import the bench
        found = session(
            f"local[{CORES}]",
            app_name="kraftcore-bench",
            spark__driver__memory="3g",
            spark__local__dir=str(self.folder / "spark"),
            spark__log__level="OFF",
        )
        found.dataSource.register(ready.ReadySource)
        return found

    def kraft(self, log: MetadataLog, view: str, **options: str) -> DataFrame:
        """Our data source."""
        return self.spark.read.format("kraft").options(view=view, **options).load(str(log.folder))

    def ready(self, log: MetadataLog, view: str) -> DataFrame:
        """The same rows, made before."""
        place = self.folder / f"ready-{log.records}-{view}"
        if not place.exists():
            ready.write(place, tasks_of(log, view))
        return self.spark.read.format("ready").load(str(place))


def tasks_of(log: MetadataLog, view: str) -> list[list[Any]]:
    """The batches of each task of a read."""
    reader = RangeReader(view, Filters())
    files = Inventory().files([str(log.folder)])
    return [
        [batch for one in group for batch in reader.read(one)]
        for group in pack(split_into_ranges(files, reader.filters))
    ]


def read(frame: DataFrame) -> Operation:
    """Read all columns of a frame again and again, and keep nothing."""

    def digest() -> str:
        from pyspark.sql import functions as F

        row = frame.agg(F.count("*"), F.sum("offset"), F.bit_xor(F.xxhash64(*frame.columns))).collect()[0]
        return "/".join(map(str, row))

    def consume() -> None:
        frame.write.format("noop").mode("overwrite").save()

    return Operation(loop(consume), digest, warm_s=WARM_S)


def typed(log: MetadataLog, session: Session) -> Operation:
    """All metadata records as typed rows, by Spark's workers in one scan: a Parquet table for each type, and bronze."""
    settings = Settings({"path": str(log.folder)})
    files = settings.files()
    shares = shares_between({}, Tracker().advance({}, files), files, settings.range_bytes, CORES)
    place = session.folder / "typed"

    def scan() -> Counter[str]:
        work = Intake(str(place), Writing(0, "bench", 0.0), settings.filters, FAIL)
        found: Counter[str] = Counter()
        for added in spread(Tables(session.spark, place), work, shares, here=False):
            found.update(added.rows)
        return found

    def run(calls: int) -> float:
        # What the call before wrote is removed first, outside the time.
        seconds = 0.0
        for _ in range(calls):
            shutil.rmtree(place, ignore_errors=True)
            begin = time.perf_counter()
            scan()
            seconds += time.perf_counter() - begin
        return seconds

    def digest() -> str:
        shutil.rmtree(place, ignore_errors=True)
        rows = scan()
        return digest_of_types({
            kind.name: rows[name] for name, kind in SILVER.items() if rows[name] and not kind.is_control
        })  # fmt: skip

    note = f"one scan by {len(shares)} tasks, bronze and a table of each record type written as Parquet, {CORES} cores"
    return Operation(run, digest, warm_s=WARM_S, note=note)


def types_of(log: MetadataLog) -> dict[str, int]:
    """Metadata records of a log, by type, in one pass of our decoder."""
    found: Counter[str] = Counter()
    for kind, batch in read_typed([log.folder]):
        if not kind.is_control:
            found[kind.name] += batch.num_rows
    return dict(found)


def decode(log: MetadataLog) -> Operation:
    """All records as typed Arrow batches, in this process, on one core."""

    def run(calls: int) -> float:
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {min(cores)})  # Arrow has threads, too
        try:
            begin = time.perf_counter()
            for _ in range(calls):
                types_of(log)
            return time.perf_counter() - begin
        finally:
            os.sched_setaffinity(0, cores)

    if not hasattr(os, "sched_setaffinity"):
        raise Missing("this system cannot bind a process to one core")
    return Operation(run, lambda: digest_of_types(types_of(log)), note="one core", warm_s=0.5)
