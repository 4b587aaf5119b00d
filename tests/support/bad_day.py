"""The metadata log of three controllers on a day when much went wrong, for reports and questions.

Every offset and moment is the same whenever it is made. To look at it:

    python tests/support/bad_day.py DIR && kraftcore spark run --input DIR --tables TABLES
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime
from itertools import count
from pathlib import Path

from kraftcore.core.batch import Record, build_batch, build_records_batch
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.control import (
    KeyAndValue,
    kraft_version,
    kraft_voters,
    leader_change,
    snapshot_footer,
    snapshot_header,
    voter,
)
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.no_op_record import NoOpRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.schema import MetadataRecord

CLUSTER_ID = "bad-day"
CLICKS = 251
"""Partitions of the topic clicks, which has no replica but broker 101's."""
_EVERY_MS = 5000
BROKERS = (101, 102, 103)
TOPICS = {name: Uuid(bytes([number]) * 16) for number, name in enumerate(("orders", "clicks", "payments", "audit"), 1)}
AUDIT_AGAIN = Uuid(bytes([9]) * 16)


def directory(broker_id: int, number: int) -> Uuid:
    """One of the two log directories of a broker."""
    return Uuid(bytes([broker_id, number]) * 8)


def moment(text: str) -> int:
    """``HH:MM:SS.mmm`` of that day, in milliseconds since 1970."""
    return round(datetime.fromisoformat(f"2026-11-21T{text}+00:00").timestamp() * 1000)


