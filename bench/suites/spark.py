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
from bench.peers.spark import dump, processes, session
from bench.peers.spark.session import CEILING, CORES, Session

MILLION = 1_000_000
SMOKE_RECORDS = 20_000
SEGMENT_BYTES = 8 << 20
LAYERS = (1, 3, 10)
LAYERS_TIMEOUT_S = 3600.0
EARLIER = "the size before"
"""Peer of the layers: the same with fewer records, for how time grows."""
NEEDED = "segments that hold the rows"
TYPED_VIEW = "partition_change"


@dataclass(frozen=True)
class PlainCase:
    """A figure that is no rate of turns: one measurement tells.

    Attributes:
        name, unit, about: as in the table.
        contenders: names only.
        take: fills the outcome.
    """

    name: str
    unit: str
    about: str
    take: Callable[[Outcome], None]
    contenders: dict[str, None] = field(default_factory=dict)

    def outcome(self) -> Outcome:
        scale = {"s": 1.0, "MB": 1e-6}[self.unit]
        return Outcome(self.name, self.unit, False, lambda amount: amount * scale)


class Logs:
    """Logs of so many records, written when first asked for."""

    def __init__(self, folder: Path, smoke: bool) -> None:
        self.folder = folder
        self.smoke = smoke
        self._known: dict[tuple[int, int], MetadataLog] = {}

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


def cases(folder: Path, effort: Effort) -> list[Case | PlainCase]:
    """All cases."""
    logs = Logs(folder, effort.smoke)
    spark = Session(folder)
    records = logs.get(1).records
    layers = Layers(logs, folder)
    return [
        _against_ceiling("read-records", "records", "raw records", logs, spark),
        _against_ceiling("read-typed", TYPED_VIEW, "typed rows of the commonest record type", logs, spark),
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
            about=f"the same through Spark on {CORES} cores, all record types",
        ),
        PlainCase("filter-offset", "MB", "bytes read for a tenth of the offsets", partial(_offsets, logs, spark)),
        PlainCase("filter-time", "MB", "bytes read for a tenth of the time", partial(_times, logs, spark)),
        *(
            PlainCase(
                f"layers-{millions}m", "s", f"{millions} M records through bronze, silver and gold",
                partial(layers.take, millions), {EARLIER: None} if millions > 1 else {},
            )
            for millions in LAYERS
        ),
    ]  # fmt: skip


def _against_ceiling(name: str, view: str, what: str, logs: Logs, spark: Session) -> Case:
    log = logs.get(1)
    rows = log.records
    if view != "records":
        rows = session.types_of(log)[f"{view.upper()}_RECORD"]
    return Case(
        name,
        "M records/s",
        {
            OURS: lambda: session.read(spark.kraft(log, view)),
            CEILING: lambda: session.read(spark.ready(log, view)),
        },
        units_per_call=rows,
        slice_s=1.0,
        about=f"{what} to Spark's noop sink, against a source of ready-made Arrow batches",
    )


def _offsets(logs: Logs, spark: Session, outcome: Outcome) -> None:
    log = logs.get(1, SEGMENT_BYTES)
    low, high = log.records * 4 // 10, log.records * 5 // 10
    _filtered(log, spark, f"offset >= {low} AND offset < {high}", [low, high - 1], outcome)


def _times(logs: Logs, spark: Session, outcome: Outcome) -> None:
    log = logs.get(1, SEGMENT_BYTES)
    batches = log.records // metadata_log.BATCH_RECORDS
    bounds = [batches * 4 // 10, batches * 5 // 10]
    low, high = (
        datetime.fromtimestamp((inputs.TIMESTAMP_MS + at * metadata_log.BATCH_MS) / 1000, UTC) for at in bounds
    )
    offsets = [at * metadata_log.BATCH_RECORDS for at in bounds]
    where = f"timestamp >= '{low.isoformat()}' AND timestamp < '{high.isoformat()}'"
    _filtered(log, spark, where, offsets, outcome, clock_skew_ms="1000")


def _filtered(
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


def _bytes_of(spark: Session, frame: Any) -> tuple[float, int]:
    # The workers live on between queries; the first round makes them load what they need.
    rows = frame.count()
    before = _worker_bytes()
    frame.count()
    return float(_worker_bytes() - before), rows


def _worker_bytes() -> int:
    # Python workers are below the JVM, which is below us; the JVM's own reading is not about the log.
    mine = processes.family(os.getpid())
    return sum(processes.read_bytes(pid) for pid in mine if pid != os.getpid() and not _is_java(pid))


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
        self._costs: list[tuple[int, processes.Cost]] = []

    def take(self, millions: int, outcome: Outcome) -> None:
        log = self._logs.get(millions)
        tables = self._folder / f"tables-{millions}"
        command = [
            sys.executable,
            "-c",
            "import sys; from kraftcore.cli import main; sys.exit(main())",
            "spark",
            "run",
            "--quiet",
            "--master",
            f"local[{CORES}]",
        ]
        command += ["--memory", "3g", "--input", str(log.folder), "--tables", str(tables)]
        cost = processes.run(command, LAYERS_TIMEOUT_S)
        note = (
            f"{cost.cpu_s:.0f} s of processor time, {cost.memory_bytes / 1e6:.0f} MB at most, "
            f"{log.size / 1e6:.0f} MB of log, {processes.folder_bytes(tables) / 1e6:.0f} MB of tables, "
            f"{log.records} records"
        )
        outcome.timings[OURS] = Timing([cost.seconds], 1, note)
        if self._costs:
            records, before = self._costs[-1]
            growth = (
                f"{log.records / records:.1f} times the records, {cost.seconds / before.seconds:.2f} times the time"
            )
            outcome.timings[EARLIER] = Timing([before.seconds], 1, growth)
        self._costs.append((log.records, cost))
        shutil.rmtree(tables)


def measure(cases: Sequence[Case | PlainCase], effort: Effort, status: report.Status) -> Iterator[Outcome]:
    """Measure case after case."""
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
        try:
            case.take(outcome)
        except (Missing, DifferentResult) as reason:
            outcome.missing[OURS] = str(reason)
        yield outcome
