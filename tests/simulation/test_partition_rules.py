"""What the rules of simulated partitions allow, without a simulation."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from kraftcore.core.batch import RecordBatch, build_batch, iter_batches
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import PartitionKey
from kraftcore.metadata.partition import RECOVERED, RECOVERING
from kraftcore.plugins.broker.partition import Assignment, Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.producers import ProducerStates
from kraftcore.plugins.broker.simulated.cleaning import Cleaned
from kraftcore.plugins.broker.simulated.rules import PartitionRules
from kraftcore.simulation.checks import Violation

T = TopicPartition("t", 0)
TOPIC = Uuid(b"5" * 16)
KEY = PartitionKey(TOPIC, 0)
BATCH = build_batch([b"a"], timestamp_ms=1)
CRC = RecordBatch(BATCH).crc
LONG_AFTER_MS = 1_000_000


class Cluster:
    """Brokers 1 to 3 with a partition; what the controller wrote of it is `decide`d."""

    def __init__(self, min_isr=1):
        self._row = None
        self.offline = set()
        topics = {TOPIC: SimpleNamespace(name="t")}
        partitions = SimpleNamespace(of_topic=lambda topic_id: [(0, self._row)], get=lambda *key: self._row)
        self.told = []
        self.rules = PartitionRules(
            SimpleNamespace(reference=SimpleNamespace(topics=topics, partitions=partitions)),
            min_isr,
            lambda *told: self.told.append(told),
        )
        self.partitions = {number: self._make(number) for number in (1, 2, 3)}

    def _make(self, number):
        self.rules.started(number)
        disk = SimulatedDisk(Random(number))
        log = Log.open(disk, "/t-0", LogConfig(topic_id=None, producer_snapshots=False), now_ms=0)
        return Partition(T, number, log, PartitionSettings(), is_eligible=lambda broker_id, epoch: broker_id != 3)

    def decide(self, leader, epoch, isr, *, elr=(), replicas=(1, 2, 3), state=RECOVERED, adding=()):
        self._row = SimpleNamespace(
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=epoch,
            isr=isr,
            elr=elr,
            replicas=replicas,
            adding=adding,
            recovery_state=state,
        )
        self.rules.committed()

    def obey(self, number):
        row = self._row
        assignment = Assignment(row.leader, row.leader_epoch, row.partition_epoch, row.replicas, row.isr, TOPIC)
        partition = self.partitions[number]
        if row.leader == number:
            partition.become_leader(assignment, 0)
        else:
            partition.become_follower(assignment)
        self.check(number)

    def check(self, number):
        replica = SimpleNamespace(hosted=SimpleNamespace(name=T, topic_id=TOPIC), partition=self.partitions[number])
        self.rules.check(
            SimpleNamespace(number=number, hosted={T: replica}, is_offline=lambda name: number in self.offline)
        )

    def send(self, batch):
        """A producer's request comes to whoever leads."""
        self.rules.written(KEY, batch)
        for number in self.partitions:
            self.rules.came(number, T, batch)

    def write(self, leader, follower):
        """A record that both have, and know to be committed; returns it as it is in the log."""
        batch = bytearray(BATCH)
        self.send(batch)
        self.partitions[leader].append(batch, 0)
        records = self.partitions[leader].log.read(0, 1000)
        self.partitions[follower].replicate(records, 1, 0)
        self.check(follower)
        self.partitions[leader].fetched(follower, 1, 0)
        self.check(leader)
        return records


def test_a_follower_that_has_not_heard_that_records_were_lost_may_show_them():
    cluster = Cluster()
    cluster.decide(1, 0, (1, 2))
    for number in (1, 2):
        cluster.obey(number)
    records = cluster.write(1, 2)
    cluster.decide(3, 1, (3,), state=RECOVERING)  # an unclean election: it has nothing
    cluster.obey(3)
    assert (cluster.rules.losses, cluster.rules.truths[KEY].end) == (1, 0)
    cluster.obey(2)  # follows, and has not cut its log yet
    cluster.rules.read(2, KEY, cluster.partitions[2], records)
    assert (0, "t-0", "records are lost by the rules, by an unclean election: 1 was committed") in cluster.told


