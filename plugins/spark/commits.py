"""What counts in a folder of tables: its last commit names every file that does, and how far the input was read.

A commit is one small file, made whole and only if there is none of its number. So tables change in one moment, on
stores that cannot rename, too; of two writers that go on from the same commit one is refused. Files that no commit
names are what a writer left that was killed or refused. The commit before the last one is kept, with the files that it
names, for readers that began before.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace

from kraftcore.errors import CorruptDataError, LockedError
from kraftcore.plugins.spark.folders import HadoopFolder, LocalFolder

COMMITS = "_commits"
"""Folder of the commits, and of a mark for each writer at work."""
_KEPT = 2
_RUNS = 16
"""So many steps a commit tells of, its own among them."""
_OF_A_TASK = re.compile(r"[^/]+/part-\d{5,}(?=-)", re.ASCII)
_TRIES = 5
_LEFT = re.compile(r"(?:begun-|_(?:begun-)?)(\d+)-[0-9a-f]{12}(?:-[0-9a-f]{12})?", re.ASCII)
"""A mark, or a small file that is being written: the number of its commit."""
_MADE_FOR = re.compile(r"(?:batch=(\d+)/|.*/(\d+)-[0-9a-f]{12}-\d+(?:-[0-9a-f]{8})?\.parquet$)", re.ASCII)


@dataclass(frozen=True)
class Commit:
    """What counts after one writer's step.

    Attributes:
        number: from 0 on; -1: nothing was written yet.
        progress: how far it comes in each file of the input, as JSON.
        files: by table, the names of the files that count, relative to the table's folder.
        stale: clusters with rows in bronze that their gold does not know yet, in order.
        columns: by table of gold, its columns as Spark's JSON: files alone do not tell an empty table's.
        runs: of the last steps that led here, its own last.
        clusters: by step, as ``step_of`` names it, the clusters that its files of bronze and silver have rows of;
            a step that is not there may have rows of any. By task, as ``task_of`` names it, those of its files, where
            they are fewer.
    """

    number: int = -1
    progress: str = "{}"
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stale: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def may_hold(self, file: str, clusters: Container[str]) -> bool:
        """Whether a file of bronze or silver, relative to its table's folder, may have rows of one of some clusters."""
        held = self.clusters.get(task_of(file), self.clusters.get(step_of(file)))
        return held is None or any(one in clusters for one in held)

    def names(self) -> set[str]:
        """Of all files that count, relative to the folder of tables."""
        return {f"{table}/{file}" for table, files in self.files.items() for file in files}


@dataclass(frozen=True)
class Writing:
    """One writer's step, which becomes a commit if nobody else's does before.

    Attributes:
        number: of the commit that it will be.
        run: names its files, so that none of another writer is taken for them.
        after: the ``runs`` of the commit that it goes on from.
    """

    number: int
    run: str
    after: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """Name of the file that says that it has begun."""
        return f"{COMMITS}/begun-{self.number}-{self.run}"


