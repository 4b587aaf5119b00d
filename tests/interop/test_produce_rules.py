"""What topics ask of records, at a broker of ours and at one of Kafka: the same answers, the same batches stored."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from asked_brokers import ask, described, log_bytes
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools

from kraftcore.core.batch import (
    Compression,
    Record,
    build_batch,
    build_records_batch,
    iter_batches,
    set_max_timestamp,
    stamp_batch,
)
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kraftcore.protocol.messages.produce import ProduceRequest

THEIRS, OURS = 10, 11
HOUR_MS = 3_600_000
LONG = [b"0123456789" * 50] * 4
NOW_MS = int(time.time() * 1000)


def appended(values: list[bytes], timestamp_ms: int) -> bytearray:
    """A batch whose client says that its time is that of the append."""
    batch = build_batch(values, timestamp_ms=1)
    stamp_batch(batch, 0, -1, timestamp_ms)
    return batch


def keyed(*keys: bytes | None) -> bytearray:
    return build_records_batch([Record(b"v", key, timestamp_ms=NOW_MS) for key in keys])


def dated(*records: tuple[bytes | None, int]) -> bytearray:
    """A batch of keys and times."""
    return build_records_batch([Record(b"v", key, timestamp_ms=time_ms) for key, time_ms in records])


def says_append_time(batch: bytearray) -> bytearray:
    stamp_batch(batch, 0, -1, NOW_MS)
    return batch


def timed(*times: int) -> bytearray:
    return build_records_batch([Record(b"v", timestamp_ms=each) for each in times])


def says(batch: bytearray, max_timestamp_ms: int) -> bytearray:
    """A batch whose header says that this is the largest time in it."""
    set_max_timestamp(batch, max_timestamp_ms)
    return batch


@dataclass(frozen=True)
class Case:
    """A topic's configuration, and batches for it, one after the other."""

    configs: dict[str, str]
    batches: tuple[bytearray, ...]


