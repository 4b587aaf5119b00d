"""Cases of the log on disk: append, read the tail, open a big log after a clean stop. Nothing is synced."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from bench import inputs
from bench.harness import OURS, Case, Effort
from bench.peers import java_peer, ours_log, system_peer

APPEND_BYTES = 48 << 20
"""Most that one slice of an append case writes: more would meet the kernel's writeback."""
APPENDS = {"append": (100, 100), "append-1x100": (1, 100), "append-1000x100": (1000, 100)}
TAIL_BATCHES = 1000
GIGABYTE = 1 << 30
SMOKE_BYTES = 4 << 20


def cases(folder: Path, effort: Effort) -> list[Case]:
    """Log cases; their files go below ``folder``."""
    return [
        *(append(name, shape, folder) for name, shape in APPENDS.items()),
        tail_read(folder),
        open_log(folder, SMOKE_BYTES if effort.smoke else GIGABYTE),
    ]


def append(name: str, shape: tuple[int, int], folder: Path) -> Case:
    """Append a built batch to a fresh log, against writing the same bytes to a fresh file."""
    records, size = shape
    calls_max = max(1, APPEND_BYTES // len(inputs.one_batch(records, size)))
    about = f"append one batch of {records} x {size} bytes as leader, page cache only"
    contenders = {
        OURS: partial(ours_log.append, records, size, folder, calls_max),
        system_peer.WRITE_NAME: partial(system_peer.plain_write, records, size, folder, calls_max),
        java_peer.LOG_NAME: partial(java_peer.append, records, size, folder, calls_max),
    }
    return Case(name, "us", contenders, about=about)


def tail_read(folder: Path) -> Case:
    """Read the newest batch, as a follower that is up to date does."""
    records, size = 100, 100
    contenders = {
        OURS: partial(ours_log.tail_read, records, size, folder, TAIL_BATCHES),
        system_peer.MEMCPY_NAME: partial(system_peer.memcpy, records, size, TAIL_BATCHES),
        system_peer.PREAD_NAME: partial(system_peer.pread, records, size, folder, TAIL_BATCHES),
        java_peer.LOG_NAME: partial(java_peer.tail_read, records, size, folder, TAIL_BATCHES),
    }
    about = f"read the newest batch ({records} x {size} bytes) of a log of {TAIL_BATCHES} batches into bytes"
    return Case("tail-read", "us", contenders, about=about)


def open_log(folder: Path, total: int) -> Case:
    """Open a log of 1 GB that was closed cleanly."""
    log = ours_log.BigLog(folder, total)
    contenders = {
        OURS: log.open,
        java_peer.LOG_NAME: lambda: java_peer.open_log(log.copy("java")),
        system_peer.SCAN_NAME: lambda: system_peer.full_scan(log.log_files(), inputs.LEADER_EPOCH),
    }
    about = "open a log of 1 GB after a clean stop; Kafka scans it at every start"
    return Case("open-1gb", "ms", contenders, slice_s=0.0, about=about)
