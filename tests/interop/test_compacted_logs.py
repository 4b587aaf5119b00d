"""Kafka compacts, ours follows, leads and keeps what is left, in a cluster of both and on one directory in turn."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from asked_brokers import ask, described, log_bytes
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer
from confluent_kafka import TopicPartition as Assigned
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools
from partition_files import log_end

from kraftcore.core.batch import iter_batches
from kraftcore.plugins.broker.producers.aborted import AbortedTransaction, decode_aborted
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

pytestmark = pytest.mark.deep

THEIRS, OURS = 10, 11
TOPIC, OFFSETS, GROUP = "kept", "__consumer_offsets", "readers"
QUICK = {
    "broker_heartbeat_interval_ms": 200,
    "replica_lag_time_max_ms": 5000,
    "log_initial_task_delay_ms": 200,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "group_initial_rebalance_delay_ms": 0,
}
CLEANER = {
    "log_cleaner_backoff_ms": 100,
    "log_cleaner_dedupe_buffer_size": 4 * 1024 * 1024,
    "log_cleaner_min_cleanable_ratio": 0.001,
    "log_cleaner_delete_retention_ms": 0,
    "log_roll_ms": 100,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}
KEYS = 7
Read = tuple[object, ...]  # offset, key, value, timestamp
STEP_MS = 30  # between the timestamps of batches, which end segments


class Clients:
    """Librdkafka's, at whoever leads."""

    def __init__(self, nodes: Callable[[], Iterable[KafkaNode]]) -> None:
        self._nodes = nodes
        self._time_ms = 1_700_000_000_000
        self._number = 0

    @property
    def servers(self) -> str:
        return ",".join(node.address for node in self._nodes())

    def producer(self, **more: object) -> Producer:
        known = {"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 0}
        return Producer({**known, **{key.replace("_", "."): value for key, value in more.items()}})

    def produce(self, producer: Producer, batches: int) -> None:
        """So many batches of up to three records; keys come again and again."""
        for _ in range(batches):
            self._time_ms += STEP_MS
            for _ in range(self._number % 3 + 1):
                self._number += 1
                key = b"key %d" % (self._number * self._number % KEYS)
                producer.produce(TOPIC, b"value %d" % self._number, key, partition=0, timestamp=self._time_ms)
            assert producer.flush(60) == 0

    def transact(self, producer: Producer, transactions: int) -> None:
        """Two batches each; every second one is aborted."""
        for number in range(transactions):
            producer.begin_transaction()
            self.produce(producer, 2)
            if number % 2:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)

    def read(self, isolation: str = "read_committed", offset: int = OFFSET_BEGINNING) -> list[Read]:
        """Everything there is."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "none",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": isolation,
                "check.crcs": True,
            }
        )
        consumer.assign([Assigned(TOPIC, 0, offset)])
        found: list[Read] = []
        try:
            while (message := consumer.poll(60)) is not None:
                error = message.error()
                if error is None:
                    found.append((message.offset(), message.key(), message.value(), message.timestamp()))
                elif error.name() == "_PARTITION_EOF":
                    return found
            raise TimeoutError(f"no end after {found[-1:]}")
        finally:
            consumer.close()

    def commit(self, offset: int) -> None:
        consumer = self._of_group()
        consumer.commit(offsets=[Assigned(TOPIC, 0, offset)], asynchronous=False)
        consumer.close()

    def committed(self) -> int:
        consumer = self._of_group()
        [found] = consumer.committed([Assigned(TOPIC, 0)], timeout=60)
        consumer.close()
        return found.offset

    def _of_group(self) -> Consumer:
        return Consumer({"bootstrap.servers": self.servers, "group.id": GROUP, "enable.auto.commit": False})


def gaps(node: KafkaNode, name: str) -> int:
    """Offsets that its log lacks."""
    expected = missing = 0
    for batch in iter_batches(log_bytes(node, name)):
        missing += batch.base_offset - expected + batch.last_offset_delta + 1 - batch.count
        expected = batch.next_offset
    return missing


def is_clean(node: KafkaNode, name: str) -> bool:
    """Whether Kafka's cleaner has been through all but the segment that takes appends."""
    checkpoint = node.folder / "cleaner-offset-checkpoint"
    active = max(int(path.stem) for path in (node.folder / name).glob("*.log"))
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return f"{name.replace('-', ' ')} {active}" in lines and gaps(node, name) > 0


def aborted(node: KafkaNode, start: int) -> set[AbortedTransaction]:
    """What its indexes say of transactions that begin at an offset or behind it."""
    files = (node.folder / f"{TOPIC}-0").glob("*.txnindex")
    entries = {entry for file in files for entry in decode_aborted(file.read_bytes(), int(file.stem))}
    return {entry for entry in entries if entry.first_offset >= start}


def let_clean(admin: AdminClient, ratio: float) -> None:
    """How much of a log must be dirty before Kafka cleans it; 1: it never does."""
    entry = ConfigEntry("min.cleanable.dirty.ratio", str(ratio), incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([topic])[topic].result(60)


def moves(controller: KafkaNode, topic: str, replicas: list[int]) -> bool:
    """Have other brokers keep a topic; whether the controller knows them."""
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    moved = kind(name=topic, partitions=[kind.ReassignablePartition(partition_index=0, replicas=replicas)])
    answer = ask(controller, AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=[moved]), 0)
    return answer.error_code == answer.responses[0].partitions[0].error_code == 0


