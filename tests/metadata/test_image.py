"""The image: records in, state out; transactions; going back."""

from __future__ import annotations

import pytest

from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, MetadataRecordError
from kraftcore.metadata import ConfigResource, Image, Partition, PartitionKey
from kraftcore.protocol.records.abort_transaction_record import AbortTransactionRecord
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.records.unregister_broker_record import UnregisterBrokerRecord

T = Uuid(bytes(range(16)))


def topic(name: str = "t", topic_id: Uuid = T) -> TopicRecord:
    return TopicRecord(name=name, topic_id=topic_id)


def partition(number: int = 0, **fields: object) -> PartitionRecord:
    given = {"replicas": [1, 2, 3], "isr": [1, 2, 3], "leader": 1, "leader_epoch": 0, "partition_epoch": 0} | fields
    return PartitionRecord(partition_id=number, topic_id=T, **given)  # type: ignore[arg-type]


def change(number: int = 0, **fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=number, topic_id=T, **fields)  # type: ignore[arg-type]


def setting(name: str, value: str | None, resource: str = "t") -> ConfigRecord:
    return ConfigRecord(resource_type=2, resource_name=resource, name=name, value=value)


def image_of(*records: object, ahead: bool = False) -> Image:
    image = Image(ahead=ahead)
    for record in records:
        image.apply(record)  # type: ignore[arg-type]
    return image


def test_a_topic_and_its_partitions() -> None:
    image = image_of(topic(), partition(1), partition(0, leader=2), setting("a", "1"))
    assert image.topics.by_name("t") == (T, "t")
    assert [number for number, _ in image.partitions.of_topic(T)] == [0, 1]
    assert [key for key, _ in image.partitions.led_by(2)] == [PartitionKey(T, 0)]
    image.apply(change(0, isr=[2], leader=2))
    found = image.partitions.get(T, 0)
    assert found == Partition(replicas=(1, 2, 3), isr=(2,), leader=2, leader_epoch=1, partition_epoch=1), (
        "the same leader again is a new leader epoch"
    )
    image.apply(RemoveTopicRecord(topic_id=T))
    assert (len(image.topics), len(image.partitions), len(image.configs)) == (0, 0, 0)


def test_records_that_do_not_fit() -> None:
    image = image_of(topic())
    for record, reason in (
        (topic(), "topic t with id"),
        (topic("u"), "t has the id"),
        (PartitionRecord(topic_id=Uuid(b"x" * 16), partition_id=0), "there is no topic"),
        (change(7), "there is no partition 7"),
        (partition(0, directories=[T]), "not as many directories as replicas"),
        (partition(0, leader_recovery_state=7), "7 is no leader recovery state"),
        (RemoveTopicRecord(topic_id=Uuid(b"x" * 16)), "there is no topic"),
        (EndTransactionRecord(), "no metadata transaction is open"),
        (AbortTransactionRecord(), "no metadata transaction is open"),
    ):
        with pytest.raises(MetadataRecordError, match=reason):
            image.apply(record)  # type: ignore[arg-type]
    assert (list(image.topics), len(image.partitions)) == ([T], 0)


def test_offsets_of_registrations() -> None:
    image = Image(ahead=True)
    image.apply(RegisterBrokerRecord(broker_id=1, broker_epoch=7), 7)
    image.mark(8)
    image.apply(RegisterBrokerRecord(broker_id=1, broker_epoch=7), 8)
    assert image.registration_offsets[1] == 8
    image.apply(UnregisterBrokerRecord(broker_id=1, broker_epoch=7), 9)
    assert 1 not in image.registration_offsets
    image.roll_back()
    assert image.registration_offsets[1] == 7


def test_names_that_collide_in_metrics() -> None:
    other = Uuid(b"y" * 16)
    image = image_of(topic("a.b"))
    assert image.topics.colliding_with("a_b") == "a.b"
    assert image.topics.colliding_with("a.b") is None
    image.apply(topic("a_b", other))
    assert image.topics.colliding_with("a.b") == "a_b"
    image.apply(RemoveTopicRecord(topic_id=T))
    assert image.topics.colliding_with("a_b") is None


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("end", [EndTransactionRecord, AbortTransactionRecord])
def test_transactions(ahead: bool, end: type) -> None:
    image = image_of(topic(), setting("a", "1"), BeginTransactionRecord(), setting("a", "2"), ahead=ahead)
    assert image.configs.of(2, "t") == {"a": "2" if ahead else "1"}
    with pytest.raises(MetadataRecordError, match="open already"):
        image.apply(BeginTransactionRecord())
    image.apply(setting("b", "3"))
    image.apply(end())
    assert not image.in_transaction
    assert image.configs.of(2, "t") == ({"a": "2", "b": "3"} if end is EndTransactionRecord else {"a": "1"})


