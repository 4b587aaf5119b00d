"""Single rules of the log: rolling, refusals, reads, deletion, bounded memory."""

from __future__ import annotations

import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_model import FOLDER, TINY, contents

from kraftcore.core.batch import build_batch, build_records_batch, iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import AppendInfo, Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import LeaderEpochs
from kraftcore.errors import ClosedError, CorruptBatchError, CorruptDataError, LocalError


def batch(size: int = 5, timestamp_ms: int = 1, count: int = 1, **fields: int) -> bytearray:
    return build_batch([b"v" * size] * count, timestamp_ms=timestamp_ms, **fields)


def new_log(disk: SimulatedDisk | None = None, **settings: Any) -> Log:
    return Log.open(disk or SimulatedDisk(Random(1)), FOLDER, replace(LogConfig(), **settings), now_ms=0)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segment_list()]


# ---- rolling


def test_rolls_when_the_next_batch_would_not_fit() -> None:
    size = len(batch())
    log = new_log(segment_bytes=3 * size)
    for _ in range(7):
        log.append_as_leader(batch(), 1, 0)
    assert bases(log) == [0, 3, 6]
    assert [segment.size for segment in log.segment_list()] == [3 * size, 3 * size, size]


def test_other_settings_hold_at_once() -> None:
    log = new_log(segment_bytes=10_000, tail_bytes=77)
    log.append_as_leader(batch(1000), 1, 0)
    other = replace(log.config, segment_bytes=1100, max_batch_bytes=1100, segment_ms=50, tail_bytes=1)
    log.configure(other)
    assert log.config == replace(other, tail_bytes=77)
    log.append_as_leader(batch(), 1, 0)
    assert bases(log) == [0, 1]
    with pytest.raises(LocalError, match="max_batch_bytes 1100"):
        log.append_as_leader(batch(2000), 1, 0)
    log.append_as_leader(batch(timestamp_ms=52), 1, 0)
    assert bases(log) == [0, 1, 2]
    log.check_invariants()


def test_rolls_by_the_timestamps_of_batches() -> None:
    log = new_log(segment_ms=100)
    for timestamp in (1000, 1100, 1101, 1150, 1202):
        log.append_as_leader(batch(timestamp_ms=timestamp), 1, 10**9)  # the clock does not matter
    assert bases(log) == [0, 2, 4]


def test_rolls_by_the_clock_when_batches_have_no_timestamp() -> None:
    log = new_log(segment_ms=100)
    for now in (0, 100, 101, 150, 201, 202):
        log.append_as_leader(batch(timestamp_ms=-1), 1, now)
    assert bases(log) == [0, 2, 5]  # counted from the segment's creation


def test_age_is_known_again_after_a_restart() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, segment_ms=100)
    log.append_as_leader(batch(timestamp_ms=1000), 1, 0)
    log.close()
    log = new_log(disk, segment_ms=100)
    log.append_as_leader(batch(timestamp_ms=1101), 1, 0)
    assert bases(log) == [0, 1]


def test_rolls_when_an_index_is_full() -> None:
    log = new_log(index_interval_bytes=0, index_bytes_max=48)
    for number in range(30):
        log.append_as_leader(batch(timestamp_ms=number), 1, 0)
    assert len(bases(log)) > 3
    for segment in log.segment_list():
        assert len(segment.index_entries()) <= 6
        assert len(segment.time_index_entries()) <= 4
    log.check_invariants()
    constant = new_log(index_interval_bytes=0, index_bytes_max=48)
    for _ in range(30):
        constant.append_as_leader(batch(), 1, 0)
    assert {len(segment.index_entries()) for segment in constant.segment_list()[:-1]} == {6}


def test_rolls_when_an_offset_leaves_32_bits() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk)
    log.append_as_leader(batch(), 1, 0)
    far = bytearray(batch(base_offset=1, leader_epoch=1))
    log.truncate_fully_to(2**40)
    for number in range(3):
        far[:8] = (2**40 + number).to_bytes(8, "big")
        log.append_as_follower(bytes(far), 0)
    assert log.log_end_offset == 2**40 + 3
    log.close()
    assert new_log(disk).log_end_offset == 2**40 + 3


def test_rolling_by_hand_needs_something_to_seal() -> None:
    log = new_log()
    log.roll(0)
    assert bases(log) == [0]
    log.append_as_leader(batch(), 1, 0)
    log.roll(0)
    log.roll(0)
    assert bases(log) == [0, 1]


