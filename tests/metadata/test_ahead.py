"""A leader's image runs ahead of what is committed, and goes back to it."""

from __future__ import annotations

import pytest

from kraftcore.core.batch import RecordBatch, build_batch
from kraftcore.core.uuid import Uuid
from kraftcore.errors import MetadataRecordError, SnapshotLaterError
from kraftcore.metadata import Image, MetadataMachine
from kraftcore.protocol.features import METADATA_VERSION
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.begin_transaction_record import BeginTransactionRecord
from kraftcore.protocol.records.end_transaction_record import EndTransactionRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from kraftcore.state_machine import SnapshotSink


class Sink(SnapshotSink):
    def __init__(self):
        self.values = []

    def append(self, values):
        self.values += values

    def append_later(self, values):
        self.values += values


def uuid(number):
    return Uuid(number.to_bytes(16, "big"))


def level(value):
    return encode_metadata_record(FeatureLevelRecord(name=METADATA_VERSION, feature_level=value), 0)


def topic(number):
    partition = PartitionRecord(
        partition_id=0, topic_id=uuid(number), replicas=[1], isr=[1], leader=1, directories=[uuid(9)]
    )
    return [
        encode_metadata_record(TopicRecord(name=f"t{number}", topic_id=uuid(number)), 0),
        encode_metadata_record(partition, 1),
    ]


def commit(machine, values, base):
    machine.apply(RecordBatch(bytes(build_batch(values, timestamp_ms=1, base_offset=base))))


def names(machine):
    return sorted(each.name for each in machine.image.topics.values())


def leading():
    machine = MetadataMachine()
    commit(machine, [level(25)], 0)
    machine.lead()
    return machine


def snapshot(machine):
    sink = Sink()
    machine.snapshot(sink)
    image = Image()
    image.apply_values(sink.values)
    return sorted(each.name for each in image.topics.values()), len(list(image.partitions.of_topic(uuid(1))))


def test_what_was_put_ahead_is_there_at_once_and_once():
    machine = leading()
    machine.put(topic(1), 1)
    assert names(machine) == ["t1"]
    commit(machine, topic(1), 1)  # would raise if it were applied a second time
    assert (machine.trouble, machine.offset, names(machine)) == (None, 3, ["t1"])
    machine.follow()
    assert names(machine) == ["t1"]


def test_leadership_lost_takes_back_what_is_not_committed():
    machine = leading()
    for number, base in ((1, 1), (2, 3), (3, 5)):
        machine.put(topic(number), base)
    commit(machine, topic(1), 1)
    machine.follow()
    assert names(machine) == ["t1"]
    commit(machine, topic(4), 3)  # the next leader's
    assert (machine.trouble, names(machine)) == (None, ["t1", "t4"])


def test_a_decision_of_which_one_batch_is_committed_goes_back_to_that_batch():
    machine = leading()
    machine.put([*topic(1), *topic(2)], 1)
    commit(machine, topic(1), 1)
    machine.follow()
    assert names(machine) == ["t1"]
    commit(machine, topic(2), 3)
    assert (machine.trouble, names(machine)) == (None, ["t1", "t2"])


def test_a_record_that_does_not_fit_changes_nothing():
    machine = leading()
    machine.put(topic(1), 1)
    bad = encode_metadata_record(RemoveTopicRecord(topic_id=uuid(7)), 0)
    with pytest.raises(MetadataRecordError):
        machine.put([*topic(2), bad], 3)
    assert names(machine) == ["t1"]
    machine.put(topic(3), 3)
    machine.take_back(3)
    machine.take_back(3)
    assert names(machine) == ["t1"]


def test_a_snapshot_holds_only_what_is_committed():
    machine = leading()
    machine.put(topic(1), 1)
    machine.put([encode_metadata_record(RemoveTopicRecord(topic_id=uuid(1)), 0), *topic(2)], 3)
    commit(machine, topic(1), 1)
    assert snapshot(machine) == (["t1"], 1)
    assert names(machine) == ["t2"]
    machine.follow()
    assert names(machine) == ["t1"]


def test_no_snapshot_in_the_middle_of_a_transaction():
    machine = leading()
    begin = encode_metadata_record(BeginTransactionRecord(name="large"), 0)
    end = encode_metadata_record(EndTransactionRecord(), 0)
    machine.put([begin, *topic(1), end], 1)
    assert snapshot(machine)[0] == []
    commit(machine, [begin, *topic(1)], 1)
    with pytest.raises(SnapshotLaterError, match="transaction"):
        snapshot(machine)
    assert names(machine) == ["t1"]
    commit(machine, [end], 4)
    assert snapshot(machine) == (["t1"], 1)


def test_records_of_somebody_else_stand_below_what_is_ahead():
    machine = leading()
    machine.put(topic(1), 3)
    commit(machine, topic(2), 1)  # appended before, not by a decision
    assert (machine.trouble, names(machine)) == (None, ["t1", "t2"])
    machine.follow()
    assert names(machine) == ["t2"]


def test_levels_are_told_when_they_are_committed():
    machine = leading()
    machine.put([level(26)], 1)
    assert machine.image.features[METADATA_VERSION] == 26
    assert (machine.levels, machine.features_offset) == ({METADATA_VERSION: 25}, 0)
    commit(machine, [level(26)], 1)
    assert (machine.levels, machine.features_offset) == ({METADATA_VERSION: 26}, 1)


def test_iterations_of_passwords_are_counted_there_and_back():
    def changed(name, iterations, mechanism=1):
        image.apply(UserScramCredentialRecord(name=name, mechanism=mechanism, iterations=iterations))

    def gone(name):
        image.apply(RemoveUserScramCredentialRecord(name=name, mechanism=1))

    image = Image(ahead=True)
    changed("a", 4096)
    changed("b", 8192)
    changed("a", 9999, mechanism=2)
    image.mark(1)
    changed("a", 8192)
    changed("c", 16384)
    gone("b")
    assert dict(image.scram.iterations(1)) == {8192: 1, 16384: 1}
    assert image.roll_back(None) == 1
    assert dict(image.scram.iterations(1)) == {4096: 1, 8192: 1}
    assert dict(image.scram.iterations(2)) == {9999: 1}
