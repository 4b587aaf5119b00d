"""Directories of a broker with its controller, as Kafka or ours leave them when they stop and when they are killed.

Kafka writes the first: several topics of three kinds, each with a few segments, epochs of leaders and producers. Ours
opens what Kafka left by a stop in order, and goes on.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka_lab import HOST, KafkaLab, KafkaNode, KraftcoreNode, free_port, wait_for
from kafka_tools import KafkaTools
from partition_files import batches

from broker_twin.pair import SETTINGS, was_created
from broker_twin.side import Side
from kraftcore.core.batch import Record, build_records_batch, iter_batches
from kraftcore.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_records import DeleteRecordsRequest
from kraftcore.protocol.messages.end_txn import EndTxnRequest
from kraftcore.protocol.messages.find_coordinator import FindCoordinatorRequest
from kraftcore.protocol.messages.init_producer_id import InitProducerIdRequest
from kraftcore.protocol.messages.produce import ProduceRequest

KINDS = ("plain", "txn", "raised")  # raised: by DeleteRecords, which also removed segments
COPIES = 4
TOPICS = [f"{kind}{number}" for kind in KINDS for number in range(COPIES)]
CONFIGS = {"segment.ms": "1000", "index.interval.bytes": "100", "retention.ms": "-1"}
WRITERS = ("Kafka", "kraftcore")
STOPS = ("stopped", "killed")
_STEP_MS = 300  # between batches: three or four are a segment
_BATCHES = 14  # of a topic, by one run of a broker
_TRANSACTION_MS = 900_000
_OFTEN_MS = 200
_QUICK = {
    "transaction.state.log.num.partitions": 1,
    "log.index.size.max.bytes": 65536,
    "log.flush.offset.checkpoint.interval.ms": _OFTEN_MS,
    "log.flush.start.offset.checkpoint.interval.ms": _OFTEN_MS,
    "replica.high.watermark.checkpoint.interval.ms": _OFTEN_MS,
    "log.retention.check.interval.ms": _OFTEN_MS,
    "log.initial.task.delay.ms": _OFTEN_MS,
    "log.cleaner.enable": "false",
    "broker.heartbeat.interval.ms": 100,
}


@dataclass(frozen=True)
class Base:
    """A directory from which copies are made.

    Attributes:
        folder: of all.
        batches: of each topic, by base offset, as they are without damage.
    """

    folder: Path
    batches: dict[str, dict[int, bytes]]


@dataclass
class Producer:
    """One that numbers its batches; it writes to one topic.

    Attributes:
        transactional_id: None: without transactions.
    """

    number: int
    epoch: int
    transactional_id: str | None = None
    sequence: int = 0


@dataclass
class Writer:
    """What is written, at either broker."""

    now_ms: int
    producers: dict[str, list[Producer]] = field(default_factory=dict)
    times: dict[str, int] = field(default_factory=dict)

    def begin(self, side: Side, topic: str) -> None:
        """Get producers for a topic."""
        ids = [f"{topic}-{n}" for n in range(2)] if topic.startswith("txn") else [None]
        self.producers[topic] = [self.producer(side, name) for name in ids]
        self.times[topic] = self.now_ms

    def producer(self, side: Side, transactional_id: str | None) -> Producer:
        """A new one."""
        if transactional_id is not None:
            find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
            wait_for("a coordinator", lambda: _found(side.ask("setup", find, 4)) or None)
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_TRANSACTION_MS)
        answer = wait_for("a producer id", lambda: _sound(side.ask("setup", request, 4)))
        return Producer(answer.producer_id, answer.producer_epoch, transactional_id)

    def write(self, side: Side, topic: str, rng: random.Random) -> None:
        """One run's batches."""
        producers = self.producers[topic]
        is_transactional = producers[0].transactional_id is not None
        within: set[int] = set()
        for _ in range(_BATCHES):
            producer = rng.choice(producers)
            if is_transactional and producer.number not in within:
                self._add_partition(side, topic, producer)
                within.add(producer.number)
            self._produce(side, topic, None if rng.random() < 0.2 else producer, rng)
            if producer.number in within and rng.random() < 0.4:
                self._end(side, producer, is_commit=rng.random() < 0.4)
                within.discard(producer.number)
        for producer in producers[:-1]:  # what the last one has begun stays open
            if producer.number in within:
                self._end(side, producer, is_commit=False)

    def _produce(self, side: Side, topic: str, producer: Producer | None, rng: random.Random) -> None:
        self.times[topic] += _STEP_MS
        records = [
            Record(rng.randbytes(rng.choice((10, 150))), b"%d" % n, timestamp_ms=self.times[topic] + n)
            for n in range(rng.randint(1, 5))
        ]
        numbers: dict[str, Any] = {}
        if producer is not None:
            numbers = {"producer_id": producer.number, "producer_epoch": producer.epoch}
            numbers |= {"base_sequence": producer.sequence, "transactional": producer.transactional_id is not None}
            producer.sequence += len(records)
        batch = build_records_batch(records, compression=rng.choice((0, 0, 1, 3, 4)), **numbers)
        transactional_id = producer.transactional_id if producer else None
        wait_for("a batch", lambda: _taken(produce(side, topic, batch, transactional_id)) or None)

    def _add_partition(self, side: Side, topic: str, producer: Producer) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.number,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        )

        def is_added() -> bool:
            answer = side.ask("setup", request, 3)
            topics = [] if isinstance(answer, str) else answer.results_by_topic_v3_and_below
            return [part.partition_error_code for each in topics for part in each.results_by_partition] == [0]

        wait_for("a transaction to begin", is_added)

    def _end(self, side: Side, producer: Producer, *, is_commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=producer.transactional_id,
            producer_id=producer.number,
            producer_epoch=producer.epoch,
            committed=is_commit,
        )
        wait_for("a transaction to end", lambda: _sound(side.ask("setup", request, 3)))


