"""kraftcore's log on real files. Nothing is flushed: every contender writes to the page cache."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import cached_property
from itertools import count
from pathlib import Path

from bench import inputs
from bench.harness import APPENDS_MIN, Operation, loop
from kraftcore.core.batch import build_batch
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.log import Log

NOW_MS = inputs.TIMESTAMP_MS
FOLDER = "__cluster_metadata-0"
LOG_FILE = "00000000000000000000.log"


def _open(folder: Path) -> Log:
    return Log.open(OsFiles(), str(folder), now_ms=NOW_MS)


def append(records: int, size: int, parent: Path, calls_max: int) -> Operation:
    """Append built batches as leader to a fresh log. The log keeps each batch, so each call has one of its own."""
    encoded = inputs.one_batch(records, size)
    number = count()

    def fill(calls: int, look: Callable[[Path], None]) -> float:
        folder = parent / f"append-{next(number)}" / FOLDER
        folder.mkdir(parents=True)
        first, *batches = [bytearray(encoded) for _ in range(calls + 1)]
        log = _open(folder)
        add, epoch = log.append_as_leader, inputs.LEADER_EPOCH
        add(first, epoch, NOW_MS)  # begins the epoch, with a synced checkpoint
        begin = time.perf_counter()
        for batch in batches:
            add(batch, epoch, NOW_MS)
        taken = time.perf_counter() - begin
        look(folder)
        log.close()
        shutil.rmtree(folder.parent)
        return taken

    def digest() -> str:
        found: list[str] = []
        fill(2, lambda folder: found.append(inputs.digest_of_bytes((folder / LOG_FILE).read_bytes())))
        return found[0]

    calls_min = min(APPENDS_MIN, calls_max)
    return Operation(lambda calls: fill(calls, lambda folder: None), digest, calls_max=calls_max, calls_min=calls_min)


def tail_read(records: int, size: int, parent: Path, batches: int) -> Operation:
    """Read the newest batch of a log of ``batches`` batches."""
    folder = parent / "tail" / FOLDER
    folder.mkdir(parents=True)
    encoded = inputs.one_batch(records, size)
    log = _open(folder)
    for _ in range(batches):
        offset = log.append_as_leader(bytearray(encoded), inputs.LEADER_EPOCH, NOW_MS)
    read, most = log.read, len(encoded)

    def close() -> None:
        log.close()
        shutil.rmtree(folder.parent)

    return Operation(loop(lambda: read(offset, most)), lambda: inputs.digest_of_bytes(read(offset, most)), close)


class BigLog:
    """A log of ``total`` bytes that was closed cleanly; written when first asked for."""

    RECORDS, SIZE = 100, 100

    def __init__(self, parent: Path, total: int) -> None:
        self.parent = parent
        self.total = total

    @cached_property
    def folder(self) -> Path:
        folder = self.parent / "big" / FOLDER
        folder.mkdir(parents=True)
        values = list(inputs.values(self.RECORDS, self.SIZE))
        with _open(folder) as log:
            while log.size_in_bytes < self.total:
                log.append_as_leader(build_batch(values, timestamp_ms=NOW_MS), inputs.LEADER_EPOCH, NOW_MS)
        return folder

    def log_files(self) -> list[Path]:
        """The segments, in order."""
        return sorted(self.folder.glob("*.log"))

    def copy(self, name: str) -> Path:
        """Make a copy for a peer that changes what it opens."""
        target = self.parent / name / FOLDER
        shutil.copytree(self.folder, target)
        return target

    def open(self) -> Operation:
        """Open it; the close is not timed."""
        folder = self.folder

        def run(calls: int) -> float:
            taken = 0.0
            for _ in range(calls):
                begin = time.perf_counter()
                log = _open(folder)
                taken += time.perf_counter() - begin
                log.close()
            return taken

        def digest() -> str:
            with _open(folder) as log:
                return f"{log.log_start_offset}..{log.log_end_offset} epoch {log.last_epoch}"

        return Operation(run, digest, note=f"opening adds {self._memory() >> 10} KiB of resident memory")

    def _memory(self) -> int:
        """Resident bytes that an open log adds."""
        with _open(self.folder):  # the first one also loads code
            pass
        before = _resident()
        with _open(self.folder):
            return _resident() - before


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
