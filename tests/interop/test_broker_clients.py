"""Unmodified clients and tools at a broker of ours, with a controller of ours, in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import trio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AssignedPartition
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka_lab import HOST, KafkaLab, wait_for
from kafka_tools import KafkaTools

from kraftcore.config import NodeConfig
from kraftcore.core.batch import iter_batches
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import MetadataMachine
from kraftcore.node import open_node
from kraftcore.plugins.broker import BrokerConfig, KRaftBroker
from kraftcore.plugins.controller import Controller
from kraftcore.raft.quorum import Endpoint

COUNT = 500


def with_a_broker(folder: Path, use: Callable[[str], None]) -> None:
    """Have a thread use a broker, which is told its address."""

    async def main() -> None:
        config = NodeConfig(
            node_id=1,
            directory=str(folder),
            cluster_id=str(Uuid.random()),
            listeners=[f"CONTROLLER://{HOST}:0"],
            broker_listeners=[f"PLAINTEXT://{HOST}:0"],
            create="standalone",
        )
        listeners = (Endpoint("PLAINTEXT", HOST, 0),)
        broker = KRaftBroker(BrokerConfig(node_id=1, listeners=listeners, directories=(str(folder),), num_partitions=2))
        async with open_node(config, MetadataMachine(), plugins=[Controller({}), broker]) as node:
            with trio.fail_after(60):
                await broker.wait_running()
            (endpoint,) = node.broker_endpoints
            await trio.to_thread.run_sync(use, f"{HOST}:{endpoint.port}")

    trio.run(main)


def values(at: str, topic: str, count: int) -> list[bytes]:
    """What a consumer without a group reads."""
    consumer = KafkaConsumer(bootstrap_servers=at, auto_offset_reset="earliest")
    parts = [TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
    consumer.assign(parts)
    found: list[bytes] = []
    while len(found) < count:
        for records in consumer.poll(1000).values():
            found += [record.value for record in records]
    consumer.close()
    return found


def test_kafka_python_administers_produces_and_consumes(tmp_path: Path) -> None:
    def use(at: str) -> None:
        admin = KafkaAdminClient(bootstrap_servers=at)
        admin.create_topics([NewTopic("t", 1, 1, topic_configs={"retention.ms": "5000000"})])
        admin.create_partitions({"t": NewPartitions(2)})
        wait_for("two partitions", lambda: len(admin.describe_topics(["t"])[0]["partitions"]) == 2)
        resource = ConfigResource(ConfigResourceType.TOPIC, "t")
        told = str(admin.describe_configs([resource]))
        assert "5000000" in told
        producer = KafkaProducer(bootstrap_servers=at, enable_idempotence=True, acks="all", linger_ms=5)
        sent = [producer.send("t", b"%d" % number) for number in range(COUNT)]
        assert len({(future.get(60).partition, future.get(60).offset) for future in sent}) == COUNT
        producer.close()
        assert sorted(map(int, values(at, "t", COUNT))) == list(range(COUNT))
        assert "cluster_id" in admin.describe_cluster()
        admin.delete_topics(["t"])
        wait_for("no topic", lambda: "t" not in admin.list_topics())
        admin.close()
        # A topic that is not there is made for whoever writes to it.
        producer = KafkaProducer(bootstrap_servers=at)
        assert producer.send("made", b"x").get(60).offset == 0
        producer.close()

    with_a_broker(tmp_path, use)


def test_aiokafka_produces_and_consumes(tmp_path: Path) -> None:
    async def clients(at: str) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=at, enable_idempotence=True, compression_type="gzip")
        await producer.start()
        sent = [await producer.send("t", b"%d" % number) for number in range(COUNT)]
        assert len({(told.partition, told.offset) for told in await asyncio.gather(*sent)}) == COUNT
        await producer.stop()
        consumer = AIOKafkaConsumer(bootstrap_servers=at, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([AssignedPartition("t", number) for number in range(2)])
        found = [int((await consumer.getone()).value) for _ in range(COUNT)]
        await consumer.stop()
        assert sorted(found) == list(range(COUNT))

    with_a_broker(tmp_path, lambda at: asyncio.run(clients(at)))


def test_kafkas_own_tools(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:

        def tool(name: str, at: str, *arguments: object) -> str:
            found = lab.tool(name, "--bootstrap-server", at, *arguments)
            assert found.status == 0, found
            return found.out

        def use(at: str) -> None:
            tool("topics", at, "--create", "--topic", "t", "--partitions", 1, "--replication-factor", 1)
            assert "PartitionCount: 1" in tool("topics", at, "--describe", "--topic", "t")
            tool("configs", at, "--alter", "--topic", "t", "--add-config", "retention.ms=5000000")
            assert "retention.ms=5000000" in tool("configs", at, "--describe", "--topic", "t")
            assert "auto.create.topics.enable" in tool(
                "configs", at, "--describe", "--entity-type", "brokers", "--entity-name", 1, "--all"
            )
            perf = ("org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", COUNT)
            sizes = ("--record-size", 100, "--throughput", -1)
            # With the client's defaults: acks=all and idempotence.
            lab.run_class(*perf, *sizes, "--producer-props", f"bootstrap.servers={at}")
            assert len(values(at, "t", COUNT)) == COUNT
            consumer = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", at, "--topic", "t")
            which = ("--partition", 0, "--offset", "earliest", "--max-messages", 1, "--timeout-ms", 60_000)
            assert "Processed a total of 1 messages" in lab.run_class(*consumer, *which)
            tool("topics", at, "--delete", "--topic", "t")

        with_a_broker(tmp_path / "n1", use)
    folders = [folder for folder in (tmp_path / "n1").iterdir() if folder.name.startswith("t-")]
    data = b"".join(file.read_bytes() for folder in folders for file in sorted(folder.glob("*.log")))
    ids = {batch.producer_id for batch in iter_batches(data)}
    assert len(ids) == 1
    assert min(ids) >= 0
