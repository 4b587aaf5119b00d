"""Metadata logs on Spark, beside what Spark itself can do and beside Kafka's dump tool.

Reads compare with a source that hands over the same Arrow batches ready-made: nothing that reads a log can be faster.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from bench import harness, inputs, metadata_log, report
from bench.harness import OURS, Case, DifferentResult, Effort, Missing, Outcome, Timing
from bench.metadata_log import MetadataLog
from bench.peers.spark import dump, live, processes, session
from bench.peers.spark.session import CEILING, CORES, Session
from bench.peers.spark.small import COLD, START, Small

MILLION = 1_000_000
SMOKE_RECORDS = 20_000
SEGMENT_BYTES = 8 << 20
SMALL_RECORDS = 2_000
LAYERS = (1, 3, 10, 30)
ROUTINE = 10
"""Millions of records up to which a run of all cases measures the layers."""
LAYERS_TIMEOUT_S = 3600.0
_TRIES = 5
EARLIER = "the size before"
"""Peer of the layers: the same with fewer records, for how time grows."""
NEEDED = "segments that hold the rows"
TYPED_VIEW = "partition_change"
LIVE_RECORDS, LIVE_SMOKE = 110, 4
Earlier = dict[str, dict[str, float]]
"""What is known of cases that were measured before, in this run or in one that is taken up: seconds, and details."""


@dataclass(frozen=True)
class PlainCase:
    """A figure that is no rate of turns: one measurement tells.

    Attributes:
        name, unit, about: as in the table.
        take: fills the outcome.
        contenders: peers by name, and what measures them; None: ``take`` does.
        on_request: left out unless it is named.
    """

    name: str
    unit: str
    about: str
    take: Callable[[Outcome, Earlier], None]
    contenders: dict[str, Callable[[], Timing] | None] = field(default_factory=dict)
    on_request: bool = False

    def outcome(self) -> Outcome:
        scale = {"s": 1.0, "ms": 1e3, "MB": 1e-6}[self.unit]
        return Outcome(self.name, self.unit, False, lambda amount: amount * scale, headline="median")


class Logs:
    """Logs of so many records, written when first asked for."""

    def __init__(self, folder: Path, smoke: bool) -> None:
        self.folder = folder
        self.smoke = smoke
        self._known: dict[tuple[int, int], MetadataLog] = {}
        self._types: dict[str, int] = {}

    def get(self, millions: int, segment_bytes: int = metadata_log.ONE_SEGMENT) -> MetadataLog:
        """A log; in a smoke run a small one in its place."""
        records = SMOKE_RECORDS * millions if self.smoke else MILLION * millions
        if self.smoke and segment_bytes != metadata_log.ONE_SEGMENT:
            segment_bytes = 256 << 10
        key = records, segment_bytes
        if key not in self._known:
            place = self.folder / f"log-{records}-{segment_bytes}"
            self._known[key] = metadata_log.write(place, records, segment_bytes)
        return self._known[key]

    def types(self) -> dict[str, int]:
        """Metadata records of the log of a million, by type."""
        if not self._types:
            self._types = session.types_of(self.get(1))
        return self._types


def cases(folder: Path, effort: Effort) -> list[Case | PlainCase]:
    """All cases. Logs and the session are made by the first case that needs them."""
    logs = Logs(folder, effort.smoke)
    spark = Session(folder)
    layers = Layers(logs, folder)
    live_records = LIVE_SMOKE if effort.smoke else LIVE_RECORDS

    made: list[Small] = []

    def small() -> Small:
        if not made:
            made.append(Small(metadata_log.write(folder / "log-small", SMALL_RECORDS), folder))
        return made[0]

    def records() -> int:
        return logs.get(1).records

    def typed_rows() -> int:
        return logs.types()[f"{TYPED_VIEW.upper()}_RECORD"]

    return [
        _against_ceiling("read-records", "records", records, "raw records", logs, spark),
        _against_ceiling("read-typed", TYPED_VIEW, typed_rows, "typed rows of the commonest record type", logs, spark),
        Case(
            "typed-decode",
            "M records/s",
            {
                OURS: lambda: session.decode(logs.get(1)),
                dump.NAME: lambda: dump.dump(logs.get(1).segments[0]),
            },
            units_per_call=records,
            slice_s=1.0,
            about="all metadata records typed: to Arrow on one core, against Kafka's tool printing them",
        ),
        Case(
            "typed-spark",
            "M records/s",
            {
                OURS: lambda: session.typed(logs.get(1), spark),
                dump.NAME: lambda: dump.dump(logs.get(1).segments[0]),
            },
            units_per_call=records,
            slice_s=1.0,
            about=f"the same through Spark on {CORES} cores, all record types in one scan",
        ),
        PlainCase("filter-offset", "MB", "bytes read for a tenth of the offsets", partial(_offsets, logs, spark)),
        PlainCase("filter-time", "MB", "bytes read for a tenth of the time", partial(_times, logs, spark)),
        PlainCase(
            "live-latency", "ms", "from the append to a running quorum to a streaming query's foreachBatch, median",
            partial(_live, spark, folder, live_records), {live.FILES: lambda: live.files(spark, folder, live_records)},
        ),
        PlainCase(
            "small-run", "s", f"from a directory of about {SMALL_RECORDS} records to all tables",
            lambda outcome, _: outcome.timings.update({OURS: small().run()}), {START: lambda: small().start()},
        ),
        PlainCase(
            "small-again", "s", "the same with nothing new",
            lambda outcome, _: outcome.timings.update({OURS: small().again()}), {START: lambda: small().start()},
        ),
        PlainCase(
            "small-report", "s", "the report of those tables",
            lambda outcome, _: outcome.timings.update({OURS: small().report()}), {START: lambda: small().start()},
        ),
        PlainCase(
            "query-warm", "ms", "the next query of a session that stays, the command's own start included",
            lambda outcome, _: outcome.timings.update({OURS: small().warm()}), {COLD: lambda: small().cold()},
        ),
        *(
            PlainCase(
                f"layers-{millions}m", "s", f"{millions} M records through bronze, silver and gold",
                partial(layers.take, millions), {EARLIER: None} if millions > 1 else {}, millions > ROUTINE,
            )
            for millions in LAYERS
        ),
    ]  # fmt: skip


def _against_ceiling(name: str, view: str, rows: Callable[[], int], what: str, logs: Logs, spark: Session) -> Case:
    return Case(
        name,
        "M records/s",
        {
            OURS: lambda: session.read(spark.kraft(logs.get(1), view)),
            CEILING: lambda: session.read(spark.ready(logs.get(1), view)),
        },
        units_per_call=rows,
        slice_s=1.0,
        about=f"{what} to Spark's noop sink, against a source of ready-made Arrow batches",
    )


def _offsets(logs: Logs, spark: Session, outcome: Outcome, _: Earlier) -> None:
    log = logs.get(1, SEGMENT_BYTES)
    low, high = log.records * 4 // 10, log.records * 5 // 10
    filtered(log, spark, f"offset >= {low} AND offset < {high}", [low, high - 1], outcome)


def _times(logs: Logs, spark: Session, outcome: Outcome, _: Earlier) -> None:
    log = logs.get(1, SEGMENT_BYTES)
    batches = log.records // metadata_log.BATCH_RECORDS
    bounds = [batches * 4 // 10, batches * 5 // 10]
    low, high = (
        datetime.fromtimestamp((inputs.TIMESTAMP_MS + at * metadata_log.BATCH_MS) / 1000, UTC) for at in bounds
    )
    offsets = [at * metadata_log.BATCH_RECORDS for at in bounds]
    where = f"timestamp >= '{low.isoformat()}' AND timestamp < '{high.isoformat()}'"
    filtered(log, spark, where, offsets, outcome, clock_skew_ms="1000")


def filtered(
    log: MetadataLog, spark: Session, where: str, offsets: list[int], outcome: Outcome, **options: str
) -> None:
    starts = [*(int(file.stem) for file in log.segments), log.records * 2]
    needed = [
        file
        for file, start, end in zip(log.segments, starts, starts[1:], strict=False)
        if start <= offsets[1] and end > offsets[0]
    ]
    frame = spark.kraft(log, "records", **options)
    whole, _ = _bytes_of(spark, frame)
    asked = spark.kraft(log, "records", pushdown="true", **options)  # a load of its own: it keeps the filter
    part, rows = _bytes_of(spark, asked.where(where))
    wanted = frame.where(where).count()
    if rows != wanted:
        raise DifferentResult(f"{where}: {rows} rows pushed down, {wanted} of all")
    outcome.timings[OURS] = Timing([part], 1, f"{rows} rows; of all {len(log.segments)} segments {whole / 1e6:.1f} MB")
    outcome.timings[NEEDED] = Timing([sum(file.stat().st_size for file in needed)], 1, f"{len(needed)} segments")


def _live(spark: Session, folder: Path, count: int, outcome: Outcome, _: Earlier) -> None:
    outcome.timings[OURS] = live.quorum(spark, folder, count)


def _bytes_of(spark: Session, frame: Any) -> tuple[float, int]:
    # The workers live on between queries; the first round makes them load what they need.
    rows = frame.count()
    for _ in range(_TRIES):
        before = _worker_bytes()
        frame.count()
        after = _worker_bytes()
        if before.keys() <= after.keys():  # what was read by one that ended is counted nowhere, or elsewhere
            return float(sum(after.values()) - sum(before.values())), rows
    raise Missing(f"a Python process of Spark ended during each of {_TRIES} queries")


def _worker_bytes() -> dict[int, int]:
    # Python workers are below the JVM, which is below us; the JVM's own reading is not about the log.
    mine = processes.family(os.getpid())
    return {pid: processes.read_bytes(pid) for pid in mine if pid != os.getpid() and not _is_java(pid)}


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


class Layers:
    """``kraftcore spark run`` on logs of growing size, each in processes of its own."""

    def __init__(self, logs: Logs, folder: Path) -> None:
        self._logs = logs
        self._folder = folder

    def take(self, millions: int, outcome: Outcome, earlier: Earlier) -> None:
        """One size; beside the size before, where that is known."""
        log = self._logs.get(millions)
        tables = self._folder / f"tables-{millions}"
        command = [sys.executable, "-P", "-m", "kraftcore"]
        command += ["spark", "run", "--quiet", "--master", f"local[{CORES}]", "--memory", "3g"]
        command += ["--input", str(log.folder), "--tables", str(tables)]
        cost = processes.run(command, LAYERS_TIMEOUT_S)
        details = {
            "records": float(log.records),
            "processor_s": round(cost.cpu_s, 1),
            "memory_mb": round(cost.memory_bytes / 1e6),
            "log_mb": round(log.size / 1e6, 1),
            "tables_mb": round(processes.folder_bytes(tables) / 1e6, 1),
        }
        shutil.rmtree(tables)
        note = (
            f"{log.records} records, {details['processor_s']:.0f} s of processor time, "
            f"{details['memory_mb']:.0f} MB of memory at most, {details['log_mb']} MB of log, "
            f"{details['tables_mb']} MB of tables"
        )
        outcome.timings[OURS] = Timing([cost.seconds], 1, note, details=details)
        if millions == LAYERS[0]:
            return
        before = earlier.get(f"layers-{LAYERS[LAYERS.index(millions) - 1]}m")
        if before is None:
            outcome.missing[EARLIER] = "not measured: name both sizes in --only, or take up a saved run with --resume"
            return
        times, seconds = log.records / before["records"], cost.seconds / before["seconds"]
        growth = f"{times:.1f} times the records, {seconds:.2f} times the time"
        outcome.timings[EARLIER] = Timing([before["seconds"]], 1, growth)


def measure(
    cases: Sequence[Case | PlainCase], effort: Effort, status: report.Status, rows: Sequence[dict[str, Any]] = ()
) -> Iterator[Outcome]:
    """Measure case after case.

    Args:
        cases: the chosen ones.
        effort: how long.
        status: is told what is being done.
        rows: of a saved run that is taken up.
    """
    earlier: Earlier = {row["case"]: {**row["details"], "seconds": row["ours"]} for row in rows if "details" in row}
    for number, case in enumerate(cases, 1):
        prefix = f"[{number}/{len(cases)}] {case.name}: "
        if isinstance(case, Case):
            try:
                yield harness.measure(case, effort, lambda text, prefix=prefix: status(prefix + text))  # type: ignore[misc]
            except Missing as reason:
                missing = {OURS: str(reason)}
                yield Outcome(case.name, case.unit, case.higher_is_better, case.figure, missing=missing)
            continue
        outcome = case.outcome()
        status(prefix + "running")
        _attempt(outcome, OURS, lambda: case.take(outcome, earlier))  # noqa: B023  (called at once)
        for name, run in case.contenders.items():
            if run is not None:
                status(prefix + name)
                _attempt(outcome, name, lambda: outcome.timings.update({name: run()}))  # noqa: B023
        if OURS in outcome.timings:
            ours = outcome.timings[OURS]
            earlier[case.name] = {**ours.details, "seconds": ours.median}
        yield outcome


def _attempt(outcome: Outcome, name: str, call: Callable[[], None]) -> None:
    try:
        call()
    except (Missing, DifferentResult) as reason:
        outcome.missing[name] = str(reason)
