"""Transactions that Kafka's leader or we took: the last stable offset, which were aborted, whatever the log meets."""

from __future__ import annotations

import struct
from dataclasses import replace
from random import Random

import pytest

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.batch.build import build_records_batch
from kraftcore.core.batch.record import Record
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import CorruptDataError, RefusedError, StorageError
from kraftcore.plugins.broker.log_changes import raise_log_start
from kraftcore.plugins.broker.partition import Assignment, Partition, TopicPartition, View
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.producers import AbortedTransaction, Marker, ProducerStates
from kraftcore.plugins.broker.producers.aborted import decode_aborted, encode_aborted
from kraftcore.plugins.broker.work.disk_steps import run_here
from kraftcore.plugins.broker.work.heavy_steps import LoopRoom
from kraftcore.protocol.error_codes import ErrorCode

NOW = 1_000_000
FOLDER = "/d/t-0"
CONFIG = LogConfig(segment_bytes=700, tail_bytes=1000, topic_id=None, producer_snapshots=False, allow_gaps=True)
FIRST_FILE = f"{FOLDER}/{0:020d}.txnindex"


def open_partition(disk, log_start=0):
    log = Log.open(disk, FOLDER, CONFIG, now_ms=NOW)
    if log.log_start_offset < log_start <= log.log_end_offset:
        log.flush()
        log.delete_below(log_start, NOW)
    producers = ProducerStates(log, disk)
    producers.load(NOW)
    partition = Partition(TopicPartition("t", 0), 1, log, PartitionSettings(), producers=producers)
    partition.become_follower(Assignment(2, 0, 0, (1, 2), (1, 2)))
    return partition


def data(base, producer=None, count=1):
    numbers = {} if producer is None else {"producer_id": producer, "producer_epoch": 0, "base_sequence": 0}
    batch = build_batch(
        [b"v"] * count, timestamp_ms=1, base_offset=base, leader_epoch=0, transactional=producer is not None, **numbers
    )
    return bytes(batch)


def marker(base, producer, *, commits, epoch=0):
    batch = build_records_batch(
        [Record(b"\0\0\0\0\0\x0b", bytes([0, 0, 0, commits]), timestamp_ms=5)],
        base_offset=base,
        leader_epoch=0,
        producer_id=producer,
        producer_epoch=epoch,
        transactional=True,
        control=True,
    )
    return bytes(batch)


@pytest.fixture
def disk():
    return SimulatedDisk(Random(1))


def test_the_record_types_of_markers_are_read():
    [record] = next(iter_batches(marker(3, 7, commits=True)))
    assert record.key == b"\0\0\0\1"


def test_consumers_read_up_to_the_first_transaction_whose_end_is_not_committed(disk):
    partition = open_partition(disk)
    stable = lambda: partition.last_stable_offset  # noqa: E731
    partition.replicate(data(0) + data(1, producer=7) + data(2, producer=8) + data(3), 1, NOW)
    assert stable() == 1
    partition.replicate(b"", 4, NOW)
    assert (stable(), partition.high_watermark) == (1, 4)
    assert partition.read(0, 1000, View.COMMITTED, at_least_one=True) == data(0)
    assert partition.read(1, 1000, View.COMMITTED, at_least_one=True) == b""
    assert partition.read(1, 1000, View.CONSUMER, at_least_one=True)
    assert run_here(partition.find_timestamp(1, View.COMMITTED, LoopRoom(), lambda: None)) == (0, 1, 0)
    partition.replicate(marker(4, 7, commits=False), 4, NOW)
    assert stable() == 1  # the marker is not committed
    partition.replicate(b"", 5, NOW)
    assert stable() == 2
    partition.replicate(marker(5, 8, commits=True), 6, NOW)
    assert stable() == 6
    read = partition.read(0, 1000, View.COMMITTED, at_least_one=True)
    assert partition.aborted_within(0, read) == [AbortedTransaction(7, 1, 4, 2)]
    assert partition.aborted_within(0, data(0)) == []  # it begins behind what is read
    assert partition.aborted_within(5, marker(5, 8, commits=True)) == []
    assert disk.read_file(FIRST_FILE) == struct.pack(">hqqqq", 0, 7, 1, 4, 2)


def test_a_marker_for_who_wrote_nothing_here_changes_nothing_and_one_of_a_later_epoch_is_taken(disk):
    partition = open_partition(disk)
    partition.replicate(marker(0, 7, commits=False) + data(1, producer=7), 2, NOW)
    assert (partition.last_stable_offset, disk.exists(FIRST_FILE)) == (1, False)
    partition.replicate(marker(2, 7, commits=False, epoch=1), 3, NOW)  # KIP-890: the marker raises the epoch
    assert partition.last_stable_offset == 3
    assert (partition.producers.all[7].epoch, partition.producers.all[7].next_sequence) == (1, 0)