def test_a_log_whose_other_batch_reaches_beyond_what_is_committed_loses_that():
    """Two unclean elections in a row; the second leader's log is longer (simulator: seed 400017)."""
    cluster = Cluster()
    cluster.decide(1, 0, (1,))
    cluster.obey(1)
    batch = build_batch([b"a", b"b", b"c"], timestamp_ms=1)
    cluster.send(batch)
    cluster.partitions[1].append(batch, 0)
    cluster.decide(3, 1, (3,), state=RECOVERING)
    cluster.obey(3)
    batch = bytearray(BATCH)
    cluster.send(batch)
    cluster.partitions[3].append(batch, LONG_AFTER_MS)
    cluster.check(3)
    assert cluster.rules.truths[KEY].end == 1
    cluster.decide(1, 2, (1,), state=RECOVERING)
    cluster.obey(1)
    assert cluster.partitions[1].log.log_end_offset == 3
    assert (cluster.rules.losses, cluster.rules.truths[KEY].end) == (1, 0)


def test_an_old_leader_may_show_what_it_committed_while_an_unclean_one_was_elected():
    """Nothing was lost when that was elected (simulator: seed 206477163)."""
    cluster = Cluster()
    cluster.decide(1, 0, (1,))
    cluster.obey(1)
    old, new = cluster.partitions[1], cluster.partitions[3]
    cluster.decide(3, 1, (3,), state=RECOVERING)
    cluster.obey(3)
    for partition, value in ((old, b"old"), (new, b"new")):
        batch = build_batch([value], timestamp_ms=1)
        cluster.send(batch)
        partition.append(batch, LONG_AFTER_MS)  # nobody else keeps up
    assert (old.high_watermark, new.high_watermark) == (1, 1)
    for number in (3, 1):
        cluster.check(number)
    cluster.obey(1)  # follows, and has not cut its log yet
    assert (cluster.rules.losses, cluster.rules.truths[KEY].end) == (0, 1)
    old.truncate(OffsetAndEpoch(0, 0))
    cluster.check(1)
    old.replicate(new.log.read(0, 1000), 1, 0)
    cluster.check(1)
    old.restart_at(0)  # from now on it is held to what is committed
    cluster.check(1)
    strange = build_batch([b"old"], timestamp_ms=1, leader_epoch=1)
    old.replicate(strange, 1, 0)
    with pytest.raises(Violation, match="logs agree"):
        cluster.check(1)


def test_who_leads_without_what_is_committed_breaks_a_rule_of_its_partition():
    cluster = Cluster()
    cluster.decide(1, 0, (1, 2))
    for number in (1, 2):
        cluster.obey(number)
    cluster.write(1, 2)
    with pytest.raises(Violation) as broken:
        cluster.decide(3, 1, (3,))
    assert (broken.value.rule, broken.value.about) == ("in sync", "t-0")
    assert (2, "t-0", "follows in epoch 0, log 0-1 of epoch 0, high watermark 1") in cluster.told


class Moved:
    """A log whose start anybody moves."""

    def __init__(self, log):
        self._log = log
        self.log_start_offset = log.log_start_offset

    def __getattr__(self, name):
        return getattr(self._log, name)


def committed_by_two(count):
    """A cluster whose brokers 1 and 2 have so many committed batches of a record each; and those batches."""
    cluster = Cluster()
    cluster.decide(1, 0, (1, 2))
    for number in (1, 2):
        cluster.obey(number)
    for _ in range(count):
        batch = bytearray(BATCH)
        cluster.send(batch)
        cluster.partitions[1].append(batch, 0)
    records = cluster.partitions[1].log.read(0, 10_000)
    cluster.partitions[2].replicate(records, count, 0)
    cluster.check(2)
    cluster.partitions[1].fetched(2, count, 0)
    cluster.check(1)
    return cluster, [bytes(batch.raw) for batch in iter_batches(records)]


