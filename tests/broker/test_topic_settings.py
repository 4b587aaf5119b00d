"""What is set for a topic: itself, this broker, all brokers, the broker's file, in this order."""

import pytest

from kraftcore.core.log.config import LogConfig
from kraftcore.metadata import Image
from kraftcore.plugins.broker import BrokerConfig
from kraftcore.plugins.broker.partition.retention import Retention
from kraftcore.plugins.broker.topic_settings import TopicSettingsTable
from kraftcore.protocol.records.config_record import ConfigRecord
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


def test_the_brokers_own_units_count():
    stage = Stage()
    stage.set(BROKER, "", "log.retention.hours", "2")
    assert stage.found.retention.ms == 2 * 3_600_000


def test_what_is_compacted_elsewhere_is_kept_whole_here():
    stage = Stage()
    stage.set(TOPIC, "t", "retention.ms", "7")
    stage.set(TOPIC, "t", "cleanup.policy", "compact")
    assert stage.found.retention == Retention()
    stage.set(TOPIC, "t", "cleanup.policy", "compact,delete")
    assert stage.found.retention.ms == 7
