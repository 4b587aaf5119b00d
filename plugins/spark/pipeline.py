"""Runs: new bytes of files go to bronze and silver in one pass, and gold is made anew for the clusters that changed.

A micro-batch adds files to each table. The batch counts once a commit names its files and how far each file of the
input was read. Files of a run that was killed before its commit do not count; the next run makes the batch again, and a
clean-up removes them. So no row is lost or doubled.
"""

from __future__ import annotations

import errno
import json
import math
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from difflib import get_close_matches
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from kraftcore.errors import LocalError, StorageError
from kraftcore.plugins.spark.arrow_batches import DROP, LAYERS, BrokenOff, Range, RangeReader, file_rows
from kraftcore.plugins.spark.commits import CLEAN_HOURS_MIN, Writing, step_file, task_of
from kraftcore.plugins.spark.delta import File
from kraftcore.plugins.spark.gold_registry import refresh_gold
from kraftcore.plugins.spark.intake import Added, Intake, shares_between
from kraftcore.plugins.spark.merging import FILES_MAX
from kraftcore.plugins.spark.parquet import to_bytes
from kraftcore.plugins.spark.ranges import (
    Progress,
    Reached,
    Tracker,
    limit_bytes,
    progress_from_json,
    progress_to_json,
    with_stops,
    without,
)
from kraftcore.plugins.spark.source import Settings
from kraftcore.plugins.spark.stores import LogFile, is_there
from kraftcore.plugins.spark.tables import BRONZE, SILVER, Starter, Tables, fed_columns
from kraftcore.plugins.spark.work import is_done_here, spread

Report = Callable[[str], None]
_SHOWING = ("Show", "Describe", "Explain")
_WRITING = ("InsertInto", "ExecuteImmediate", "UnresolvedExecuteImmediate")
"""Prefixes of the names of Spark's plans: commands that only show something; plans that write and are no commands."""
KEPT_HOURS = 7 * 24
"""For how long ``clean`` keeps what the tables said, unless told otherwise."""
FOLLOWED_HOURS = 24
"""For how long ``follow`` keeps it, unless told otherwise: it replaces files again and again."""
_CLEANING_S = 3600.0
ShareDone = Callable[[float, str], None]


@dataclass(frozen=True)
class RunResult:
    """The result of a run.

    Attributes:
        batches: number of micro-batches by table of bronze.
        rows: number of new rows by table of bronze.
        clusters: clusters whose tables of gold were made anew.
        failed: the reason, by cluster whose tables of gold could not be made. The tables stay as they were, and the
            next run tries again.
    """

    batches: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()
    failed: dict[str, str] = field(default_factory=dict)


def run(
    session: SparkSession | Starter,
    paths: Sequence[str | Path],
    tables: str | Path,
    *,
    errors: str = DROP,
    options: dict[str, str] | None = None,
    merge_files: int = FILES_MAX,
    report: Report | None = None,
    progress: ShareDone | None = None,
) -> RunResult:
    """Read what is new below the paths and bring all tables up to date.

    Args:
        session: Spark's session, as ``kraftcore.plugins.spark.session()`` makes it; or a function that starts one,
            which is called only if there is more to do than this process does in the time of Spark's start.
        paths: files, folders, globs or URIs, as for the data source. A later run may name other paths: rows that were
            read stay in the tables.
        tables: folder of the tables.
        errors: what becomes of damaged rows: ``fail``, ``drop`` or ``keep``; the table ``errors`` lists damage in any
            case.
        options: more options of the data source.
        merge_files: a table of bronze or silver may have small files of this many steps before they are merged; 0: of
            any number.
        report: called with a line of text for each step.
        progress: called several times a second with the share of Spark's tasks that are done, 0 to 1, and a label.

    Raises:
        LocalError: nothing to read, an unknown option, or a negative ``merge_files``.
        CorruptDataError: damage, with ``errors="fail"``; or tables of an unknown version.
        LockedError: another run is writing these tables, or has written them since this run started.
    """
    say = report or (lambda _: None)
    settings = check_input(paths, errors, options, say)
    if merge_files < 0:
        raise LocalError(f"merge_files={merge_files} is negative: name how many may stay, or 0 for any number")
    target = Tables(session, tables)
    batches, rows = dict.fromkeys(BRONZE, 0), dict.fromkeys(BRONZE, 0)
    with target.locked(), _watched(target, progress):
        taking = Taking(target, settings, errors)
        for added in taking.all():
            for name in BRONZE:
                rows[name] += added.get(name, 0)
                batches[name] += name in added
        for name in BRONZE:
            say(f"{name}: {rows[name]} new rows")
        gold = refresh_gold(target, say, merge_files)
    return RunResult(batches, rows, gold.clusters, gold.failed)