def reopen_without_the_second(cluster, batches, removed, number=2):
    """Somebody cleaned a broker's log, and it begins with what is left: the first and the third batch."""
    cluster.rules.cleaned(number, KEY, {at: Cleaned(CRC, None) for at in removed})
    cluster.rules.started(number)
    config = LogConfig(topic_id=None, producer_snapshots=False, allow_gaps=True)
    log = Log.open(SimulatedDisk(Random(2)), "/t-0", config, now_ms=0)
    log.append_as_follower(batches[0] + batches[2], 0)
    cluster.partitions[number] = Partition(T, number, log, PartitionSettings(), 3)
    cluster.obey(number)


def test_what_a_cleaner_removed_may_be_missing():
    cluster, batches = committed_by_two(3)
    reopen_without_the_second(cluster, batches, {1})
    assert cluster.rules.truths[KEY].end == 3


def test_what_no_cleaner_removed_must_not_be_missing():
    cluster, batches = committed_by_two(3)
    with pytest.raises(Violation) as broken:
        reopen_without_the_second(cluster, batches, {0})
    assert broken.value.rule == "logs agree"


def lost_and_found_cleaned(removed):
    """Broker 3 comes in by an unclean election, with nothing; then 1, that was cleaned; then 2, that never was."""
    cluster, batches = committed_by_two(3)
    cluster.decide(3, 1, (3,), state=RECOVERING)
    cluster.obey(3)
    cluster.decide(1, 2, (1,), state=RECOVERING)
    reopen_without_the_second(cluster, batches, removed, number=1)
    cluster.obey(2)
    cluster.decide(1, 2, (1, 2))
    cluster.decide(2, 3, (1, 2))
    cluster.obey(2)
    return cluster


def test_what_is_committed_again_by_a_cleaned_log_may_be_whole_in_another_one():
    """A simulation found it: seed 21950."""
    assert lost_and_found_cleaned({1}).rules.truths[KEY].end == 3


def test_what_is_committed_again_without_a_batch_that_nobody_cleaned_must_not_have_it_elsewhere():
    with pytest.raises(Violation):
        lost_and_found_cleaned({0})


def test_a_log_must_not_begin_earlier_than_before():
    cluster, _ = committed_by_two(3)
    partition = cluster.partitions[2]
    partition.log = log = Moved(partition.log)
    log.log_start_offset = 2
    cluster.check(2)
    log.log_start_offset = 1
    with pytest.raises(Violation) as broken:
        cluster.check(2)
    assert broken.value.rule == "log start"


def test_a_log_may_begin_anew_below_its_start():
    cluster, _ = committed_by_two(3)
    partition = cluster.partitions[2]
    partition.log = log = Moved(partition.log)
    log.log_start_offset = 2
    cluster.check(2)
    partition.restart_at(1)
    log.log_start_offset = 1
    cluster.check(2)


def appended_without_its_producer():
    """A cluster whose broker 1 has a numbered batch of which its producers' states know nothing."""
    cluster = Cluster()
    cluster.decide(1, 0, (1, 2))
    cluster.obey(1)
    batch = build_batch([b"a"], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=0)
    cluster.send(batch)
    cluster.partitions[1].log.append_as_leader(batch, 0, 0)
    return cluster


def test_producers_need_not_be_known_where_the_log_directory_failed():
    cluster = appended_without_its_producer()
    cluster.offline.add(1)
    cluster.check(1)


def test_producers_are_known_where_the_log_directory_works():
    cluster = appended_without_its_producer()
    with pytest.raises(Violation) as broken:
        cluster.check(1)
    assert broken.value.rule == "producers"