def produce(side: Side, topic: str, batch: bytes | bytearray, transactional_id: str | None = None) -> Any:
    """Write a batch; the answer for its partition, or why there was none."""
    kind = ProduceRequest.TopicProduceData
    data = kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=bytes(batch))])
    request = ProduceRequest(acks=-1, timeout_ms=5000, transactional_id=transactional_id, topic_data=[data])
    answer = side.ask("client", request, 11)
    return answer if isinstance(answer, str) else answer.responses[0].partition_responses[0]


def _sound(answer: Any) -> Any:
    return None if isinstance(answer, str) or answer.error_code else answer


def _taken(answer: Any) -> bool:
    # After an answer that was lost the same numbers may be there already.
    return not isinstance(answer, str) and answer.error_code == 0


def _found(answer: Any) -> bool:
    return not isinstance(answer, str) and all(each.error_code == 0 for each in answer.coordinators)


class Directories:
    """Makes the directories of a broker and a controller. A context: what still runs at its end is killed."""

    def __init__(self, kafka: KafkaTools, folder: Path) -> None:
        self._lab = KafkaLab(kafka, folder)
        self._folder = folder
        self._port, self._other = free_port(), free_port()
        self._bases: dict[tuple[str, str], Base] = {}
        self._writer = Writer(int(time.time() * 1000) - 3_600_000)

    def __enter__(self) -> Directories:
        self._lab.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._lab.__exit__(*error)

    def base(self, writer: str, stop: str) -> Base:
        """One of the four; made when it is first asked for."""
        if (writer, stop) not in self._bases:
            if writer == "Kafka":
                self._by_kafka()
            else:
                self._by_ours(self.base("Kafka", "stopped"))
        return self._bases[writer, stop]

    def node(self, writer: str, name: str) -> KafkaNode:
        """A broker with its controller, on the folder of this name; all have the same ports: one runs at a time."""
        kind = KafkaNode if writer == "Kafka" else KraftcoreNode
        node = self._lab.add(kind, 1, "broker,controller", "PLAINTEXT")
        node.port, node.folder = self._port, self._folder / name
        listeners = f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{self._other}"
        node.output = self._folder / f"{name}.out"
        node.config = self._folder / f"{name}.properties"
        node.properties |= SETTINGS | _QUICK | {"log.dirs": node.folder}
        node.write(
            listeners=listeners,
            advertised_listeners=listeners,
            controller_quorum_bootstrap_servers=f"{HOST}:{self._other}",
        )
        return node

    @contextmanager
    def started(self, node: KafkaNode) -> Iterator[Side]:
        """Start it, and wait until it leads all topics; it is stopped in order at the end."""
        side = Side(node.start())
        try:
            node.wait_listening()
            yield side
        except BaseException:
            node.kill()
            raise
        finally:
            side.close_all()
        node.stop()

    def _by_kafka(self) -> None:
        node = self.node("Kafka", "by-kafka").format("--standalone")
        rng = random.Random(1)
        with self.started(node) as side:
            kind = CreateTopicsRequest.CreatableTopic
            configs = [kind.CreatableTopicConfig(name=key, value=value) for key, value in CONFIGS.items()]
            made = [kind(name=name, num_partitions=1, replication_factor=1, configs=configs) for name in TOPICS]
            create = CreateTopicsRequest(topics=made, timeout_ms=10_000)
            wait_for("topics", lambda: was_created(side.ask("setup", create, 7)) or None)
            self._wait(side)
            for topic in TOPICS:
                self._writer.begin(side, topic)
                self._writer.write(side, topic, rng)
        with self.started(node) as side:
            self._wait(side)
            for topic in TOPICS:
                self._writer.write(side, topic, rng)
                if topic.startswith("raised"):
                    self._raise(side, topic, 20 + rng.randrange(20))
            self._keep_killed("Kafka", node)
        self._keep("Kafka", node)

    def _by_ours(self, base: Base) -> None:
        shutil.copytree(base.folder, self._folder / "by-kraftcore")
        node = self.node("kraftcore", "by-kraftcore")
        rng = random.Random(2)
        with self.started(node) as side:
            self._wait(side)
            for topic in TOPICS:
                if topic.startswith("txn"):  # ours coordinates none
                    self._writer.producers[topic] = [self._writer.producer(side, None)]
                self._writer.write(side, topic, rng)
            self._keep_killed("kraftcore", node)
        self._keep("kraftcore", node)

    def _raise(self, side: Side, topic: str, offset: int) -> None:
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        asked = kind(name=topic, partitions=[kind.DeleteRecordsPartition(partition_index=0, offset=offset)])
        answer = side.ask("client", DeleteRecordsRequest(topics=[asked], timeout_ms=5000), 2)
        assert answer.topics[0].partitions[0].error_code == 0, answer

    def _wait(self, side: Side) -> None:
        wait_for("leaders", lambda: side.knows(dict.fromkeys(TOPICS, 1), dict.fromkeys(TOPICS, CONFIGS)) or None)

    def _keep_killed(self, writer: str, node: KafkaNode) -> None:
        """As SIGKILL would leave it; and it goes on."""
        time.sleep(3 * _OFTEN_MS / 1000)
        kept = self._folder / f"{node.folder.name}-killed"
        node.signal(signal.SIGSTOP)
        try:
            shutil.copytree(node.folder, kept)
        finally:
            node.signal(signal.SIGCONT)
        self._bases[writer, "killed"] = Base(kept, _batches(kept))

    def _keep(self, writer: str, node: KafkaNode) -> None:
        kept = self._folder / f"{node.folder.name}-stopped"
        node.folder.rename(kept)
        self._bases[writer, "stopped"] = Base(kept, _batches(kept))


def _batches(folder: Path) -> dict[str, dict[int, bytes]]:
    return {topic: batches(folder / f"{topic}-0") for topic in TOPICS}


def times_of(held: dict[int, bytes]) -> list[int]:
    """The largest timestamp of each batch."""
    return [next(iter_batches(data)).max_timestamp_ms for data in held.values()]
