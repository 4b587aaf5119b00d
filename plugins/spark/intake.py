"""One pass over what is new in files: each byte is read, checked and decoded once for all of bronze and silver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from io import BytesIO

from kraftcore.plugins.spark.arrow_batches import LAYERS, Range, RangeReader, Rows
from kraftcore.plugins.spark.filters import Filters
from kraftcore.plugins.spark.folders import LocalFolder
from kraftcore.plugins.spark.parquet import TableFile
from kraftcore.plugins.spark.ranges import Progress, new_ranges, pack, read_each
from kraftcore.plugins.spark.stores import LogFile
from kraftcore.plugins.spark.tables import TABLES_BY_VIEW


@dataclass(frozen=True)
class Share:
    """What one task takes in.

    Attributes:
        number: of the task in its micro-batch.
        ranges: stretches of files.
        torn: stretches that end inside a batch, whose errors alone count.
    """

    number: int
    ranges: tuple[Range, ...] = ()
    torn: tuple[Range, ...] = ()


@dataclass
class Added:
    """What one task made.

    Attributes:
        rows: how many, by table.
        clusters: whose they are.
        files: names in the folder of tables; and their content, where the task could not write there.
    """

    rows: dict[str, int] = field(default_factory=dict)
    clusters: set[str] = field(default_factory=set)
    files: dict[str, bytes | None] = field(default_factory=dict)


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
        writer = _Files(self, share.number)
        for ranges, read in ((share.ranges, reader.read_layers), (share.torn, reader.read_torn)):
            for one in ranges:
                for rows in read_each(one, read):
                    writer.add(TABLES_BY_VIEW[rows.view], rows)
                    added.clusters.add(one.file.identity.cluster_id)
        added.rows = {name: file.rows for name, file in writer.open.items()}
        added.files = writer.close()
        return added


class _Files:
    # The files of one task, a table each.

    def __init__(self, work: Intake, number: int) -> None:
        self._work = work
        self._number = number
        self._memory: dict[str, BytesIO] = {}
        self.open: dict[str, TableFile] = {}

    def add(self, table: str, rows: Rows) -> None:
        if table not in self.open:
            name = self._name(table)
            target: str | BytesIO
            if self._work.place is None:
                target = self._memory[table] = BytesIO()
            else:
                target = LocalFolder(self._work.place).begun(name)
            self.open[table] = TableFile(target, rows.batch.schema)
        self.open[table].add(rows.batch, rows.buckets)

    def close(self) -> dict[str, bytes | None]:
        found: dict[str, bytes | None] = {}
        for table, file in self.open.items():
            file.close()
            found[self._name(table)] = self._memory[table].getvalue() if table in self._memory else None
        return found

    def _name(self, table: str) -> str:
        return batch_file(table, self._work.batch, f"{self._number:05}-{self._work.run}")


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
    shares = [Share(number, group) for number, group in enumerate(pack(whole, range_bytes))]
    return [*shares, Share(len(shares), torn=tuple(torn))] if torn else shares
