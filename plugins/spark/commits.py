"""Commits of a folder of tables. The last commit names every file that counts, and how far the input was read.

A commit is one small file, created whole and only if no file of its number exists. So all tables change in one moment,
also on stores that cannot rename, and of two writers that start from the same commit one is refused. Files that no
commit names were left by a writer that was killed or refused. The commit before the last one is kept, with the files
that it names, for readers that began before.
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
"""Folder of the commits and of one mark for each writer at work."""
_KEPT = 2
_RUNS = 16
"""The number of steps that a commit lists in ``runs``, its own among them."""
_OF_A_TASK = re.compile(r"[^/]+/part-\d{5,}(?=-)", re.ASCII)
_TRIES = 5
_LEFT = re.compile(r"(?:begun-|_(?:begun-)?)(\d+)-[0-9a-f]{12}(?:-[0-9a-f]{12})?", re.ASCII)
"""A mark or an unfinished small file; group 1 is the number of its commit."""
_MADE_FOR = re.compile(r"(?:batch=(\d+)/|.*/(\d+)-[0-9a-f]{12}-\d+(?:-[0-9a-f]{8})?\.parquet$)", re.ASCII)


@dataclass(frozen=True)
class Commit:
    """The files that count after one step of a writer.

    Attributes:
        number: 0 or more; -1: nothing was written yet.
        progress: how far each file of the input was read, as JSON.
        files: by table, the names of the files that count, relative to the table's folder.
        stale: clusters with rows in bronze that are not in gold yet, sorted.
        columns: by table of gold, its columns as Spark's JSON; an empty table has no file that would tell them.
        runs: the names of the last steps, this commit's step last.
        clusters: by step (see ``step_of``), the clusters that have rows in its files of bronze and silver; by task (see
            ``task_of``) as well, if the task has fewer. A step that is not a key may have rows of any cluster.
    """

    number: int = -1
    progress: str = "{}"
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stale: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[str, ...] = ()
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

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
        after: ``runs`` of the commit that the step started from.
    """

    number: int
    run: str
    after: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """Name of the file that says that the step has begun."""
        return f"{COMMITS}/begun-{self.number}-{self.run}"


class Commits:
    """The commits of a folder of tables."""

    def __init__(self, folder: LocalFolder | HadoopFolder) -> None:
        self._folder = folder

    def numbers(self) -> list[int]:
        """The numbers of all commits in the folder, ascending."""
        return sorted(int(name) for name in self._folder.files(COMMITS) if name.isdecimal())

    def last(self) -> Commit:
        """The last commit.

        Raises:
            CorruptDataError: the file is not what a run wrote.
        """
        for _ in range(_TRIES):
            numbers = self.numbers()
            if not numbers:
                return Commit()
            found = self._read(numbers[-1])
            if found is not None:
                return found  # None: a writer has made later commits and removed this one
        raise self._corrupt(numbers[-1])

    def begin(self, number: int, after: tuple[str, ...] = ()) -> Writing:
        """Begin a step: write its mark, before its first file is written.

        Args:
            number: number of the future commit.
            after: ``runs`` of the commit that the step starts from.

        Raises:
            LockedError: a commit with that number, or a later one, exists.
        """
        writing = Writing(number, uuid.uuid4().hex[:12], after)
        self._folder.write(writing.mark, b"")
        if max(self.numbers(), default=-1) >= number:
            self.end(writing)
            raise self._refused(number)
        return writing

    def add(self, writing: Writing, commit: Commit) -> Commit:
        """Make the commit of a step, after which the step counts.

        Returns:
            The commit with its ``runs``.

        Raises:
            LockedError: another writer made a commit after the same one.
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
        # The number of a removed commit can be created again, and a store may have created the file though its answer
        # was lost. So the last commit decides: the step counts if that commit lists it.
        if writing.run not in self.last().runs:
            if is_made:
                self._folder.delete(name)
            raise self._refused(commit.number)
        return commit

    def end(self, writing: Writing) -> None:
        """Remove the mark of a step: no file is left that no commit names."""
        self._folder.delete(writing.mark)

    def outdated(self, kept: int = _KEPT) -> list[str]:
        """Files to remove, in order: those that only commits before the last ``kept`` name, and these commits."""
        last_ones = self._kept(kept)
        counted = {name for commit in last_ones for name in commit.names()}
        found: list[str] = []
        for number in self.numbers():
            if last_ones and number < last_ones[0].number:
                found += sorted(self._names(number) - counted)
                found.append(f"{COMMITS}/{number}")
        return found

    def made_by(self, writing: Writing, commit: Commit) -> list[str]:
        """The files that a refused step wrote and that no kept commit names."""
        counted = {name for kept in self._kept() for name in kept.names()}
        return sorted(name for name in commit.names() - counted if writing.run in name.rpartition("/")[2])

    def left_by_others(self) -> list[str]:
        """The files that killed or refused writers left: files of steps up to the last commit that no kept commit
        names, and commits that should have been removed.

        A writer at work started from the last commit or a later one, so its files have higher numbers.
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
        # The last commits, ascending. Commits of an earlier format name no files.
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
    """The step that wrote a file of bronze or silver: the file's folder within the table's folder."""
    return file.partition("/")[0]


def task_of(file: str) -> str:
    """The task that wrote a file of bronze or silver: the name up to the task's number; the step without a number."""
    found = _OF_A_TASK.match(file)
    return found[0] if found else step_of(file)


def gold_file(writing: Writing, share: int) -> str:
    """A new name for a step's file of gold, relative to the cluster's folder; ``share`` is its number."""
    return f"{writing.number}-{writing.run}-{share}-{uuid.uuid4().hex[:8]}.parquet"
