"""A log directory goes from Kafka's broker to ours and back; Java's clients write and read at either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from kafka_lab import HOST, KafkaLab, wait_for
from kafka_tools import KafkaTools

from kraftcore.core.batch import iter_batches
from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker import BrokerConfig, open_broker
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.ports.transport import Address
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kraftcore.raft.quorum import Endpoint
from kraftcore.transports.tcp import TcpTransport

pytestmark = pytest.mark.deep

TOPIC = "handed-on"
EACH = 3000
PRODUCER = ("acks=all", "batch.size=2000", "compression.type=lz4")


def producers(kafka: KafkaTools, folder: Path) -> list[str]:
    """What Kafka reads in the newest producer snapshot."""
    newest = max(folder.glob("*.snapshot"))
    return [line for line in kafka.dump_log("--files", newest).splitlines() if line.startswith("producerId")]


def produce(lab: KafkaLab, at: str, *properties: str) -> None:
    perf = ("org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records", EACH)
    sizes = ("--record-size", 100, "--throughput", -1)
    lab.run_class(*perf, *sizes, "--producer-props", f"bootstrap.servers={at}", *PRODUCER, *properties)


def consume(lab: KafkaLab, at: str, count: int) -> None:
    consumer = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", at, "--topic", TOPIC)
    which = ("--partition", 0, "--offset", 0, "--max-messages", count, "--timeout-ms", 60_000)
    assert f"Processed a total of {count} messages" in lab.run_class(*consumer, *which)


async def obey(port: int, topic_id: Uuid) -> None:
    """As a controller of the ZooKeeper era, make broker 11 the partition's leader."""

    async def ask(transport: TcpTransport, number: int, request: Any, version: int) -> Any:
        answers: list[Any] = []
        came = trio.Event()
        parts = encode_request_parts(request, version, number, "controller")
        transport.request(Address(HOST, port), parts, 60_000, lambda frame: (answers.append(frame), came.set()))
        await came.wait()
        return decode_response(answers[0], type(request).schema.api_key, version)[1]

    lead = {"partition_index": 0, "leader": 11, "leader_epoch": 7, "isr": [11], "replicas": [11]}
    states = LeaderAndIsrRequest.LeaderAndIsrTopicState(
        topic_name=TOPIC, topic_id=topic_id, partition_states=[LeaderAndIsrPartitionState(partition_epoch=9, **lead)]
    )
    live = UpdateMetadataRequest.UpdateMetadataBroker(id=11)
    live.endpoints = [live.UpdateMetadataEndpoint(host=HOST, port=port, listener="PLAINTEXT")]
    known = UpdateMetadataRequest.UpdateMetadataTopicState(
        topic_name=TOPIC, topic_id=topic_id, partition_states=[UpdateMetadataPartitionState(**lead)]
    )
    async with TcpTransport() as transport:
        answer = await ask(transport, 1, LeaderAndIsrRequest(controller_epoch=1, topic_states=[states]), 7)
        assert answer.topics[0].partition_errors[0].error_code == 0, answer
        update = UpdateMetadataRequest(controller_epoch=1, live_brokers=[live], topic_states=[known])
        assert (await ask(transport, 2, update, 8)).error_code == 0


def test_a_directory_goes_from_kafkas_broker_to_ours_and_back(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        lab.start_quorum([1], make=lab.kraftcore, kraftcore_offers_log=None)
        theirs = lab.broker(11, log_segment_bytes=1024 * 1024)
        theirs.format().start().wait_listening()
        create = ("--create", "--if-not-exists", "--topic", TOPIC, "--partitions", 1, "--replication-factor", 1)
        wait_for("a topic", lambda: lab.tool("topics", "--bootstrap-server", theirs.address, *create).status == 0)
        produce(lab, theirs.address)  # idempotent, as is the client's default
        theirs.stop()
        folder = theirs.folder / f"{TOPIC}-0"
        known = producers(kafka, folder)
        assert len(known) == 1
        assert f"lastSequence: {EACH - 1}" in known[0]
        before = b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))
        config = BrokerConfig(
            node_id=11, listeners=(Endpoint("PLAINTEXT", HOST, 0),), directories=(str(theirs.folder),)
        )

        async def ours() -> None:
            async with open_broker(config) as broker:
                assert broker.cluster_id == lab.cluster_id
                topic_id = broker.replicas.topic_id(TopicPartition(TOPIC, 0))
                assert topic_id is not None
                port = broker.endpoints[0].port
                await obey(port, topic_id)
                at = f"{HOST}:{port}"
                await trio.to_thread.run_sync(consume, lab, at, EACH)
                await trio.to_thread.run_sync(produce, lab, at, "enable.idempotence=false")
                await trio.to_thread.run_sync(consume, lab, at, 2 * EACH)

        trio.run(ours)
        assert producers(kafka, folder) == known
        assert (folder / f"{2 * EACH:020d}.snapshot").exists()
        after = b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))
        assert after.startswith(before)
        assert [*iter_batches(after)][-1].next_offset == 2 * EACH
        printed = kafka.dump_log("--deep-iteration", "--files", ",".join(map(str, sorted(folder.glob("*.log")))))
        assert printed.count("| offset: ") == 2 * EACH
        for index in sorted(folder.glob("*.*index")):
            assert "Mismatches" not in kafka.dump_log("--index-sanity-check", "--files", index)
        theirs.start().wait_listening()
        wait_for(
            "its leader",
            lambda: (
                f"Leader: {theirs.properties['node.id']}"
                in lab.tool("topics", "--bootstrap-server", theirs.address, "--describe", "--topic", TOPIC).out
            ),
        )
        consume(lab, theirs.address, 2 * EACH)
