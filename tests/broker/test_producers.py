"""Producers that number their batches: what a partition takes, repeats, refuses and remembers."""

from __future__ import annotations

from random import Random

import pytest
import trio
from broker_rig import open_rig, until

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.batch.build import build_records_batch
from kraftcore.core.batch.record import Record
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import CorruptDataError, RefusedError
from kraftcore.plugins.broker.partition import Assignment, Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.producers import ProducerState, ProducerStates, StoredBatch
from kraftcore.plugins.broker.producers.snapshot import decode_snapshot, encode_snapshot
from kraftcore.protocol.error_codes import ErrorCode

NOW = 1_000_000
LAST = 2**31 - 1
CONFIG = LogConfig(segment_bytes=600, tail_bytes=1000, topic_id=None, producer_snapshots=False)


def numbered(sequence, count=1, *, producer=7, epoch=0, timestamp=NOW):
    return build_batch(
        [b"v"] * count,
        timestamp_ms=timestamp,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


def open_partition(disk, log_start=0):
    log = Log.open(disk, "/d/t-0", CONFIG, now_ms=NOW)
    log.flush()
    log.delete_below(min(log_start, log.log_end_offset), NOW)
    producers = ProducerStates(log, disk)
    producers.load(NOW)
    return Partition(TopicPartition("t", 0), 1, log, PartitionSettings(), producers=producers)


@pytest.fixture
def disk():
    return SimulatedDisk(Random(1))


@pytest.fixture
def partition(disk):
    partition = open_partition(disk)
    partition.become_leader(Assignment(1, 0, 0, (1,), (1,)), NOW)
    return partition


def refusal(partition, batch):
    end = partition.log.log_end_offset
    with pytest.raises(RefusedError) as found:
        partition.append(batch, NOW)
    assert partition.log.log_end_offset == end
    return found.value.error


def test_batches_come_in_order_and_repeated_ones_have_the_offset_they_got(partition):
    for sequence in range(0, 14, 2):
        assert partition.append(numbered(sequence, 2), NOW)[0] == sequence
    for sequence in range(4, 14, 2):  # the last five
        assert partition.append(numbered(sequence, 2), NOW)[0] == sequence
    assert partition.log.log_end_offset == 14
    assert refusal(partition, numbered(2, 2)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert refusal(partition, numbered(12, 1)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert refusal(partition, numbered(15)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert partition.append(numbered(14), NOW)[0] == 14


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(partition):
    partition.append(numbered(0, 3), NOW)
    assert refusal(partition, numbered(3, epoch=1)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert partition.append(numbered(0, epoch=1), NOW)[0] == 3
    assert refusal(partition, numbered(3)) == "INVALID_PRODUCER_EPOCH"
    assert refusal(partition, numbered(0, 3)) == "INVALID_PRODUCER_EPOCH"


def test_an_unknown_producer_begins_anywhere_and_sequences_wrap_around(partition):
    assert partition.append(numbered(LAST - 1, 3), NOW)[0] == 0  # LAST - 1, LAST, 0
    assert partition.append(numbered(LAST - 1, 3), NOW)[0] == 0
    assert partition.append(numbered(1), NOW)[0] == 3
    assert partition.append(numbered(LAST, producer=8), NOW)[0] == 4
    assert partition.append(numbered(0, producer=8), NOW)[0] == 5


def test_a_repeated_batch_waits_for_its_own_commit(partition):
    ended = []

    class Waiter:
        is_over = False

        def __init__(self, number):
            self.number = number

        def end(self, error):
            ended.append((self.number, error))

    partition.become_leader(Assignment(1, 1, 1, (1, 2), (1, 2)), NOW)
    for number, sequence in enumerate([0, 1, 0]):
        assert not partition.append(numbered(sequence), NOW, waiter=Waiter(number))[1].ended
    found = partition.fetched(2, 1, NOW).ended
    assert [waiter.number for waiter, error in found if error is ErrorCode.NONE] == [0, 2]
    assert [waiter.number for waiter, _ in partition.fetched(2, 2, NOW).ended] == [1]
    # Committed long ago: at once.
    assert [error for _, error in partition.append(numbered(0), NOW, waiter=Waiter(3))[1].ended] == [ErrorCode.NONE]


def test_who_was_silent_for_long_is_forgotten_and_who_has_an_open_transaction_is_not(partition):
    producers = partition.producers
    partition.append(numbered(0, timestamp=NOW), NOW)
    producers.all[9] = ProducerState(9, 0, last_timestamp=5, transaction_start=0)
    day = 24 * 3600 * 1000
    producers.expire(NOW + day - 1)
    assert set(producers.all) == {7, 9}
    producers.expire(NOW + day)
    assert set(producers.all) == {9}
    assert partition.append(numbered(77), NOW)[0] == 1


def test_a_transaction_of_another_broker_is_followed_to_its_marker(disk):
    partition = open_partition(disk)
    partition.become_follower(Assignment(2, 0, 0, (1, 2), (1, 2)))
    batch = build_batch(
        [b"v"], timestamp_ms=1, leader_epoch=0, producer_id=7, producer_epoch=3, base_sequence=0, transactional=True
    )
    partition.replicate(bytes(batch), 0, NOW)
    state = partition.producers.all[7]
    assert (state.transaction_start, state.coordinator_epoch) == (0, -1)
    with pytest.raises(RefusedError, match="transaction"):
        partition.producers.check(next(iter_batches(numbered(1, epoch=3))))
    marker = build_records_batch(
        [Record(b"\0\0\0\0\0\x0b", b"\0\0\0\1", timestamp_ms=5)],
        base_offset=1,
        leader_epoch=0,
        producer_id=7,
        producer_epoch=3,
        transactional=True,
        control=True,
    )
    partition.replicate(bytes(marker), 0, NOW)
    assert (state.transaction_start, state.coordinator_epoch, state.last_timestamp) == (-1, 11, 5)
    assert state.next_sequence == 1


def told(producers, entries=1):
    return {
        each.producer_id: (each.epoch, each.last_timestamp, list(each.batches)[-entries:])
        for each in producers.all.values()
    }


def from_the_log(log):
    """As if all of it were read again."""
    found = ProducerStates(log)
    found.end_offset = -1
    found.truncated()
    return found


@pytest.mark.parametrize("seed", range(40))
def test_they_are_what_the_log_says_whatever_happens_to_it(seed):
    """Appends of several producers, repeats, rolls, stops, crashes and truncations, in any order."""
    random = Random(seed)
    disk = SimulatedDisk(random)
    partition = open_partition(disk)
    sequences, epoch, steps = {}, 0, 0
    for _ in range(60):
        steps += 1
        log_start = partition.log.log_start_offset
        choice = random.random()
        if partition.leading is None:
            epoch += 1
            partition.become_leader(Assignment(1, epoch, epoch, (1,), (1,)), NOW)
            known = partition.producers.all
            sequences = {each: state.next_sequence for each, state in known.items()}
        if choice < 0.75:
            producer = random.randrange(4)
            count = random.randint(1, 4)
            batch = numbered(sequences.get(producer, 0), count, producer=producer) if producer else None
            base, _ = partition.append(batch or build_batch([b"plain"], timestamp_ms=NOW), NOW)
            assert base + (count if batch else 1) == partition.log.log_end_offset
            sequences[producer] = sequences.get(producer, 0) + count
        elif choice < 0.85:
            partition.become_follower(Assignment(2, epoch, epoch, (1, 2), (1, 2)))
            end = random.randint(partition.log.log_start_offset, partition.log.log_end_offset)
            partition.high_watermark = min(partition.high_watermark, end)
            partition.truncate(OffsetAndEpoch(end, -1))
        elif choice < 0.92:
            partition.log.close()
            partition.producers.snapshot(durable=True)
            partition = open_partition(disk, log_start)
        elif choice < 0.97:
            if random.random() < 0.5:
                partition.log.flush()
            disk = disk.crash()
            partition = open_partition(disk, log_start)
        else:
            partition.log.flush()
            start = random.randint(partition.log.log_start_offset, partition.log.log_end_offset)
            partition.log.delete_below(start, NOW)
        assert partition.producers.end_offset == partition.log.log_end_offset
        known, read = told(partition.producers), told(from_the_log(partition.log))
        assert {each: known[each] for each in read} == read
    assert steps == 60


def test_a_snapshot_stands_at_each_segment_and_a_damaged_one_is_made_up_for(partition, disk):
    for sequence in range(30):
        partition.append(numbered(sequence), NOW)
    bases = [segment.base_offset for segment in partition.log.segment_list()]
    names = [f"{base:020d}.snapshot" for base in bases[1:]]
    assert len(names) == 3
    assert [name for name in sorted(disk.list_folder("/d/t-0")) if name.endswith("snapshot")] == names
    assert [decode_snapshot(disk.read_file(f"/d/t-0/{name}"))[0].next_sequence for name in names] == bases[1:]
    partition.log.close()
    disk.replace_file(f"/d/t-0/{names[-1]}", b"rubbish")
    again = open_partition(disk)
    assert told(again.producers) == told(partition.producers)
    assert names[-1] in disk.list_folder("/d/t-0")  # written anew on the way


def test_the_file_is_kafkas():
    state = ProducerState(1, 2, 3, 4, 5)
    state.batches.append(StoredBatch(6, 7, 1, 4))
    data = encode_snapshot([state, ProducerState(9)])
    body = bytes.fromhex(
        "00000002"
        "0000000000000001 0002 00000006 0000000000000007 00000001 0000000000000004 00000003 0000000000000005"
        "0000000000000009 ffff ffffffff ffffffffffffffff 00000000 ffffffffffffffff ffffffff ffffffffffffffff"
    )
    assert data[6:] == body
    assert decode_snapshot(data) == [state, ProducerState(9)]
    for spoilt in (b"", data[:-1], data + b"x", b"\0\2" + data[2:], data[:8] + b"\xff" + data[9:]):
        with pytest.raises(CorruptDataError):
            decode_snapshot(spoilt)


def test_a_follower_that_becomes_the_leader_knows_the_producers(tmp_path):
    async def main():
        async with open_rig(tmp_path) as rig:
            for broker_id in (1, 2):
                await rig.start(broker_id)
            await rig.assign(1, 0, [1, 2])
            for sequence in range(3):
                answer = await rig.produce(1, records=numbered(sequence))
                assert (answer.error_code, answer.base_offset) == (0, sequence)
            await rig.assign(2, 1, [1, 2])
            answer = await rig.produce(2, records=numbered(1))
            assert (answer.error_code, answer.base_offset) == (0, 1)
            answer = await rig.produce(2, records=numbered(4))
            assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            answer = await rig.produce(2, records=numbered(0, epoch=1))
            assert (answer.error_code, answer.base_offset) == (0, 3)
            await until(lambda: rig.log_bytes(1) == rig.log_bytes(2))
            answer = await rig.produce(2, records=numbered(3))
            assert answer.error_code == ErrorCode.INVALID_PRODUCER_EPOCH

    trio.run(main)


def test_produces_whose_time_is_over_do_not_pile_up(partition):
    class Waiter:
        def __init__(self, *, is_over):
            self.is_over = is_over
            self.ended = []

        def end(self, error):
            self.ended.append(error)

    partition.become_leader(Assignment(1, 1, 1, (1, 2), (1, 2)), NOW)
    first, last = Waiter(is_over=False), Waiter(is_over=False)
    for sequence, waiter in enumerate([first, last]):
        partition.append(numbered(sequence), NOW, waiter=waiter)
    for _ in range(5000):
        for sequence in (1, 0):
            partition.append(numbered(sequence), NOW, waiter=Waiter(is_over=True))
    assert len(partition.leading.waiting) < 3000
    assert [offset for offset, _ in partition.leading.waiting] == sorted(o for o, _ in partition.leading.waiting)
    assert [waiter for waiter, _ in partition.fetched(2, 1, NOW).ended if waiter in (first, last)] == [first]
    assert [waiter for waiter, _ in partition.fetched(2, 2, NOW).ended if waiter in (first, last)] == [last]
