"""The record batches that lie in the partition folders of nodes, compared byte for byte."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from kraftcore.core.batch import iter_batches
from kraftcore.errors import CorruptDataError


def batches(folder: Path, end: int | None = None, pattern: str = "*.log") -> dict[int, bytes]:
    """What a log holds, below an offset or all of it, by base offset; not a batch that is still being written."""
    found: dict[int, bytes] = {}
    for path in sorted(folder.glob(pattern)):
        for batch in iter_batches(path.read_bytes(), allow_partial=True):
            if end is not None and batch.base_offset >= end:
                break  # the rest may be torn
            found[batch.base_offset] = batch.to_bytes()
    return found


def log_end(folder: Path) -> int:
    """Where the log of a killed node ends; its last batch may be torn."""
    end = 0
    for path in sorted(folder.glob("*.log")):
        try:
            for batch in iter_batches(path.read_bytes()):
                end = batch.next_offset
        except CorruptDataError:
            break
    return end


def check_equal(folders: Iterable[Path], end: int) -> dict[int, bytes]:
    """Logs reach an offset without a gap, and what two of them hold of one batch is the same; returns all batches."""
    everything: dict[int, bytes] = {}
    for folder in folders:
        held = batches(folder, end)
        starts = sorted(held)
        assert starts, f"{folder} is empty"
        nexts = [next(iter_batches(held[start])).next_offset for start in starts]
        assert starts[1:] == nexts[:-1], f"{folder} has a gap"
        assert nexts[-1] >= end, f"{folder} ends at {nexts[-1]}, before {end}"
        differing = [start for start in starts if everything.get(start, held[start]) != held[start]]
        assert not differing, f"{folder} differs at {differing}"
        everything |= held
    return everything
