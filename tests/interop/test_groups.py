"""Groups in a cluster of Kafka's broker and ours: either coordinates them, and takes them over from the other."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from asked_brokers import ask, described, log_bytes
from confluent_kafka import Consumer
from kafka import KafkaConsumer, KafkaProducer
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools

from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest

THEIRS, OURS = 10, 11
TOPIC, GROUP, LIVE, OFFSETS = "counted", "counters", "live", "__consumer_offsets"
EACH = 50
QUICK = {
    "broker_heartbeat_interval_ms": 200,
    "replica_lag_time_max_ms": 5000,
    "log_initial_task_delay_ms": 200,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 2,
    "group_initial_rebalance_delay_ms": 0,
}


def produce(at: str) -> None:
    producer = KafkaProducer(bootstrap_servers=at, acks="all", enable_idempotence=False)
    for sent in [producer.send(TOPIC, b"%d" % number) for number in range(EACH)]:
        sent.get(60)
    producer.close()


def consume(lab: KafkaLab, at: str) -> None:
    """Java's consumer, as a member of the group: it commits where it stopped when it leaves."""
    consumer = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", at, "--topic", TOPIC)
    which = ("--group", GROUP, "--from-beginning", "--max-messages", EACH, "--timeout-ms", 60_000)
    assert f"Processed a total of {EACH} messages" in lab.run_class(*consumer, *which)


def groups(lab: KafkaLab, at: str, *arguments: object) -> list[list[str]]:
    """What kafka-consumer-groups prints, as words; nothing when it fails."""
    done = lab.tool("groups", "--bootstrap-server", at, *arguments)
    return [] if done.status else [line.split() for line in done.out.splitlines() if line.strip()]


def committed(lab: KafkaLab, at: str) -> int:
    rows = groups(lab, at, "--describe", "--group", GROUP)
    return sum(int(row[3]) for row in rows if row[:2] == [GROUP, TOPIC])


@contextmanager
def live_member(at: str) -> Iterator[list[bytes]]:
    """A static member of another group, all the while; what it read."""
    read: list[bytes] = []
    is_over = threading.Event()

    def run() -> None:
        consumer = KafkaConsumer(
            TOPIC,
            bootstrap_servers=at.split(","),
            group_id=LIVE,
            group_instance_id="one",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=60_000,
        )
        while not is_over.is_set():
            for records in consumer.poll(200).values():
                read.extend(record.value for record in records)
                consumer.commit()
        consumer.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield read
    finally:
        is_over.set()
        thread.join(60)


def move(controller: KafkaNode, nodes: dict[int, KafkaNode], leader: int) -> None:
    """Have a broker lead the groups' partition, and so coordinate."""
    wait_for("both to be in sync", lambda: {each for _, each in described_offsets(nodes)} == {frozenset(nodes)})
    order = [leader, *(each for each in nodes if each != leader)]
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    topic = kind(name=OFFSETS, partitions=[kind.ReassignablePartition(partition_index=0, replicas=order)])
    answer = ask(controller, AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=[topic]), 0)
    assert answer.error_code == answer.responses[0].partitions[0].error_code == 0, answer
    of = ElectLeadersRequest.TopicPartitions
    election = ElectLeadersRequest(topic_partitions=[of(topic=OFFSETS, partitions=[0])], timeout_ms=30_000)
    assert ask(controller, election, 2).error_code == 0
    wait_for("it to lead", lambda: described_offsets(nodes) == [(leader, frozenset(nodes))] * len(nodes))


def described_offsets(nodes: dict[int, KafkaNode]) -> list[tuple[int, frozenset[int]]]:
    """Leader and ISR of the groups' partition, as each broker tells them."""
    found = [described(node, OFFSETS).get(0) for node in nodes.values()]
    return [(each[0], frozenset(each[1])) for each in found if each is not None]


def start(lab: KafkaLab) -> tuple[KafkaNode, dict[int, KafkaNode], str]:
    """The controller, a broker of Kafka and one of ours with a topic, and where they are."""
    [controller] = lab.start_quorum([1], make=lab.kraftcore, kraftcore_offers_log=None, broker_session_timeout_ms=3000)
    nodes: dict[int, KafkaNode] = {
        THEIRS: lab.broker(THEIRS, **QUICK).format().start(),
        OURS: lab.add(KraftcoreNode, OURS, "broker", "PLAINTEXT", **QUICK).format().start(),
    }
    for node in nodes.values():
        node.wait_listening()
    create = ("--create", "--topic", TOPIC, "--partitions", 1, "--replication-factor", 2)
    wait_for(
        "a topic on both",
        lambda: lab.tool("topics", "--bootstrap-server", nodes[THEIRS].address, *create).status == 0,
    )
    return controller, nodes, ",".join(node.address for node in nodes.values())


