"""Disks that fill up and fail: the log says so, refuses to go on, and loses nothing that was durable."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from log_model import FOLDER, TINY, Model, Work, contents

from kraftcore.core.batch import build_batch
from kraftcore.core.files import OsFiles
from kraftcore.core.log import Log
from kraftcore.core.simdisk import SimulatedDisk
from kraftcore.errors import ClosedError, CorruptDataError, LocalError, StorageError

STEPS = 30
SEEDS = int(os.environ.get("KRAFTCORE_FAULT_SEEDS", "1"))


def batch(*values: bytes, timestamp_ms: int = 1) -> bytearray:
    return build_batch(list(values) or [b"value"], timestamp_ms=timestamp_ms)


def work_until_failure(work: Work) -> tuple[Model, Model, StorageError | None]:
    """The model before and after the step that failed (the same when none did), and the failure."""
    for _ in range(STEPS):
        before = work.model.copy()
        name = work.draw()
        try:
            work.step(name)
        except StorageError as error:
            after = before.copy()
            if name in ("append_as_leader", "append_as_follower", "flush", "roll", "reopen", "begin_epoch", "expire"):
                after.flushed = before.flushed
            else:
                after.flushed = 0  # what was to be removed may be gone or not
            return before, after, error
    return work.model, work.model, None


def check_after_failure(disk: SimulatedDisk, work: Work, before: Model, after: Model, crash: bool) -> None:
    disk.clear_faults()
    disk.capacity = None
    log = work.log
    if not log.closed and after.flushed:
        with pytest.raises(ClosedError, match="refuses changes since"):
            log.append_as_leader(batch(), 99, 0)
        with pytest.raises(ClosedError):
            log.truncate_to(log.log_end_offset - 1)
        with pytest.raises(ClosedError):
            log.flush()
        # What was durable stays readable.
        end = min(log.flushed_offset, log.log_end_offset)
        for stored in before.batches:
            if stored.base >= max(log.log_start_offset, before.start) and stored.next <= end:
                assert log.read(stored.base, 1) == stored.data
        log.close()
    if crash:
        disk = disk.crash("mixed")
    again = Log.open(disk, FOLDER, TINY, now_ms=0)
    again.check_invariants()
    found = contents(again)
    start, end = again.log_start_offset, again.log_end_offset
    assert end >= after.flushed
    known = {stored.base: stored.data for stored in before.batches}
    offset = start
    for data in found:
        base = int.from_bytes(data[:8], "big")
        assert base == offset
        offset = base + int.from_bytes(data[23:27], "big") + 1
        assert known.get(base, data) == data
    again.append_as_leader(batch(), 99, 0)
    again.close()


@pytest.mark.parametrize("crash", [False, True])
@pytest.mark.parametrize("kind", ["write", "sync", "truncate", "rename", "open", "sync_folder", "unlink", "stat"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_failure_at_any_operation(seed: int, kind: str, crash: bool) -> None:
    number, struck = 0, True
    while struck:
        disk = SimulatedDisk(Random(seed))
        work = Work(seed, disk)
        fault = disk.inject(kind, after=number)
        before, after, error = work_until_failure(work)
        struck = fault.hits > 0
        if struck:
            assert error is not None
            assert error.errno == errno.EIO
            if work.log.closed or kind not in (
                "open",
                "stat",
                "unlink",
            ):  # failing to look or to tidy up changes nothing
                check_after_failure(disk, work, before, after, crash)
        number += 1
    assert number > 3 or kind in ("unlink", "rename", "truncate")


@pytest.mark.parametrize("crash", [False, True])
def test_a_disk_that_fills_up_at_any_byte(crash: bool) -> None:
    full = 0
    for capacity in range(300, 9000, 37):
        disk = SimulatedDisk(Random(2))
        try:
            work = Work(2, disk)
        except StorageError:
            continue
        disk.capacity = capacity
        before, after, error = work_until_failure(work)
        if error is not None:
            assert error.errno == errno.ENOSPC
            full += 1
            check_after_failure(disk, work, before, after, crash)
    assert full > 20


def test_reads_that_fail_raise_and_change_nothing() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    for number in range(40):
        log.append_as_leader(batch(b"%d" % number), 1, 0)
    assert log.tail_base_offset > 0
    disk.inject("read", path=".log")
    with pytest.raises(StorageError):
        log.read(0, 1000)
    assert log.read(0, 1000)
    log.append_as_leader(batch(), 1, 0)
    log.flush()


def test_after_a_failed_sync_reads_end_at_what_was_flushed() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    log.append_as_leader(batch(b"kept"), 1, 0)
    log.flush()
    log.append_as_leader(batch(b"doubtful"), 1, 0)
    disk.inject("sync", path=".log")
    with pytest.raises(StorageError) as failure:
        log.flush()
    assert failure.value.errno == errno.EIO
    with pytest.raises(ClosedError, match="Input/output error"):
        log.flush()
    assert log.flushed_offset == 1
    assert log.read(0, 1000) == log.read(0, 1000, up_to=1)
    assert log.read(1, 1000) == b""
    log.close()
    assert Log.open(disk.crash("lost"), FOLDER, TINY, now_ms=0).log_end_offset >= 1


def test_a_leader_batch_that_does_not_fit_the_disk_leaves_the_file_whole() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    log.append_as_leader(batch(b"first"), 1, 0)
    size = disk.stat(f"{FOLDER}/{0:020d}.log").size
    disk.capacity = disk.used_bytes + 10
    with pytest.raises(StorageError) as failure:
        log.append_as_leader(batch(b"second" * 20), 1, 0)
    assert failure.value.errno == errno.ENOSPC
    assert log.log_end_offset == 1
    assert disk.stat(f"{FOLDER}/{0:020d}.log").size == size
    assert log.read(0, 1000)


def test_one_flush_in_another_thread_while_appends_go_on(tmp_path: Path) -> None:
    log = Log.open(OsFiles(), str(tmp_path / "t-0"), TINY, now_ms=0)
    stop = threading.Event()
    failures: list[BaseException] = []

    def flusher() -> None:
        try:
            while not stop.is_set():
                before = log.log_end_offset
                assert log.flush() >= before
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=flusher)
    thread.start()
    for number in range(1500):
        offset = log.append_as_leader(batch(b"%d" % number, timestamp_ms=number), 1, number)
        assert log.read(offset, 1)
        if number % 100 == 0:
            log.read(number // 2, 500)
    stop.set()
    thread.join()
    assert failures == []
    log.check_invariants()
    log.close()
    again = Log.open(OsFiles(), str(tmp_path / "t-0"), TINY, now_ms=0)
    assert (again.log_end_offset, again.recovery_actions) == (1500, [])


class SlowFlush:
    """Runs code in the middle of a flush: the latency hook is called between its sync and its end."""

    def __init__(self, disk: SimulatedDisk, action: object) -> None:
        self.action = action
        disk.sync_latency_ms = self

    def __call__(self, path: str) -> float:
        assert callable(self.action)
        self.action()
        return 1.0


def test_what_wants_no_flush_in_flight_refuses() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    for number in range(20):
        log.append_as_leader(batch(b"%d" % number), 1, 0)
    seen = []

    def during() -> None:
        for action in (
            log.flush,
            log.close,
            lambda: log.truncate_to(3),
            lambda: log.truncate_fully_to(50),
            lambda: log.delete_below(0, 0),
        ):
            with pytest.raises(LocalError, match="a flush is running"):
                action()
            seen.append(action)
        disk.sync_latency_ms = None

    SlowFlush(disk, during)
    assert log.flush() == 20
    assert len(seen) == 5
    log.check_invariants()


def test_append_while_a_flush_runs_is_not_counted_as_flushed() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    log.append_as_leader(batch(), 1, 0)

    def during() -> None:
        disk.sync_latency_ms = None
        for _ in range(30):
            log.append_as_leader(batch(), 1, 0)

    SlowFlush(disk, during)
    assert log.flush() == 1
    assert log.log_end_offset == 31
    assert log.flush() == 31
    log.check_invariants()


def test_an_append_that_fails_while_a_flush_runs() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    for number in range(20):
        log.append_as_leader(batch(b"%d" % number), 1, 0)

    def during() -> None:
        disk.sync_latency_ms = None
        disk.inject("write")
        with pytest.raises(StorageError):
            log.append_as_leader(batch(), 1, 0)

    SlowFlush(disk, during)
    with suppress(ClosedError, StorageError):
        log.flush()
    with pytest.raises(ClosedError, match="refuses changes"):
        log.append_as_leader(batch(), 1, 0)
    flushed = log.flushed_offset
    log.close()
    again = Log.open(disk.crash("lost"), FOLDER, TINY, now_ms=0)
    assert again.log_end_offset >= flushed


def test_a_failed_start_says_what_failed() -> None:
    disk = SimulatedDisk(Random(1))
    disk.inject("sync_folder", code=errno.EIO)
    with pytest.raises(StorageError):
        Log.open(disk, FOLDER, TINY, now_ms=0)
    Log.open(disk, FOLDER, TINY, now_ms=0).close()


def test_closing_twice_and_using_it_after() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    log.append_as_leader(batch(), 1, 0)
    log.close()
    log.close()
    for action in (
        lambda: log.append_as_leader(batch(), 1, 0),
        lambda: log.append_as_follower(bytes(batch()), 0),
        log.flush,
        lambda: log.read(0, 1),
        lambda: log.truncate_to(0),
        lambda: log.offset_for_timestamp(0),
        lambda: log.roll(0),
    ):
        with pytest.raises(ClosedError, match="the log is closed"):
            action()


def test_failures_of_recovery_do_not_hide_damage() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    for number in range(40):
        log.append_as_leader(batch(b"%d" % number), 1, 0)
    log.close()
    with disk.open(f"{FOLDER}/{0:020d}.log") as file:
        file.write_at(100, b"\xff\xff\xff")
    with pytest.raises(CorruptDataError, match="had been stored durably"):
        Log.open(disk, FOLDER, TINY, now_ms=0)