class Commits:
    """The commits of a folder of tables."""

    def __init__(self, folder: LocalFolder | HadoopFolder) -> None:
        self._folder = folder

    def numbers(self) -> list[int]:
        """Of all that are kept, in order."""
        return sorted(int(name) for name in self._folder.files(COMMITS) if name.isdecimal())

    def last(self) -> Commit:
        """The last one.

        Raises:
            CorruptDataError: the file is not what a run wrote.
        """
        for _ in range(_TRIES):
            numbers = self.numbers()
            if not numbers:
                return Commit()
            found = self._read(numbers[-1])
            if found is not None:
                return found  # else a writer has removed it since, for there are later ones
        raise self._corrupt(numbers[-1])

    def begin(self, number: int, after: tuple[str, ...] = ()) -> Writing:
        """Say that a step begins, before its first file is written.

        Args:
            number: of the commit that it will be.
            after: the ``runs`` of the commit that it goes on from.

        Raises:
            LockedError: there is a commit of that number or a later one.
        """
        writing = Writing(number, uuid.uuid4().hex[:12], after)
        self._folder.write(writing.mark, b"")
        if max(self.numbers(), default=-1) >= number:
            self.end(writing)
            raise self._refused(number)
        return writing

    def add(self, writing: Writing, commit: Commit) -> Commit:
        """Let a step count.

        Returns:
            The commit with its ``runs``.

        Raises:
            LockedError: another writer went on from the same commit.
        """
        makers = {of(file) for files in commit.files.values() for file in files for of in (step_of, task_of)}
        clusters = {maker: found for maker, found in commit.clusters.items() if maker in makers}
        commit = replace(commit, runs=(*writing.after, writing.run)[-_RUNS:], clusters=clusters)
        content = {
            "run": writing.run,
            "runs": list(commit.runs),
            "progress": commit.progress,
            "files": {name: list(files) for name, files in commit.files.items()},
            "stale": list(commit.stale),
            "columns": dict(commit.columns),
            "clusters": {step: list(found) for step, found in clusters.items()},
        }
        name = f"{COMMITS}/{commit.number}"
        is_made = self._folder.create(name, json.dumps(content).encode())
        # Numbers of commits that were removed are free: that the file was made does not say that it counts. And a store
        # may have made it and its answer got lost. The last commit tells: this one, or one that goes on from it.
        if writing.run not in self.last().runs:
            if is_made:
                self._folder.delete(name)
            raise self._refused(commit.number)
        return commit

    def end(self, writing: Writing) -> None:
        """Say that nothing is left of a step that does not count."""
        self._folder.delete(writing.mark)

    def outdated(self, kept: int = _KEPT) -> list[str]:
        """The commits before the last ``kept`` ones, each behind the files those do not name, in order of removal."""
        last_ones = self._kept(kept)
        counted = {name for commit in last_ones for name in commit.names()}
        found: list[str] = []
        for number in self.numbers():
            if last_ones and number < last_ones[0].number:
                found += sorted(self._names(number) - counted)
                found.append(f"{COMMITS}/{number}")
        return found

    def made_by(self, writing: Writing, commit: Commit) -> list[str]:
        """The files of a step that was refused: those of its commit that it made itself, and that do not count."""
        counted = {name for kept in self._kept() for name in kept.names()}
        return sorted(name for name in commit.names() - counted if writing.run in name.rpartition("/")[2])

    def left_by_others(self) -> list[str]:
        """The files of writers that were killed or refused: those of steps up to the last commit that none kept names.

        So with commits that a killed writer did not come to remove.
        A writer that is at work now goes on from this commit or a later one; what it writes is not among them.
        """
        kept = self._kept()
        if not kept:
            return []
        last = kept[-1].number
        begun = [name for name in self._folder.files(COMMITS) if _is_over(name, last)]
        if not begun:
            return []
        counted = {name for commit in kept for name in commit.names()}
        left = self.outdated()
        for name in self._folder.files(""):
            number = _made_for(name)
            if number is not None and number <= last and name not in counted:
                left.append(name)
        return [*dict.fromkeys(left), *(f"{COMMITS}/{name}" for name in begun)]

    def _kept(self, count: int = _KEPT) -> list[Commit]:
        # In order. Those before the last one may be of an earlier format: they name nothing.
        last = self.last()
        before = [number for number in self.numbers() if number < last.number]
        before = before[len(before) - min(count - 1, len(before)) :]
        found = [Commit(number, files=self._files(number)) for number in before]
        return [*found, last] if last.number >= 0 else []

    def _names(self, number: int) -> set[str]:
        return Commit(number, files=self._files(number)).names()

    def _files(self, number: int) -> Mapping[str, tuple[str, ...]]:
        try:
            found = self._read(number)
        except CorruptDataError:
            return {}
        return {} if found is None else found.files

    def _read(self, number: int) -> Commit | None:
        # None: there is none.
        data = self._folder.read(f"{COMMITS}/{number}")
        if data is None:
            return None
        try:
            found = json.loads(data)
            files = {str(name): tuple(map(str, files)) for name, files in found["files"].items()}
            stale = tuple(map(str, found["stale"]))
            columns = {str(name): str(text) for name, text in found["columns"].items()}
            runs = tuple(map(str, found.get("runs", [found["run"]])))
            clusters = {str(step): tuple(map(str, names)) for step, names in found.get("clusters", {}).items()}
            return Commit(number, str(found["progress"]), files, stale, columns, runs, clusters)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise self._corrupt(number) from None

    def _corrupt(self, number: int) -> CorruptDataError:
        return CorruptDataError("not what a run writes about its step", path=self._folder.place(f"{COMMITS}/{number}"))

    def _refused(self, number: int) -> LockedError:
        return LockedError(
            f"{self._folder.place(f'{COMMITS}/{number}')}: another run wrote these tables meanwhile; what it wrote "
            "counts, what this one wrote does not: run it again"
        )


def _is_over(name: str, number: int) -> bool:
    begun = _LEFT.fullmatch(name)
    return begun is not None and int(begun[1]) <= number


def _made_for(name: str) -> int | None:
    # The number of the commit that a table's file was made for.
    found = _MADE_FOR.match(name.partition("/")[2])
    return None if found is None else int(found[1] or found[2])


def step_of(file: str) -> str:
    """Which step wrote a file of bronze or silver: the folder that it is in, within the table's."""
    return file.partition("/")[0]


def task_of(file: str) -> str:
    """Which task of a step wrote a file of bronze or silver: its name as far as the task's number; the step, where it
    names none.
    """
    found = _OF_A_TASK.match(file)
    return found[0] if found else step_of(file)


def gold_file(writing: Writing, share: int) -> str:
    """A new name for a file that one step makes of a cluster's rows in a table of gold."""
    return f"{writing.number}-{writing.run}-{share}-{uuid.uuid4().hex[:8]}.parquet"
