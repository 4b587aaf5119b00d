"""One pass over what is new in files: each byte is read, checked and decoded once for all of bronze and silver."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field

from kraftcore.core.disk.files import OsFiles
from kraftcore.errors import StorageError
from kraftcore.plugins.spark.arrow_batches import LAYERS, BrokenOff, Range, RangeReader, Rows
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.folders import LocalFolder
from kraftcore.plugins.spark.parquet import BUCKETS, TableFile, groups_for
from kraftcore.plugins.spark.ranges import Progress, is_about, new_ranges, pack
from kraftcore.plugins.spark.stores import LogFile
from kraftcore.plugins.spark.tables import TABLES_BY_VIEW


@dataclass(frozen=True)
class Share:
    """What one task takes in.

    Attributes:
        number: of the task in its micro-batch.
        ranges: stretches of files.
        torn: stretches that end inside a batch, whose errors alone count.
        groups: row groups of its files about partitions.
    """

    number: int
    ranges: tuple[Range, ...] = ()
    torn: tuple[Range, ...] = ()
    groups: int = BUCKETS


@dataclass
class Added:
    """What one task made.

    Attributes:
        rows: how many, by table.
        clusters: whose they are.
        files: by name in the folder of tables, how many bytes it wrote there; or them, where it could not write there.
        gone: ranges whose file was not there.
        broken_off: where batches could not be told apart any more.
    """

    rows: dict[str, int] = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    files: dict[str, bytes | int] = field(default_factory=dict)
    gone: list[Range] = field(default_factory=list)
    broken_off: list[BrokenOff] = field(default_factory=list)


@dataclass(frozen=True)
class Intake:
    """The work of a task: calling it with a share does it.

    Attributes:
        place: the folder of tables, if tasks can write there; None: they hand the files back.
        batch: number of the micro-batch.
        run: names the files, so that none of another run is taken for them.
        filters: rows that are wanted.
        policy: ``fail``, ``drop`` or ``keep`` what is damaged.
    """

    place: str | None
    batch: int
    run: str
    filters: Filters
    policy: str

    def __call__(self, share: Share) -> Added:
        """Read a share, write its files.

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
        added.files = writer.close()
        return added


class _Files:
    # The files of one task, a table each. An attempt that is repeated elsewhere, or by another worker at the same time,
    # writes files of other names.

    def __init__(self, work: Intake, share: Share) -> None:
        self._place = work.place
        self._batch = work.batch
        self._mark = f"{share.number:05}-{work.run}-{uuid.uuid4().hex[:8]}"
        self._groups = share.groups
        self.open: dict[str, TableFile] = {}

    def add(self, table: str, rows: Rows) -> None:
        if table not in self.open:
            target = None if self._place is None else LocalFolder(self._place).begun(self._name(table))
            self.open[table] = TableFile(target, rows.batch.schema, self._groups)
        self.open[table].add(rows.batch, rows.buckets)

    def close(self) -> dict[str, bytes | int]:
        found: dict[str, bytes | int] = {}
        for table, file in self.open.items():
            name = self._name(table)
            content = file.close()
            if self._place is not None:
                found[name] = OsFiles().stat(LocalFolder(self._place).place(name)).size
            else:
                found[name] = content
        return found

    def _name(self, table: str) -> str:
        return batch_file(table, self._batch, self._mark)


def batch_file(table: str, batch: int, mark: str) -> str:
    """Name of a file that one micro-batch adds to a table."""
    return f"{table}/batch={batch}/part-{mark}.parquet"


def shares_between(
    before: Progress, after: Progress, files: Sequence[LogFile], range_bytes: int, tasks_at_once: int = 1
) -> list[Share]:
    """What lies between two states of progress, as tasks.

    Args:
        before, after: the states.
        files: the files that they are about.
        range_bytes: about so much is a task's, or less.
        tasks_at_once: how many run side by side. Their shares are made so small, down to a quarter of ``range_bytes``,
            that all of them are busy to the end.
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