# ---- append


def test_the_leader_stamps_offsets_and_epoch() -> None:
    log = new_log()
    first, second = batch(count=3), batch(count=2)
    assert log.append_as_leader(first, 4, 0) == 0
    assert log.append_as_leader(second, 5, 0) == 3
    (found,) = iter_batches(second)
    assert (found.base_offset, found.leader_epoch, found.is_valid) == (3, 5, True)
    assert log.read(0, 10_000) == bytes(first + second)
    assert [tuple(entry) for entry in log.epoch_entries()] == [(4, 0), (5, 3)]


def test_what_a_leader_may_not_append() -> None:
    log = new_log(max_batch_bytes=1000, segment_bytes=500)
    log.append_as_leader(batch(), 4, 0)
    for data, epoch, words in (
        (batch(), 3, "leader epoch 3 is over"),
        (batch(), -1, "at least 0"),
        (batch(600), 4, "segment_bytes 500"),
        (batch() + batch(), 4, "exactly one batch"),
        (batch()[:-1], 4, "exactly one batch"),
        (bytearray(), 4, "exactly one batch"),
        (bytearray(200), 4, "exactly one batch"),
        (bytearray(61), 4, "exactly one batch"),
    ):
        with pytest.raises(LocalError, match=words):
            log.append_as_leader(data, epoch, 0)
    assert log.log_end_offset == 1
    with pytest.raises(TypeError):
        log.append_as_leader(bytes(batch()), 4, 0)  # type: ignore[arg-type]
    log.check_invariants()


