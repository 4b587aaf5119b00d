"""Takes over folders of tables of formats 3 and 4, whose commits were files of our own; refuses formats 1 and 2.

Bronze and silver stay as they are. Gold is made anew: its files lack the column ``cluster_id``, which was in the names
of folders.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.plugins.spark.commits import Commit, Commits
from kraftcore.plugins.spark.delta import File
from kraftcore.plugins.spark.folders import LocalFolder, StoreFolder, at_once

ABOUT = "kraftcore-tables.json"
"""The file in a folder of tables of an earlier format that tells the format."""
_COMMITS, _SCHEMAS = "_commits", "_schemas"
_TAKEN_OVER = (3, 4)


def format_of(folder: LocalFolder | StoreFolder) -> int | None:
    """The earlier format of a folder of tables; None: the folder has none.

    Raises:
        CorruptDataError: the file that tells the format cannot be read.
    """
    data = folder.read(ABOUT)
    if data is None:
        return None
    try:
        return int(json.loads(data)["format"])
    except (ValueError, TypeError, KeyError):
        raise CorruptDataError("not what a run notes about its tables", path=folder.place(ABOUT)) from None


def refuse_earlier(folder: LocalFolder | StoreFolder) -> None:
    """Raise if a folder holds tables of an earlier format.

    Raises:
        LocalError: it does; the text says what to do.
        CorruptDataError: the file that tells the format cannot be read.
    """
    found = format_of(folder)
    if found in _TAKEN_OVER:
        raise LocalError(
            f"{folder.place('')}: tables of an earlier version (format {found}): 'kraftcore spark run' takes them over"
        )
    if found is not None:
        raise _unknown(folder, found)


def take_over(
    folder: LocalFolder | StoreFolder,
    columns: Mapping[str, str],
    clusters_of: Callable[[Sequence[str]], Iterable[str]],
) -> None:
    """Turn a folder of format 3 or 4 into Delta tables that go on where its last run ended.

    Does nothing to a folder of this format, or without tables. The mode of a local folder becomes 0700, if this process
    may change the mode.

    Args:
        folder: the folder.
        columns: the columns of the tables of bronze and silver, as Spark's JSON.
        clusters_of: reads the ids of the clusters in files of ``bronze_files``, by the files' names.

    Raises:
        LocalError: tables of format 1 or 2, or of a later version.
        CorruptDataError: the last commit cannot be read.
        StorageError: a file cannot be read, written or removed.
    """
    found = format_of(folder)
    if found is None:
        return
    if found not in _TAKEN_OVER:
        raise _unknown(folder, found)
    commits = Commits(folder)
    if commits.last().number < 0:
        _close(folder)
        progress, files = _last(folder)
        counted = {
            table: dict(zip(names, at_once(lambda file: _about(folder, file), [f"{table}/{one}" for one in names]),
                            strict=True))
            for table, names in files.items()
            if table in columns
        }  # fmt: skip
        stale = tuple(sorted(clusters_of([f"bronze_files/{name}" for name in files.get("bronze_files", ())])))
        before = Commit()
        commits.add(
            commits.begin(before), before, Commit(progress=progress, files=counted, stale=stale, columns=columns)
        )
    # The file that tells the format goes last: after a kill the next run does all of this again.
    commits.publish(commits.last())
    left = [one for one in folder.files("") if one.startswith(("gold_", f"{_COMMITS}/", f"{_SCHEMAS}/"))]
    at_once(folder.delete, [one for one in left if "/_delta_log/" not in one])
    folder.delete(ABOUT)


def _unknown(folder: LocalFolder | StoreFolder, found: int) -> LocalError:
    return LocalError(
        f"{folder.place('')}: tables of format {found}, which this version does not take over: begin a new folder of "
        "tables"
    )


def _last(folder: LocalFolder | StoreFolder) -> tuple[str, dict[str, list[str]]]:
    # Progress and files of the last commit.
    numbers = [int(name) for name in folder.files(_COMMITS) if name.isdecimal()]
    if not numbers:
        return "{}", {}
    place = f"{_COMMITS}/{max(numbers)}"
    try:
        found = json.loads(folder.read(place) or b"")
        files = {str(table): list(map(str, names)) for table, names in found["files"].items()}
        return str(found["progress"]), files
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CorruptDataError("not what a run writes about its step", path=folder.place(place)) from None


def _about(folder: LocalFolder | StoreFolder, file: str) -> File:
    data = folder.read(file)
    try:
        rows = pq.read_metadata(pa.BufferReader(data or b"")).num_rows
    except pa.ArrowException:
        raise CorruptDataError("a commit names it, and it is not whole Parquet", path=folder.place(file)) from None
    return File(len(data or b""), rows)


def _close(folder: LocalFolder | StoreFolder) -> None:
    if not isinstance(folder, LocalFolder):
        return
    try:
        Path(folder.place("")).chmod(0o700)
    except PermissionError:  # the folder belongs to another user, who decides who may read it
        pass
    except OSError as error:
        raise StorageError(error.errno or 0, error.strerror or str(error), folder.place("")) from None
