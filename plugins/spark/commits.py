"""What counts in a folder of tables: its last commit names every file that does, and how far the input was read.

A commit is one small file, made whole and only if there is none of its number. So tables change in one moment, on
stores that cannot rename, too; of two writers that go on from the same commit one is refused. Files that no commit
names are what a writer left that was killed or refused.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftcore.errors import CorruptDataError, LockedError
from kraftcore.plugins.spark.folders import HadoopFolder, LocalFolder

COMMITS = "_commits"
"""Folder of the commits, and of a mark for each writer at work."""
_KEPT = 2
_MARK = re.compile(r"begun-(\d+)-([0-9a-f]{12})", re.ASCII)
_MADE_FOR = re.compile(r"(?:batch=(\d+)/|.*/(\d+)-[0-9a-f]{12}-\d+\.parquet$)", re.ASCII)


@dataclass(frozen=True)
class Commit:
    """What counts after one writer's step.

    Attributes:
        number: from 0 on; -1: nothing was written yet.
        progress: how far it comes in each file of the input, as JSON.
        files: by table, the names of the files that count, relative to the table's folder.
        stale: clusters with rows in bronze that their gold does not know yet, in order.
        columns: by table of gold, its columns as Spark's JSON: files alone do not tell an empty table's.
    """

    number: int = -1
    progress: str = "{}"
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    stale: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Writing:
    """One writer's step, which becomes a commit if nobody else's does before.

    Attributes:
        number: of the commit that it will be.
        run: names its files, so that none of another writer is taken for them.
    """

    number: int
    run: str

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
        numbers = self.numbers()
        return self._read(numbers[-1])[0] if numbers else Commit()

    def begin(self, number: int) -> Writing:
        """Say that a step begins, before its first file is written."""
        writing = Writing(number, uuid.uuid4().hex[:12])
        self._folder.write(writing.mark, b"")
        return writing

    def add(self, writing: Writing, commit: Commit) -> None:
        """Let a step count.

        Raises:
            LockedError: another writer's step has that number.
        """
        content = {
            "run": writing.run,
            "progress": commit.progress,
            "files": {name: list(files) for name, files in commit.files.items()},
            "stale": list(commit.stale),
            "columns": dict(commit.columns),
        }
        name = f"{COMMITS}/{commit.number}"
        # A store may have made the file and its answer got lost: then it is there because of us.
        if not self._folder.create(name, json.dumps(content).encode()) and self._read(commit.number)[1] != writing.run:
            raise LockedError(
                f"{self._folder.place(name)}: another run wrote these tables meanwhile; what it wrote counts, what "
                "this one wrote does not: run it again"
            )
        for number in self.numbers()[:-_KEPT]:
            self._folder.delete(f"{COMMITS}/{number}")

    def end(self, writing: Writing) -> None:
        """Say that nothing is left of a step that does not count."""
        self._folder.delete(writing.mark)

    def left_by_others(self, commit: Commit) -> list[str]:
        """The files of writers that were killed or refused: those of steps up to a commit that it does not name.

        A writer that is at work now goes on from this commit or a later one; what it writes is not among them.
        """
        marks = [name for name in self._folder.files(COMMITS) if _is_over(name, commit.number)]
        if not marks:
            return []
        counted = {f"{table}/{file}" for table, files in commit.files.items() for file in files}
        left = []
        for name in self._folder.files(""):
            number = _made_for(name)
            if number is not None and number <= commit.number and name not in counted:
                left.append(name)
        return [*left, *(f"{COMMITS}/{name}" for name in marks)]

    def _read(self, number: int) -> tuple[Commit, str]:
        # A commit, and who wrote it.
        place = f"{COMMITS}/{number}"
        try:
            found = json.loads(self._folder.read(place) or b"")
            files = {str(name): tuple(map(str, files)) for name, files in found["files"].items()}
            stale = tuple(map(str, found["stale"]))
            columns = {str(name): str(text) for name, text in found["columns"].items()}
            return Commit(number, str(found["progress"]), files, stale, columns), str(found["run"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise CorruptDataError("not what a run writes about its step", path=self._folder.place(place)) from None


def _is_over(name: str, number: int) -> bool:
    mark = _MARK.fullmatch(name)
    return mark is not None and int(mark[1]) <= number


def _made_for(name: str) -> int | None:
    # The number of the commit that a table's file was made for.
    found = _MADE_FOR.match(name.partition("/")[2])
    return None if found is None else int(found[1] or found[2])


def gold_file(writing: Writing, share: int) -> str:
    """Name of a file that one step makes of a cluster's rows in a table of gold."""
    return f"{writing.number}-{writing.run}-{share}.parquet"
