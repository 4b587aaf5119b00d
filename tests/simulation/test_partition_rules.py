"""What the rules of simulated partitions allow, without a simulation."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import PartitionKey
from kraftcore.metadata.partition import RECOVERED, RECOVERING
from kraftcore.plugins.broker.partition import Assignment, Partition, TopicPartition
from kraftcore.plugins.broker.partition.partition import PartitionSettings
from kraftcore.plugins.broker.simulated.rules import PartitionRules
from kraftcore.simulation.checks import Violation

T = TopicPartition("t", 0)
TOPIC = Uuid(b"5" * 16)
KEY = PartitionKey(TOPIC, 0)
BATCH = build_batch([b"a"], timestamp_ms=1)


class Cluster:
    """Brokers 1 to 3 with a partition; what the controller wrote of it is `decide`d."""

    def __init__(self):
        self._row = None
        self.offline = set()
        topics = {TOPIC: SimpleNamespace(name="t")}
        partitions = SimpleNamespace(of_topic=lambda topic_id: [(0, self._row)], get=lambda *key: self._row)
        self.told = []
        self.rules = PartitionRules(
            SimpleNamespace(reference=SimpleNamespace(topics=topics, partitions=partitions)),
            1,
            lambda *told: self.told.append(told),
        )
        self.partitions = {number: self._make(number) for number in (1, 2, 3)}

    def _make(self, number):
        self.rules.started(number)
        disk = SimulatedDisk(Random(number))
        log = Log.open(disk, "/t-0", LogConfig(topic_id=None, producer_snapshots=False), now_ms=0)
        return Partition(T, number, log, PartitionSettings(), is_eligible=lambda broker_id, epoch: broker_id != 3)

    def decide(self, leader, epoch, isr, *, state=RECOVERED):
        self._row = SimpleNamespace(
            leader=leader,
            leader_epoch=epoch,
            partition_epoch=epoch,
            isr=isr,
            elr=(),
            replicas=(1, 2, 3),
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

    def write(self, leader, follower):
        """A record that both have, and know to be committed; returns it as it is in the log."""
        batch = bytearray(BATCH)
        self.rules.written(KEY, batch)
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
        cluster.rules.written(KEY, batch)
        cluster.partitions[1].append(batch, 0)
    records = cluster.partitions[1].log.read(0, 10_000)
    cluster.partitions[2].replicate(records, count, 0)
    cluster.check(2)
    cluster.partitions[1].fetched(2, count, 0)
    cluster.check(1)
    return cluster, [bytes(batch.raw) for batch in iter_batches(records)]


def reopen_without_the_second(cluster, batches, left):
    """Somebody cleaned broker 2's log, and it begins with what is left: the first and the third batch."""
    cluster.rules.cleaned(2, KEY, left)
    cluster.rules.started(2)
    config = LogConfig(topic_id=None, producer_snapshots=False, allow_gaps=True)
    log = Log.open(SimulatedDisk(Random(2)), "/t-0", config, now_ms=0)
    log.append_as_follower(batches[0] + batches[2], 0)
    cluster.partitions[2] = Partition(T, 2, log, PartitionSettings(), 3)
    cluster.obey(2)


def test_what_a_cleaner_removed_may_be_missing():
    cluster, batches = committed_by_two(3)
    reopen_without_the_second(cluster, batches, {1: None})
    assert cluster.rules.truths[KEY].end == 3


def test_what_no_cleaner_removed_must_not_be_missing():
    cluster, batches = committed_by_two(3)
    with pytest.raises(Violation) as broken:
        reopen_without_the_second(cluster, batches, {0: None})
    assert broken.value.rule == "logs agree"


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
    cluster.rules.written(KEY, batch)
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


def overtaken(*, raised):
    """Broker 2 has a batch of its own at 0, where 1 and 3 have another, and begins when its log had started at 1."""
    cluster, batches = committed_by_two(3)
    other = build_batch([b"b"], timestamp_ms=1)
    log = Log.open(SimulatedDisk(Random(2)), "/t-0", LogConfig(topic_id=None, producer_snapshots=False), now_ms=0)
    cluster.rules.written(KEY, other)
    log.append_as_leader(other, 0, 0)
    for batch in batches[1:]:
        log.append_as_follower(batch, 0)
    for start in (1, 0) if raised else (0,):
        cluster.rules.started(2)
        cluster.rules.cleaned(2, KEY, {})  # looks at all of it again
        cluster.partitions[2] = partition = Partition(T, 2, Moved(log), PartitionSettings(), 3)
        partition.log.log_start_offset = start
        cluster.obey(2)
    return cluster, other, batches


def test_where_a_log_began_before_its_process_ended_logs_may_differ():
    cluster, other, batches = overtaken(raised=True)
    cluster.rules.read(2, KEY, cluster.partitions[2], other)
    cluster.obey(3)
    cluster.partitions[3].replicate(batches[0], 1, 0)
    cluster.check(3)


def test_so_they_may_where_such_a_log_leads():
    cluster, other, _ = overtaken(raised=True)
    cluster.decide(2, 1, (1, 2))
    cluster.obey(2)
    cluster.obey(3)
    cluster.partitions[3].replicate(other, 1, 0)
    cluster.check(3)
    cluster.rules.check_end()


def test_elsewhere_logs_agree():
    with pytest.raises(Violation) as broken:
        overtaken(raised=False)
    assert broken.value.rule == "logs agree"


def test_an_excuse_is_no_one_else_s():
    cluster, other, _ = overtaken(raised=True)
    cluster.obey(3)
    cluster.partitions[3].replicate(other, 1, 0)
    with pytest.raises(Violation) as broken:
        cluster.check(3)
    assert broken.value.rule == "logs agree"
