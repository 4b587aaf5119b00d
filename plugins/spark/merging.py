"""Merges small files of bronze and silver: each run adds files, and every reader has to open all of them.

The commit that makes gold anew names the merged files in place of the small ones. A run that is killed before leaves
files that no commit names; readers of earlier commits still find the small files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kraftcore.plugins.spark.commits import Writing, step_of
from kraftcore.plugins.spark.intake import batch_file
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
        files: by merged table, the names of all its files that count from now on.
        clusters: ``Commit.clusters`` for the next commit.
    """

    files: dict[str, tuple[str, ...]]
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
    before = tables.counted()
    found: dict[str, tuple[str, ...]] = {}
    steps: set[str] = set()
    for name in (*BRONZE, *SILVER) if files_max else ():
        files = before.files.get(name, ())
        if len({step_of(file) for file in files}) <= files_max:
            continue
        sizes = tables.folder.sizes(name)
        small = [file for file in files if sizes.get(file, SMALL_BYTES) < SMALL_BYTES]
        if len({step_of(file) for file in small}) > files_max:
            found[name] = tuple(_merge(tables, writing, name, files, grouped(small, sizes.__getitem__, MERGED_BYTES)))
            steps.update(map(step_of, small))
    clusters = dict(before.clusters)
    if steps and steps <= before.clusters.keys():
        (step,) = {step_of(file) for files in found.values() for file in files if writing.run in file}
        clusters[step] = tuple(sorted({one for step in steps for one in before.clusters[step]}))
    return Merged(found, clusters)


def _merge(
    tables: Tables, writing: Writing, name: str, files: Sequence[str], groups: Iterator[list[str]]
) -> Iterator[str]:
    # The files of the table from now on: new files, then the others in their order.
    gone: set[str] = set()
    made = []
    for number, group in enumerate(groups):
        file = batch_file(name, writing.number, f"{number:05}-{writing.run}")
        tables.folder.put({file: to_bytes(tables.rows_of(name, group))})
        made.append(file.partition("/")[2])
        gone.update(group)
    yield from made
    yield from (file for file in files if file not in gone)
