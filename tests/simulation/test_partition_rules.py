"""What the rules of simulated partitions allow, without a simulation."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace

import pytest

from kraftcore.core.batch import build_batch
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
        self.rules.check(SimpleNamespace(number=number, hosted={T: replica}))

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