def test_a_follower_takes_batches_as_they_are() -> None:
    log = new_log()
    data = b"".join(bytes(batch(base_offset=n, leader_epoch=1 + n // 2)) for n in range(5))
    size = len(data) // 5
    assert log.append_as_follower(memoryview(bytearray(data)), 0) == AppendInfo(0, 4, 5, len(data))
    assert log.read(0, 10_000) == data
    assert [tuple(entry) for entry in log.epoch_entries()] == [(1, 0), (2, 2), (3, 4)]
    more = b"".join(bytes(batch(base_offset=n, leader_epoch=n)) for n in range(5, 9))
    assert log.append_as_follower(more, 0, max_epoch=6) == AppendInfo(5, 6, 2, 2 * size)
    assert log.append_as_follower(more[2 * size :], 0, max_epoch=6) == AppendInfo(7, 6, 0, 0)
    assert log.append_as_follower(more[2 * size :] + b"partial", 0, max_epoch=None) == AppendInfo(7, 8, 2, 2 * size)
    log.check_invariants()


def test_what_a_follower_refuses_changes_nothing() -> None:
    log = new_log(segment_bytes=500)
    log.append_as_leader(batch(), 4, 0)
    good = bytes(batch(base_offset=1, leader_epoch=4))
    flipped = bytearray(batch(base_offset=2, leader_epoch=4))
    flipped[-1] ^= 1
    for data, words in (
        (bytes(batch(base_offset=2, leader_epoch=4)), "continues at 1"),
        (bytes(batch(base_offset=0, leader_epoch=4)), "continues at 1"),
        (good + bytes(batch(base_offset=3, leader_epoch=4)), "continues at 2"),
        (good + bytes(batch(base_offset=2, leader_epoch=3)), "leader epoch 3 after epoch 4"),
        (bytes(batch(base_offset=1, leader_epoch=-1)), "leader epoch -1"),
        (bytes(batch(600, base_offset=1, leader_epoch=4)), "segment_bytes 500"),
        (good + bytes(flipped), "checksum"),
        (good[:-1], "one whole batch"),
        (b"", "one whole batch"),
        (b"x" * 100, "header|magic|length"),
    ):
        with pytest.raises(CorruptBatchError, match=words):
            log.append_as_follower(data, 0)
        assert log.log_end_offset == 1
    log.check_invariants()
    assert log.append_as_follower(good, 0).last_offset == 1


def test_epochs_of_a_new_leader() -> None:
    log = new_log()
    assert log.last_epoch is None
    assert tuple(log.end_offset_for_epoch(5)) == (0, 0)
    log.assign_epoch_start_offset(3, 0)
    assert log.last_epoch == 3
    log.append_as_leader(batch(), 3, 0)
    log.assign_epoch_start_offset(7, 1)
    log.assign_epoch_start_offset(7, 1)
    assert tuple(log.end_offset_for_epoch(5)) == (1, 3)
    assert tuple(log.end_offset_for_epoch(9)) == (1, 7)
    for epoch, offset in ((6, 1), (8, 0), (8, 2), (-1, 1)):
        with pytest.raises(LocalError):
            log.assign_epoch_start_offset(epoch, offset)
    with pytest.raises(LocalError):
        log.end_offset_for_epoch(-1)
    assert log.truncate_to(1) == 1  # an epoch without records goes
    assert log.last_epoch == 3


# ---- read


def test_the_tail_can_be_left_out_and_begun_again() -> None:
    log = new_log(tail_bytes=1 << 20)
    log.append_as_leader(batch(), 1, 0)
    assert log.bytes_in_memory(0, 1) == len(batch())
    log.keep_tail(0)
    assert log.bytes_in_memory(0, 1) is None
    received = b"".join(bytes(build_batch([b"v"], timestamp_ms=1, base_offset=at, leader_epoch=1)) for at in (1, 2, 3))
    before = log.read(0, 1000)
    assert log.append_as_follower(memoryview(b"frame" + received)[5:], 0) == AppendInfo(1, 3, 3, len(received))
    assert log.bytes_in_memory(1, 4) is None
    assert log.read(0, 1000) == before + received
    log.keep_tail(1 << 20)
    log.append_as_leader(batch(), 1, 0)
    assert log.bytes_in_memory(4, 5) == len(batch())
    assert log.bytes_in_memory(3, 5) is None
    with pytest.raises(LocalError, match="-1 bytes in memory"):
        log.keep_tail(-1)


def test_indexes_are_bounded_without_a_tail_as_well() -> None:
    sent = b"".join(
        bytes(build_batch([b"v" * 5000], timestamp_ms=at, base_offset=at, leader_epoch=1)) for at in range(200)
    )
    log = new_log(tail_bytes=0, index_bytes_max=128, segment_bytes=1 << 26)
    log.append_as_follower(sent, 0)
    assert all(segment.size < 200_000 for segment in log.segment_list())
    assert log.log_end_offset == 200


def test_an_abandoned_log_is_recovered_and_writes_nothing() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk)
    log.append_as_leader(batch(), 1, 0)
    before = {name: disk.read_file(f"{FOLDER}/{name}") for name in disk.list_folder(FOLDER)}
    log.abandon()
    log.abandon()
    assert {name: disk.read_file(f"{FOLDER}/{name}") for name in disk.list_folder(FOLDER)} == before
    with pytest.raises(ClosedError):
        log.append_as_leader(batch(), 1, 0)
    assert new_log(disk).log_end_offset == 1


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="looks for open files as Linux shows them")
def test_a_log_is_abandoned_though_its_files_cannot_be_closed(tmp_path: Path) -> None:
    log = Log.open(OsFiles(), str(tmp_path / "t-0"), LogConfig(), now_ms=0)
    log.append_as_leader(batch(), 1, 0)
    for fd in os.listdir("/proc/self/fd"):
        if os.path.islink(f"/proc/self/fd/{fd}") and os.readlink(f"/proc/self/fd/{fd}").startswith(str(tmp_path)):
            os.close(int(fd))
    log.abandon()
    assert log.closed


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))])
def test_what_a_follower_was_given_may_change_afterwards(wrap: Any) -> None:
    received = bytes(build_batch([b"v" * 500], timestamp_ms=1, base_offset=0, leader_epoch=1))
    log = new_log(tail_bytes=1 << 20)
    given = wrap(received)
    log.append_as_follower(given, 0)
    with memoryview(given) as view:
        if not view.readonly:
            view[:] = bytes(len(view))
    assert log.read(0, 1000) == received
    assert log.bytes_in_memory(0, 1) == len(received)


