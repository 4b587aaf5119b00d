"""Small files become larger ones: each run adds files to bronze and silver, and every reader has to open them all.

Merged files count with the commit of the step that makes gold anew, in place of those they were made of. A run that is
killed meanwhile leaves files that no commit names, and readers of the commits before find theirs.
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
"""A table may have small files of so many steps before they are merged."""
SMALL_BYTES = 1 << 20
"""What is smaller costs a reader more to open than to read."""
MERGED_BYTES = 16 << 20
"""Small files of about so many bytes become one: what this process holds at a time."""


@dataclass
class Merged:
    """What was merged.

    Attributes:
        files: by table that was merged, all its files that count from now on.
        clusters: as of ``Commit``: whose rows the new files have, if that is known, with what was known before.
    """

    files: dict[str, tuple[str, ...]]
    clusters: dict[str, tuple[str, ...]]


def merge_small(tables: Tables, writing: Writing, files_max: int) -> Merged:
    """Write one file in place of the many small ones of a table, for every table that has too many.

    Args:
        tables: of which bronze and silver are looked at.
        writing: what the new files are a part of.
        files_max: small files of so many steps may stay; 0: all may.

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
    # The files of the table from now on; those that stay keep their order.
    gone: set[str] = set()
    made = []
    for number, group in enumerate(groups):
        file = batch_file(name, writing.number, f"{number:05}-{writing.run}")
        tables.folder.put({file: to_bytes(tables.rows_of(name, group))})
        made.append(file.partition("/")[2])
        gone.update(group)
    yield from made
    yield from (file for file in files if file not in gone)
