"""What a broker makes of the metadata image: what is committed, and what clients are told."""

from types import SimpleNamespace

import pytest

from kraftcore.core.batch import RecordBatch, build_batch
from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.metadata import Image, MetadataMachine
from kraftcore.node.registry import Asker
from kraftcore.plugins.broker.api.describe_topic_partitions import DescribeTopicPartitions
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.kraft.committed_image import CommittedImage
from kraftcore.plugins.broker.kraft.image_cache import ImageCache
from kraftcore.plugins.broker.metadata.local_changes import Catalogue
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.ports.transport import Address
from kraftcore.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord

ID, LATER = Uuid(bytes(15) + b"\x10"), Uuid(bytes(15) + b"\x11")
VERSION = FeatureLevelRecord(name="metadata.version", feature_level=25)


def values(*records):
    return [encode_metadata_record(record, 1 if isinstance(record, PartitionRecord) else 0) for record in records]


def topic(topic_id=ID, name="t", replicas=(1, 2), count=1):
    yield TopicRecord(name=name, topic_id=topic_id)
    yield from (partition(number, topic_id, replicas) for number in range(count))


def partition(number, topic_id, replicas):
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(replicas),
        isr=list(replicas),
        leader=replicas[0],
        directories=[UNASSIGNED_DIRECTORY] * len(replicas),
    )


def broker(broker_id, *, fenced=False, **more):
    end_point = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host=f"h{broker_id}", port=9092)
    return RegisterBrokerRecord(
        broker_id=broker_id, broker_epoch=broker_id * 10, end_points=[end_point], fenced=fenced, **more
    )


class Follower:
    """A machine with a broker's image beside it."""

    def __init__(self):
        self.news = 0
        self.committed = CommittedImage(self.changed)
        self.machine = MetadataMachine()
        self.machine.followers.append(self.committed)
        self.catalogue = Catalogue(1)

    def changed(self):
        self.news += 1

    def commit(self, *records):
        offset = self.machine.offset
        batch = RecordBatch(bytes(build_batch(values(*records), base_offset=offset, timestamp_ms=1)))
        self.machine.apply(batch)

    def take(self):
        image, delta = self.committed.take()
        return self.catalogue.begin(image) if delta is None else self.catalogue.follow(image, delta)


def test_the_first_image_is_whole_and_later_ones_are_told_by_what_changed():
    follower = Follower()
    follower.commit(VERSION, *topic())
    assert follower.news == 1
    assert follower.take().leads.keys() == {TopicPartition("t", 0)}
    assert follower.committed.end_offset == 3
    follower.commit(*topic(LATER, "u"))
    follower.commit(RemoveTopicRecord(topic_id=ID))
    changes = follower.take()
    assert changes.leads.keys() == {TopicPartition("u", 0)}
    assert changes.deletes == {TopicPartition("t", 0): ID}
    assert follower.take().is_empty


def test_a_leader_that_runs_ahead_tells_what_is_committed_alone():
    follower = Follower()
    follower.commit(VERSION)
    follower.take()
    machine = follower.machine
    machine.lead()
    ahead = values(*topic())
    machine.put(ahead, machine.offset)
    assert machine.image.topics.by_name("t") is not None
    assert follower.committed.image.topics.by_name("t") is None
    assert follower.take().is_empty
    machine.apply(RecordBatch(bytes(build_batch(ahead, base_offset=machine.offset, timestamp_ms=1))))
    assert follower.take().leads.keys() == {TopicPartition("t", 0)}


def test_a_snapshot_takes_the_place_of_everything():
    follower = Follower()
    follower.commit(VERSION, *topic())
    follower.take()
    before = follower.committed.image
    follower.machine.restore(values(VERSION, broker(1), *topic(LATER)))
    follower.machine.restored(50)
    assert follower.committed.image is not before
    assert follower.committed.end_offset == 50
    assert follower.committed.image.registration_offsets[1] == 49
    changes = follower.take()
    assert changes.deletes == {TopicPartition("t", 0): ID}
    assert changes.leads[TopicPartition("t", 0)].topic_id == LATER


def shown(*records):
    image, cache = Image(), ImageCache(1)
    image.apply_values(values(*records))
    cache.show(image)
    return image, cache


def test_clients_are_told_of_brokers_that_are_not_fenced():
    image, cache = shown(VERSION, broker(1), broker(2, rack="r"), broker(3, fenced=True), *topic(replicas=(2, 1, 3)))
    assert cache.brokers.keys() == {1, 2}
    assert cache.brokers[2].rack == "r"
    assert cache.address(2, "PLAINTEXT") == Address("h2", 9092)
    assert cache.address(2, "OTHER") is None
    assert cache.address(3, "PLAINTEXT") is None
    assert cache.controller_id == 1
    assert cache.is_eligible(2, 20)
    assert not cache.is_eligible(2, 19)  # of an earlier incarnation
    assert cache.is_eligible(2, -1)
    assert not cache.is_eligible(3, 30)
    image.apply(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=20, in_controlled_shutdown=1))
    cache.show(image)
    assert cache.is_alive(2)
    assert not cache.is_eligible(2, 20)


def test_a_page_of_partitions_looks_at_no_others(monkeypatch):
    image, cache = shown(VERSION, broker(1), *topic(count=100))
    monkeypatch.setattr(ImageCache, "partitions", lambda *args: pytest.fail("all of them are looked at"))
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")],
        response_partition_limit=2,
        cursor=DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=40),
    )
    answer = DescribeTopicPartitions(cache, lambda: image, Permits()).respond(
        request, SimpleNamespace(asker=Asker("PLAINTEXT", "p"), version=0)
    )
    assert [each.partition_index for each in answer.topics[0].partitions] == [40, 41]
    assert answer.next_cursor.partition_index == 42


def test_clients_are_told_of_topics_as_they_are_when_they_ask():
    image, cache = shown(VERSION, broker(1), broker(2), broker(3, fenced=True), *topic(replicas=(2, 1, 3)))
    state = cache.partition("t", 0)
    assert (state.leader, state.isr, state.replicas, state.offline_replicas) == (2, [2, 1, 3], [2, 1, 3], [3])
    assert cache.knows("t", 0)
    assert not cache.knows("t", 1)
    assert not cache.knows("u", 0)
    assert cache.partition("u", 0) is None
    assert dict(cache.ids) == {"t": ID}
    assert dict(cache.names) == {ID: "t"}
    assert {name: set(partitions) for name, partitions in cache.topics.items()} == {"t": {0}}
    assert "u" not in cache.topics
    for record in topic(LATER, "u"):
        image.apply(record)
    assert cache.knows("u", 0)
    assert len(cache.topics) == len(cache.ids) == len(cache.names) == 2
    image.apply(RemoveTopicRecord(topic_id=ID))
    assert cache.topics.get("t") is None
    assert cache.names.get(ID) is None
