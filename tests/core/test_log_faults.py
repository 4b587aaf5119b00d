"""Disks that fill up and fail: the log says so, refuses to go on, and loses nothing that was durable."""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from log_model import FOLDER, TINY, Model, Work, contents

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
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


def test_what_is_written_out_early_is_durable_only_after_the_flush(tmp_path: Path) -> None:
    config = replace(TINY, segment_bytes=1 << 20, max_batch_bytes=1 << 20)
    log = Log.open(OsFiles(), str(tmp_path / "t-0"), config, now_ms=0)
    big = bytes(40_000)  # worth it
    log.write_out()
    for end in (1, 2):
        log.append_as_leader(batch(big), 1, 0)
        log.write_out()
        assert (log.flushed_offset, log.flush()) == (end - 1, end)
    log.truncate_to(1)
    log.append_as_leader(batch(big), 1, 0)
    log.write_out()
    log.roll(0)
    log.write_out()
    assert log.flush() == 2
    log.check_invariants()
    log.close()
    log.write_out()
    again = Log.open(OsFiles(), str(tmp_path / "t-0"), config, now_ms=0)
    assert (again.log_end_offset, again.recovery_actions) == (2, [])


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


def test_a_flush_ends_though_the_writer_seals_segments_faster_than_it_syncs() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    for _ in range(20):
        log.append_as_leader(batch(), 1, 0)
    waiting = len(log.segment_list())
    syncs: list[str] = []

    def during(path: str) -> float:
        syncs.append(path)
        assert len(syncs) < 100
        log.append_as_leader(batch(), 1, 0)
        log.roll(0)
        return 0.0

    disk.sync_latency_ms = during
    assert log.flush() == 20
    disk.sync_latency_ms = None
    assert len([path for path in syncs if path.endswith(".log")]) == waiting
    assert log.flush() == log.log_end_offset
    log.check_invariants()


def test_an_append_that_fails_while_an_older_segment_is_synced() -> None:
    """The flush must not take the active segment, frozen by the failure, for one that was synced."""
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    for number in range(20):
        log.append_as_leader(batch(b"%d" % number), 1, 0)
    sealed = [segment for segment in log.segment_list() if segment.sealed]

    def during(path: str) -> float:
        if path == sealed[-1].path + ".timeindex":
            disk.sync_latency_ms = None
            disk.inject("write")
            with pytest.raises(StorageError):
                log.append_as_leader(batch(), 1, 0)
        return 0.0

    disk.sync_latency_ms = during
    with pytest.raises(ClosedError, match="refuses changes"):
        log.flush()
    assert disk.sync_latency_ms is None
    assert log.flushed_offset == 0
    log.close()
    assert Log.open(disk.crash("lost"), FOLDER, TINY, now_ms=0).log_end_offset >= log.flushed_offset


class SlowFolderSync(SimulatedDisk):
    """Runs code in the middle of a folder sync, as another thread would while the system waits for the disk."""

    action: object = None

    def sync_folder(self, path: str) -> None:
        action, self.action = self.action, None
        if callable(action):
            action()
        super().sync_folder(path)


def test_a_flush_while_a_roll_runs_covers_the_segment_being_sealed() -> None:
    disk = SlowFolderSync(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    for _ in range(3):
        log.append_as_leader(batch(), 1, 0)
    flushed: list[int] = []
    disk.action = lambda: flushed.append(log.flush())
    log.roll(5)
    assert flushed == [3]
    survivor = Log.open(disk.crash("lost"), FOLDER, TINY, now_ms=0)
    assert survivor.log_end_offset == 3


@pytest.mark.parametrize("remove", ["truncate_to", "truncate_fully_to", "delete_below"])
def test_a_flush_cannot_begin_while_files_are_removed(remove: str) -> None:
    """It would take the end before the removal for flushed."""
    disk = SlowFolderSync(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    for number in range(40):
        log.append_as_leader(batch(b"%d" % number), 1, 0)
    log.flush()
    log.append_as_leader(batch(), 1, 0)
    refused = []

    def during() -> None:
        with pytest.raises(LocalError, match="or a removal"):
            log.flush()
        refused.append(True)

    disk.action = during
    getattr(log, remove)(*{"truncate_to": (5,), "truncate_fully_to": (60,), "delete_below": (35, 0)}[remove])
    assert refused == [True]
    assert log.flush() == log.log_end_offset
    log.check_invariants()


class Meddler(SimulatedDisk):
    """Another thread that changes a buffer while a folder is synced."""

    buffer: bytearray | None = None

    def sync_folder(self, path: str) -> None:
        if self.buffer is not None:
            self.buffer.clear()
            self.buffer = None
        super().sync_folder(path)


def test_a_batch_resized_by_another_thread_is_refused() -> None:
    disk = Meddler(Random(1))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    disk.buffer = buffer = batch(b"gone")
    with pytest.raises(LocalError, match="resized by another thread"):
        log.append_as_leader(buffer, 1, 0)
    assert log.append_as_leader(batch(), 1, 0) == 0
    log.check_invariants()


@pytest.mark.parametrize("seed", range(10))
def test_what_a_restart_after_a_failed_sync_claims_durable_is(seed: int) -> None:
    """The page cache shows bytes that a failed sync gave up: a restart must write them again, not only sync."""
    disk = SimulatedDisk(Random(seed))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    log.append_as_leader(batch(), 1, 0)
    log.flush()
    for _ in range(4):
        log.append_as_leader(batch(), 1, 0)
    disk.inject("sync", path=".log")
    with pytest.raises(StorageError):
        log.flush()
    log.close()
    again = Log.open(disk, FOLDER, TINY, now_ms=0)
    claimed = again.flushed_offset
    assert claimed >= 1
    assert Log.open(disk.crash("lost"), FOLDER, TINY, now_ms=0).log_end_offset >= claimed


def test_an_index_that_cannot_be_written_in_the_middle_of_a_received_run() -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, LogConfig(index_interval_bytes=0), now_ms=0)
    received = [build_batch([b"x"], timestamp_ms=number, base_offset=number, leader_epoch=1) for number in range(600)]
    disk.inject("write", path="index")
    with pytest.raises(StorageError):
        log.append_as_follower(b"".join(received), 0)
    assert 0 < log.log_end_offset < 600
    for number in range(log.log_end_offset):
        assert log.read(number, 1) == received[number]


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
