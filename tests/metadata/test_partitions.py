"""The table of partitions, held against a plain twin: any records, any way back, frozen copies, differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from plain_partitions import PlainPartitions, State

from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, MetadataRecordError
from kraftcore.metadata import Change, Partition, PartitionKey, partition_record
from kraftcore.metadata.frozen_partitions import FrozenPartitions
from kraftcore.metadata.partitions import Partitions
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord

TOPICS = [Uuid(bytes([number]) * 16) for number in (1, 2, 200)]
DIRECTORIES = [Uuid(), Uuid(bytes(15) + b"\x01"), Uuid(b"d" * 16), Uuid(b"e" * 16)]
# Partition ids far apart, broker ids beyond what the table counts in an array.
numbers = st.sampled_from([0, 1, 2, 3, 4, 9, 2**31 - 1])
broker_ids = st.sampled_from([0, 1, 2, 3, 70_000, 2**31 - 1])
brokers = st.lists(broker_ids, max_size=4, unique=True)
leaders = st.one_of(st.just(-1), broker_ids)
topics = st.sampled_from(TOPICS)


@st.composite
def partition_records(draw: st.DrawFn, topic: st.SearchStrategy[Uuid] = topics) -> PartitionRecord:
    replicas = draw(brokers)
    directories = draw(st.one_of(st.just([]), st.tuples(*[st.sampled_from(DIRECTORIES)] * len(replicas)).map(list)))
    return PartitionRecord(
        partition_id=draw(numbers),
        topic_id=draw(topic),
        replicas=replicas,
        isr=draw(brokers),
        removing_replicas=draw(st.one_of(st.just([]), brokers)),
        adding_replicas=draw(st.one_of(st.just([]), brokers)),
        leader=draw(leaders),
        leader_recovery_state=draw(st.sampled_from([0, 1])),
        leader_epoch=draw(st.integers(0, 2**31 - 100)),
        partition_epoch=draw(st.integers(0, 2**31 - 100)),
        directories=directories,
        eligible_leader_replicas=draw(st.none() | brokers),
        last_known_elr=draw(st.none() | brokers),
    )


@st.composite
def changes(draw: st.DrawFn) -> PartitionChangeRecord:
    replicas = draw(st.none() | brokers)
    given_directories = st.lists(st.sampled_from(DIRECTORIES), max_size=4)
    return PartitionChangeRecord(
        partition_id=draw(numbers),
        topic_id=draw(topics),
        isr=draw(st.none() | brokers),
        leader=draw(st.one_of(st.just(-2), leaders)),
        replicas=replicas,
        removing_replicas=draw(st.none() | brokers),
        adding_replicas=draw(st.none() | brokers),
        leader_recovery_state=draw(st.sampled_from([-1, 0, 1])),
        directories=draw(st.none() | given_directories),
        eligible_leader_replicas=draw(st.none() | brokers),
        last_known_elr=draw(st.none() | brokers),
    )


def state_of(table: Partitions) -> State:
    found = {PartitionKey(topic, number): each for topic in TOPICS for number, each in table.of_topic(topic)}
    assert len(found) == len(table)
    return found


def _places(partition: Partition) -> list[tuple[int, Uuid]]:
    return list(zip(partition.replicas, partition.directories, strict=True))


def frozen_state(frozen: FrozenPartitions, topic_ids: list[Uuid]) -> State:
    found = {}
    for topic_id in topic_ids:
        table = Partitions()
        table.add_topic(topic_id)
        values = frozen.values(topic_id, 2)
        assert table.take(values, 0) == len(values)
        found.update({PartitionKey(topic_id, number): each for number, each in table.of_topic(topic_id)})
    return found


class Twins(RuleBasedStateMachine):
    """The compiled table and the plain one take the same records and go the same ways back."""

    def __init__(self) -> None:
        super().__init__()
        self.table = Partitions()
        self.plain = PlainPartitions()
        self.places: list[tuple[int, PlainPartitions]] = []
        self.taken_back = 0  # no change below is taken back again, as no transaction holds another
        self.frozen: list[tuple[FrozenPartitions, PlainPartitions]] = []

    @rule(topic_id=topics)
    def add_topic(self, topic_id: Uuid) -> None:
        if topic_id in self.plain.topics:
            with pytest.raises(LocalError):
                self.table.add_topic(topic_id)
            return
        self.table.add_topic(topic_id)
        self.plain.topics[topic_id] = {}

    @rule(topic_id=topics)
    def remove_topic(self, topic_id: Uuid) -> None:
        if topic_id not in self.plain.topics:
            with pytest.raises(LocalError):
                self.table.remove_topic(topic_id)
            return
        self.table.remove_topic(topic_id)
        del self.plain.topics[topic_id]

    @rule(record=partition_records())
    def put(self, record: PartitionRecord) -> None:
        if record.topic_id not in self.plain.topics:
            with pytest.raises(MetadataRecordError, match="there is no topic"):
                self.table.on_partition(record)
            return
        self.table.on_partition(record)
        self.plain.put(record)

    @rule(record=changes(), data=st.data())
    def change(self, record: PartitionChangeRecord, data: st.DataObject) -> None:
        known = sorted(self.plain.state())
        if known and data.draw(st.booleans()):
            record.topic_id, record.partition_id = data.draw(st.sampled_from(known))
        try:
            self.plain.change(record)
        except (KeyError, MetadataRecordError):
            with pytest.raises(MetadataRecordError):
                self.table.on_change(record)
            return
        self.table.on_change(record)

    @rule(topic_id=topics)
    def clear_elr(self, topic_id: Uuid) -> None:
        if topic_id in self.plain.topics:
            self.table.clear_elr(topic_id)
            self.plain.clear_elr(topic_id)

    @rule()
    def note(self) -> None:
        self.table.note_changes()
        self.places.append((self.table.position, self.plain.copy()))

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.places) - 1))
        position, plain = self.places[at]
        self.table.undo_to(position)
        self.plain = plain.copy()
        self.taken_back = min(self.taken_back, position)
        del self.places[at + 1 :]

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def take_back(self, data: st.DataObject) -> None:
        places = [each for each in self.places if each[0] >= self.taken_back]
        if places:
            position, plain = data.draw(st.sampled_from(places))
            self.table.take_back(position)
            self.plain = plain.copy()
            self.taken_back = self.table.position

    @precondition(lambda self: self.places)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        at = data.draw(st.integers(0, len(self.places) - 1))
        self.table.forget_below(self.places[at][0])
        del self.places[:at]

    @rule()
    def switch_off(self) -> None:
        self.table.switch_off()
        self.places.clear()

    @precondition(lambda self: len(self.places) > 1)
    @rule(data=st.data())
    def differences(self, data: st.DataObject) -> None:
        first = data.draw(st.integers(0, len(self.places) - 1))
        last = data.draw(st.integers(first, len(self.places) - 1))
        (start, before), (end, after) = self.places[first], self.places[last]
        old, new = before.state(), after.state()
        wanted = {
            key: Change(old.get(key), new.get(key)) for key in old.keys() | new.keys() if old.get(key) != new.get(key)
        }
        assert self.table.changes(start, end) == wanted

    @rule()
    def freeze(self) -> None:
        self.frozen.append((self.table.freeze(), self.plain.copy()))

    @precondition(lambda self: self.frozen)
    @rule(data=st.data())
    def look_at_frozen(self, data: st.DataObject) -> None:
        frozen, plain = self.frozen.pop(data.draw(st.integers(0, len(self.frozen) - 1)))
        assert frozen_state(frozen, list(plain.topics)) == plain.state()

    @invariant()
    def same(self) -> None:
        table = self.table
        assert state_of(table) == self.plain.state()
        for broker in (0, 1, 70_000):
            self.ask_about(broker)
            assert table.leadership_count(broker) == len(table.led_by(broker))
        self.ask("without_leader", lambda each: not each.has_leader)
        self.ask("not_led_by_preferred", lambda each: not each.is_led_by_preferred)
        self.ask("reassigning", lambda each: each.is_reassigning)
        assert table.leaderless_count == len(table.without_leader())
        assert table.not_preferred_count == len(table.not_led_by_preferred())
        assert table.reassigning_count == len(table.reassigning())

    def ask_about(self, broker: int) -> None:
        self.ask("led_by", lambda each: each.leader == broker, broker)
        self.ask("with_isr_member", lambda each: broker in each.isr, broker)
        self.ask("with_elr_member", lambda each: broker in each.elr, broker)
        self.ask("with_replica", lambda each: broker in each.replicas, broker)
        for directory in DIRECTORIES:
            pair = (broker, directory)
            self.ask("in_directory", lambda each, pair=pair: pair in _places(each), *pair)

    def ask(self, question: str, wanted: Callable[[Partition], bool], *given: object) -> None:
        assert dict(getattr(self.table, question)(*given)) == self.plain.those(wanted)

    def teardown(self) -> None:
        # Nothing is kept that nobody names: neither rows nor lists.
        self.frozen.clear()
        for topic_id in list(self.plain.topics):
            self.table.remove_topic(topic_id)
        self.table.switch_off()
        assert self.table.vector_count == 2, "the empty list of brokers and that of directories"


TestTwins = Twins.TestCase
TestTwins.settings = settings(stateful_step_count=30)


def test_a_partition_made_and_removed_with_its_topic_is_taken_back() -> None:
    """The topic comes back with rows of its own, and it is these that what came before is taken back from."""
    table = Partitions()
    table.add_topic(TOPICS[0])
    table.on_partition(PartitionRecord(topic_id=TOPICS[0], partition_id=1, replicas=[1], leader=1))
    wanted = state_of(table)
    table.note_changes()
    start = table.position
    table.on_partition(PartitionRecord(topic_id=TOPICS[0], partition_id=0, replicas=[1], leader=1))
    table.on_change(PartitionChangeRecord(topic_id=TOPICS[0], partition_id=1, leader=-1))
    table.remove_topic(TOPICS[0])
    removed = table.position
    table.take_back(start)
    assert state_of(table) == wanted
    table.undo_to(removed)
    assert state_of(table) == {}
    table.undo_to(start)
    assert state_of(table) == wanted


# --- records as bytes -------------------------------------------------------------------------------------------------


@given(records=st.lists(st.one_of(partition_records(), changes()), min_size=1, max_size=4), data=st.data())
def test_damaged_records_are_left_to_the_general_codec(records: list[Any], data: st.DataObject) -> None:
    """What the table takes over, the general codec decodes to the same; what it does not take changes nothing."""
    table, plain = Partitions(), PlainPartitions()
    for topic_id in TOPICS:
        table.add_topic(topic_id)
        plain.topics[topic_id] = {}
    for record in records:
        value = bytearray(encode_metadata_record(record, 2))
        for _ in range(data.draw(st.integers(0, 3))):
            value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
        value = value[: data.draw(st.one_of(st.just(len(value)), st.integers(0, len(value))))]
        try:
            taken = table.take([bytes(value)], 0)
        except MetadataRecordError:
            taken = 0
        if taken:
            read: Any = decode_metadata_record(bytes(value))[0]
            if isinstance(read, PartitionRecord):
                plain.put(read)
            else:
                plain.change(read)
        assert state_of(table) == plain.state()


@given(record=partition_records(), level=st.sampled_from([7, 17, 23]))
def test_records_come_out_as_the_general_codec_writes_them(record: PartitionRecord, level: int) -> None:
    version = MetadataVersion.from_level(level).partition_record_version
    table = Partitions()
    table.add_topic(record.topic_id)
    table.on_partition(record)
    held = table.get(record.topic_id, record.partition_id)
    assert held is not None
    plain = partition_record(record.topic_id, record.partition_id, held, MetadataVersion.from_level(level))
    assert table.freeze().values(record.topic_id, version) == [encode_metadata_record(plain, version)]
    assert table.freeze().tells_directories() == any(held.directories)


@given(record=st.one_of(partition_records(), changes()), tag=st.integers(100, 10_000), data=st.binary(max_size=9))
def test_unknown_tags_are_passed_over(record: Any, tag: int, data: bytes) -> None:
    record.unknown_tagged_fields = {tag: data}
    table, other = Partitions(), Partitions()
    for each in (table, other):
        for topic_id in TOPICS:
            each.add_topic(topic_id)
            each.on_partition(PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[1], isr=[1], leader=1))
    record.partition_id = 0
    try:
        assert table.take([encode_metadata_record(record, 2)], 0) == 1
    except MetadataRecordError:
        return
    record.unknown_tagged_fields = {}
    assert other.take([encode_metadata_record(record, 2)], 0) == 1
    assert state_of(table) == state_of(other)


def test_many_partitions_share_chunks_and_lists() -> None:
    """More rows than one chunk, and a frozen copy of all of them while each is changed."""
    count, topic_id = 3000, TOPICS[0]
    table = Partitions()
    table.add_topic(topic_id)
    records = [
        PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=[1, 2, 3],
            isr=[1, 2, 3],
            leader=number % 3 + 1,
            directories=DIRECTORIES[1:],
        )
        for number in range(count)
    ]
    values = [encode_metadata_record(record, 2) for record in records]
    assert table.take(values, 0) == count
    # Brokers: the empty list and one of three; directories: the empty list and one of three.
    assert (table.vector_count, len(table.led_by(2)), table.not_preferred_count) == (4, count // 3, count // 3 * 2)
    frozen = table.freeze()
    for number in range(count):
        table.on_change(PartitionChangeRecord(partition_id=number, topic_id=topic_id, isr=[3], leader=3))
    assert (len(table.led_by(3)), len(table.with_isr_member(1)), table.vector_count) == (count, 0, 5)
    assert frozen.values(topic_id, 2) == values
    assert frozen.values(topic_id, 2, 2990, 20) == values[2990:]
    assert frozen.values(topic_id, 2, 5, 2) == values[5:7]
    assert frozen.values(topic_id, 2, 5000) == []


def test_matches_end_when_the_partitions_change() -> None:
    table = Partitions()
    table.add_topic(TOPICS[0])
    for number in range(3):
        table.on_partition(PartitionRecord(partition_id=number, topic_id=TOPICS[0], replicas=[1], isr=[1], leader=1))
    found = table.led_by(1)
    assert next(found)[0] == PartitionKey(TOPICS[0], 0)
    assert len(found) == 2
    table.on_change(PartitionChangeRecord(partition_id=2, topic_id=TOPICS[0], leader=-1))
    with pytest.raises(LocalError, match="ask again"):
        next(found)
    assert len(list(table.led_by(1))) == 2


def test_partitions_as_values() -> None:
    one = Partition([1, 2], isr=(1,), leader=1)
    assert one == one.replace(isr=[1])
    assert hash(one) == hash(one.replace())
    assert one != one.replace(leader_epoch=1)
    assert (one.preferred_leader, one.is_led_by_preferred, one.is_reassigning, one.has_leader) == (1, True, False, True)
    assert one.replace(adding=[3]).is_reassigning
    assert one.directory_of(2) == Uuid()
    with pytest.raises(LocalError, match="broker 9 is none of the replicas"):
        one.directory_of(9)
    with pytest.raises(LocalError, match="2 directories for 1 replicas"):
        one.replace(replicas=[1])
    assert Partition().preferred_leader == -1
