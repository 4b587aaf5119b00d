"""Merges small files of bronze and silver: each run adds files, and every reader has to open all of them.

The commit that makes gold anew names the merged files in place of the small ones. A run that is killed before leaves
files that no commit names; readers of earlier commits still find the small files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kraftcore.plugins.spark.commits import Writing, step_file, step_of
from kraftcore.plugins.spark.delta import File
from kraftcore.plugins.spark.parquet import to_bytes
from kraftcore.plugins.spark.ranges import grouped
from kraftcore.plugins.spark.tables import BRONZE, SILVER, Tables

FILES_MAX = 32
"""The default number of steps whose small files a table may have before they are merged."""
SMALL_BYTES = 1 << 20
"""Files below this size are small: opening one costs a reader more than reading it."""
MERGED_BYTES = 16 << 20
"""Most bytes of small files that become one file, which this process holds in memory."""


@dataclass
class Merged:
    """The result of ``merge_small``.

    Attributes:
        files: by merged table, all its files that count from now on.
        clusters: ``Commit.clusters`` for the next commit.
    """

    files: dict[str, dict[str, File]]
    clusters: dict[str, tuple[str, ...]]


def merge_small(tables: Tables, writing: Writing, files_max: int) -> Merged:
    """Merge the small files of each table of bronze and silver that has too many.

    Args:
        tables: the folder of tables.
        writing: the step that the new files belong to.
        files_max: a table may keep small files of this many steps; 0: of any number.

    Raises:
        StorageError: a file cannot be read or written.
    """
    before = tables.commit
    found: dict[str, dict[str, File]] = {}
    steps: set[str] = set()
    for name in (*BRONZE, *SILVER) if files_max else ():
        files = before.files.get(name, {})
        if len({step_of(file) for file in files}) <= files_max:
            continue
        small = [file for file, about in files.items() if about.size < SMALL_BYTES]
        if len({step_of(file) for file in small}) > files_max:
            groups = grouped(small, lambda file: files[file].size, MERGED_BYTES)  # noqa: B023
            found[name] = _merge(tables, writing, name, files, groups)
            steps.update(map(step_of, small))
    clusters = dict(before.clusters)
    if steps and steps <= before.clusters.keys():
        (step,) = {step_of(file) for files in found.values() for file in files if writing.run in file}
        clusters[step] = tuple(sorted({one for step in steps for one in before.clusters[step]}))
    return Merged(found, clusters)


def _merge(
    tables: Tables, writing: Writing, name: str, files: Mapping[str, File], groups: Iterator[list[str]]
) -> dict[str, File]:
    # The files of the table from now on: new files, then the others in their order.
    made: dict[str, File] = {}
    gone: set[str] = set()
    for number, group in enumerate(groups):
        rows = tables.rows_of(name, group)
        file, data = step_file(writing, number), to_bytes(rows)
        tables.folder.put({f"{name}/{file}": data})
        made[file] = File(len(data), len(rows))
        gone.update(group)
    return made | {file: about for file, about in files.items() if file not in gone}