class Log:
    """A log in the making; time passes with no-op records."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.epoch = 1
        self.end = 0
        self._ticked: int | None = None
        self._incarnations = count(1)

    def tick(self, until_ms: int) -> None:
        """No-op records, every five seconds, up to a moment."""
        if self._ticked is None:
            self._ticked = until_ms
        while self._ticked + _EVERY_MS < until_ms:
            self._ticked += _EVERY_MS
            self._append([encode_metadata_record(NoOpRecord(), 0)], self._ticked)

    def silence(self, until_ms: int) -> None:
        """Nobody writes."""
        self._ticked = until_ms

    def write(self, at: str, *records: MetadataRecord) -> None:
        """One batch, at a time as ``moment`` takes it."""
        self.tick(moment(at))
        self._append([encode_metadata_record(record, record.schema.versions[1]) for record in records], moment(at))

    def control(self, at: str, *bodies: KeyAndValue) -> None:
        """One batch of control records."""
        self.tick(moment(at))
        records = [Record(value, key, timestamp_ms=moment(at)) for key, value in bodies]
        self.data += build_records_batch(
            records, timestamp_ms=moment(at), base_offset=self.end, leader_epoch=self.epoch, control=True
        )
        self.end += len(records)

    def _append(self, values: list[bytes], at_ms: int) -> None:
        self.data += build_batch(values, timestamp_ms=at_ms, base_offset=self.end, leader_epoch=self.epoch)
        self.end += len(values)

    def register(self, at: str, broker_id: int) -> None:
        """A broker starts, and is let in a second and a half later."""
        self.write(at, RegisterBrokerRecord(
            broker_id=broker_id, incarnation_id=Uuid(bytes([broker_id, next(self._incarnations)]) * 8),
            broker_epoch=self.end, fenced=True, log_dirs=[directory(broker_id, 1), directory(broker_id, 2)],
        ))  # fmt: skip

    def fence(self, at: str, broker_id: int, *partitions: MetadataRecord) -> None:
        """A broker is fenced, after what that does to partitions."""
        self.write(at, *partitions, BrokerRegistrationChangeRecord(broker_id=broker_id, fenced=1))

    def unfence(self, at: str, broker_id: int, *partitions: MetadataRecord) -> None:
        """A broker is let in, before what that does to partitions."""
        self.write(at, BrokerRegistrationChangeRecord(broker_id=broker_id, fenced=-1), *partitions)


def _change(topic: str, partition: int, **fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(topic_id=TOPICS[topic], partition_id=partition, **fields)


def partition(topic_id: Uuid, number: int, replicas: Iterable[int], isr: Iterable[int] | None = None) -> MetadataRecord:
    """A new partition, led by its first replica; all are in the ISR unless it is named."""
    ids = list(replicas)
    return PartitionRecord(
        topic_id=topic_id, partition_id=number, replicas=ids, isr=ids if isr is None else list(isr), leader=ids[0],
        leader_epoch=0, partition_epoch=0, directories=[directory(one, 1 + number % 2) for one in ids],
    )  # fmt: skip


def _clicks(leader: int) -> list[MetadataRecord]:
    return [_change("clicks", number, leader=leader) for number in range(CLICKS)]


def begin(log: Log) -> None:
    """Three voters, three brokers, four topics."""
    log.control("13:58:00.000", leader_change(1, [1, 2, 3], [1, 2, 3]))
    log.write("13:58:00.010", FeatureLevelRecord(name="metadata.version", feature_level=29))
    log.control("13:58:00.500", kraft_version(1), kraft_voters([voter(one) for one in (1, 2, 3)]))
    log.write("13:58:01.000", ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"))
    for number, broker_id in enumerate(BROKERS):
        log.register(f"13:58:0{2 + number}.000", broker_id)
    for number, broker_id in enumerate(BROKERS):
        log.unfence(f"13:58:0{5 + number}.000", broker_id)
    log.write(
        "13:58:20.000", *(TopicRecord(name=name, topic_id=topic_id) for name, topic_id in TOPICS.items()),
        ConfigRecord(resource_type=2, resource_name="clicks", name="min.insync.replicas", value="1"),
        *(partition(TOPICS["orders"], number, BROKERS[number:] + BROKERS[:number]) for number in range(3)),
        *(partition(TOPICS["clicks"], number, [101]) for number in range(CLICKS)),
        partition(TOPICS["payments"], 0, [102, 103]),
        *(partition(TOPICS["audit"], number, [103, 102]) for number in range(2)),
    )  # fmt: skip
    log.write("13:59:00.000", _change("payments", 0, isr=[102]))  # 103 fell behind


def _broker_101_dies(log: Log) -> None:
    orders = [
        _change("orders", 0, isr=[102, 103], leader=102),
        _change("orders", 1, isr=[102, 103]),
        _change("orders", 2, isr=[103, 102]),
    ]
    log.fence("14:00:10.000", 101, *orders, *_clicks(-1))
    log.register("14:00:20.000", 101)
    log.unfence("14:00:22.700", 101, *_clicks(101))
    log.write("14:00:24.000", *(_change("orders", number, isr=[102, 103, 101]) for number in range(3)))


def _the_leader_falls_silent(log: Log) -> None:
    log.tick(moment("14:01:00.000"))
    log.silence(moment("14:01:10.000"))
    log.epoch = 5  # nobody won epochs 2, 3 and 4
    log.control("14:01:09.000", leader_change(2, [1, 2, 3], [2, 3]))


def _an_unclean_election(log: Log) -> None:
    orders = [
        _change("orders", 0, isr=[103], leader=103, eligible_leader_replicas=[101]),
        _change("orders", 1, isr=[103], leader=103, eligible_leader_replicas=[101]),
        _change("orders", 2, isr=[103], eligible_leader_replicas=[101]),
    ]
    log.write("14:01:50.000", *(_change("orders", number, isr=[102, 103]) for number in range(3)))
    log.fence("14:02:00.000", 102, *orders, _change("payments", 0, isr=[102], leader=-1, last_known_elr=[102]))
    log.write("14:02:08.000", _change("payments", 0, isr=[103], leader=103, leader_recovery_state=1, last_known_elr=[]))
    log.write("14:02:20.000", _change("payments", 0, leader_recovery_state=0))
    log.register("14:02:30.000", 102)
    log.unfence("14:02:31.500", 102)
    back = [_change("orders", number, isr=[103, 102, 101], eligible_leader_replicas=[]) for number in range(3)]
    log.write("14:02:33.000", *back, _change("payments", 0, isr=[103, 102]))


def _a_broker_flaps(log: Log) -> None:
    for number in range(4):
        log.fence(f"14:03:{10 * number:02}.000", 103)
        log.unfence(f"14:03:{10 * number + 2:02}.500", 103)
    # What KIP-841 forbids, and no Kafka since 3.3 writes: a fenced broker comes into the ISR, and leads.
    log.fence("14:03:40.000", 103, _change("orders", 1, isr=[102, 101], leader=102))
    log.write("14:03:41.000", _change("orders", 1, isr=[102, 101, 103]))
    log.write("14:03:42.000", _change("orders", 1, leader=103))
    log.unfence("14:03:44.000", 103)


def _changes(log: Log) -> None:
    log.write("14:04:10.000", RemoveTopicRecord(topic_id=TOPICS["audit"]))
    log.write(
        "14:04:20.000", TopicRecord(name="audit", topic_id=AUDIT_AGAIN),
        *(partition(AUDIT_AGAIN, number, [103, 102]) for number in range(2)),
        ConfigRecord(resource_type=2, resource_name="audit", name="retention.ms", value="86400000"),
    )  # fmt: skip
    log.control("14:04:40.000", kraft_voters([voter(one) for one in (1, 2, 3, 4)]))
    log.control("14:04:50.000", kraft_voters([voter(one) for one in (1, 2, 4)]))
    log.write("14:05:30.000", ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="1000"))


def _a_controlled_shutdown(log: Log) -> None:
    log.write(
        "14:06:00.000", BrokerRegistrationChangeRecord(broker_id=101, in_controlled_shutdown=1),
        *(_change("orders", number, isr=[103, 102]) for number in range(3)),
    )  # fmt: skip
    log.fence("14:06:01.200", 101, *_clicks(-1))
    log.register("14:06:12.400", 101)
    log.unfence("14:06:13.900", 101, *_clicks(101))
    log.write("14:06:15.000", *(_change("orders", number, isr=[103, 102, 101]) for number in range(3)))
    log.fence("14:07:40.000", 101, *(_change("orders", n, isr=[103, 102]) for n in range(3)), *_clicks(-1))
    log.tick(moment("14:08:00.001"))


def write_node(folder: Path, node_id: int, data: bytes, *, cluster_id: str = CLUSTER_ID, base_offset: int = 0) -> Path:
    """Write one segment of a controller below a folder, which is made; returns the segment's path."""
    node = folder / f"c{node_id}"
    (node / "__cluster_metadata-0").mkdir(parents=True, exist_ok=True)
    (node / "meta.properties").write_text(f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\n")
    segment = node / "__cluster_metadata-0" / f"{base_offset:020}.log"
    segment.write_bytes(data)
    return segment


def write_snapshot(folder: Path, node_id: int, end_offset: int, *records: MetadataRecord, epoch: int = 1) -> None:
    """Write a snapshot beside a controller's segments: the state before an offset."""
    snapshot = Log()
    snapshot.control("13:59:00.000", snapshot_header(moment("13:59:00.000")))
    snapshot.write("13:59:00.000", *records)
    snapshot.control("13:59:00.000", snapshot_footer())
    place = folder / f"c{node_id}" / "__cluster_metadata-0" / f"{end_offset:020}-{epoch:010}.checkpoint"
    place.write_bytes(snapshot.data)


def write(folder: Path) -> Path:
    """Write the directories of the three controllers below a folder, which is made; returns it."""
    log = Log()
    for part in (begin, _broker_101_dies, _the_leader_falls_silent, _an_unclean_election, _a_broker_flaps, _changes,
                 _a_controlled_shutdown):  # fmt: skip
        part(log)
    for node_id in (1, 2, 4):
        write_node(folder, node_id, bytes(log.data))
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]))
