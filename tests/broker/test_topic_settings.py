"""What is set for a topic: itself, this broker, all brokers, the broker's file, in this order."""

from dataclasses import replace

import pytest

from kraftcore.core.batch import Compression, Record, build_records_batch, stamp_batch, validate_batches
from kraftcore.core.log.config import LogConfig
from kraftcore.metadata import Image
from kraftcore.plugins.broker import BrokerConfig
from kraftcore.plugins.broker.api.record_rules import (
    LOOKED_AT_MAX,
    NO_LIMIT,
    TOLD_MAX,
    RecordRules,
    RecordsRefusedError,
)
from kraftcore.plugins.broker.config import NEVER_MS
from kraftcore.plugins.broker.metadata.topic_settings import TopicSettingsTable
from kraftcore.plugins.broker.partition.retention import Retention
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.topics import TopicPartition
from kraftcore.raft.quorum import Endpoint

TOPIC, BROKER = 2, 4
FILE = BrokerConfig(
    node_id=1,
    listeners=(Endpoint("PLAINTEXT", "h", 1),),
    directories=("/d",),
    min_insync_replicas=2,
    retention_ms=1000,
    retention_bytes=5000,
    segment_bytes=2048,
)
LOG = LogConfig(segment_bytes=2048, segment_ms=77, topic_id=None)


class Stage:
    def __init__(self):
        self.image = Image()
        self.table = TopicSettingsTable(FILE, LOG)

    def set(self, type_, name, key, value):
        self.image.apply(ConfigRecord(resource_type=type_, resource_name=name, name=key, value=value))
        if type_ == BROKER:
            self.table.show_brokers(self.image)
        self.table.show("t", self.image)

    @property
    def found(self):
        return self.table.of("t")


def test_the_file_holds_where_nothing_else_is_set():
    table = TopicSettingsTable(FILE, LOG)
    assert table.of("t").min_insync_replicas == 2
    assert table.of("t").retention == Retention(1000, 5000)
    assert table.of("t").log == LOG


def test_who_goes_before_whom():
    stage = Stage()
    for number, (type_, name) in enumerate([(BROKER, ""), (BROKER, "1"), (TOPIC, "t")], 3):
        stage.set(type_, name, "min.insync.replicas", str(number))
        assert stage.found.min_insync_replicas == number
    assert stage.table.of("u").min_insync_replicas == 4
    stage.set(BROKER, "2", "min.insync.replicas", "9")
    stage.set(TOPIC, "t", "min.insync.replicas", None)
    assert stage.found.min_insync_replicas == 4


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("retention.ms", "-1", lambda found: found.retention.ms),
        ("retention.bytes", "7", lambda found: found.retention.bytes),
        ("segment.bytes", "1048577", lambda found: found.log.segment_bytes),
        ("segment.bytes", "1048577", lambda found: found.log.max_batch_bytes),
        ("segment.ms", "7", lambda found: found.log.segment_ms),
        ("index.interval.bytes", "7", lambda found: found.log.index_interval_bytes),
        ("segment.index.bytes", "360", lambda found: found.log.index_bytes_max),
        ("file.delete.delay.ms", "7", lambda found: found.log.file_delete_delay_ms),
    ],
)
def test_each_key(key, value, read):
    stage = Stage()
    stage.set(TOPIC, "t", key, value)
    assert read(stage.found) == int(value)
    assert stage.found.min_insync_replicas == 2
    assert stage.found.log.segment_ms == (7 if key == "segment.ms" else 77)


@pytest.mark.parametrize(
    ("configs", "wanted"),
    [
        ({}, {"after_max_ms": 3_600_000, "before_max_ms": NO_LIMIT, "codec": None, "has_append_time": False}),
        ({"message.timestamp.type": "LogAppendTime"}, {"has_append_time": True}),
        ({"message.timestamp.before.max.ms": "7", "message.timestamp.after.max.ms": "8"}, {"before_max_ms": 7}),
        ({"message.timestamp.after.max.ms": "8"}, {"after_max_ms": 8}),
        ({"compression.type": "uncompressed"}, {"codec": Compression.NONE, "level": None}),
        ({"compression.type": "gzip", "compression.gzip.level": "9"}, {"codec": Compression.GZIP, "level": 9}),
        ({"compression.type": "zstd", "compression.zstd.level": "-5"}, {"codec": Compression.ZSTD, "level": 1}),
        ({"cleanup.policy": "compact,delete"}, {"needs_keys": True}),
    ],
)
def test_what_is_asked_of_records(configs, wanted):
    stage = Stage()
    for key, value in configs.items():
        stage.set(TOPIC, "t", key, value)
    assert {name: getattr(stage.found.records, name) for name in wanted} == wanted


