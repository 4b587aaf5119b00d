"""Consumer groups go from Kafka's coordinator to ours and back, by ``__consumer_offsets`` alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trio
from kafka_lab import HOST, KafkaLab, wait_for
from kafka_tools import KafkaTools

from kraftcore.core.uuid import Uuid
from kraftcore.plugins.broker import BrokerConfig, open_broker
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.ports.transport import Address
from kraftcore.protocol.frames import decode_response, encode_request_parts
from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest
from kraftcore.raft.quorum import Endpoint
from kraftcore.transports.tcp import TcpTransport

TOPIC, GROUP, OFFSETS = "counted", "counters", "__consumer_offsets"
PARTITIONS = 2
EACH = 50


def produce(lab: KafkaLab, at: str) -> None:
    perf = ("org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC, "--num-records", EACH)
    sizes = ("--record-size", 100, "--throughput", -1)
    lab.run_class(*perf, *sizes, "--producer-props", f"bootstrap.servers={at}", "acks=all", "enable.idempotence=false")


def consume(lab: KafkaLab, at: str) -> None:
    """As a member of the group, which commits where it stopped when it leaves."""
    consumer = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", at, "--topic", TOPIC)
    which = ("--group", GROUP, "--from-beginning", "--max-messages", EACH, "--timeout-ms", 60_000)
    assert f"Processed a total of {EACH} messages" in lab.run_class(*consumer, *which)


def groups(lab: KafkaLab, at: str, *arguments: object) -> list[list[str]]:
    """What kafka-consumer-groups prints, as words."""
    done = lab.tool("groups", "--bootstrap-server", at, *arguments)
    assert done.status == 0, done
    return [line.split() for line in done.out.splitlines() if line.strip()]


def committed(lab: KafkaLab, at: str) -> int:
    rows = groups(lab, at, "--describe", "--group", GROUP)
    return sum(int(row[3]) for row in rows if row[:2] == [GROUP, TOPIC])


def commits(lab: KafkaLab, at: str, count: int) -> None:
    wait_for("what was committed", lambda: committed(lab, at) == count)


async def obey(port: int, topics: dict[str, tuple[Uuid, int]]) -> None:
    """As a controller of the ZooKeeper era, make broker 11 the leader of everything."""

    async def ask(transport: TcpTransport, number: int, request: Any, version: int) -> Any:
        answers: list[Any] = []
        came = trio.Event()
        parts = encode_request_parts(request, version, number, "controller")
        transport.request(Address(HOST, port), parts, 60_000, lambda frame: (answers.append(frame), came.set()))
        await came.wait()
        return decode_response(answers[0], type(request).schema.api_key, version)[1]

    def lead(number: int) -> dict[str, Any]:
        return {"partition_index": number, "leader": 11, "leader_epoch": 7, "isr": [11], "replicas": [11]}

    states = [
        LeaderAndIsrRequest.LeaderAndIsrTopicState(
            topic_name=name,
            topic_id=topic_id,
            partition_states=[LeaderAndIsrPartitionState(partition_epoch=9, **lead(each)) for each in range(count)],
        )
        for name, (topic_id, count) in topics.items()
    ]
    known = [
        UpdateMetadataRequest.UpdateMetadataTopicState(
            topic_name=name,
            topic_id=topic_id,
            partition_states=[UpdateMetadataPartitionState(**lead(each)) for each in range(count)],
        )
        for name, (topic_id, count) in topics.items()
    ]
    live = UpdateMetadataRequest.UpdateMetadataBroker(id=11)
    live.endpoints = [live.UpdateMetadataEndpoint(host=HOST, port=port, listener="PLAINTEXT")]
    async with TcpTransport() as transport:
        answer = await ask(transport, 1, LeaderAndIsrRequest(controller_epoch=1, topic_states=states), 7)
        assert {each.error_code for topic in answer.topics for each in topic.partition_errors} == {0}, answer
        update = UpdateMetadataRequest(controller_epoch=1, live_brokers=[live], topic_states=known)
        assert (await ask(transport, 2, update, 8)).error_code == 0


def test_groups_go_from_kafkas_coordinator_to_ours_and_back(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        lab.start_quorum([1], make=lab.kraftcore, kraftcore_offers_log=None)
        settings = {"offsets_topic_num_partitions": PARTITIONS, "group_initial_rebalance_delay_ms": 0}
        theirs = lab.broker(11, **settings)
        theirs.format().start().wait_listening()
        create = ("--create", "--if-not-exists", "--topic", TOPIC, "--partitions", 1, "--replication-factor", 1)
        wait_for("a topic", lambda: lab.tool("topics", "--bootstrap-server", theirs.address, *create).status == 0)
        produce(lab, theirs.address)
        consume(lab, theirs.address)
        commits(lab, theirs.address, EACH)
        theirs.stop()
        config = BrokerConfig(
            node_id=11,
            listeners=(Endpoint("PLAINTEXT", HOST, 0),),
            directories=(str(theirs.folder),),
            groups=GroupSettings(initial_rebalance_delay_ms=0),
        )

        def use(at: str) -> None:
            commits(lab, at, EACH)
            assert groups(lab, at, "--list") == [[GROUP]]
            produce(lab, at)
            consume(lab, at)
            commits(lab, at, 2 * EACH)
            state = groups(lab, at, "--describe", "--state", "--group", GROUP)[1]
            assert state[-2:] == ["Empty", "0"], state
            reset = ("--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-offset", 70, "--execute")
            groups(lab, at, *reset)
            commits(lab, at, 70)

        async def ours() -> None:
            async with open_broker(config) as broker:
                topics = {}
                for name, count in ((TOPIC, 1), (OFFSETS, PARTITIONS)):
                    topic_id = broker.replicas.topic_id(TopicPartition(name, 0))
                    assert topic_id is not None
                    topics[name] = (topic_id, count)
                port = broker.endpoints[0].port
                await obey(port, topics)
                await trio.to_thread.run_sync(use, f"{HOST}:{port}")

        trio.run(ours)
        logs = sorted(theirs.folder.glob(f"{OFFSETS}-*/*.log"))
        printed = kafka.dump_log("--offsets-decoder", "--files", ",".join(map(str, logs)))
        assert '"offset":70' in printed.replace(" ", ""), printed
        theirs.start().wait_listening()
        commits(lab, theirs.address, 70)
        groups(lab, theirs.address, "--delete", "--group", GROUP)