APPEND_TIME = {"message.timestamp.type": "LogAppendTime"}
COMPACTED = {"cleanup.policy": "compact", "message.timestamp.before.max.ms": str(HOUR_MS)}
CASES = {
    "defaults": Case({}, (build_batch(LONG, timestamp_ms=NOW_MS),)),
    "no-time": Case({}, (build_batch([b"v"], timestamp_ms=-1),)),
    "far-in-the-future": Case({}, (timed(NOW_MS, NOW_MS + 2 * HOUR_MS, NOW_MS + 3 * HOUR_MS),)),
    "as-far-as-may-be": Case({"message.timestamp.after.max.ms": str(3 * HOUR_MS)}, (timed(NOW_MS + 2 * HOUR_MS),)),
    "header-says-later": Case({}, (says(timed(NOW_MS), 2**62), says(timed(NOW_MS, NOW_MS - 9), NOW_MS + HOUR_MS))),
    "header-says-earlier": Case({}, (says(timed(NOW_MS - 5, NOW_MS), 7), says(timed(NOW_MS), -1), says(timed(-1), 7))),
    "header-says-now-of-the-future": Case({}, (says(timed(NOW_MS, NOW_MS + 2 * HOUR_MS), NOW_MS),)),
    "header-says-now-of-the-past": Case(
        {"message.timestamp.before.max.ms": str(HOUR_MS)}, (says(timed(NOW_MS - 2 * HOUR_MS), NOW_MS),)
    ),
    "header-says-later-compressed": Case(
        {}, (says(build_batch(LONG, timestamp_ms=NOW_MS, compression=Compression.LZ4), 2**62),)
    ),
    "header-says-later-compressed-anew": Case(
        {"compression.type": "uncompressed"},
        (says(build_batch(LONG, timestamp_ms=NOW_MS, compression=Compression.LZ4), 2**62),),
    ),
    "old": Case({"message.timestamp.before.max.ms": str(HOUR_MS)}, (timed(NOW_MS, NOW_MS - 2 * HOUR_MS),)),
    "not-too-old": Case({"message.timestamp.before.max.ms": str(HOUR_MS)}, (timed(NOW_MS - 1000, NOW_MS),)),
    "append-time": Case(APPEND_TIME, (build_batch(LONG, timestamp_ms=5), build_batch([b"v"], timestamp_ms=NOW_MS))),
    "append-time-of-the-future": Case(APPEND_TIME, (timed(NOW_MS + 9 * HOUR_MS),)),
    "append-time-compressed": Case(APPEND_TIME, (build_batch(LONG, timestamp_ms=5, compression=Compression.LZ4),)),
    "client-says-append-time": Case({}, (appended([b"v"], NOW_MS),)),
    "client-says-append-time-later": Case({}, (appended([b"v"], NOW_MS + 2 * HOUR_MS),)),
    "client-says-append-time-there": Case(APPEND_TIME, (appended([b"v"], NOW_MS),)),
    "compacted-without-key": Case({"cleanup.policy": "compact"}, (keyed(b"k", None, b"l", None, None, None),)),
    "compacted-without-key-or-old": Case(
        COMPACTED, (dated((None, NOW_MS), (b"k", NOW_MS - 2 * HOUR_MS), (None, 5), (b"l", NOW_MS)),)
    ),
    "compacted-without-key-and-old": Case(COMPACTED, (dated((None, 5), (b"k", NOW_MS), (None, 5)),)),
    "compacted-without-key-says-append-time": Case(
        COMPACTED | APPEND_TIME, (says_append_time(dated((None, NOW_MS), (b"k", NOW_MS))),)
    ),
    "compacted-with-keys": Case({"cleanup.policy": "compact"}, (keyed(b"k", b"l"),)),
    "both-policies-without-key": Case({"cleanup.policy": "compact,delete"}, (keyed(None),)),
    "longer-than-may-be": Case({"max.message.bytes": "500"}, (build_batch(LONG, timestamp_ms=NOW_MS),)),
    "short-enough-as-it-comes": Case(
        {"max.message.bytes": "500"}, (build_batch(LONG, timestamp_ms=NOW_MS, compression=Compression.GZIP),)
    ),
    "too-long-when-decompressed": Case(
        {"max.message.bytes": "500", "compression.type": "uncompressed"},
        (build_batch(LONG, timestamp_ms=NOW_MS, compression=Compression.GZIP),),
    ),
    "compressed-in-another-way": Case(
        {"compression.type": "zstd", **APPEND_TIME},
        (build_batch(LONG, timestamp_ms=NOW_MS, compression=Compression.GZIP),),
    ),
    **{
        f"to-{name}": Case(
            {"compression.type": name},
            tuple(build_batch(LONG, timestamp_ms=NOW_MS, compression=each) for each in Compression),
        )
        for name in ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")
    },
}


@dataclass(frozen=True)
class Brokers:
    """One of Kafka's and one of ours, in one cluster."""

    theirs: KafkaNode
    ours: KafkaNode


