"""Folders that somebody damaged: the documented error or a repair, never a crash, never wrong records."""

from __future__ import annotations

import os
import tracemalloc
from contextlib import suppress
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_model import FOLDER, TINY, contents

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import LeaderEpochs
from kraftcore.core.log.listing import Listing, SegmentEntry
from kraftcore.core.log.recovery import decode_metadata
from kraftcore.errors import CorruptDataError, LocalError

ROUNDS = int(os.environ.get("KRAFTCORE_HOSTILE_ROUNDS", "80"))
SMALL_FILES = ("kraftcore-segments", "leader-epoch-checkpoint", "partition.metadata")


def filled(clean: bool, records: int = 60) -> tuple[SimulatedDisk, list[bytes]]:
    disk = SimulatedDisk(Random(4))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    batches = []
    for number in range(records):
        batch = build_batch([b"%d" % number * 9], timestamp_ms=1000 + number)
        log.append_as_leader(batch, 1 + number // 25, 0)
        batches.append(bytes(batch))
    log.flush()
    if clean:
        log.close()
    return disk, batches


def change(disk: SimulatedDisk, name: str, data: bytes) -> None:
    with disk.open(f"{FOLDER}/{name}", create=True, truncate=True) as file:
        file.write_at(0, data)


def damage(rng: Random, data: bytes) -> bytes:
    kind = rng.choice(("flip", "cut", "zero", "grow", "garbage", "swap", "empty"))
    position = rng.randrange(len(data)) if data else 0
    if kind == "flip" and data:
        return data[:position] + bytes([data[position] ^ (1 << rng.randrange(8))]) + data[position + 1 :]
    if kind == "cut":
        return data[:position]
    if kind == "zero":
        size = rng.randint(1, 40)
        return data[:position] + bytes(len(data[position : position + size])) + data[position + size :]
    if kind == "grow":
        return data + (rng.randbytes(rng.randint(1, 100)) if rng.random() < 0.5 else bytes(rng.randint(1, 5000)))
    if kind == "garbage":
        return rng.randbytes(rng.randint(0, 200))
    if kind == "swap":
        return data[position:] + data[:position]
    return b""


@pytest.mark.parametrize("clean", [True, False])
def test_random_damage_to_any_file(clean: bool) -> None:
    rng = Random(9)
    refused = opened = shorter = wrong_topic = 0
    for _ in range(ROUNDS):
        disk, batches = filled(clean)
        name = rng.choice([name for name in disk.list_folder(FOLDER) if not name.endswith(".snapshot")])
        change(disk, name, damage(rng, disk.read_file(f"{FOLDER}/{name}")))
        try:
            log = Log.open(disk, FOLDER, TINY, now_ms=0)
        except CorruptDataError:
            refused += 1
            if name.endswith(".log"):
                log = Log.open(disk, FOLDER, TINY, now_ms=0, repair=True)
                assert any("on request" in action for action in log.recovery_actions)
                assert contents(log) == batches[: log.log_end_offset]
            continue
        except LocalError:
            wrong_topic += 1
            assert name == "partition.metadata"
            continue
        opened += 1
        log.check_invariants()
        assert contents(log) == batches[: log.log_end_offset]
        shorter += log.log_end_offset < len(batches)
        assert log.log_end_offset == len(batches) or name.endswith(".log")
        assert log.last_epoch == 1 + (log.log_end_offset - 1) // 25 or log.log_end_offset == 0
    assert refused > ROUNDS // 20
    assert opened > ROUNDS // 5


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_lies_is_noticed(suffix: str) -> None:
    """Same size, same time, other content: nothing in the index is trusted."""
    rng = Random(3)
    noticed = 0
    for _ in range(30):
        disk, batches = filled(True)
        log = Log.open(disk, FOLDER, TINY, now_ms=0)  # trusted
        for name in disk.list_folder(FOLDER):
            if name.endswith(suffix):
                data = disk.read_file(f"{FOLDER}/{name}")
                change(disk, name, rng.choice((rng.randbytes(len(data)), bytes(len(data)), b"\xff" * len(data))))
        for offset in rng.sample(range(60), 20):
            assert log.read(offset, 1) == batches[offset]
        noticed += sum(segment.suspect_index for segment in log.segment_list())
        for timestamp, offset in ((990, 0), (1010, 10), (1059, 59), (1060, None)):
            assert log.offset_for_timestamp(timestamp) == offset
    assert bool(noticed) == (suffix == ".index")


def test_damage_below_a_trusted_listing_is_found_when_read() -> None:
    disk, batches = filled(True)
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    with disk.open(f"{FOLDER}/{0:020d}.log") as file:
        file.write_at(len(batches[0]) + 70, b"\x00\x01\x02")
    assert log.read(0, 10_000) == batches[0]  # what is intact is given
    with pytest.raises(CorruptDataError, match="damaged") as error:
        log.read(1, 10_000)
    assert error.value.position == len(batches[0])
    assert error.value.path == f"{FOLDER}/{0:020d}.log"


def test_damage_in_a_sealed_segment_is_refused_and_repaired_only_on_request() -> None:
    disk, batches = filled(False)
    with disk.open(f"{FOLDER}/{0:020d}.log") as file:
        file.write_at(len(batches[0]) * 2 + 30, b"\xff\xff\xff\xff")
    for _ in range(2):  # a refused start changes nothing that matters
        with pytest.raises(CorruptDataError, match="records from offset 2 on had been stored durably") as error:
            Log.open(disk, FOLDER, TINY, now_ms=0)
        assert error.value.position == len(batches[0]) * 2
    log = Log.open(disk, FOLDER, TINY, now_ms=0, repair=True)
    assert contents(log) == batches[:2]
    log.check_invariants()


def test_without_a_listing_damage_before_the_last_segment_is_refused() -> None:
    """A folder of Kafka's, say."""
    disk, _ = filled(False)
    disk.unlink(f"{FOLDER}/kraftcore-segments")
    with disk.open(f"{FOLDER}/{0:020d}.log") as file:
        file.write_at(70, b"\xff\xff\xff\xff")
    with pytest.raises(CorruptDataError):
        Log.open(disk, FOLDER, TINY, now_ms=0)


def test_without_a_listing_a_torn_last_segment_is_cut() -> None:
    disk, batches = filled(False)
    disk.unlink(f"{FOLDER}/kraftcore-segments")
    last = max(name for name in disk.list_folder(FOLDER) if name.endswith(".log"))
    data = disk.read_file(f"{FOLDER}/{last}")
    change(disk, last, data[:-5])
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    assert contents(log) == batches[:-1]
    assert "cut from" in log.recovery_actions[0]


@pytest.mark.parametrize("missing", [0, 1])
def test_a_missing_segment_is_not_skipped(missing: int) -> None:
    disk, batches = filled(False)
    names = [name for name in disk.list_folder(FOLDER) if name.endswith(".log")]
    disk.unlink(f"{FOLDER}/{names[missing]}")
    if missing == 0:  # as if another program had deleted below a snapshot: the caller checks that one exists
        log = Log.open(disk, FOLDER, TINY, now_ms=0)
        assert contents(log) == batches[log.log_start_offset :]
        assert log.log_start_offset > 0
    else:
        with pytest.raises(CorruptDataError, match="expected"):
            Log.open(disk, FOLDER, TINY, now_ms=0)


def test_all_segments_missing_is_a_loss() -> None:
    disk, _ = filled(True)
    for name in disk.list_folder(FOLDER):
        if name.endswith(".log"):
            disk.unlink(f"{FOLDER}/{name}")
    with pytest.raises(CorruptDataError, match="all segments are missing"):
        Log.open(disk, FOLDER, TINY, now_ms=0)


@pytest.mark.parametrize(("missing", "is_covered"), [(0, True), (1, False)])
def test_all_segments_may_be_missing_that_a_snapshot_covers(missing: int, is_covered: bool) -> None:
    disk, batches = filled(True)
    end = sum(batch.count for data in batches for batch in iter_batches(data))
    for name in disk.list_folder(FOLDER):
        if name.endswith(".log"):
            disk.unlink(f"{FOLDER}/{name}")
    disk.open(f"{FOLDER}/{end - missing:020d}-0000000009.checkpoint", create=True).close()
    if is_covered:
        log = Log.open(disk, FOLDER, TINY, now_ms=0)
        assert log.log_end_offset == 0
        assert "a snapshot holds all" in " ".join(log.recovery_actions)
    else:
        with pytest.raises(CorruptDataError, match="all segments are missing"):
            Log.open(disk, FOLDER, TINY, now_ms=0)


def test_an_append_behind_our_back_is_noticed() -> None:
    """Kafka opened the folder between our stop and our start."""
    disk, batches = filled(True)
    last = max(name for name in disk.list_folder(FOLDER) if name.endswith(".log"))
    more = bytes(build_batch([b"kafka"], timestamp_ms=7, base_offset=60, leader_epoch=9))
    with disk.open(f"{FOLDER}/{last}") as file:
        file.write_at(file.size(), more)
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    assert contents(log) == [*batches, more]
    assert log.last_epoch == 9
    log.check_invariants()


def test_a_truncation_behind_our_back_is_accepted() -> None:
    """Kafka truncated what was never committed; at a batch's end that is no damage."""
    disk, batches = filled(True)
    last = max(name for name in disk.list_folder(FOLDER) if name.endswith(".log"))
    with disk.open(f"{FOLDER}/{last}") as file:
        file.truncate(file.size() - len(batches[-1]))
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    assert contents(log) == batches[:-1]
    assert any("it was durable up to 60" in action for action in log.recovery_actions)


def test_preallocated_indexes_of_a_killed_kafka_are_rebuilt() -> None:
    disk, batches = filled(False)
    for name in disk.list_folder(FOLDER):
        if name.endswith("index"):
            with disk.open(f"{FOLDER}/{name}") as file:
                file.truncate(10_485_760 if name.endswith(".index") else 10_485_756)
    disk.unlink(f"{FOLDER}/kraftcore-segments")
    log = Log.open(disk, FOLDER, TINY, now_ms=0)
    log.check_invariants()
    assert contents(log) == batches
    log.close()
    assert all(disk.stat(f"{FOLDER}/{name}").size < 100 for name in disk.list_folder(FOLDER) if name.endswith("index"))


def test_a_length_bomb_costs_no_memory() -> None:
    disk, _ = filled(False)
    last = max(name for name in disk.list_folder(FOLDER) if name.endswith(".log"))
    with disk.open(f"{FOLDER}/{last}") as file:
        file.write_at(8, b"\x7f\xff\xff\x00")
    tracemalloc.start()
    with pytest.raises(CorruptDataError):
        Log.open(disk, FOLDER, TINY, now_ms=0)
    log = Log.open(disk, FOLDER, TINY, now_ms=0, repair=True)
    assert tracemalloc.get_traced_memory()[1] < 100_000
    tracemalloc.stop()
    log.append_as_leader(build_batch([b"x"], timestamp_ms=1), 9, 0)


def test_a_batch_at_the_last_offset_there_is_ends_the_log_before_it() -> None:
    """One past it would not fit 64 bits."""
    last = 2**63 - 1
    disk = SimulatedDisk(Random(1))
    disk.make_folder(FOLDER)
    batch = build_batch([b"x"], timestamp_ms=1, leader_epoch=1)
    change(disk, f"{last:020d}.log", last.to_bytes(8, "big") + batch[8:])
    with Log.open(disk, FOLDER, TINY, now_ms=0) as log:
        assert (log.log_start_offset, log.log_end_offset) == (last, last)
        assert len(log.recovery_actions) == 1
        with pytest.raises(LocalError):
            log.append_as_leader(build_batch([b"x"], timestamp_ms=1), 1, 0)


def test_another_topics_folder_is_refused() -> None:
    disk, _ = filled(True)
    change(disk, "partition.metadata", b"version: 0\ntopic_id: J8aAPcfLQt2bqs1JT_rMgQ")
    with pytest.raises(LocalError, match="J8aAPcfLQt2bqs1JT_rMgQ"):
        Log.open(disk, FOLDER, TINY, now_ms=0)


@given(st.binary(max_size=200))
def test_small_files_decode_or_raise(data: bytes) -> None:
    for decode in (LeaderEpochs.decode, Listing.decode, decode_metadata):
        with suppress(CorruptDataError):
            decode(data, "f")


@given(st.text(alphabet="0123456789 \n-", max_size=60))
def test_number_soup_decodes_or_raises(text: str) -> None:
    try:
        epochs = LeaderEpochs.decode(text.encode())
    except CorruptDataError:
        return
    assert LeaderEpochs.decode(epochs.encode()).entries() == epochs.entries()


OFFSETS = st.integers(0, 2**63 - 1)
ENTRY = st.builds(
    SegmentEntry, *[OFFSETS] * 8, *[st.integers(-1, 2**63 - 1)] * 3, st.lists(OFFSETS, max_size=4).map(tuple)
)


@given(st.integers(0, 2**60), st.integers(0, 2**60), st.lists(ENTRY, max_size=4), st.data())
@settings(max_examples=60)
def test_listings_survive_the_round_trip_and_notice_any_change(start, durable, entries, data) -> None:
    listing = Listing(start, durable, {entry.base_offset: entry for entry in entries})
    encoded = listing.encode()
    assert Listing.decode(encoded) == listing
    position = data.draw(st.integers(0, len(encoded) - 1))
    flipped = encoded[:position] + bytes([encoded[position] ^ 1]) + encoded[position + 1 :]
    with pytest.raises(CorruptDataError):
        Listing.decode(flipped)
    with pytest.raises(CorruptDataError):
        Listing.decode(encoded[:position])


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_received_bytes_are_taken_whole_or_not_at_all(data: st.DataObject) -> None:
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, FOLDER, LogConfig(), now_ms=0)
    log.append_as_leader(build_batch([b"first"], timestamp_ms=1), 3, 0)
    good = [build_batch([b"v"] * 3, timestamp_ms=1, base_offset=1 + 3 * n, leader_epoch=3 + n) for n in range(3)]
    received = bytearray(b"".join(bytes(batch) for batch in good))
    for _ in range(data.draw(st.integers(0, 3))):
        received[data.draw(st.integers(0, len(received) - 1))] ^= data.draw(st.integers(1, 255))
    received = received[: data.draw(st.integers(0, len(received)))]
    try:
        info = log.append_as_follower(bytes(received), 0)
    except CorruptDataError:
        assert log.log_end_offset == 1
    else:
        taken = list(iter_batches(log.read(1, 10_000)))
        assert sum(batch.size for batch in taken) == info.size
        assert received.startswith(log.read(1, 10_000))
        assert log.log_end_offset == info.last_offset + 1
    log.check_invariants()