def test_deleted_records_do_not_hold_back(disk):
    partition = open_partition(disk)
    partition.replicate(data(0, producer=7) + data(1) + data(2), 3, NOW)
    run_here(raise_log_start(partition, 2, NOW))
    assert partition.last_stable_offset == 2


def test_the_file_is_kafkas():
    entries = [AbortedTransaction(1, 2, 3, 4), AbortedTransaction(5, 0, 9, 10)]
    encoded = encode_aborted(entries)
    assert len(encoded) == 68
    assert decode_aborted(encoded, 0) == entries
    for base, bad in (
        (0, encoded[:-1]),
        (0, b"\0\1" + encoded[2:]),
        (4, encoded),
        (0, encoded[34:] + encoded[:34]),
        (0, bytes(34)),
    ):
        with pytest.raises(CorruptDataError):
            decode_aborted(bad, base)


def fill(partition, transactions=12):
    """Two producers in turn; each second transaction is aborted."""
    for number in range(transactions):
        at, producer = partition.log.log_end_offset, 7 + number % 2
        parts = data(at, producer=producer) + data(at + 1) + marker(at + 2, producer, commits=number % 4 > 1)
        partition.replicate(parts, at + 3, NOW)


@pytest.mark.parametrize("damage", ["missing", "cut", "rubbish", "all missing"])
def test_a_file_that_is_missing_or_damaged_is_made_up_for_from_the_log(disk, damage):
    partition = open_partition(disk)
    fill(partition)
    known = partition.producers.aborted.all
    assert len(known) == 6
    files = {name: disk.read_file(f"{FOLDER}/{name}") for name in disk.list_folder(FOLDER) if name.endswith("txnindex")}
    assert len(files) > 1
    partition.log.close()
    partition.producers.snapshot(durable=True)
    if damage == "cut":
        disk.replace_file(FIRST_FILE, files[f"{0:020d}.txnindex"][:-1])
    elif damage == "rubbish":
        disk.replace_file(FIRST_FILE, b"\1" * 34)
    else:
        for name in files if damage == "all missing" else [f"{0:020d}.txnindex"]:
            disk.unlink(f"{FOLDER}/{name}")
    again = open_partition(disk)
    assert again.producers.aborted.all == known
    assert {name: disk.read_file(f"{FOLDER}/{name}") for name in files} == files


def test_a_marker_of_who_wrote_nothing_is_looked_for_once(disk, caplog):
    partition = open_partition(disk)
    partition.replicate(marker(0, 7, commits=False), 1, NOW)
    for count in (1, 1):
        partition.log.close()
        partition = open_partition(disk)
        assert caplog.text.count("are looked for in the log") == count
        assert disk.read_file(FIRST_FILE) == b""


def test_markers_of_commits_are_read_once_and_one_of_each_segment_is_kept(disk, monkeypatch):
    monkeypatch.setitem(globals(), "CONFIG", replace(CONFIG, all_control=False))
    partition = open_partition(disk)
    for _ in range(12):
        at = partition.log.log_end_offset
        partition.replicate(data(at, producer=7) + marker(at + 1, 7, commits=True), at + 2, NOW)
    partition.log.close()
    partition.producers.snapshot(durable=True)
    for name in [name for name in disk.list_folder(FOLDER) if name.endswith(".txnindex")]:
        disk.unlink(f"{FOLDER}/{name}")  # as Kafka leaves it
    first = f"{FOLDER}/{0:020d}.log"
    disk.inject("read", times=-1, path=first)
    with pytest.raises(StorageError):
        open_partition(disk)
    disk.clear_faults()
    open_partition(disk).log.close()
    disk.inject("read", times=-1, path=first)
    partition = open_partition(disk)
    disk.clear_faults()
    segments = partition.log.segment_list()
    assert len(segments) > 2
    assert all(len(each.control_offsets) == 1 for each in segments)
    partition.log.check_invariants()


def test_what_is_committed_at_the_start_is_not_waited_for(disk):
    partition = open_partition(disk)
    fill(partition)
    end = partition.log.log_end_offset
    disk = disk.crash("kept")
    for high_watermark, stable in ((0, 3), (end, 5)):
        producers = ProducerStates(Log.open(disk, FOLDER, CONFIG, now_ms=NOW))
        producers.load(NOW, high_watermark)
        assert producers.last_stable_offset(5) == stable
        assert producers.last_stable_offset(end) == end