def test_logs_agree_below_the_leaders_log_start_too():
    cluster, batches = committed_by_two(3)
    other = build_batch([b"b"], timestamp_ms=1)
    log = Log.open(SimulatedDisk(Random(2)), "/t-0", LogConfig(topic_id=None, producer_snapshots=False), now_ms=0)
    cluster.send(other)
    log.append_as_leader(other, 0, 0)
    for batch in batches[1:]:
        log.append_as_follower(batch, 0)
    leader = cluster.partitions[1]
    leader.log = Moved(leader.log)
    leader.log.log_start_offset = 1
    cluster.check(1)
    cluster.rules.started(2)
    cluster.rules.cleaned(2, KEY, {})  # looks at all of it again
    cluster.partitions[2] = Partition(T, 2, log, PartitionSettings(), 3)
    with pytest.raises(Violation) as broken:
        cluster.obey(2)
    assert broken.value.rule == "logs agree"


def cancelled(*, adding):
    """Brokers 1 and 2 have what is committed, and 3, which has nothing, is the ISR when nobody is added any more."""
    cluster = Cluster()
    cluster.decide(1, 0, (1, 2), adding=adding)
    for number in (1, 2):
        cluster.obey(number)
    cluster.write(1, 2)
    cluster.decide(3, 1, (3,))
    cluster.obey(3)
    return cluster


def test_a_reassignment_that_is_cancelled_without_anybody_in_sync_loses_records_by_the_rules():
    assert cancelled(adding=(1, 2)).rules.losses == 1


def test_without_a_reassignment_the_isr_has_what_is_committed():
    with pytest.raises(Violation) as broken:
        cancelled(adding=())
    assert broken.value.rule == "in sync"


def led_again(*, elr):
    """Broker 2 is removed before it has a log, and leads when it is a replica again."""
    cluster = Cluster()
    cluster.decide(1, 0, (1, 2))
    cluster.decide(1, 1, (1,), elr=elr, replicas=(1,))
    cluster.obey(1)
    batch = bytearray(BATCH)
    cluster.send(batch)
    cluster.partitions[1].append(batch, 0)
    cluster.check(1)
    cluster.decide(2, 2, (2,))
    cluster.obey(2)
    return cluster


def test_a_replica_that_stayed_in_the_elr_as_it_was_removed_may_lead_with_nothing():
    """Kafka 4.3.1 keeps it there; a simulation found that it had never had a log: seed 21953."""
    assert led_again(elr=(2,)).rules.losses == 1


def test_a_replica_that_left_the_elr_must_not_lead_with_nothing():
    with pytest.raises(Violation) as broken:
        led_again(elr=())
    assert broken.value.rule == "in sync"


def told_after_its_only_follower_was_removed(*, is_told_before):
    cluster = Cluster(min_isr=2)
    cluster.decide(1, 0, (1, 2))
    for number in (1, 2):
        cluster.obey(number)
    cluster.write(1, 2)
    if is_told_before:
        cluster.rules.told_committed(1, KEY, 0, 0, BATCH, 2)
    cluster.rules.started(2)
    log = Log.open(SimulatedDisk(Random(4)), "/t-0", LogConfig(topic_id=None, producer_snapshots=False), now_ms=0)
    cluster.partitions[2] = Partition(T, 2, log, PartitionSettings())
    cluster.obey(2)
    cluster.rules.told_committed(1, KEY, 0, 0, BATCH, 2)


def test_what_was_acknowledged_may_be_again_by_a_leader_that_has_not_heard_of_a_reassignment():
    """A simulation found it: seed 20511."""
    told_after_its_only_follower_was_removed(is_told_before=True)


def test_what_is_acknowledged_for_the_first_time_is_held_by_as_many_as_it_takes():
    with pytest.raises(Violation) as broken:
        told_after_its_only_follower_was_removed(is_told_before=False)
    assert broken.value.rule == "acknowledged"


