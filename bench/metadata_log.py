"""A metadata log as a large cluster writes it: topics come first, then years of leader and ISR changes.

One seed, one log: the same bytes on every machine. Records are a few tens of bytes, a hundred to a batch. Of a thousand
records behind the beginning 900 are partition changes and 50 no-ops; the rest are registrations of brokers and changes
to them, configs and blocks of producer ids.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench import inputs
from kraftcore.core.batch import build_batch, build_records_batch
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.control import leader_change
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.no_op_record import NoOpRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.producer_ids_record import ProducerIdsRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.topic_record import TopicRecord

FOLDER = "__cluster_metadata-0"
BATCH_RECORDS = 100
BATCH_MS = 1_000
EPOCH_BATCHES = 500
"""A new leader comes so often."""
VOTERS = (1, 2, 3)
BROKERS = 60
REPLICAS = 3
PARTITIONS_PER_TOPIC = 10
POOL = 20_000
ONE_SEGMENT = 2**31 - 1


@dataclass(frozen=True)
class MetadataLog:
    """A written log.

    Attributes:
        folder: the log directory; the log is in ``FOLDER`` inside.
        records: data records in it; leader changes come on top.
        size: bytes of all segments.
    """

    folder: Path
    records: int
    size: int

    @property
    def segments(self) -> list[Path]:
        """The segments, in order."""
        return sorted((self.folder / FOLDER).glob("*.log"))


def write(folder: Path, records: int, segment_bytes: int = ONE_SEGMENT) -> MetadataLog:
    """Write a log directory with ``records`` metadata records, rounded up to whole batches.

    Args:
        folder: where; it gets ``meta.properties`` and the log's own folder.
        records: about how many.
        segment_bytes: when to begin another segment.
    """
    place = folder / FOLDER
    place.mkdir(parents=True)
    (folder / "meta.properties").write_text(
        f"version=1\ncluster.id={inputs.CLUSTER_ID}\nnode.id={inputs.REPLICA_ID}\ndirectory.id=L55mWRwaSjyaU2psX6jwAQ\n"
    )
    values = _values(records)
    now_ms = inputs.TIMESTAMP_MS
    written = 0
    config = LogConfig(segment_bytes=segment_bytes)
    with Log.open(OsFiles(), str(place), config, now_ms=now_ms) as log:
        epoch = 0
        while batch := list(islice(values, BATCH_RECORDS)):
            if written % (EPOCH_BATCHES * BATCH_RECORDS) == 0:
                epoch += 1
                leader = (epoch - 1) % len(VOTERS) + 1
                news = build_records_batch([leader_change(leader, VOTERS, VOTERS)], timestamp_ms=now_ms, control=True)
                log.append_as_leader(news, epoch, now_ms)
            log.append_as_leader(build_batch(batch, timestamp_ms=now_ms), epoch, now_ms)
            written += len(batch)
            now_ms += BATCH_MS
        size = log.size_in_bytes
    return MetadataLog(folder, written, size)


def _values(records: int) -> Iterator[bytes]:
    source = random.Random(inputs.SEED)
    topics = max(2, min(2_000, records // 400))
    ids = [Uuid(source.randbytes(16)) for _ in range(topics)]
    begin = list(_beginning(source, ids))
    yield from begin
    pool = _changes(source, ids)
    for _ in range(0, max(0, records - len(begin)), 1024):
        yield from source.choices(pool, k=min(1024, records - len(begin)))


def _beginning(source: random.Random, ids: list[Uuid]) -> Iterator[bytes]:
    yield encode_metadata_record(FeatureLevelRecord(name="metadata.version", feature_level=29), 0)
    for broker in range(BROKERS):
        yield _registration(source, broker)
    for number, topic_id in enumerate(ids):
        yield encode_metadata_record(TopicRecord(name=topic_name(number), topic_id=topic_id), 0)
        for partition in range(PARTITIONS_PER_TOPIC):
            replicas = source.sample(range(BROKERS), REPLICAS)
            yield encode_metadata_record(
                PartitionRecord(
                    partition_id=partition,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[Uuid(source.randbytes(16)) for _ in replicas],
                ),
                1,
            )


def _changes(source: random.Random, ids: list[Uuid]) -> list[bytes]:
    # What goes on afterwards, drawn from again and again.
    kinds: list[tuple[int, Callable[[], bytes]]] = [
        (900, lambda: _partition_change(source, ids)),
        (50, lambda: encode_metadata_record(NoOpRecord(), 0)),
        (20, lambda: _broker_change(source)),
        (15, lambda: _config(source, len(ids))),
        (10, lambda: _producer_ids(source)),
        (5, lambda: _registration(source, source.randrange(BROKERS))),
    ]
    weights = [weight for weight, _ in kinds]
    makers = [make for _, make in kinds]
    return [make() for make in source.choices(makers, weights, k=POOL)]


def _partition_change(source: random.Random, ids: list[Uuid]) -> bytes:
    change = PartitionChangeRecord(
        partition_id=source.randrange(PARTITIONS_PER_TOPIC), topic_id=source.choice(ids[: len(ids) // 2])
    )
    replicas = source.sample(range(BROKERS), REPLICAS)
    what = source.random()
    change.isr = replicas[: source.randrange(1, REPLICAS + 1)]
    if what < 0.4:
        change.leader = source.choice(change.isr)
    elif what < 0.43:
        change.leader = -1
    elif what < 0.46:
        change.replicas, change.adding_replicas = [*replicas, BROKERS], [BROKERS]
        change.directories = [Uuid(source.randbytes(16)) for _ in range(REPLICAS + 1)]
        return encode_metadata_record(change, 1)
    elif what < 0.6:
        change.eligible_leader_replicas = replicas[len(change.isr) :]
        return encode_metadata_record(change, 2)
    return encode_metadata_record(change, 1)


def _broker_change(source: random.Random) -> bytes:
    change = BrokerRegistrationChangeRecord(
        broker_id=source.randrange(BROKERS), broker_epoch=source.randrange(1 << 20), fenced=source.choice((-1, 1))
    )
    return encode_metadata_record(change, 1)


def topic_name(number: int) -> str:
    """The name of a topic by its place in the log, from 0."""
    return f"orders.region-{number % 7}.v{number}"


def _config(source: random.Random, topics: int) -> bytes:
    name = source.choice(("retention.ms", "min.insync.replicas", "cleanup.policy"))
    value = {"min.insync.replicas": "2", "cleanup.policy": "compact"}.get(name, str(source.randrange(1 << 30)))
    topic = topic_name(source.randrange(topics))
    return encode_metadata_record(ConfigRecord(resource_type=2, resource_name=topic, name=name, value=value), 0)


def _producer_ids(source: random.Random) -> bytes:
    block = ProducerIdsRecord(
        broker_id=source.randrange(BROKERS),
        broker_epoch=source.randrange(1 << 20),
        next_producer_id=source.randrange(1 << 30) * 1_000,
    )
    return encode_metadata_record(block, 0)


def _registration(source: random.Random, broker: int) -> bytes:
    record = RegisterBrokerRecord
    value = record(
        broker_id=broker,
        incarnation_id=Uuid(source.randbytes(16)),
        broker_epoch=source.randrange(1 << 20),
        end_points=[
            record.BrokerEndpoint(name="INTERNAL", host=f"broker-{broker}.example", port=9092, security_protocol=0),
            record.BrokerEndpoint(name="EXTERNAL", host=f"b{broker}.example", port=9094, security_protocol=1),
        ],
        features=[record.BrokerFeature(name="metadata.version", min_supported_version=7, max_supported_version=29)],
        rack=f"rack-{broker % 3}",
        log_dirs=[Uuid(source.randbytes(16))],
    )
    return encode_metadata_record(value, 3)