def test_after_a_cut_a_snapshot_s_markers_are_not_committed_yet(disk):
    """A snapshot names no transaction that has ended (simulator: seed 99)."""
    partition = open_partition(disk)
    partition.replicate(data(0, producer=7) + marker(1, 7, commits=True), 1, NOW)
    partition.producers.snapshot()
    partition.log.roll(now_ms=NOW)
    partition.replicate(data(2) + data(3), 1, NOW)
    assert partition.last_stable_offset == 0
    partition.truncate(OffsetAndEpoch(3, 0))
    assert (partition.log.log_end_offset, partition.last_stable_offset) == (3, 0)
    partition.replicate(b"", 2, NOW)
    assert partition.last_stable_offset == 2


def test_files_go_with_their_segments(disk):
    partition = open_partition(disk)
    fill(partition)
    run_here(raise_log_start(partition, partition.log.log_end_offset - 1, NOW))
    bases = {f"{segment.base_offset:020d}" for segment in partition.log.segment_list()}
    left = [name for name in disk.list_folder(FOLDER) if name.endswith(".txnindex")]
    assert {name.split(".")[0] for name in left} <= bases
    partition.restart_at(1000)
    assert not [name for name in disk.list_folder(FOLDER) if name.endswith(".txnindex")]
    assert not partition.producers.aborted.all
    fill(partition, 2)
    assert [entry.first_offset for entry in partition.producers.aborted.all] == [1000, 1003]


class Plain:
    """From all batches at once."""

    def __init__(self, log, high_watermark):
        self.aborted, opened, pending = [], {}, []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            for batch in iter_batches(log.read(offset, 500)):
                offset = batch.next_offset
                if batch.is_control:
                    [record] = batch
                    first = opened.pop(batch.producer_id, None)
                    if first is not None:
                        pending.append((first, record.offset))
                        if record.key == b"\0\0\0\0":
                            self.aborted.append((batch.producer_id, first, record.offset))
                elif batch.is_transactional:
                    opened.setdefault(batch.producer_id, batch.base_offset)
        unstable = [*opened.values(), *(first for first, end in pending if end >= high_watermark)]
        self.stable = min([high_watermark, *unstable])


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_to_the_log_they_are_what_it_says(seed):
    rng = Random(seed)
    disk = SimulatedDisk(rng)
    partition = open_partition(disk)
    for _ in range(60):
        choice, end = rng.random(), partition.log.log_end_offset
        if choice < 0.8:
            producer = rng.randrange(4)
            kind = rng.random()
            if kind < 0.3:
                batch = marker(end, producer, commits=rng.random() < 0.5)
            else:
                batch = data(end, producer=producer if kind < 0.8 else None, count=rng.randint(1, 3))
            partition.replicate(batch, rng.randint(partition.high_watermark, end + 1), NOW)
        elif choice < 0.87:
            to = rng.randint(partition.high_watermark, end)
            partition.truncate(OffsetAndEpoch(to, -1))
        elif choice < 0.94:
            partition.log.close()
            partition.producers.snapshot(durable=True)
            partition = open_partition(disk)
            partition.replicate(b"", partition.log.log_end_offset, NOW)
        else:
            if rng.random() < 0.5:
                partition.log.flush()
            disk = disk.crash()
            partition = open_partition(disk)
            partition.replicate(b"", partition.log.log_end_offset, NOW)
        plain = Plain(partition.log, partition.high_watermark)
        assert partition.last_stable_offset == plain.stable
        assert [each[:3] for each in partition.producers.aborted.all] == plain.aborted
        stable = partition.last_stable_offset
        if stable:
            start = rng.randrange(stable)
            read = partition.read(start, rng.choice((1, 300, 5000)), View.COMMITTED, at_least_one=True)
            upper = max((batch.next_offset for batch in iter_batches(read)), default=start)
            told = {each[:3] for each in partition.aborted_within(start, read)}
            assert told >= {each for each in plain.aborted if each[2] >= start and each[1] < upper}


# --- as a leader ------------------------------------------------------------------------------------------------------


class Waits:
    """Waits for a marker."""

    is_over = False

    def __init__(self):
        self.errors = []

    def end(self, error):
        self.errors.append(error)


def lead(partition, epoch=1, isr=(1, 2)):
    partition.become_leader(Assignment(1, epoch, epoch, (1, 2), isr), NOW)