@pytest.mark.parametrize("tail_bytes", [0, 1 << 20])
def test_limits_of_a_read(tail_bytes: int) -> None:
    log = new_log(tail_bytes=tail_bytes)
    data = [batch(10 * number) for number in range(4)]
    for one in data:
        log.append_as_leader(one, 1, 0)
    sizes = [len(one) for one in data]
    assert log.read(0, sizes[0] + sizes[1]) == bytes(data[0] + data[1])
    assert log.read(0, sizes[0] + sizes[1] - 1) == bytes(data[0])
    assert log.read(0, 0) == bytes(data[0])
    assert log.read(0, 0, at_least_one=False) == b""
    assert log.read(1, sizes[1] - 1, at_least_one=False) == b""
    assert log.read(0, 10_000, up_to=2) == bytes(data[0] + data[1])
    assert log.read(2, 10_000, up_to=2) == b""
    assert log.read(3, 10_000, up_to=-5) == b""
    assert log.read(4, 10_000) == b""
    for offset in (-1, 5):
        with pytest.raises(LocalError, match="out of range, the log holds 0 to 3"):
            log.read(offset, 10)
    with pytest.raises(LocalError, match="max_bytes"):
        log.read(0, -1)


def test_a_read_fits_a_segment() -> None:
    """Memory spans segments; Kafka's follower takes what it gets into one."""
    log = new_log(segment_bytes=1000, tail_bytes=1 << 20)
    data = [batch(100) for _ in range(20)]
    for one in data:
        log.append_as_leader(one, 1, 0)
    assert log.tail_base_offset == 0
    whole = 1000 // len(data[0])
    assert 1 < whole < len(data)
    assert log.read(3, 1 << 20) == b"".join(bytes(one) for one in data[3 : 3 + whole])


def test_the_tail_is_bounded_and_serves_the_end() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, tail_bytes=2000)
    for _ in range(50):
        log.append_as_leader(batch(100), 1, 0)
    assert 30 < log.tail_base_offset < 50
    disk.inject("read", times=-1)
    assert log.read(log.tail_base_offset, 10_000)
    log.append_as_leader(batch(5000), 1, 0)  # larger than the whole tail
    assert log.tail_base_offset == log.log_end_offset
    disk.clear_faults()
    assert log.read(50, 1)
    log.check_invariants()


def test_the_tail_keeps_no_more_than_it_counts() -> None:
    """A received buffer may be mostly a partial batch, or larger than the tail: only what is held stays in memory."""
    log = Log.open(SimulatedDisk(Random(1)), FOLDER, LogConfig(tail_bytes=200_000), now_ms=0)
    tracemalloc.start()
    try:
        for number in range(60):
            small = build_batch([b"x"], timestamp_ms=1, base_offset=number, leader_epoch=1)
            log.append_as_follower(bytes(small) + bytes(build_batch([bytes(100_000)], timestamp_ms=1))[:-1], 0)
        partial = tracemalloc.get_traced_memory()[0]
        many = b"".join(
            build_batch([bytes(900)], timestamp_ms=1, base_offset=number, leader_epoch=1) for number in range(60, 1060)
        )
        log.append_as_follower(many, 0)
        del many
        large = tracemalloc.get_traced_memory()[0] - partial
    finally:
        tracemalloc.stop()
    assert partial < 1_000_000
    assert large < 3_500_000  # the simulated file holds the bytes twice and more; not a third time


def test_a_truncation_keeps_the_index_below_it() -> None:
    log = Log.open(SimulatedDisk(Random(1)), FOLDER, LogConfig(index_interval_bytes=100), now_ms=0)
    for number in range(100):
        log.append_as_leader(build_batch([b"x"], timestamp_ms=number), 1, 0)
    (segment,) = log.segment_list()
    before, times = segment.index_entries(), segment.time_index_entries()
    assert len(before) > 30
    log.truncate_to(90)
    assert segment.index_entries() == [entry for entry in before if entry[0] < 90]
    assert segment.time_index_entries() == [entry for entry in times if entry[1] < 90]


def test_control_batches_are_known_without_reading() -> None:
    disk = SimulatedDisk(Random(1))
    config = LogConfig(segment_bytes=600)
    log = Log.open(disk, FOLDER, config, now_ms=0)
    for number in range(30):
        batch = build_records_batch([(b"\0\0\0\2", b"")], timestamp_ms=1, control=number % 7 == 0)
        log.append_as_leader(batch, 1, 0)
    log.close()
    faults = [disk.inject("read", times=-1, path=suffix) for suffix in (".log", ".index", ".timeindex")]
    log = Log.open(disk, FOLDER, config, now_ms=0)
    assert log.control_offsets() == [0, 7, 14, 21, 28]
    assert [fault.hits for fault in faults] == [0, 0, 0]
    disk.clear_faults()
    log.delete_below(7, 0)
    assert log.control_offsets() == [7, 14, 21, 28]
    log.truncate_to(21)
    assert log.control_offsets() == [7, 14]
    log.truncate_fully_to(50)
    assert log.control_offsets() == []
    log.close()
    with pytest.raises(ClosedError):
        log.control_offsets()