def follow(
    session: SparkSession | Starter,
    paths: Sequence[str | Path],
    tables: str | Path,
    *,
    every_s: float = 10.0,
    stop: threading.Event | None = None,
    errors: str = DROP,
    options: dict[str, str] | None = None,
    merge_files: int = FILES_MAX,
    keep_hours: int = FOLLOWED_HOURS,
    report: Report | None = None,
) -> None:
    """``run`` again and again, until stopped; each hour it does what ``clean`` does.

    Args:
        session, paths, tables, errors, options, merge_files, report: as for ``run``.
        keep_hours: for how long it keeps states that a run has replaced, 1 or more.
        every_s: seconds from the end of one run to the start of the next.
        stop: set it to end; None: only an exception ends the loop. The next run goes on from the last commit.

    Raises:
        LocalError, CorruptDataError, LockedError: as ``run``.
    """
    say = report or (lambda _: None)
    settings = check_input(paths, errors, options, say)
    if merge_files < 0:
        raise LocalError(f"merge_files={merge_files} is negative: name how many may stay, or 0 for any number")
    if keep_hours < CLEAN_HOURS_MIN:
        raise LocalError(f"keep_hours={keep_hours}: name at least {CLEAN_HOURS_MIN}")
    target = Tables(session, tables)
    stop = stop or threading.Event()
    cleaned = -math.inf
    with target.locked():
        while True:
            for _ in Taking(target, settings, errors).all():
                pass
            refresh_gold(target, say, merge_files)
            if time.monotonic() - cleaned >= _CLEANING_S:
                target.drop_states(keep_hours)
                cleaned = time.monotonic()
            if stop.wait(every_s):
                return


def check_input(
    paths: Sequence[str | Path], errors: str, options: dict[str, str] | None, report: Report | None = None
) -> Settings:
    """The input's settings, checked; ``report`` is called with a line for each path without a file to read.

    Raises:
        LocalError: nothing to read, or an unknown option.
    """
    settings = Settings(input_options(paths, errors, options))
    files = settings.files()
    if not files:
        raise LocalError(
            f"no segment, snapshot or bootstrap file below {', '.join(map(str, paths))}: it looks for files with the "
            f"names that Kafka gives, as {0:020}.log, in folders named {settings.folder} and right in the folders that "
            "are named"
        )
    if report is not None:
        for path in settings.unread(files):
            report(f"{path}: no segment, snapshot or bootstrap file, by its name")
    return settings


def input_options(paths: Sequence[str | Path], errors: str, options: dict[str, str] | None) -> dict[str, str]:
    """The input as options of the data source.

    Raises:
        LocalError: no path.
    """
    if not paths:
        raise LocalError("nothing to read: name at least one path")
    return {"paths": json.dumps([str(path) for path in paths]), "errors": errors, **(options or {})}


