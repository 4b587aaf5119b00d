"""Commits of a folder of tables. The last one names every file that counts, and how far the input was read.

A commit is a row of the table ``kraftcore_runs``, a Delta table like the others: deltalake sees to it that of two
writers that start from the same commit one is refused. That row decides. The logs of all other tables follow it: a
writer brings them to what the row says, and a writer that was killed between two tables leaves the rest to the next
run. So a row tells one state of all tables, for as long as the files of that state are kept.
"""

from __future__ import annotations

import errno
import json
import re
import time
import uuid
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import from_arrow_schema

from kraftcore.errors import CorruptDataError, LocalError, LockedError, StorageError
from kraftcore.plugins.spark.delta import File, TableLog
from kraftcore.plugins.spark.folders import LocalFolder, StoreFolder, at_once
from kraftcore.plugins.spark.meanings import of_view
from kraftcore.plugins.spark.parquet import to_bytes
from kraftcore.plugins.spark.views import TIMESTAMP

RUNS = "kraftcore_runs"
"""The table of the commits."""
FORMAT = 5
CLEAN_HOURS_MIN = 1
"""Fewest hours of a clean-up that may run beside runs: it deletes files of that age that no commit names yet."""
_TRIES = 5
_NEVER = datetime(1, 1, 1, tzinfo=UTC)
_STEP = re.compile(r"batch=\d+|step-\d+(?=-)", re.ASCII)
_TASK = re.compile(r"(?:batch=\d+/part|step-\d+)-\d{5,}(?=-)", re.ASCII)
RUNS_SCHEMA = of_view(
    "runs",
    pa.schema(
        [
            ("step", pa.int64()),
            ("time", TIMESTAMP),
            ("run", pa.string()),
            ("tables", pa.list_(pa.string())),
            ("clusters", pa.list_(pa.string())),
            ("format", pa.int32()),
            ("state", pa.string()),
        ]
    ),
)
"""The columns of ``RUNS``."""


@dataclass(frozen=True)
class Commit:
    """The files that count after one step of a writer.

    Attributes:
        number: 0 or more; -1: nothing was written yet.
        time: when the step was committed, by the writer's clock, later than the step before it.
        run: the step's random name.
        progress: how far each file of the input was read, as JSON.
        files: by table, the files that count by their names, relative to the table's folder.
        stale: clusters with rows in bronze that are not in gold yet, sorted.
        columns: by table that exists, its columns as Spark's JSON.
        clusters: by step (see ``step_of``), the clusters that have rows in its files of bronze and silver; by task (see
            ``task_of``) as well, if the task has fewer. A step that is not a key may have rows of any cluster.
        changed: the tables that the step changed.
    """

    number: int = -1
    time: datetime = _NEVER
    run: str = ""
    progress: str = "{}"
    files: Mapping[str, Mapping[str, File]] = field(default_factory=dict)
    stale: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    changed: tuple[str, ...] = ()

    def may_hold(self, file: str, clusters: Container[str]) -> bool:
        """Whether a file of bronze or silver, relative to its table's folder, may have rows of some clusters."""
        held = self.clusters.get(task_of(file), self.clusters.get(step_of(file)))
        return held is None or any(one in clusters for one in held)

    def names(self) -> set[str]:
        """The names of all files that count, relative to the folder of tables."""
        return {f"{table}/{file}" for table, files in self.files.items() for file in files}


@dataclass(frozen=True)
class Writing:
    """One step of a writer. It becomes a commit unless another writer's step does so first.

    Attributes:
        number: number of the future commit.
        run: random name, part of the names of all files of the step.
        begun: when the step began, by the monotonic clock of the process that makes the commit.
    """

    number: int
    run: str
    begun: float


