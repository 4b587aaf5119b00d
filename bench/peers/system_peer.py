"""What the operating system and the C library can do: the floor under the log's cases."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import crc32c

from bench import inputs
from bench.harness import APPENDS_MIN, Operation, loop

WRITE_NAME = "plain write"
MEMCPY_NAME = "memcpy"
PREAD_NAME = "pread"
SCAN_NAME = "full scan"


def plain_write(records: int, size: int, parent: Path, calls_max: int) -> Operation:
    """``os.write`` of the batch's bytes to a fresh file, again and again, never synced."""
    encoded = inputs.one_batch(records, size)
    path = parent / "plain-write"

    def run(calls: int) -> float:
        first, *batches = [bytearray(encoded) for _ in range(calls + 1)]  # from as many places in memory as the log's
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        write = os.write
        try:
            write(handle, first)
            begin = time.perf_counter()
            for batch in batches:
                write(handle, batch)
            return time.perf_counter() - begin
        finally:
            os.close(handle)
            path.unlink()

    def digest() -> str:
        content = inputs.values(records, size)
        with path.open("xb") as file:
            for number in range(3):
                file.write(inputs.batch(content, number * records))
        try:
            return inputs.digest_of_bytes(path.read_bytes())
        finally:
            path.unlink()

    return Operation(
        run,
        digest,
        note="no offsets, no indexes, no checks",
        calls_max=calls_max,
        calls_min=min(APPENDS_MIN, calls_max),
    )


def memcpy(records: int, size: int, batches: int) -> Operation:
    """Copy the newest batch's bytes out of memory."""
    encoded = bytearray(inputs.batch(inputs.values(records, size), (batches - 1) * records))
    copy = encoded.__getitem__
    whole = slice(None)
    return Operation(loop(lambda: copy(whole)), lambda: inputs.digest_of_bytes(encoded), note="the copy alone")


def pread(records: int, size: int, parent: Path, batches: int) -> Operation:
    """Read the newest batch from a file whose position is known beforehand."""
    path = parent / "pread"
    content = inputs.values(records, size)
    with path.open("xb") as file:
        for number in range(batches):
            file.write(inputs.batch(content, number * records))
    length = len(inputs.one_batch(records, size))
    position = (batches - 1) * length
    handle = os.open(path, os.O_RDONLY)

    def close() -> None:
        os.close(handle)
        path.unlink()

    return Operation(
        loop(lambda: os.pread(handle, length, position)),
        lambda: inputs.digest_of_bytes(os.pread(handle, length, position)),
        close,
        note="position known, no search",
    )


def full_scan(log_files: Sequence[Path], leader_epoch: int) -> Operation:
    """Read the segments and check every batch's CRC in Python: the least that a rescanning open can do."""

    def scan() -> int:
        return max(map(scan_file, log_files))

    def scan_file(path: Path) -> int:
        next_offset = 0
        with path.open("rb", buffering=1 << 20) as file:
            while len(head := file.read(61)) == 61:
                fields = inputs.BATCH_HEADER.unpack(head)
                rest = file.read(fields[1] - 49)
                if crc32c.crc32c(rest, crc32c.crc32c(head[21:])) != fields[4]:
                    raise ValueError(f"checksum of the batch at offset {fields[0]}")
                next_offset = fields[0] + fields[6] + 1
        return next_offset

    def run(calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            scan()
        return time.perf_counter() - begin

    return Operation(run, lambda: f"0..{scan()} epoch {leader_epoch}", note="headers and CRC only", calls_max=1)