class Taking:
    """Reads what is new in the input, micro-batch by micro-batch.

    Args:
        tables: the folder of tables to write.
        settings: the input.
        policy: what becomes of damaged rows: ``fail``, ``drop`` or ``keep``.

    Raises:
        CorruptDataError: tables of an unknown version.
    """

    def __init__(self, tables: Tables, settings: Settings, policy: str) -> None:
        self._tables = tables
        self._settings = settings
        self._policy = policy
        tables.settle()
        self._before = progress_from_json(tables.commit.progress)

    def all(self) -> Iterator[dict[str, int]]:
        """Yield, for each micro-batch, the number of new rows by table.

        Raises:
            CorruptDataError: damage, with the policy ``fail``.
            StorageError: a file cannot be read or written.
        """
        files = self._settings.files()
        target = Tracker(report_torn=True).advance(self._before, files)
        while target != self._before:
            after = target
            if self._settings.trigger_bytes:
                after = limit_bytes(
                    self._before, target, files, self._settings.trigger_bytes, self._settings.range_bytes
                )
            rows, gone, broken_off = self._take(after, files)
            self._before = without(with_stops(after, broken_off), gone)
            target = without(with_stops(target, broken_off), gone)
            yield rows

    def _take(self, after: Progress, files: Sequence[LogFile]) -> tuple[dict[str, int], set[str], list[BrokenOff]]:
        # Returns rows by table, paths of files removed before they were read, and places where reading ended at damage.
        tables = self._tables
        writing = tables.begin()
        shares = shares_between(self._before, after, files, self._settings.range_bytes)
        size = sum(one.end - one.start for share in shares for one in share.ranges)
        here = is_done_here(tables, size)
        if not here:
            cores = tables.session.sparkContext.defaultParallelism
            shares = shares_between(self._before, after, files, self._settings.range_bytes, cores)
        place = tables.path if tables.is_local else None
        work = Intake(place, writing, self._settings.filters, self._policy)
        rows: dict[str, int] = {}
        clusters: set[str] = set()
        by_task: dict[str, tuple[str, ...]] = {}
        before = tables.commit
        counted = {name: dict(before.files.get(name, {})) for name in (*BRONZE, *SILVER)}
        gone: list[Range] = []
        broken_off: list[BrokenOff] = []

        def add(part: Added) -> None:
            for name, count in part.rows.items():
                rows[name] = rows.get(name, 0) + count
            clusters.update(part.clusters)
            gone.extend(part.gone)
            broken_off.extend(part.broken_off)
            tables.folder.put(part.content)
            for place, about in part.files.items():
                table, _, file = place.partition("/")
                counted[table][file] = about
                by_task[task_of(file)] = tuple(sorted(part.clusters))

        add(self._list_files(after, files, writing))
        for part in spread(tables, work, shares, here=here):
            add(part)
        add(self._list_gone(gone, writing))
        paths = {one.file.path for one in gone}
        all_of_them = tuple(sorted(clusters))
        fewer = {task: found for task, found in by_task.items() if found != all_of_them}
        commit = replace(
            before,
            progress=progress_to_json(without(with_stops(after, broken_off), paths)),
            files={**before.files, **{name: found for name, found in counted.items() if found}},
            stale=tuple(sorted({*before.stale, *clusters})),
            columns={**before.columns, **fed_columns()},
            clusters={**before.clusters, **fewer, f"step-{writing.number}": all_of_them},
        )
        tables.end(writing, commit)
        return rows, paths, broken_off

    def _list_files(self, after: Progress, files: Sequence[LogFile], writing: Writing) -> Added:
        # Writes rows of bronze_files: one for each changed file, unless only its torn end changed.
        changed = [file for file in files if _news(self._before, file) != _news(after, file)]
        if not changed:
            return Added()
        parts = file_rows(changed, {path: (reached.generation, reached.rewound) for path, reached in after.items()})
        clusters = {file.identity.cluster_id for file in changed}
        return _added("bronze_files", writing, "files", to_bytes(parts), len(changed), clusters)

    def _list_gone(self, gone: Sequence[Range], writing: Writing) -> Added:
        # Writes rows of `errors` for removed files. A file that this process sees was invisible to a worker only.
        for path in sorted({one.file.path for one in gone}):
            if is_there(path):
                raise StorageError(
                    errno.ENOENT,
                    "a task found no such file, and here it is: workers must see the input under the same paths as "
                    "this process",
                    path,
                )
        reader = RangeReader(LAYERS, self._settings.filters, self._policy)
        parts = [rows.batch for one in gone for rows in reader.read_gone(one)]
        if not parts:
            return Added()
        clusters = {one.file.identity.cluster_id for one in gone}
        return _added("errors", writing, "gone", to_bytes(parts), len(parts), clusters)