def test_a_transaction_that_does_not_fit_is_applied_not_at_all() -> None:
    image = image_of(BeginTransactionRecord(), setting("a", "2"), change(0))
    with pytest.raises(MetadataRecordError, match="there is no topic"):
        image.apply(EndTransactionRecord())
    assert len(image.configs) == 0


def test_going_back_to_marks() -> None:
    image = image_of(topic(), partition(), ahead=True)
    image.mark(2)
    image.apply(change(isr=[1]))
    image.mark(3)
    image.apply(RemoveTopicRecord(topic_id=T))
    image.mark(4)
    image.apply(topic("u", Uuid(b"x" * 16)))
    with pytest.raises(LocalError, match="behind the one at 4"):
        image.mark(3)
    with pytest.raises(LocalError, match="no mark at 7"):
        image.roll_back(7)
    assert image.roll_back(3) == 3
    found = image.partitions.get(T, 0)
    assert found is not None
    assert found.isr == (1,)
    assert image.topics.by_name("t") is not None
    image.committed(3)
    image.apply(setting("a", "1"))
    assert image.follow() == 3
    assert (image.partitions.get(T, 0), len(image.configs)) == (found, 0)
    with pytest.raises(LocalError, match="there is no mark"):
        image.roll_back()


def test_leadership_lost_inside_a_transaction() -> None:
    image = image_of(setting("a", "1"), ahead=True)
    image.mark(1)
    image.apply(BeginTransactionRecord())
    image.apply(setting("a", "2"))
    image.mark(3)
    image.apply(setting("a", "3"))
    image.apply(EndTransactionRecord())
    image.mark(5)
    image.committed(3)
    assert image.follow() == 3
    assert image.configs[ConfigResource(2, "t")] == {"a": "1"}, "held back again"
    image.apply(EndTransactionRecord())
    assert image.configs[ConfigResource(2, "t")] == {"a": "2"}


def test_leadership_won_inside_a_transaction() -> None:
    image = image_of(setting("a", "1"), BeginTransactionRecord(), setting("a", "2"))
    image.run_ahead()
    assert image.configs.of(2, "t") == {"a": "2"}
    image.apply(AbortTransactionRecord())
    assert image.configs.of(2, "t") == {"a": "1"}


def test_back_to_before_a_transaction_was_aborted() -> None:
    image = image_of(setting("a", "1"), ahead=True)
    image.mark(1)
    image.apply(BeginTransactionRecord())
    image.apply(setting("a", "2"))
    image.mark(3)
    image.apply(AbortTransactionRecord())
    image.mark(4)
    assert image.configs.of(2, "t") == {"a": "1"}
    image.roll_back(3)
    assert image.in_transaction
    assert image.configs.of(2, "t") == {"a": "2"}
    image.apply(EndTransactionRecord())
    assert image.configs.of(2, "t") == {"a": "2"}


def test_what_changed_between_two_marks() -> None:
    image = image_of(topic(), partition(), setting("a", "1"), ahead=True)
    image.mark(3)
    image.apply(setting("a", "2"))
    image.apply(setting("b", "1", "u"))
    image.apply(change(isr=[1]))
    image.mark(6)
    image.apply(setting("a", "3"))
    image.apply(setting("b", None, "u"))
    image.apply(change(isr=[1, 2]))
    t, u, key = ConfigResource(2, "t"), ConfigResource(2, "u"), PartitionKey(T, 0)
    early, all_of_it = image.delta(6), image.delta()
    assert early.configs == {t: ({"a": "1"}, {"a": "2"}), u: (None, {"b": "1"})}
    assert all_of_it.configs == {t: ({"a": "1"}, {"a": "3"})}, "what came and went is in no difference"
    before, after = early.partitions[key]
    assert before is not None
    assert after is not None
    assert (before.isr, after.isr, after.partition_epoch) == ((1, 2, 3), (1,), 1)
    assert all_of_it.partitions[key].after == image.partitions.get(T, 0)
    image.committed(6)
    assert image.delta().configs == {t: ({"a": "2"}, {"a": "3"}), u: ({"b": "1"}, None)}
    image.apply(RemoveTopicRecord(topic_id=T))
    gone = image.delta()
    assert (gone.topics[T].after, gone.partitions[key].after, gone.configs[t].after) == (None, None, None)


def test_what_an_aborted_transaction_made_is_gone() -> None:
    image = image_of(BeginTransactionRecord(), topic(), partition(), setting("a", "1"), ahead=True)
    assert len(image.partitions) == 1
    image.apply(AbortTransactionRecord())
    assert (len(image.topics), len(image.partitions), len(image.configs)) == (0, 0, 0)
    image.apply(topic())