def test_a_buffer_taken_back_is_read_from_disk() -> None:
    log = new_log()
    buffer = batch()
    expected = bytes(buffer)
    log.append_as_leader(buffer, 1, 0)
    del buffer[10:]
    assert log.read(0, 100)[61:] == expected[61:]


# ---- truncate and delete


def test_a_truncation_within_a_batch_takes_all_of_it() -> None:
    log = new_log()
    log.append_as_leader(batch(count=3), 1, 0)
    log.append_as_leader(batch(count=3), 2, 0)
    log.flush()
    assert log.truncate_to(10) == 6
    assert log.truncate_to(4) == 3
    assert (log.log_end_offset, log.flushed_offset, log.last_epoch) == (3, 3, 1)
    assert log.append_as_leader(batch(), 2, 0) == 3
    log.check_invariants()


@pytest.mark.parametrize("damaged", [0, 3])
def test_a_truncation_above_damage_does_not_hide_it(damaged: int) -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, LogConfig(index_interval_bytes=1, tail_bytes=0), now_ms=0)
    for _ in range(10):
        log.append_as_leader(build_batch([b"x"], timestamp_ms=1), 1, 0)
    log.flush()
    size = len(log.read(9, 1000))
    with disk.open(f"{FOLDER}/{0:020d}.log") as file:
        file.write_at(size * damaged + 16, b"\xff")
    assert log.truncate_to(7) == log.log_end_offset == 7
    with pytest.raises(CorruptDataError, match="damaged"):
        log.read(damaged, 1000)
    assert log.append_as_leader(build_batch([b"x"], timestamp_ms=2), 1, 0) == 7


def test_truncation_below_the_start_is_refused() -> None:
    log = new_log()
    log.truncate_fully_to(10)
    with pytest.raises(LocalError, match="below the log's start 10"):
        log.truncate_to(9)
    with pytest.raises(LocalError, match="below the log's start 10"):
        log.truncate_fully_to(9)
    log.truncate_fully_to(10)
    assert log.log_end_offset == 10


def test_deleted_files_wait_for_their_time() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, segment_bytes=200, file_delete_delay_ms=60_000)
    for _ in range(10):
        log.append_as_leader(batch(20), 1, 0)
    with pytest.raises(LocalError, match="only 0 is flushed"):
        log.delete_below(5, 1000)
    log.flush()
    assert log.delete_below(0, 1000) == 0
    assert log.delete_below(5, 1000) == 2
    assert (log.log_start_offset, bases(log)[0]) == (5, 4)
    with pytest.raises(LocalError, match="out of range"):
        log.read(4, 100)
    deleted = [name for name in disk.list_folder(FOLDER) if name.endswith(".deleted")]
    assert f"{0:020d}.log.deleted" in deleted
    assert log.delete_expired(60_999) == 0
    assert log.delete_expired(61_000) == len(deleted)
    assert not [name for name in disk.list_folder(FOLDER) if name.endswith(".deleted")]
    assert log.delete_below(10, 2000) == len(bases(log)) + 2  # all: the log goes on in a new segment
    assert bases(log) == [10]
    log.check_invariants()
    log.close()
    assert not [name for name in disk.list_folder(FOLDER) if ".log." in name and "deleted" not in name]
    log = new_log(disk)
    assert (log.log_start_offset, log.recovery_actions) == (10, [])
    assert not [name for name in disk.list_folder(FOLDER) if name.endswith(".deleted")]


def test_timestamps_find_offsets() -> None:
    log = new_log(index_interval_bytes=100, segment_bytes=700)
    for number, timestamp in enumerate((10, 30, 20, 40, 35, 60, 50, 70, 70, 80)):
        assert log.append_as_leader(batch(timestamp_ms=timestamp), 1, 0) == number
    found = [log.offset_for_timestamp(timestamp) for timestamp in (0, 10, 11, 31, 41, 61, 70, 71, 81)]
    assert found == [0, 0, 1, 3, 5, 7, 7, 9, None]