def test_the_file_says_what_is_asked_of_records():
    file = replace(FILE, static_configs={"log.message.timestamp.type": "LogAppendTime", "compression.type": "lz4"})
    found = TopicSettingsTable(file, LOG).of("t").records
    assert (found.has_append_time, found.codec) == (True, Compression.LZ4)


def test_a_topic_that_is_gone_leaves_nothing():
    stage = Stage()
    stage.set(TOPIC, "t", "retention.ms", "7")
    stage.table.forget("t")
    assert stage.found.retention.ms == 1000


def test_the_brokers_own_units_count():
    stage = Stage()
    stage.set(BROKER, "", "log.roll.ms", "7")
    assert stage.found.log.segment_ms == 7
    stage.set(BROKER, "1", "log.retention.ms", "8")
    assert stage.found.retention.ms == 8


@pytest.mark.parametrize("name", ["", "1"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("log.retention.ms", "rubbish"),
        ("log.retention.ms", "0"),
        ("log.roll.ms", "0"),
        ("log.roll.ms", "-1"),
        ("min.insync.replicas", "0"),
        ("log.cleanup.policy", "rubbish"),
        ("log.message.timestamp.before.max.ms", "1.5"),
        ("log.retention.hours", "2"),
        ("compression.type", "rubbish"),
    ],
)
def test_what_no_broker_can_have_is_passed_over(name, key, value):
    """Controllers take any value of brokers: a bad one stops none."""
    stage = Stage()
    before = stage.found
    stage.set(BROKER, name, key, value)
    assert stage.found == before
    stage.set(BROKER, name, "message.max.bytes", "77")
    assert stage.found.max_message_bytes == 77


@pytest.mark.parametrize("kind", [TOPIC, BROKER])
def test_what_stands_around_a_value_does_not_count(kind):
    """Java's ``String.trim`` takes control characters away, too: controllers store such values as they come."""
    stage, name = Stage(), "t" if kind == TOPIC else ""
    prefix = "" if kind == TOPIC else "log."
    stage.set(kind, name, f"{prefix}retention.ms", "\x01 60000\x00")
    stage.set(kind, name, f"{prefix}message.timestamp.type", " LogAppendTime\x08")
    stage.set(kind, name, f"{prefix}message.timestamp.before.max.ms", "\x1b5")
    stage.set(kind, name, "compression.type", " gzip ")
    stage.set(kind, name, f"{prefix}cleanup.policy", "\x00compact, delete\x00")
    found = stage.found
    assert found.retention.ms == 60_000
    assert (found.records.has_append_time, found.records.before_max_ms) == (True, 5)
    assert (found.records.codec, found.records.needs_keys) == (Compression.GZIP, True)


def test_what_cannot_be_read_is_as_if_it_were_not_set():
    """Kafka's controllers take any number of zeros in front."""
    stage = Stage()
    stage.set(BROKER, "", "log.retention.ms", "7")
    stage.set(TOPIC, "t", "retention.ms", "0" * 5000 + "9")
    assert stage.found.retention.ms == 7


@pytest.mark.parametrize("key", ["log.retention.ms", "log.retention.bytes"])
def test_any_negative_number_of_brokers_is_no_limit(key):
    stage = Stage()
    stage.set(BROKER, "", key, "-7")
    retention = stage.found.retention
    assert -1 in retention
    assert min(retention) == -1


def test_what_is_compacted_elsewhere_is_kept_whole_here():
    stage = Stage()
    stage.set(TOPIC, "t", "retention.ms", "7")
    stage.set(TOPIC, "t", "cleanup.policy", "compact")
    assert stage.found.retention == Retention()
    stage.set(TOPIC, "t", "cleanup.policy", "compact,delete")
    assert stage.found.retention.ms == 7


