"""Single rules of a partition that random events seldom meet."""

from __future__ import annotations

from random import Random

import pytest

from kraftcore.core.batch import build_batch
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import CorruptDataError, LocalError, RefusedError, StorageError
from kraftcore.plugins.broker.partition import Assignment, Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import IsrAnswer, PartitionSettings
from kraftcore.plugins.broker.producers import ProducerStates
from kraftcore.protocol.error_codes import ErrorCode

LAG_MS = 100
MAGIC = 16  # place of a batch's magic byte
NOW = 1_000_000


@pytest.fixture
def alive():
    return {1, 2, 3}


@pytest.fixture
def partition(alive):
    log = Log.open(SimulatedDisk(Random(1)), "/d/t-0", LogConfig(topic_id=None), now_ms=0)
    settings = PartitionSettings(1, LAG_MS)
    return Partition(TopicPartition("t", 0), 1, log, settings, is_eligible=lambda each, epoch: each in alive)


def lead(partition, isr=(1,), epoch=0, replicas=(1, 2, 3)):
    return partition.become_leader(Assignment(1, epoch, epoch, replicas, isr), NOW)


def produce(partition, count=1, now=NOW):
    return partition.append(build_batch([b"v"] * count, timestamp_ms=1), now)[1]


class Produce:
    """Somebody who waits."""

    is_over = False

    def end(self, error):
        raise AssertionError("whoever carries effects out says so")


def test_what_is_owed_a_sync_counts_when_it_is_done(partition):
    partition.settings = PartitionSettings(1, LAG_MS, 2)
    lead(partition, replicas=(1,))
    assert not produce(partition).needs_sync
    assert partition.high_watermark == 1
    assert produce(partition).needs_sync
    waiter = Produce()
    partition.wait_synced(waiter)
    produce(partition)
    assert (partition.high_watermark, partition.synced(NOW).ended) == (1, [])
    partition.log.flush()
    effects = partition.synced(NOW)
    assert (effects.ended, effects.needs_sync, partition.high_watermark) == ([(waiter, ErrorCode.NONE)], False, 3)