@pytest.fixture(scope="module")
def brokers(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    folder: Path = tmp_path_factory.mktemp("lab")
    with KafkaLab(kafka, folder) as lab:
        lab.start_quorum([1])
        theirs = lab.broker(THEIRS).format().start()
        ours = lab.add(KraftcoreNode, OURS, "broker", "PLAINTEXT").format().start()
        theirs.wait_listening()
        ours.wait_listening()
        found = Brokers(theirs, ours)
        wait_for("both to be unfenced", lambda: _create(found, "first", {}) or None)
        for name, case in CASES.items():
            assert _create(found, name, case.configs)
        yield found


def _create(brokers: Brokers, name: str, configs: dict[str, str]) -> bool:
    """A topic for each of them."""
    kind = CreateTopicsRequest.CreatableTopic
    topics = [
        kind(
            name=f"{name}-{node_id}",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[kind.CreatableReplicaAssignment(partition_index=0, broker_ids=[node_id])],
            configs=[kind.CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        for node_id in (THEIRS, OURS)
    ]
    answer = ask(brokers.theirs, CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    return all(each.error_code in (0, 36) for each in answer.topics)


def _wait_led(node: KafkaNode, topic: str, node_id: int) -> None:
    wait_for("the topic", lambda: described(node, topic).get(0, (-1,))[0] == node_id or None)


def _produce(node: KafkaNode, topic: str, batch: bytearray) -> Any:
    kind = ProduceRequest.TopicProduceData
    data = kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=bytes(batch))])
    answer = ask(node, ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 11)
    return answer.responses[0].partition_responses[0]


def _is_now(time_ms: int) -> int | str:
    return "now" if abs(time_ms - time.time() * 1000) < 120_000 and abs(time_ms - NOW_MS) > 2 else time_ms


def _told(answer: Any, topic: str) -> tuple[Any, ...]:
    def plain(text: str | None) -> str | None:
        return text and re.sub(r"-?\d{13,}", "T", text.replace(topic, "TOPIC"))

    errors = [(each.batch_index, plain(each.batch_index_error_message)) for each in answer.record_errors]
    times = _is_now(answer.log_append_time_ms)
    return answer.error_code, answer.base_offset, times, answer.log_start_offset, errors, plain(answer.error_message)


def _stored(node: KafkaNode, topic: str) -> list[tuple[Any, ...]]:
    batches = list(iter_batches(log_bytes(node, f"{topic}-0")))
    for batch in batches:
        assert batch.is_valid
    return [
        (
            batch.attributes,
            batch.base_offset,
            batch.count,
            batch.base_timestamp_ms,
            _is_now(batch.max_timestamp_ms),
            batch.values(),
        )
        for batch in batches
    ]


@pytest.mark.parametrize("name", CASES)
def test_both_take_and_refuse_the_same(brokers: Brokers, name: str) -> None:
    found = []
    for node, node_id in ((brokers.theirs, THEIRS), (brokers.ours, OURS)):
        topic = f"{name}-{node_id}"
        _wait_led(node, topic, node_id)
        answers = [_told(_produce(node, topic, batch), topic) for batch in CASES[name].batches]
        found.append((answers, _stored(node, topic)))
    assert found[1] == found[0]


def test_a_repeated_batch_is_answered_with_the_time_it_has(brokers: Brokers) -> None:
    found = []
    for node, node_id in ((brokers.theirs, THEIRS), (brokers.ours, OURS)):
        topic = f"first-{node_id}"
        _wait_led(node, topic, node_id)

        def producer(node: KafkaNode = node) -> Any:
            answer = ask(node, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
            return answer if answer.error_code == 0 else None

        numbered = wait_for("a producer id", producer)
        batch = build_batch(
            [b"v"], timestamp_ms=NOW_MS, producer_id=numbered.producer_id, producer_epoch=0, base_sequence=0
        )
        found.append([_told(_produce(node, topic, batch), topic) for _ in range(2)])
    assert found[1] == found[0]
    assert found[0][1][2] == NOW_MS


@pytest.mark.parametrize("name", ["compacted-with-keys", "both-policies-without-key", "defaults"])
def test_records_of_a_compacted_topic_are_not_deleted(brokers: Brokers, name: str) -> None:
    found = []
    for node, node_id in ((brokers.theirs, THEIRS), (brokers.ours, OURS)):
        topic = f"{name}-{node_id}"
        _wait_led(node, topic, node_id)
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        asked = kind(name=topic, partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=-1)])
        answer = ask(node, DeleteRecordsRequest(topics=[asked], timeout_ms=30_000), 2)
        told = answer.topics[0].partitions[0]
        found.append((told.error_code, told.low_watermark >= 0))
    assert found[1] == found[0]