def without_the_second_of_three_numbers(removed):
    """Records are lost by the rules, then broker 1, whose log somebody cleaned, leads, and has them again."""
    cluster = Cluster()
    cluster.decide(1, 0, (1,))
    cluster.obey(1)
    for number in range(3):
        batch = build_batch([b"%d" % number], timestamp_ms=1, producer_id=7, producer_epoch=0, base_sequence=number)
        cluster.send(batch)
        cluster.partitions[1].append(batch, 0)
    cluster.partitions[1].fetched(2, 3, 0)
    cluster.check(1)
    batches = [bytes(batch.raw) for batch in iter_batches(cluster.partitions[1].log.read(0, 10_000))]
    cluster.decide(3, 1, (3,), state=RECOVERING)
    cluster.obey(3)
    cluster.rules.cleaned(1, KEY, {at: Cleaned(RecordBatch(batches[at]).crc, None) for at in removed})
    cluster.rules.started(1)
    config = LogConfig(topic_id=None, producer_snapshots=False, allow_gaps=True)
    log = Log.open(SimulatedDisk(Random(1)), "/t-0", config, now_ms=0)
    log.append_as_follower(batches[0] + batches[2], 0)
    producers = ProducerStates(log)
    producers.load(0)
    nobody_else = lambda broker_id, epoch: False  # noqa: E731
    cluster.partitions[1] = Partition(T, 1, log, PartitionSettings(), 0, nobody_else, producers)
    cluster.decide(1, 2, (1,), state=RECOVERING)
    cluster.obey(1)
    return cluster


def test_numbers_may_be_missing_that_a_cleaner_removed():
    assert without_the_second_of_three_numbers({1}).rules.truths[KEY].end == 3


def test_numbers_must_not_be_missing_that_no_cleaner_removed():
    with pytest.raises(Violation) as broken:
        without_the_second_of_three_numbers(())
    assert broken.value.rule == "sequences"


def test_a_leader_that_has_not_heard_who_left_the_isr_may_keep_him_but_adds_nobody_who_goes():
    rules = Cluster().rules
    going = SimpleNamespace(brokers={3: SimpleNamespace(is_active=False)})
    rules.proposed(1, KEY, (1, 3), (1, 2, 3), going)
    with pytest.raises(Violation) as broken:
        rules.proposed(1, KEY, (1, 2, 3), (1, 2), going)
    assert broken.value.rule == "proposed"


def led_alone():
    cluster = Cluster()
    cluster.decide(1, 0, (1,))
    cluster.obey(1)
    return cluster


def test_a_leader_appends_in_the_order_in_which_requests_came():
    cluster = led_alone()
    first, second, third = (build_batch([value], timestamp_ms=1) for value in (b"a", b"b", b"c"))
    for batch in (first, second, third, second):  # somebody repeats it
        cluster.send(batch)
    for batch in (first, third, second):
        cluster.partitions[1].append(bytearray(batch), LONG_AFTER_MS)
        cluster.check(1)
    cluster.partitions[1].append(bytearray(third), LONG_AFTER_MS)
    with pytest.raises(Violation, match="behind what came after it") as broken:
        cluster.check(1)
    assert broken.value.rule == "order"


@pytest.mark.parametrize(
    ("wanted", "told", "is_right"),
    [
        (10, (0, 10), True),
        (11, (2, 30), True),
        (11, (1, 10), False),  # of another time
        (25, (3, 30), False),  # not the first one
        (10, (2, 30), False),  # one that comes later
        (31, (-1, -1), True),
        (30, (-1, -1), False),
        (11, (9, 30), False),  # nothing is there
    ],
)
def test_the_first_record_of_a_time_is_told(wanted, told, is_right):
    cluster = led_alone()
    for values, time in (([b"a", b"b"], 10), ([b"c", b"d"], 30)):
        batch = build_batch(values, timestamp_ms=time)
        cluster.send(batch)
        cluster.partitions[1].append(batch, LONG_AFTER_MS)
        cluster.check(1)
    if is_right:
        cluster.rules.told_time(1, KEY, cluster.partitions[1], wanted, 4, told)
    else:
        with pytest.raises(Violation) as broken:
            cluster.rules.told_time(1, KEY, cluster.partitions[1], wanted, 4, told)
        assert broken.value.rule == "times"
