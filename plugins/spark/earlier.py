"""Takes over folders of tables of earlier formats. Formats 1 and 2 list no files that count, format 3 does.

Gold of all three holds secrets in plain text and may lack columns: its files are removed, and gold is made anew.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.plugins.spark.commits import COMMITS, Commit, Commits, Writing
from kraftcore.plugins.spark.ranges import Progress, progress_from_json, progress_to_json
from kraftcore.plugins.spark.tables import BRONZE, FORMAT, SILVER, Tables, whole_files

_FED = (*BRONZE, *SILVER)
_CHECKPOINTS = "_checkpoints"


def take_over(tables: Tables) -> None:
    """Turn a folder of an earlier format into one of this format, which goes on where its last run ended.

    Does nothing to a folder of this format. All files of gold are removed, and the mode of a local folder becomes 0700,
    if this process may change the mode.

    Raises:
        CorruptDataError: a run of format 1 did not end well, or the folder is of a version that is not known.
        StorageError: a file cannot be read, written or removed.
    """
    about = tables.about()
    if about is None or about["format"] == FORMAT:
        return
    _close(tables)
    if about["format"] == 3:
        _make_gold_anew(tables)
        return
    batch, progress = _of_format_1(tables) if about["format"] == 1 else _of_format_2(tables)
    files: dict[str, tuple[str, ...]] = {}
    for name in _FED:  # a killed run may have left files of a later batch
        found = whole_files(tables.folder.files(name))
        files[name] = tuple(one for one in found if _batch_of(one) <= batch)
    commits = Commits(tables.folder)
    number = max([batch, *commits.numbers()]) + 1
    files = {name: found for name, found in files.items() if found}
    writing = commits.begin(number)
    commits.add(writing, Commit(number, progress, files, tuple(tables.clusters())))
    _end(tables, commits, writing)


def _make_gold_anew(tables: Tables) -> None:
    commits, last = Commits(tables.folder), tables.counted()
    if last.number < 0:
        tables.write_about()
        tables.forget()
        return
    files = {name: found for name, found in last.files.items() if name in _FED}
    writing = commits.begin(last.number + 1, last.runs)
    stale = tuple(tables.clusters())
    commits.add(writing, replace(last, number=writing.number, files=files, stale=stale, columns={}))
    _end(tables, commits, writing)


def _end(tables: Tables, commits: Commits, writing: Writing) -> None:
    # The format is written last: after a kill the next run does all of this again.
    for name in commits.outdated(kept=1):
        tables.folder.delete(name)
    for file in tables.folder.files(""):
        if file.startswith("gold_") and "/" in file:  # also of a run that was killed
            tables.folder.delete(file)
    tables.write_about()
    commits.end(writing)
    tables.forget()


def _close(tables: Tables) -> None:
    if not tables.is_local:
        return
    try:
        Path(tables.path).chmod(0o700)
    except PermissionError:  # the folder belongs to another user, who decides who may read it
        pass
    except OSError as error:
        raise StorageError(error.errno or 0, error.strerror or str(error), tables.path) from None


def _batch_of(file: str) -> int:
    found = re.match(r"batch=(\d+)/", file)
    return -1 if found is None else int(found[1])


def _of_format_2(tables: Tables) -> tuple[int, str]:
    # The number of the last whole micro-batch, and its progress as JSON.
    numbers = Commits(tables.folder).numbers()
    if not numbers:
        return -1, "{}"
    place = f"{COMMITS}/{numbers[-1]}"
    try:
        return numbers[-1], str(json.loads(tables.folder.read(place) or b"")["progress"])
    except (ValueError, KeyError, TypeError):
        raise CorruptDataError("not what a run writes about a micro-batch", path=tables.place(place)) from None


def _of_format_1(tables: Tables) -> tuple[int, str]:
    batches = {name: _last(tables, name) for name in BRONZE}
    progress = {name: _progress(tables, name, batch) for name, batch in batches.items()}
    ends = {
        progress_to_json({path: replace(one, torn=0) for path, one in found.items()}) for found in progress.values()
    }
    if len(ends) > 1:
        raise CorruptDataError(
            "tables of format 1, whose last run did not end: run the earlier version once more, or begin new tables",
            path=tables.path,
        )
    return max(batches.values()), progress_to_json(progress["errors"])


def _last(tables: Tables, name: str) -> int:
    return max(
        (int(one) for one in tables.folder.files(f"{_CHECKPOINTS}/{name}/commits") if one.isdecimal()), default=-1
    )


def _progress(tables: Tables, name: str, batch: int) -> Progress:
    if batch < 0:
        return {}
    place = f"{_CHECKPOINTS}/{name}/offsets/{batch}"
    try:
        text = (tables.folder.read(place) or b"").decode().splitlines()[-1]
        return progress_from_json(json.loads(text)["progress"])
    except (ValueError, KeyError, IndexError, TypeError):
        raise CorruptDataError("not what Spark writes about a micro-batch", path=tables.place(place)) from None
