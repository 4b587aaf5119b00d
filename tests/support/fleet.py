"""A fleet: directories of many clusters, small, of different sizes; some grow, some end in the middle of a batch."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from golden import GOLDEN
from spark_parts import batches_of, copy_as

SEGMENT = "__cluster_metadata-0/00000000000000000000.log"
SOURCES = (GOLDEN / "static" / "c3", GOLDEN / "dynamic" / "c1")
# Names that are much alike, and such as file systems and SQL might take for something else.
ODD = (
    "fleet",
    "Fleet",
    "fleet ",
    "fleet=1",
    "fleet%3D1",
    "fleet/1",
    "it's",
    "[fleet]",
    "1",
    "01",
    "NULL",
    "fleet,{a}*",
)
OF_A_PLACE = ("log_id", "file_id", "path", "directory_id")
"""Columns that tell where a log lay."""


@dataclass(frozen=True)
class Kind:
    """What makes the logs of two clusters equal.

    Attributes:
        source: whose log it is a copy of.
        share: of how many eighths of its batches.
        is_torn: whether it ends in the middle of one more.
    """

    source: Path
    share: int
    is_torn: bool

    def content(self, *, is_grown: bool) -> bytes:
        """The segment; whole when it has grown."""
        data = (self.source / SEGMENT).read_bytes()
        spots = batches_of(data)
        end = spots[len(spots) * self.share // 8]
        return data if is_grown else data[: end.position + (end.size // 2 if self.is_torn else 0)]


class Fleet:
    """Directories of clusters below a folder, one node each.

    Args:
        folder: where.
        count: of clusters.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self.folder = folder
        self.names = [*ODD[:count], *(f"cluster-{number:03}" for number in range(count - len(ODD)))]
        kinds = [Kind(source, share, torn) for source in SOURCES for share, torn in ((1, False), (3, True), (5, True))]
        self.kinds = {name: kinds[number % len(kinds)] for number, name in enumerate(self.names)}
        self.grown: set[str] = set()
        for number, name in enumerate(self.names):
            copy_as(self.kinds[name].source, folder / f"{number:03}", name)
            self._write(name)

    def grow(self, names: list[str]) -> None:
        """Write what these clusters' logs lack."""
        self.grown |= set(names)
        for name in names:
            self._write(name)

    def _write(self, name: str) -> None:
        path = self.folder / f"{self.names.index(name):03}" / SEGMENT
        path.write_bytes(self.kinds[name].content(is_grown=name in self.grown))


def without_places(rows: list[dict[str, object]]) -> Counter[str]:
    """Rows, in no order, without whose they are and where their log lay."""
    left = {*OF_A_PLACE, "cluster_id", "batch"}
    return Counter(repr(sorted((key, value) for key, value in row.items() if key not in left)) for row in rows)


def comparable(tables: dict[str, list[dict[str, object]]]) -> dict[str, dict[str, Counter[str]]]:
    """Rows by table and cluster, in no order; those about torn ends, which may have grown meanwhile, aside."""
    return {
        name: {
            str(cluster): without_places([row for row in rows if row["cluster_id"] == cluster])
            for cluster in {row["cluster_id"] for row in rows}
        }
        for name, rows in tables.items()
        if rows and name not in ("errors", "bronze_files")
    }