def _added(table: str, writing: Writing, what: str, data: bytes, rows: int, clusters: set[str]) -> Added:
    name = f"{table}/{step_file(writing, what)}"
    return Added({table: rows}, clusters, {name: File(len(data), rows)}, {name: data})


def _news(progress: Progress, file: LogFile) -> tuple[object, ...]:
    reached = progress.get(file.path, Reached())
    return reached.position, reached.generation, reached.rewound, reached.marks


@contextmanager
def _watched(tables: Tables, progress: ShareDone | None) -> Iterator[None]:
    # Reports the progress of Spark's running stages until the block ends.
    if progress is None:
        yield
        return
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.2):
            if not tables.has_session:
                continue
            tracker = tables.session.sparkContext.statusTracker()
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
    """A stream of a view of the input."""
    return session.readStream.format("kraft").options(**settings).option("view", view).load()


def clean(tables: str | Path, *, hours: int = KEPT_HOURS) -> int:
    """Forget what the tables said more than ``hours`` ago, and delete the files that nothing later needs.

    Args:
        tables: folder of the tables.
        hours: 0 or more; a query that began earlier may lose its files.

    Returns:
        The number of states that were forgotten.

    Raises:
        LocalError: there are no tables, or ``hours`` is negative.
        LockedError: a run is writing these tables.
    """
    if hours < 0:
        raise LocalError(f"hours={hours} is negative: name for how long states are kept, or 0 for the last one only")
    return Tables(None, tables).clean(hours)


def table(session: SparkSession, tables: str | Path, name: str, *, at: datetime | None = None) -> DataFrame:
    """A table as a DataFrame: the rows that counted when this was called.

    Args:
        session: Spark's session.
        tables: folder of the tables.
        name: name of the table.
        at: the moment whose table is read, in UTC if it has no zone; None: now.

    Raises:
        LocalError: the folder holds no tables, or not this table, or none of that moment.
        CorruptDataError: tables of an unknown version.
    """
    target = Tables(session, tables, at=at)
    target.check()
    return target.read(name)


def query(session: SparkSession, tables: str | Path, sql: str, *, at: datetime | None = None) -> DataFrame:
    """Run a query; each table is a view of its name.

    Args:
        session: Spark's session.
        tables: folder of the tables.
        sql: a SELECT, SHOW, DESCRIBE or EXPLAIN.
        at: the moment whose tables are asked, in UTC if it has no zone; None: now.

    Raises:
        LocalError: the folder holds no tables, or not the table asked for, or none of that moment; or the statement
            writes, sets or makes something. (Through Spark Connect statements are not checked.)
        CorruptDataError: tables of an unknown version.
    """
    listing = re.search(r"\bshow\s+(tables|views)\b", sql, re.IGNORECASE)
    target = Tables(session, tables, at=at)
    target.register(None if listing else sql)
    _check_reads(session, sql)
    try:
        return session.sql(sql)
    except AnalysisException as error:
        if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
            raise
        name = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
        near = get_close_matches(name.lower(), target.names(), cutoff=0.5)
        meant = f", did you mean {' or '.join(near)}?" if near else ";"
        raise LocalError(f"there is no table {name}{meant} SHOW TABLES lists all") from None


def _check_reads(session: SparkSession, sql: str) -> None:
    java_session = getattr(session, "_jsparkSession", None)
    if java_session is None:
        return
    todo = [java_session.sessionState().sqlParser().parsePlan(sql)]
    command = todo[0].getClass().getClassLoader().loadClass("org.apache.spark.sql.catalyst.plans.logical.Command")
    while todo:
        plan = todo.pop()
        name = str(plan.getClass().getSimpleName())
        is_command = command.isInstance(plan) and not name.startswith(_SHOWING)
        if is_command or name.startswith(_WRITING):
            raise LocalError(f"a query only reads, and this is {name}: ask with SELECT, SHOW, DESCRIBE or EXPLAIN")
        children = plan.children()
        todo += [children.apply(number) for number in range(children.size())]