@pytest.mark.parametrize(
    ("policy", "may_delete"), [("compact", False), ("delete", True), ("compact,delete", True), ("", True)]
)
def test_clients_delete_records_unless_a_topic_is_compacted_alone(policy, may_delete):
    stage = Stage()
    stage.set(TOPIC, "t", "cleanup.policy", policy)
    assert stage.found.may_delete is may_delete


def test_never_is_as_long_as_a_log_can_count():
    stage = Stage()
    for key in ("segment.ms", "file.delete.delay.ms", "retention.ms", "flush.ms"):
        stage.set(TOPIC, "t", key, str(2**63 - 1))
    assert (stage.found.log.segment_ms, stage.found.log.file_delete_delay_ms) == (NEVER_MS, NEVER_MS)


def prepared(rules, records, now_ms=10_000):
    batch = build_records_batch(records)
    return rules.prepare(batch, now_ms, validate_batches(batch), TopicPartition("t", 3))


@pytest.mark.parametrize(
    ("rules", "bad", "code"),
    [
        (RecordRules(needs_keys=True), Record(b"v", timestamp_ms=1), ErrorCode.INVALID_RECORD),
        (RecordRules(after_max_ms=5), Record(b"v", b"k", timestamp_ms=20_000), ErrorCode.INVALID_TIMESTAMP),
        (RecordRules(before_max_ms=9999), Record(b"v", b"k", timestamp_ms=0), ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_of_many_refused_records_the_first_are_told_and_the_last_is_refused_too(rules, bad, code):
    good = Record(b"v", b"k", timestamp_ms=10_000)
    prepared(rules, [good] * 3)
    for records, places in (
        ([good, bad, good], [1]),
        ([good] + [bad] * 2 * TOLD_MAX, list(range(1, TOLD_MAX + 1))),
        ([good] * LOOKED_AT_MAX + [bad], []),  # whoever looked at all of them would keep others waiting
    ):
        with pytest.raises(RecordsRefusedError) as refused:
            prepared(rules, records)
        assert refused.value.error == code.name
        assert [place for place, _ in refused.value.records] == places
        if code is ErrorCode.INVALID_RECORD:
            assert f"{records.count(bad)} record errors" in refused.value.message


def test_the_time_of_a_record_that_has_a_key_says_what_a_batch_is_refused_for():
    """Of a record without one it is not looked at (Kafka 4.3.1, LogValidator.validateRecord, processRecordErrors)."""
    rules = RecordRules(needs_keys=True, before_max_ms=9000)
    good, keyless = Record(b"v", b"k", timestamp_ms=10_000), Record(b"v", timestamp_ms=10_000)
    old, keyless_and_old = Record(b"v", b"k", timestamp_ms=1), Record(b"v", timestamp_ms=1)
    for records, code, texts in (
        ([good, keyless_and_old], ErrorCode.INVALID_RECORD, ["1 Compacted"]),
        ([keyless, old, keyless_and_old], ErrorCode.INVALID_TIMESTAMP, ["0 Compacted", "1 Timestamp", "2 Compacted"]),
        ([keyless_and_old] * 9000 + [old], ErrorCode.INVALID_TIMESTAMP, None),  # more than are told
        ([keyless_and_old] * 9000 + [good], ErrorCode.INVALID_RECORD, None),
    ):
        with pytest.raises(RecordsRefusedError) as refused:
            prepared(rules, records)
        assert refused.value.error == code.name
        told = [f"{place} {text.split()[0]}" for place, text in refused.value.records]
        assert told == ([f"{place} Compacted" for place in range(TOLD_MAX)] if texts is None else texts)


@pytest.mark.parametrize("rules", [RecordRules(has_append_time=True), RecordRules(before_max_ms=5)])
def test_a_time_that_the_header_of_a_batch_says_is_that_of_all_records_however_many_there_are(rules):
    good, keyless = Record(b"v", b"k", timestamp_ms=1), Record(b"v", timestamp_ms=1)
    for last, code in ((good, ErrorCode.INVALID_TIMESTAMP), (keyless, ErrorCode.INVALID_RECORD)):
        batch = build_records_batch([keyless] * LOOKED_AT_MAX + [last])
        stamp_batch(batch, 0, 0, 1)
        with pytest.raises(RecordsRefusedError) as refused:
            rules._replace(needs_keys=True).prepare(batch, 10_000, validate_batches(batch), TopicPartition("t", 3))
        assert refused.value.error == code.name
