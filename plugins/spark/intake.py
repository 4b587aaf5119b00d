"""Reads the new bytes of files into bronze and silver: each byte is read, checked and decoded once for all tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import StorageError
from kraftcore.plugins.spark.arrow_batches import LAYERS, BrokenOff, Range, RangeReader, Rows
from kraftcore.plugins.spark.commits import Writing, step_file
from kraftcore.plugins.spark.delta import File
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.folders import LocalFolder
from kraftcore.plugins.spark.parquet import BUCKETS, TableFile, groups_for
from kraftcore.plugins.spark.ranges import Progress, is_about, new_ranges, pack
from kraftcore.plugins.spark.stores import LogFile
from kraftcore.plugins.spark.tables import TABLES_BY_VIEW


@dataclass(frozen=True)
class Share:
    """The work of one task.

    Attributes:
        number: number of the task in its micro-batch, from 0.
        ranges: ranges of files to read.
        torn: ranges that end inside a batch; only their errors are listed.
        groups: number of row groups in files about partitions.
    """

    number: int
    ranges: tuple[Range, ...] = ()
    torn: tuple[Range, ...] = ()
    groups: int = BUCKETS


@dataclass
class Added:
    """The result of one task.

    Attributes:
        rows: number of rows by table.
        clusters: ids of the clusters that the rows belong to.
        files: by name in the folder of tables, a written file.
        content: by such a name, the bytes of a file that the task could not write.
        gone: ranges whose file did not exist.
        broken_off: places where reading ended at damage.
    """

    rows: dict[str, int] = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    files: dict[str, File] = field(default_factory=dict)
    content: dict[str, bytes] = field(default_factory=dict)
    gone: list[Range] = field(default_factory=list)
    broken_off: list[BrokenOff] = field(default_factory=list)


@dataclass(frozen=True)
class Intake:
    """Reads a share when called with it, in this process or in a worker.

    Attributes:
        place: path of the folder of tables, if tasks can write there; None: tasks return the files.
        writing: the step, whose number and name are part of the names of its files.
        filters: conditions that rows must meet.
        policy: what becomes of damaged rows: ``fail``, ``drop`` or ``keep``.
    """

    place: str | None
    writing: Writing
    filters: Filters
    policy: str

    def __call__(self, share: Share) -> Added:
        """Read a share and write its files.

        Raises:
            CorruptDataError: damage, with the policy ``fail``.
            StorageError: a file cannot be read or written.
        """
        reader = RangeReader(LAYERS, self.filters, self.policy)
        added = Added()
        writer = _Files(self, share)
        for ranges, read in ((share.ranges, reader.read_layers), (share.torn, reader.read_torn)):
            for one in ranges:
                try:
                    for rows in read(one):
                        writer.add(TABLES_BY_VIEW[rows.view], rows)
                        added.clusters.add(one.file.identity.cluster_id)
                except StorageError as error:
                    if not is_about(error, one):
                        raise
                    added.gone.append(one)
        added.broken_off = reader.broken_off
        added.rows = {name: file.rows for name, file in writer.open.items()}
        added.files, added.content = writer.close()
        return added


class _Files:
    # The files of one task, one for each table. Every attempt at a task writes files with other names.

    def __init__(self, work: Intake, share: Share) -> None:
        self._place = work.place
        self._name = step_file(work.writing, share.number)
        self._groups = share.groups
        self.open: dict[str, TableFile] = {}

    def add(self, table: str, rows: Rows) -> None:
        if table not in self.open:
            name = f"{table}/{self._name}"
            target = None if self._place is None else LocalFolder(self._place).begun(name)
            self.open[table] = TableFile(target, rows.batch.schema, self._groups)
        self.open[table].add(rows.batch, rows.buckets)

    def close(self) -> tuple[dict[str, File], dict[str, bytes]]:
        found: dict[str, File] = {}
        content: dict[str, bytes] = {}
        for table, file in self.open.items():
            name = f"{table}/{self._name}"
            data = file.close()
            if self._place is None:
                content[name] = data
                size = len(data)
            else:
                size = OsFiles().stat(LocalFolder(self._place).place(name)).size
            found[name] = File(size, file.rows)
        return found, content


def shares_between(
    before: Progress, after: Progress, files: Sequence[LogFile], range_bytes: int, tasks_at_once: int = 1
) -> list[Share]:
    """Cut the bytes between two states of progress into tasks.

    Args:
        before, after: the states of progress.
        files: the files of the input.
        range_bytes: about the most bytes of a task.
        tasks_at_once: number of tasks that run side by side. Shares are made smaller, down to a quarter of
            ``range_bytes``, to keep all of them busy to the end.
    """
    ranges = new_ranges(before, after, files, range_bytes)
    size = sum(one.end - one.start for one in ranges)
    rounds = -(-size // (range_bytes * tasks_at_once))
    even = max(-(-size // (max(rounds, 1) * tasks_at_once)), range_bytes // 4)
    if tasks_at_once > 1 and even < range_bytes:
        ranges, range_bytes = new_ranges(before, after, files, even), even
    whole: list[Range] = []
    torn: list[Range] = []
    for one in ranges:
        (torn if one.start >= after[one.file.path].position else whole).append(one)
    groups = groups_for(sum(reached.position for reached in after.values()))
    shares = [Share(number, group, groups=groups) for number, group in enumerate(pack(whole, range_bytes))]
    return [*shares, Share(len(shares), torn=tuple(torn))] if torn else shares