# ---- memory, settings, misuse


def test_an_open_log_costs_the_same_whatever_its_size() -> None:
    def cost(records: int) -> int:
        disk = SimulatedDisk(Random(1))
        log = new_log(disk, tail_bytes=0, index_interval_bytes=100)
        for number in range(records):
            log.append_as_leader(batch(100, timestamp_ms=number), 1, 0)
        log.close()
        tracemalloc.start()
        log = new_log(disk, tail_bytes=0, index_interval_bytes=100)
        for offset in range(0, records, max(records // 50, 1)):
            log.read(offset, 1)
        current = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        return current

    cost(100)
    assert cost(20_000) < cost(200) + 20_000


def test_few_files_stay_open_for_reading() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, segment_bytes=200, tail_bytes=0)
    for _ in range(100):
        log.append_as_leader(batch(20), 1, 0)
    log.flush()
    assert len(contents(log)) == 100
    assert sum(segment.attached for segment in log.segment_list()) <= 9


def test_settings_out_of_range() -> None:
    for settings in ({"segment_bytes": 10}, {"segment_bytes": 2**31}, {"index_bytes_max": 8}, {"tail_bytes": -1}):
        with pytest.raises(LocalError, match=next(iter(settings))):
            replace(TINY, **settings)


def test_logs_come_from_open_only() -> None:
    with pytest.raises(LocalError, match=r"Log\.open"):
        Log()
    raw = Log.__new__(Log)
    for action in (
        raw.flush,
        raw.check_invariants,
        lambda: raw.append_as_leader(batch(), 1, 0),
        lambda: raw.read(0, 1),
        lambda: raw.truncate_to(0),
        lambda: raw.append_as_follower(b"", 0),
        lambda: raw.tail_base_offset,
        lambda: raw.size_in_bytes,
        raw.segment_list,
        lambda: raw.offset_for_timestamp(0),
        raw.control_offsets,
        lambda: raw.roll(0),
        lambda: raw.delete_expired(0),
    ):
        with pytest.raises(ClosedError):
            action()


PAIRS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=8)


@given(PAIRS, st.integers(0, 10), st.integers(0, 31))
def test_epochs_stay_in_order_and_survive_the_file(assigned: list[tuple[int, int]], epoch: int, offset: int) -> None:
    epochs = LeaderEpochs()
    for pair in assigned:
        epochs.assign(*pair)
    entries = epochs.entries()
    assert entries == sorted(set(entries))
    assert len({entry.start_offset for entry in entries}) == len(entries) == len({entry.epoch for entry in entries})
    assert LeaderEpochs.decode(epochs.encode()).entries() == entries
    at = [entry.epoch for entry in entries if entry.start_offset <= offset]
    assert epochs.epoch_at(offset) == (at[-1] if at else None)
    epochs.truncate_start(offset)
    assert epochs.epoch_at(offset) == (at[-1] if at else None)
    assert all(entry.start_offset >= offset for entry in epochs.entries())
    epochs.truncate_end(offset + 1)
    assert all(entry.start_offset <= offset for entry in epochs.entries())


def test_the_file_of_epochs_that_change_meanwhile_is_of_one_moment() -> None:
    epochs = LeaderEpochs()

    class Changing(int):
        """Another thread assigns an epoch while this one is written."""

        def __format__(self, spec: str) -> str:
            epochs.assign(9, 90)
            epochs.assign(3, 30)
            return super().__format__(spec)

    for epoch in (1, 2, 5):
        epochs.assign(Changing(epoch), epoch * 10)
    assert LeaderEpochs.decode(epochs.encode()).entries() == [(1, 10), (2, 20), (5, 50)]
    assert epochs.entries() == [(1, 10), (2, 20), (3, 30)]


@pytest.mark.parametrize(
    "data",
    [b"", b"0\n", b"1\n0\n", b"0\n1\n", b"0\n0\n1 1\n", b"0\n1\n1 x\n", b"0\n2\n1 5\n1 6\n", b"0\n1\n9999999999 1\n"],
)
def test_checkpoints_that_are_none(data: bytes) -> None:
    with pytest.raises(CorruptDataError):
        LeaderEpochs.decode(data)


# ---- zeros written ahead