def test_what_kafka_compacts_is_followed_led_and_opened(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        [controller] = lab.start_quorum(
            [1], make=lab.kraftcore, kraftcore_offers_log=None, broker_session_timeout_ms=3000
        )
        theirs = lab.broker(THEIRS, **QUICK, **CLEANER).format().start()
        theirs.wait_listening()
        nodes: list[KafkaNode] = [theirs]
        clients = Clients(lambda: [node for node in nodes if node.process is not None])
        config = {"cleanup.policy": "compact", "min.insync.replicas": "1"}
        admin = AdminClient({"bootstrap.servers": theirs.address})
        admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(60)
        producer = clients.producer()
        transactional = clients.producer(transactional_id="both")
        transactional.init_transactions(60)
        for number in range(40):
            clients.produce(producer, 1)
            clients.commit(number)
            if number % 8 == 3:
                clients.transact(transactional, 2)
            time.sleep(0.02)  # segments of the groups' log end by the time
        wait_for("Kafka to have compacted", lambda: all(is_clean(theirs, f"{name}-0") for name in (TOPIC, OFFSETS)))
        read = clients.read()
        assert KEYS // 2 < len(read) < 40
        assert {record[1] for record in read} == {record[1] for record in clients.read("read_uncommitted")}
        # A follower.
        ours = lab.add(KraftcoreNode, OURS, "broker", "PLAINTEXT", **QUICK).format().start()
        ours.wait_listening()
        for name in (TOPIC, OFFSETS):
            wait_for("a move", lambda name=name: moves(controller, name, [THEIRS, OURS]))
        for name in (TOPIC, OFFSETS):
            wait_for("ours to follow", lambda name=name: described(theirs, name) == {0: (THEIRS, {THEIRS, OURS})})
            wait_for("equal logs", lambda name=name: log_bytes(theirs, f"{name}-0") == log_bytes(ours, f"{name}-0"))
            assert gaps(ours, f"{name}-0") > 0
        nodes.append(ours)
        let_clean(admin, 1)
        end = log_end(theirs.folder / f"{TOPIC}-0")
        clients.transact(transactional, 4)
        before, read, uncommitted = read, clients.read(), clients.read("read_uncommitted")
        assert set(uncommitted) > set(read)
        assert len(read) > len(before)
        wait_for(
            "ours to have the last",
            lambda: log_end(ours.folder / f"{TOPIC}-0") == log_end(theirs.folder / f"{TOPIC}-0"),
        )
        assert aborted(theirs, end) == aborted(ours, end)
        assert len(aborted(ours, end)) == 2
        # It leads, and coordinates the group.
        theirs.stop()
        wait_for("ours to lead", lambda: described(ours, TOPIC) == {0: (OURS, {OURS})})
        assert clients.read() == read
        assert clients.read("read_uncommitted") == uncommitted
        for offset in range(0, read[-1][0], 7):
            assert clients.read(offset=offset) == [each for each in read if each[0] >= offset]
        assert clients.committed() == 39
        clients.produce(clients.producer(), 10)
        clients.commit(77)
        read = clients.read()
        ours.kill()
        ours.start().wait_listening()
        wait_for("ours to lead again", lambda: described(ours, TOPIC) == {0: (OURS, {OURS})})
        assert clients.read() == read
        # Kafka goes on, and compacts what ours wrote.
        theirs.start().wait_listening()
        nodes.reverse()
        for name in (TOPIC, OFFSETS):
            wait_for("Kafka to follow", lambda name=name: described(ours, name) == {0: (OURS, {THEIRS, OURS})})
        ours.stop()
        wait_for("Kafka to lead", lambda: described(theirs, TOPIC) == {0: (THEIRS, {THEIRS})})
        clients.produce(clients.producer(), 10)
        let_clean(AdminClient({"bootstrap.servers": theirs.address}), 0.001)
        wait_for("Kafka to compact again", lambda: is_clean(theirs, f"{TOPIC}-0"))
        read = clients.read()
        assert clients.committed() == 77
        theirs.stop()
        # Ours on Kafka's directory.
        heir = lab.add(KraftcoreNode, THEIRS, "broker", "PLAINTEXT", **QUICK)
        assert heir.folder == theirs.folder
        before = {name: log_bytes(heir, f"{name}-0") for name in (TOPIC, OFFSETS)}
        heir.start().wait_listening()
        nodes[:] = [heir]
        wait_for("it to lead", lambda: described(heir, TOPIC) == {0: (THEIRS, {THEIRS})})
        assert clients.read() == read
        assert clients.committed() == 77
        clients.produce(clients.producer(), 5)
        clients.commit(78)
        read = clients.read()
        heir.stop(signal.SIGTERM)
        assert log_bytes(heir, f"{TOPIC}-0").startswith(before[TOPIC])
        # And Kafka again.
        again = lab.broker(THEIRS, **QUICK, **CLEANER).start()
        again.wait_listening()
        nodes[:] = [again]
        wait_for("Kafka to lead again", lambda: described(again, TOPIC) == {0: (THEIRS, {THEIRS})})
        assert set(clients.read()) & set(read)
        assert clients.committed() == 78