def written(producer, epoch=0, sequence=0, *, transactional=True):
    return build_batch(
        [b"v"],
        timestamp_ms=1,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def test_a_leader_ends_what_it_wrote_and_what_its_predecessor_did(disk):
    partition = open_partition(disk)
    partition.replicate(data(0, producer=7), 1, NOW)
    lead(partition)
    assert partition.producers.is_in_transaction(7, 0)
    assert not partition.producers.is_in_transaction(7, 1)
    partition.append(written(8), NOW, verified=(8, 0))
    partition.append(written(8, sequence=1), NOW)
    with pytest.raises(RefusedError, match="outside of the transaction"):
        partition.append(written(8, sequence=2, transactional=False), NOW)
    waits = Waits()
    partition.end_transaction(Marker(7, 0, 3, True), NOW, waits)
    partition.end_transaction(Marker(8, 0, 3, False), NOW, waits)
    assert waits.errors == []
    for waiter, error in partition.fetched(2, 5, NOW).ended:
        waiter.end(error)
    assert waits.errors == [ErrorCode.NONE] * 2
    assert partition.last_stable_offset == 5
    read = partition.read(0, 1000, View.COMMITTED, at_least_one=True)
    assert partition.aborted_within(0, read) == [AbortedTransaction(8, 1, 4, 5)]
    # The markers are those that a follower reads, and that a restart finds.
    *_, commit, abort = iter_batches(read)
    assert [Marker.read(each, next(iter(each))) for each in (commit, abort)] == [
        Marker(7, 0, 3, True),
        Marker(8, 0, 3, False),
    ]
    loaded = open_partition(disk)
    assert loaded.producers.all == partition.producers.all
    assert loaded.aborted_within(0, read) == partition.aborted_within(0, read)
    assert loaded.producers.last_stable_offset(5) == 5


@pytest.mark.parametrize(
    ("marker_of", "error"),
    [
        ((1, 5, 0), None),
        ((2, 5, 0), None),
        ((0, 5, 0), "INVALID_PRODUCER_EPOCH"),
        ((1, 4, 0), "TRANSACTION_COORDINATOR_FENCED"),
        ((1, 5, 2), "INVALID_PRODUCER_EPOCH"),
        ((2, 5, 2), None),
    ],
)
def test_markers_of_those_who_came_later_are_refused(disk, marker_of, error):
    """Producer epoch, coordinator epoch, transaction.version; Kafka 4.3.1, ProducerAppendInfo."""
    partition = open_partition(disk)
    lead(partition, isr=(1,))
    partition.append(written(7, epoch=0), NOW, verified=(7, 0))
    partition.end_transaction(Marker(7, 0, 5, True), NOW, Waits())
    partition.append(written(7, epoch=1), NOW, verified=(7, 1))
    epoch, coordinator, version = marker_of
    marker = Marker(7, epoch, coordinator, True, version)
    if error is None:
        partition.end_transaction(marker, NOW, Waits())
        assert not partition.producers.is_in_transaction(7, 1)
    else:
        with pytest.raises(RefusedError) as caught:
            partition.end_transaction(marker, NOW, Waits())
        assert caught.value.error == error
        assert partition.producers.is_in_transaction(7, 1)


def test_a_marker_needs_enough_replicas_and_the_repeated_one_is_taken(disk):
    partition = open_partition(disk)
    partition.settings = PartitionSettings(min_insync_replicas=2)
    lead(partition, isr=(1,))
    with pytest.raises(RefusedError) as caught:
        partition.end_transaction(Marker(7, 0, 0, True), NOW, Waits())
    assert (caught.value.error, partition.log.log_end_offset) == ("NOT_ENOUGH_REPLICAS", 0)
    lead(partition, epoch=2)
    for _ in range(2):
        partition.end_transaction(Marker(7, 4, 0, True, 2), NOW, Waits())
    partition.end_transaction(Marker(7, 2**15 - 1, 0, True, 2), NOW, Waits())
    partition.append(written(7, epoch=2**15 - 1), NOW, verified=(7, 2**15 - 1))
    partition.end_transaction(Marker(7, 2**15 - 1, 0, True, 2), NOW, Waits())  # it cannot be raised
    assert partition.log.log_end_offset == 5


def test_a_leader_that_nobody_reads_from_forgets_transactions_whose_markers_are_committed(disk):
    partition = open_partition(disk)
    lead(partition, isr=(1,))
    partition.append(written(7), NOW, verified=(7, 0))
    partition.end_transaction(Marker(7, 0, 3, True), NOW, Waits())
    assert partition.high_watermark == 2
    assert partition.producers.last_stable_offset(1) == 1  # who remembers it answers 0, where it begins


def test_a_follower_forgets_transactions_whose_markers_are_committed(disk):
    partition = open_partition(disk)
    partition.replicate(data(0, producer=7) + marker(1, 7, commits=True), 1, NOW)
    assert partition.producers.last_stable_offset(1) == 0
    partition.replicate(b"", 2, NOW)
    assert partition.producers.last_stable_offset(1) == 1