def test_either_coordinates_and_takes_groups_over_from_the_other(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        controller, nodes, everywhere = start(lab)
        before = DescribeGroupsResponse.DescribedGroup()
        with live_member(everywhere) as read:
            for count, leader in enumerate((OURS, THEIRS, OURS)):
                move(controller, nodes, leader)
                node, total = nodes[leader], count * EACH
                if count:
                    # What the other one stored is known: members stay members, in their generation.
                    wait_for("the groups to be taken over", lambda node=node: stable(node, LIVE) is not None)
                    assert stable(node, LIVE) == before
                    wait_for("what was committed", lambda node=node, total=total: committed(lab, node.address) == total)
                produce(everywhere)
                total += EACH
                consume(lab, node.address)
                wait_for("the commit to be known", lambda node=node, total=total: committed(lab, node.address) == total)
                wait_for("the live member to read on", lambda total=total: len(read) == total)
                before = wait_for("the live member to be stable", lambda node=node: stable(node, LIVE))
                assert [each.group_instance_id for each in before.members] == ["one"]
            assert sorted(row[0] for row in groups(lab, nodes[OURS].address, "--list")) == [GROUP, LIVE]
            reset = ("--reset-offsets", "--group", GROUP, "--topic", TOPIC, "--to-offset", 70, "--execute")
            assert groups(lab, nodes[OURS].address, *reset)
            assert committed(lab, nodes[OURS].address) == 70
            assert groups(lab, nodes[OURS].address, "--delete", "--group", GROUP)
        wait_for(
            "both logs to be equal",
            lambda: log_bytes(nodes[THEIRS], f"{OFFSETS}-0") == log_bytes(nodes[OURS], f"{OFFSETS}-0") != b"",
        )
        logs = sorted((nodes[OURS].folder / f"{OFFSETS}-0").glob("*.log"))
        printed = kafka.dump_log("--offsets-decoder", "--files", ",".join(map(str, logs))).replace(" ", "")
        assert '"offset":70' in printed
        assert f'"group":"{GROUP}"' in printed


@pytest.mark.deep
def test_members_of_kip_848_stay_members_while_ours_leads_their_part(kafka: KafkaTools, tmp_path: Path) -> None:
    """Clients end for good where ConsumerGroupHeartbeat is not offered: Java's, librdkafka's."""
    with KafkaLab(kafka, tmp_path) as lab:
        controller, nodes, everywhere = start(lab)
        groups(lab, nodes[THEIRS].address, "--describe", "--group", GROUP)  # who looks for a coordinator has one made
        wait_for("the groups' partition", lambda: len(described_offsets(nodes)) == len(nodes))
        move(controller, nodes, THEIRS)
        produce(everywhere)
        java = (*lab.java(), "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", everywhere)
        options = {"group.protocol": "consumer", "auto.commit.interval.ms": "200"}
        for option in options.items():
            java += ("--command-property", "=".join(option))
        java += ("--topic", TOPIC, "--group", GROUP, "--from-beginning")
        other = Consumer(
            {
                **options,
                "bootstrap.servers": everywhere,
                "group.id": LIVE,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        output = tmp_path / "java.out"
        read = list[bytes]()

        def has_read(total: int) -> bool:
            for message in other.consume(EACH, 0.2):
                assert message.error() is None or not message.error().fatal(), message.error()
                read.extend([] if message.error() else [message.value()])
            assert member.poll() is None, output.read_text()
            printed = [line for line in output.read_text().splitlines() if line.isdigit()]
            return len(read) == total == len(printed)

        with output.open("wb") as file:
            member = subprocess.Popen(java, stdout=file, stderr=subprocess.STDOUT)
        try:
            other.subscribe([TOPIC])
            wait_for("both to read", lambda: has_read(EACH))
            wait_for("the commit to be known", lambda: committed(lab, nodes[THEIRS].address) == EACH)
            move(controller, nodes, OURS)
            produce(everywhere)
            wait_for("both to read on", lambda: has_read(2 * EACH))
            trio.run(trio.sleep, 3)  # some heartbeats
            move(controller, nodes, THEIRS)
            other.commit(asynchronous=False)
            produce(everywhere)
            wait_for("both to read on", lambda: has_read(3 * EACH))
            wait_for("the commit to be known", lambda: committed(lab, nodes[THEIRS].address) == 3 * EACH)
        finally:
            member.kill()
            member.wait()
            other.close()


def stable(node: KafkaNode, name: str) -> DescribeGroupsResponse.DescribedGroup | None:
    """A group as a broker describes it; None unless it is stable there."""
    answer: Any = ask(node, DescribeGroupsRequest(groups=[name]), 6)
    if isinstance(answer, Failure) or answer.groups[0].error_code or answer.groups[0].group_state != "Stable":
        return None
    found: DescribeGroupsResponse.DescribedGroup = answer.groups[0]
    return found