def test_who_leads_no_more_tells_those_who_wait_for_a_sync(partition):
    partition.settings = PartitionSettings(1, LAG_MS, 1)
    lead(partition)
    produce(partition)
    waiter = Produce()
    partition.wait_synced(waiter)
    effects = partition.become_follower(Assignment(2, 1, 1, (1, 2), (2,)))
    assert effects.ended == [(waiter, ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_who_is_proposed_counts_before_the_controller_has_answered(partition):
    lead(partition)
    proposal = partition.fetched(2, 0, NOW).proposal
    assert proposal.isr == (1, 2)
    late = NOW + 10 * LAG_MS
    produce(partition, now=late)
    assert partition.high_watermark == 0  # silent for long, but perhaps in sync by now
    assert partition.fetched(3, 1, late).proposal is None  # one at a time
    partition.fetched(2, 1, late)
    assert partition.high_watermark == 1


def test_a_partition_is_at_rest_for_who_has_all_there_is_and_kept_up_until_then(partition):
    lead(partition, isr=(1, 2), replicas=(1, 2))
    produce(partition)
    assert not partition.is_at_rest_for(2)  # it never asked for that
    partition.fetched(2, 1, NOW, 7, 0)
    assert partition.high_watermark == 1
    assert partition.is_at_rest_for(2)
    later = NOW + LAG_MS
    produce(partition, now=later + LAG_MS)
    assert not partition.is_at_rest_for(2)
    partition.leading.had_all(2, 7, later)
    assert partition.check_lag(later + LAG_MS).proposal is None
    assert partition.check_lag(later + LAG_MS + 1).proposal is not None


def test_a_partition_is_not_at_rest_for_who_is_not_in_sync(partition):
    lead(partition, isr=(1, 2))
    produce(partition)
    for each in (2, 3):
        partition.fetched(each, 1, NOW, 7, 0)
    partition.isr_answered(partition.leading.isr.proposal, IsrAnswer(ErrorCode.INELIGIBLE_REPLICA), NOW)
    assert [partition.is_at_rest_for(each) for each in (2, 3, 4)] == [True, False, False]
    partition.leading.had_all(3, 7, NOW + LAG_MS)
    partition.leading.had_all(4, 7, NOW + LAG_MS)
    assert partition.leading.followers[3].caught_up_ms == NOW
    partition.become_follower(Assignment(2, 1, 1, (1, 2, 3), (1, 2)))
    assert not partition.is_at_rest_for(2)


def test_who_had_all_in_an_earlier_incarnation_does_not_keep_up(partition):
    lead(partition, isr=(1, 2), replicas=(1, 2))
    produce(partition)
    partition.fetched(2, 1, NOW, 7, 0)
    partition.fetched(2, 0, NOW, 8, 0)  # its log is gone
    partition.leading.had_all(2, 7, NOW + LAG_MS)
    assert partition.check_lag(NOW + LAG_MS + 1).proposal.isr == (1,)


def test_a_partition_changes_for_who_is_taken_out_of_the_isr(partition):
    """It was at rest for him, and he joins again when he asks."""
    lead(partition, isr=(1, 2), replicas=(1, 2))
    produce(partition)
    proposal = partition.check_lag(NOW + LAG_MS + 1).proposal
    assert proposal.isr == (1,)
    partition.fetched(2, 1, NOW + LAG_MS + 2, 7, 0)
    assert partition.is_at_rest_for(2)
    assert partition.isr_answered(proposal, IsrAnswer(ErrorCode.NONE, 0, 1, (1,)), NOW + LAG_MS + 3).has_changed
    assert not partition.is_at_rest_for(2)
    assert partition.fetched(2, 1, NOW + LAG_MS + 4, 7, 0).proposal.isr == (1, 2)


def test_only_who_has_what_is_committed_is_proposed(partition):
    lead(partition)
    produce(partition, 3)
    assert partition.high_watermark == 3
    assert partition.fetched(2, 2, NOW).proposal is None
    assert partition.fetched(2, 3, NOW).proposal.isr == (1, 2)


def test_only_who_has_the_epochs_beginning_is_proposed(partition):
    lead(partition, isr=(1, 2))
    produce(partition, 3)
    lead(partition, isr=(1, 2), epoch=1)
    assert partition.high_watermark == 0
    assert partition.fetched(3, 2, NOW).proposal is None
    assert partition.fetched(3, 3, NOW).proposal.isr == (1, 2, 3)


@pytest.mark.parametrize("dies", [False, True])
def test_who_keeps_up_outside_the_isr_is_waited_for_unless_he_is_not_alive(partition, alive, dies):
    lead(partition)
    partition.fetched(2, 0, NOW)
    partition.leading.isr.commit((1,))  # the controller refused it
    alive -= {2} if dies else set()
    produce(partition)
    assert partition.high_watermark == int(dies)


def test_an_epoch_begins_when_its_leader_does(partition):
    lead(partition, epoch=2)
    produce(partition)
    lead(partition, epoch=5)
    assert [tuple(entry) for entry in partition.log.epoch_entries()] == [(2, 0), (5, 1)]
    # A follower that has records of epoch 4, which this log never had, learns where to cut.
    assert partition.divergence(4, 3) == OffsetAndEpoch(1, 2)
    assert partition.divergence(5, 1) is None
    with pytest.raises(RefusedError, match="OFFSET_OUT_OF_RANGE"):
        partition.divergence(6, 1)


@pytest.mark.parametrize("epoch", [0, 2])
def test_below_the_log_s_start_nobody_is_told_where_to_cut(partition, epoch):
    """A follower that asks there begins anew at the leader's start (Kafka 4.3.1, Partition.readRecords)."""
    lead(partition, epoch=1)
    produce(partition, 5)
    lead(partition, epoch=3)
    produce(partition)
    partition.log.flush()
    partition.log.delete_below(4, NOW)
    assert partition.divergence(epoch, 4) == (OffsetAndEpoch(5, 1) if epoch == 2 else None)
    with pytest.raises(RefusedError, match="OFFSET_OUT_OF_RANGE"):
        partition.divergence(epoch, 3)


def test_a_log_that_only_this_one_has_is_cut_where_the_leader_left_it(partition):
    lead(partition, epoch=1)
    produce(partition)
    lead(partition, epoch=3)
    produce(partition)
    partition.become_follower(Assignment(2, 4, 4, (1, 2, 3), ()))
    # The leader's epoch 2 is not known here: what came before it is where both may agree.
    partition.truncate(OffsetAndEpoch(7, 2))
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)


def test_a_high_watermark_is_no_higher_than_a_log_that_was_cut_and_then_not_read():
    disk = SimulatedDisk(Random(1))
    log = Log.open(disk, "/d/t-0", LogConfig(topic_id=None, tail_bytes=0, index_interval_bytes=1), now_ms=0)
    settings = PartitionSettings(1, LAG_MS)
    partition = Partition(TopicPartition("t", 0), 1, log, settings, is_eligible=lambda each, epoch: True)
    lead(partition, isr=(1, 2), epoch=1)
    for _ in range(10):
        produce(partition)
    partition.fetched(2, 10, NOW)
    partition.become_follower(Assignment(2, 2, 2, (1, 2), (1, 2)))
    assert partition.high_watermark == 10
    with disk.open(f"/d/t-0/{0:020d}.log") as file:
        file.write_at(file.size() // 10 * 3 + MAGIC, b"\xff")
    with pytest.raises(CorruptDataError):
        partition.truncate(OffsetAndEpoch(7, 1))
    assert (log.log_end_offset, partition.high_watermark) == (7, 7)
    lead(partition, isr=(1, 2), epoch=3)
    ended = []

    class Waiter:
        is_over = False
        end = staticmethod(ended.append)

    def carry_out(effects):
        for waiter, error in effects.ended:
            waiter.end(error)

    carry_out(partition.append(build_batch([b"v"] * 3, timestamp_ms=1), NOW, waiter=Waiter())[1])
    assert (log.log_end_offset, ended) == (10, [])
    carry_out(partition.fetched(2, 10, NOW))
    assert ended == [ErrorCode.NONE]


@pytest.mark.parametrize(
    "change",
    [
        lambda partition: partition.truncate(OffsetAndEpoch(4, 1)),
        lambda partition: partition.restart_at(20),
    ],
)
def test_a_high_watermark_stays_within_a_log_whose_disk_fails_while_it_is_cut(change):
    for operation in range(1000):
        disk = SimulatedDisk(Random(1))
        log = Log.open(disk, "/d/t-0", LogConfig(topic_id=None, segment_bytes=200), now_ms=0)
        producers = ProducerStates(log, disk)
        partition = Partition(TopicPartition("t", 0), 1, log, PartitionSettings(), producers=producers)
        for epoch in (1, 2):
            lead(partition, epoch=epoch, replicas=(1,))
            for _ in range(5):
                produce(partition)
        partition.become_follower(Assignment(2, 3, 3, (1, 2), (2,)))
        assert partition.high_watermark == 10
        fault = disk.inject("any", after=operation)
        try:
            change(partition)
        except StorageError:
            partition.check_invariants()
        if not fault.hits:
            break
    assert operation > 5
    partition.check_invariants()


def test_the_leader_of_an_earlier_epoch_sends_nothing_new(partition):
    partition.become_follower(Assignment(2, 4, 4, (1, 2), ()))
    batch = build_batch([b"v"], timestamp_ms=1)
    batch[12:16] = (5).to_bytes(4)
    partition.replicate(bytes(batch), 9, NOW)
    assert (partition.log.log_end_offset, partition.high_watermark) == (0, 0)


def test_a_leader_epoch_below_the_log_s_newest_takes_no_records(partition):
    lead(partition, epoch=7)
    produce(partition)
    restarted = Partition(partition.name, 1, partition.log, partition.settings, is_eligible=lambda *_: True)
    lead(restarted, epoch=2)
    assert (restarted.leading is not None, restarted.leader_epoch) == (True, 2)
    with pytest.raises(LocalError, match="leader epoch 2 is over, the log is at 7"):
        produce(restarted)
    assert partition.log.log_end_offset == 1
    lead(restarted, epoch=8)
    produce(restarted)
    assert [entry.epoch for entry in partition.log.epoch_entries()] == [7, 8]


@pytest.mark.parametrize(("epoch", "committed"), [(1, 3), (2, 0)])
def test_what_followers_have_is_asked_anew_after_an_epoch_that_was_missed(partition, epoch, committed):
    lead(partition, isr=(1, 2, 3))
    produce(partition, 3)
    partition.fetched(2, 3, NOW)
    assert partition.high_watermark == 0
    lead(partition, isr=(1, 2), epoch=epoch)
    assert partition.high_watermark == committed
    partition.fetched(2, 3, NOW)
    assert partition.high_watermark == 3