FIRST = f"{FOLDER}/{0:020d}.log"


def test_zeros_written_ahead_are_gone_after_a_roll_and_a_close() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, segment_bytes=600, preallocate_bytes=8192)
    log.append_as_leader(batch(), 1, 0)
    assert disk.stat(FIRST).size == 8192
    while len(log.segment_list()) == 1:
        log.append_as_leader(batch(), 1, 0)
    sizes = [segment.size for segment in log.segment_list()]
    assert disk.stat(FIRST).size == sizes[0]
    log.close()
    assert disk.stat(f"{FOLDER}/{bases(log)[1]:020d}.log").size == sizes[1]
    assert new_log(disk).recovery_actions == []


def test_zeros_written_ahead_are_cut_after_a_crash() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, preallocate_bytes=8192)
    log.append_as_leader(batch(), 1, 0)
    log.flush()
    crashed = disk.crash("lost")
    assert crashed.stat(FIRST).size == 8192
    again = new_log(crashed)
    size = len(batch())
    assert again.log_end_offset == 1
    assert again.recovery_actions == [f"{FIRST}: cut from 8192 to {size} bytes: zeros written ahead"]
    assert crashed.stat(FIRST).size == size


def test_a_sealed_segment_may_still_have_its_zeros_after_a_crash() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, segment_bytes=100, preallocate_bytes=8192)
    for _ in range(2):
        log.append_as_leader(batch(), 1, 0)
    log.flush()
    size = len(batch())
    with disk.open(FIRST) as file:
        file.truncate(8192)
    again = new_log(disk.crash("kept"))
    assert again.log_end_offset == 2
    assert f"{FIRST}: cut from 8192 to {size} bytes: zeros written ahead" in again.recovery_actions


def test_zeros_in_place_of_durable_batches_are_damage() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, segment_bytes=2 * len(batch()))
    for _ in range(3):
        log.append_as_leader(batch(), 1, 0)
    log.flush()
    with disk.open(FIRST) as file:
        file.write_at(len(batch()), bytes(len(batch())))
    with pytest.raises(CorruptDataError, match="starts at 2, expected 1"):
        new_log(disk.crash("kept"))


def test_large_appends_get_no_zeros_ahead() -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, preallocate_bytes=8192)
    log.append_as_leader(batch(1000), 1, 0)
    assert disk.stat(FIRST).size == log.segment_list()[0].size


def test_a_disk_too_full_for_zeros_still_takes_the_append() -> None:
    disk = SimulatedDisk(Random(1), capacity=3000)
    log = new_log(disk, preallocate_bytes=8192)
    for _ in range(2):
        log.append_as_leader(batch(), 1, 0)
    log.flush()
    assert disk.stat(FIRST).size == log.segment_list()[0].size == 2 * len(batch())


def test_a_disk_that_fills_up_later_leaves_no_zeros_behind() -> None:
    disk = SimulatedDisk(Random(1), capacity=6000)
    log = new_log(disk, preallocate_bytes=4096)
    while log.segment_list()[0].size < 4096:
        log.append_as_leader(batch(), 1, 0)
    assert disk.stat(FIRST).size == log.segment_list()[0].size
    log.check_invariants()
    log.close()
    assert new_log(disk).recovery_actions == []


# ---- whose files are not the log's


def test_without_a_topic_id_partition_metadata_is_left_alone() -> None:
    disk = SimulatedDisk(Random(1))
    new_log(disk, topic_id=None).close()
    assert "partition.metadata" not in disk.list_folder(FOLDER)
    disk.replace_file(f"{FOLDER}/partition.metadata", b"somebody else's")
    new_log(disk, topic_id=None).close()
    assert disk.read_file(f"{FOLDER}/partition.metadata") == b"somebody else's"


@pytest.mark.parametrize("is_on", [True, False])
def test_producer_snapshots_are_written_at_roll_and_close_or_never(is_on: bool) -> None:
    disk = SimulatedDisk(Random(1))
    log = new_log(disk, producer_snapshots=is_on)
    log.append_as_leader(batch(), 0, 0)
    log.roll(0)
    log.append_as_leader(batch(), 0, 0)
    log.close()
    found = [name for name in disk.list_folder(FOLDER) if name.endswith(".snapshot")]
    assert found == ([f"{offset:020d}.snapshot" for offset in (1, 2)] if is_on else [])