class Commits:
    """The commits of a folder of tables."""

    def __init__(self, folder: LocalFolder | StoreFolder) -> None:
        self._folder = folder
        self._log = TableLog(folder.place(RUNS))
        self._logs: dict[str, TableLog] = {}

    def last(self) -> Commit:
        """The last commit.

        Raises:
            CorruptDataError: the row is not what a run wrote, or of a later format.
        """
        newest = ""
        for _ in range(_TRIES):
            newest = max(self._log.files() or (), default="")
            if not newest:
                return Commit()
            found = self._read(newest)
            if found is not None:
                return found  # None: a clean-up has removed the file since
        raise self._corrupt(newest)

    def at(self, moment: datetime) -> Commit:
        """The commit that was the last one at a moment.

        Raises:
            LocalError: there was none, or it was cleaned up.
            CorruptDataError: as ``last``.
        """
        names = sorted(self._log.files() or ())
        found = self._read(names[at - 1]) if (at := self._until(names, moment)) else None
        if found is not None:
            return found
        oldest = next((one for one in map(self._read, names) if one is not None), None)
        kept = "there are no tables" if oldest is None else f"the first one that is kept was made at {oldest.time}"
        raise LocalError(f"{self._folder.place('')}: no state of {moment} is known: {kept}")

    def begin(self, after: Commit) -> Writing:
        """Begin a step, before its first file is written.

        Args:
            after: the commit that the step starts from.

        Raises:
            LockedError: there is a later commit.
        """
        if _last_number(self._log.files()) != after.number:
            raise self._refused(after.number + 1)
        return Writing(after.number + 1, uuid.uuid4().hex[:12], time.monotonic())

    def add(self, writing: Writing, before: Commit, commit: Commit) -> Commit:
        """Make the commit of a step, after which the step counts, and bring the logs of the changed tables to it.

        Args:
            writing: the step.
            before: the commit that the step started from.
            commit: progress, files, stale, columns and clusters after the step.

        Returns:
            The whole commit.

        Raises:
            LockedError: another writer made a commit after the same one; or a clean-up may have deleted files of the
                step.
            StorageError: the disk or store failed; the step may count.
        """
        makers = {of(file) for files in commit.files.values() for file in files for of in (step_of, task_of)}
        commit = replace(
            commit,
            number=writing.number,
            run=writing.run,
            time=max(now(), before.time + timedelta(microseconds=1)),
            clusters={maker: found for maker, found in commit.clusters.items() if maker in makers},
            changed=tuple(
                name
                for name in commit.columns
                if commit.files.get(name) != before.files.get(name) or commit.columns[name] != before.columns.get(name)
            ),
        )
        name = f"{writing.number:020}-{writing.run}.parquet"
        data = to_bytes(_row(commit))
        self._folder.put({f"{RUNS}/{name}": data})
        self._folder.sync({f"{RUNS}/{name}": len(data)})
        try:
            self._decide(writing, name, File(len(data), 1))
        except LockedError:
            self._folder.delete(f"{RUNS}/{name}")
            raise
        self.publish(commit)
        return commit

    def publish(self, commit: Commit) -> None:
        """Bring the logs of the tables that a commit changed to what the commit says; done again, it does nothing.

        Raises:
            StorageError: the disk or store failed. The commit counts; the next run does this again.
            CorruptDataError: a table's log is not one that deltalake can read.
        """

        def apply(name: str) -> None:
            self._of(name).apply(commit.number, commit.columns[name], commit.files.get(name, {}))

        at_once(apply, commit.changed)

    def clean(self, hours: int) -> int:
        """Forget the states that were replaced more than ``hours`` ago, and delete the files that no other state has.

        Returns:
            The number of states that were forgotten.

        Raises:
            LockedError: another writer made a commit meanwhile.
        """
        last, since = self.last(), now() - timedelta(hours=hours)
        if last.number < 0:
            return 0
        self.publish(last)
        names = sorted(self._log.files() or ())
        gone = max(self._until(names, since) - 1, 0)
        # Made even if nothing goes: steps that began before must notice, for the logs do not name their files yet.
        if not self._log.drop(last.number, names[:gone]):
            raise self._refused(last.number + 1)
        at_once(lambda log: log.vacuum(hours), [self._log, *map(self._of, last.columns)])
        return gone

    def _of(self, table: str) -> TableLog:
        return self._logs.setdefault(table, TableLog(self._folder.place(table)))

    def _decide(self, writing: Writing, name: str, file: File) -> None:
        # Adds a step's row.
        for _ in range(_TRIES):
            if self._log.add(writing.number, _columns_of_runs(), {name: file}):
                return
            names = self._log.files() or []
            if name in names:  # a store made the commit, and its answer was lost
                return
            if _last_number(names) >= writing.number:
                raise self._refused(writing.number)
            if time.monotonic() - writing.begun > CLEAN_HOURS_MIN * 3600:
                raise LockedError(
                    f"{self._folder.place(RUNS)}: a clean-up ran beside this step, which took more than "
                    f"{CLEAN_HOURS_MIN} h, and may have deleted its files: run it again"
                )
        raise StorageError(errno.EAGAIN, "the commit was refused each time: run it again", self._folder.place(RUNS))

    def _until(self, names: Sequence[str], moment: datetime) -> int:
        # The number of rows up to a moment, among rows in their order; those that a clean-up has removed count as such.
        first, last = 0, len(names)
        while first < last:
            middle = (first + last) // 2
            found = self._read(names[middle])
            if found is None or found.time <= moment:
                first = middle + 1
            else:
                last = middle
        return first

    def _read(self, name: str) -> Commit | None:
        data = self._folder.read(f"{RUNS}/{name}")
        if data is None:
            return None
        try:
            (row,) = pq.read_table(pa.BufferReader(data)).to_pylist()
            if row["format"] != FORMAT:
                raise CorruptDataError(
                    f"tables of format {row['format']}, and known is {FORMAT}: a later version of kraftcore made them",
                    path=self._folder.place(""),
                )
            state = json.loads(row["state"])
            return Commit(
                int(row["step"]),
                row["time"],
                str(row["run"]),
                str(state["progress"]),
                {
                    str(table): {str(name): File(*map(int, file)) for name, file in files.items()}
                    for table, files in state["files"].items()
                },
                tuple(map(str, state["stale"])),
                {str(table): str(text) for table, text in state["columns"].items()},
                {str(step): tuple(map(str, found)) for step, found in state["clusters"].items()},
                tuple(map(str, row["tables"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException):
            raise self._corrupt(name) from None

    def _corrupt(self, name: str) -> CorruptDataError:
        return CorruptDataError("not what a run writes about its step", path=self._folder.place(f"{RUNS}/{name}"))

    def _refused(self, number: int) -> LockedError:
        return LockedError(
            f"{self._folder.place(RUNS)}: another run wrote these tables meanwhile (step {number}); what it wrote "
            "counts, what this one wrote does not: run it again"
        )


def now() -> datetime:
    """The time that a commit gets."""
    return datetime.now(UTC)


def _last_number(names: list[str] | None) -> int:
    return int(max(names).partition("-")[0]) if names else -1


def _row(commit: Commit) -> pa.Table:
    state = {
        "progress": commit.progress,
        "files": {
            table: {name: [file.size, file.rows] for name, file in files.items()}
            for table, files in commit.files.items()
        },
        "stale": commit.stale,
        "columns": commit.columns,
        "clusters": commit.clusters,
    }
    row = {
        "step": commit.number,
        "time": commit.time,
        "run": commit.run,
        "tables": commit.changed,
        "clusters": commit.clusters.get(f"step-{commit.number}", ()),
        "format": FORMAT,
        "state": json.dumps(state, default=dict),
    }
    return pa.Table.from_pylist([row], RUNS_SCHEMA)


@cache
def _columns_of_runs() -> str:
    return str(from_arrow_schema(RUNS_SCHEMA).json())


def step_of(file: str) -> str:
    """The step that wrote a file of bronze or silver; files of earlier formats lie in folders ``batch=<step>``."""
    found = _STEP.match(file)
    return found[0] if found else file


def task_of(file: str) -> str:
    """The task that wrote a file of bronze or silver; the step, if the file's name has no number of a task."""
    found = _TASK.match(file)
    return found[0] if found else step_of(file)


def step_file(writing: Writing, task: int | str) -> str:
    """A new name for a file that a step adds to a table of bronze or silver; ``task`` is the task's number."""
    told = f"{task:05}" if isinstance(task, int) else task
    return f"step-{writing.number}-{told}-{writing.run}-{uuid.uuid4().hex[:8]}.parquet"


def gold_file(writing: Writing, cluster: str, share: int) -> str:
    """A new name for a step's file of a cluster's gold; ``cluster`` is ``gold_mark`` of it, ``share`` is its number."""
    return f"{cluster}-{writing.number}-{writing.run}-{share}-{uuid.uuid4().hex[:8]}.parquet"
