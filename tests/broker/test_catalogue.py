"""What the metadata log says that a broker is to do."""

import pytest

from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.metadata import Image
from kraftcore.plugins.broker.metadata.local_changes import Catalogue
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord

US = 1
FIRST, SECOND = Uuid(bytes(15) + b"\x10"), Uuid(bytes(15) + b"\x11")
PLACE = Uuid(bytes(15) + b"\x20")
NAME = TopicPartition("t", 0)
OTHER = TopicPartition("other", 0)


def topic(topic_id, replicas, *, leader, name="t", epoch=0):
    directories = [PLACE if each == US else Uuid(bytes(16)) for each in replicas]
    yield TopicRecord(name=name, topic_id=topic_id)
    yield PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
        directories=directories,
    )


class Log:
    """An image, and what a broker makes of what is added to it."""

    def __init__(self, *records):
        self.image = Image()
        self.catalogue = Catalogue(US)
        for record in records:
            self.image.apply(record)
        self.first = self.catalogue.begin(self.image)

    def add(self, *records):
        self.image.mark(0)
        for record in records:
            self.image.apply(record)
        changes = self.catalogue.follow(self.image, self.image.delta())
        self.image.forget_marks()
        return changes


def test_a_first_image_is_told_as_a_whole():
    log = Log(*topic(FIRST, [1, 2], leader=1), *topic(SECOND, [2, 3], leader=2, name="other"))
    assert log.catalogue.held == {NAME: FIRST}
    assert log.first.brokers
    assert log.first.broker_configs
    assigned = log.first.leads[NAME]
    assert (assigned.leader, assigned.replicas, assigned.isr) == (1, (1, 2), (1, 2))
    assert (assigned.topic_id, assigned.directory, assigned.is_recovering) == (FIRST, PLACE, False)
    assert not log.first.follows
    assert not log.first.deletes
    assert log.first.topic_configs == {"t": {}}


def test_leading_and_following():
    log = Log()
    assert log.add(*topic(FIRST, [2, 1], leader=2)).follows[NAME].leader == 2
    changes = log.add(PartitionChangeRecord(partition_id=0, topic_id=FIRST, leader=1))
    assert (changes.leads[NAME].leader_epoch, changes.leads[NAME].partition_epoch) == (1, 1)
    assert not changes.follows
    changes = log.add(PartitionChangeRecord(partition_id=0, topic_id=FIRST, leader=1, leader_recovery_state=1, isr=[1]))
    assert changes.leads[NAME].is_recovering
    assert log.add(PartitionChangeRecord(partition_id=0, topic_id=FIRST, leader=-1)).follows[NAME].leader == -1
    assert log.add(*topic(SECOND, [2, 3], leader=2, name="other")).is_empty


def test_a_replica_that_moves_away_is_deleted_and_one_that_comes_is_made():
    log = Log(*topic(FIRST, [1, 2], leader=2), *topic(SECOND, [2, 3], leader=2, name="other"))
    away = PartitionChangeRecord(partition_id=0, topic_id=FIRST, replicas=[2, 3], isr=[2])
    here = PartitionChangeRecord(partition_id=0, topic_id=SECOND, replicas=[2, 3, 1], adding_replicas=[1])
    changes = log.add(away, here)
    assert changes.deletes == {NAME: FIRST}
    assert changes.follows.keys() == {OTHER}
    assert changes.topic_configs.keys() == {"other"}
    assert log.catalogue.held == {OTHER: SECOND}


def test_a_topic_made_anew_under_its_name_is_another_one():
    log = Log(*topic(FIRST, [1], leader=1))
    changes = log.add(RemoveTopicRecord(topic_id=FIRST), *topic(SECOND, [1], leader=1))
    assert changes.deletes == {NAME: FIRST}
    assert changes.leads[NAME].topic_id == SECOND
    assert log.catalogue.held == {NAME: SECOND}
    changes = log.add(RemoveTopicRecord(topic_id=SECOND))
    assert changes.deletes == {NAME: SECOND}
    assert not log.catalogue.held


def test_an_image_of_a_snapshot_takes_the_place_of_all_that_was_held():
    log = Log(*topic(FIRST, [1], leader=1), *topic(Uuid(bytes(15) + b"\x12"), [1], leader=1, name="gone"))
    image = Image()
    for record in topic(SECOND, [1], leader=1):
        image.apply(record)
    changes = log.catalogue.begin(image)
    assert changes.deletes == {NAME: FIRST, TopicPartition("gone", 0): Uuid(bytes(15) + b"\x12")}
    assert log.catalogue.held == {NAME: SECOND}
    assert changes.gone == {FIRST: "t", Uuid(bytes(15) + b"\x12"): "gone"}


def test_a_replica_is_new_while_nobody_counts_on_what_it_holds():
    log = Log(*topic(FIRST, [1, 2], leader=1))
    assert not log.first.leads[NAME].is_new
    assert log.add(*topic(SECOND, [2, 1], leader=2, name="other")).follows[OTHER].is_new
    assert not log.add(PartitionChangeRecord(partition_id=0, topic_id=SECOND, leader=1)).leads[OTHER].is_new
    assert not log.add(PartitionChangeRecord(partition_id=0, topic_id=SECOND, leader=2, isr=[2])).follows[OTHER].is_new
    nowhere = PartitionChangeRecord(partition_id=0, topic_id=SECOND, directories=[PLACE, UNASSIGNED_DIRECTORY])
    assert log.add(nowhere).follows[OTHER].is_new
    assert Catalogue(US).begin(log.image).follows[OTHER].is_new
    eligible = PartitionChangeRecord(partition_id=0, topic_id=SECOND, eligible_leader_replicas=[1])
    assert not log.add(eligible).follows[OTHER].is_new
    log.add(PartitionChangeRecord(partition_id=0, topic_id=SECOND, replicas=[2], directories=[PLACE]))
    here = PartitionChangeRecord(partition_id=0, topic_id=SECOND, replicas=[2, 1], directories=[PLACE, PLACE])
    assert log.add(here).follows[OTHER].is_new


@pytest.mark.parametrize(
    ("type_", "name", "is_ours"), [(4, "1", True), (4, "", True), (4, "2", False), (2, "other", False)]
)
def test_configurations(type_, name, is_ours):
    log = Log(*topic(FIRST, [1], leader=1), *topic(SECOND, [2], leader=2, name="other"))
    record = ConfigRecord(resource_type=type_, resource_name=name, name="retention.ms", value="5")
    assert log.add(record).broker_configs == is_ours
    changes = log.add(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="5"))
    assert changes.topic_configs == {"t": {"retention.ms": "5"}}
    assert not changes.broker_configs


def test_registrations():
    log = Log()
    assert log.add(RegisterBrokerRecord(broker_id=2, broker_epoch=3)).brokers
