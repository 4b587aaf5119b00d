"""Transactions in clusters of Kafka's brokers and ours: Kafka coordinates them, either leads what they write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from asked_brokers import ask, described, log_bytes
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools
from suite_run import deep

from kraftcore.plugins.broker.groups.topic import partition_of
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from kraftcore.protocol.messages.elect_leaders import ElectLeadersRequest
from kraftcore.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from kraftcore.protocol.messages.write_txn_markers import WriteTxnMarkersRequest

THEIRS, OURS = 10, 11
LOG, LOG_PARTITIONS = "__transaction_state", 2
OFFSETS = "__consumer_offsets"
EACH = 1000
QUICK = {
    "broker_heartbeat_interval_ms": 200,
    "replica_lag_time_max_ms": 5000,
    "log_initial_task_delay_ms": 200,
    "offsets_topic_num_partitions": 2,
    "offsets_topic_replication_factor": 2,
    "transaction_state_log_num_partitions": LOG_PARTITIONS,
    "transaction_state_log_replication_factor": 2,
    "transaction_state_log_min_isr": 1,
    "group_initial_rebalance_delay_ms": 0,
}
IDS = ["a", "b"]


@contextmanager
def cluster(kafka: KafkaTools, folder: Path, *, is_ours: bool) -> Iterator[tuple[KafkaLab, KafkaNode, KafkaNode]]:
    """A broker of Kafka and one of ours, under a controller of either; both lead a partition of t."""
    with KafkaLab(kafka, folder) as lab:
        make: Callable[..., KafkaNode] | None = lab.kraftcore if is_ours else None
        only_ours = {"kraftcore_offers_log": None} if is_ours else {}
        lab.start_quorum([1], make=make, broker_session_timeout_ms=3000, **only_ours)
        theirs = lab.broker(THEIRS, **QUICK).format().start()
        ours = lab.add(KraftcoreNode, OURS, "broker", "PLAINTEXT", **QUICK).format().start()
        theirs.wait_listening()
        ours.wait_listening()
        create(lab, theirs, "t")
        yield lab, theirs, ours


def create(lab: KafkaLab, node: KafkaNode, topic: str) -> None:
    """A topic of two partitions, one led by each."""
    placed = ("--replica-assignment", f"{THEIRS}:{OURS},{OURS}:{THEIRS}")
    arguments = ("--bootstrap-server", node.address, "--create", "--topic", topic, *placed)
    wait_for("a topic on both", lambda: lab.tool("topics", *arguments).status == 0)
    wait_for("both to lead", lambda: leaders(node, topic) == {0: THEIRS, 1: OURS})


def leaders(node: KafkaNode, topic: str) -> dict[int, int]:
    return {number: leader for number, (leader, _) in described(node, topic).items()}


def read(at: str, count: int, topic: str = "t", partitions: tuple[int, ...] = (0, 1)) -> list[bytes]:
    """So many committed records."""
    which = {"group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": at, "log_level": 0, **which})
    consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    found: list[bytes] = []
    while len(found) < count:
        found += [each.value() for each in consumer.consume(count - len(found), 1)]
    consumer.close()
    return found


@pytest.mark.parametrize("is_ours", [*deep(False), True], ids=["kafka", "kraftcore"])
def test_transactions_through_a_broker_of_ours(kafka: KafkaTools, tmp_path: Path, is_ours: bool) -> None:
    assert {partition_of(each, LOG_PARTITIONS) for each in IDS} == {0, 1}
    with cluster(kafka, tmp_path, is_ours=is_ours) as (lab, theirs, ours):
        if is_ours:  # else whoever is asked first makes it
            create(lab, theirs, LOG)
        committed: list[bytes] = []
        for name in IDS:
            producer = Producer({"bootstrap.servers": ours.address, "transactional.id": name, "linger.ms": 0})
            producer.init_transactions(60)
            for number in range(6):
                producer.begin_transaction()
                values = [b"%s-%d-%d" % (name.encode(), number, part) for part in (0, 1)]
                for part, value in enumerate(values):
                    producer.produce("t", value, partition=part)
                if number % 3 == 2:
                    assert producer.flush(60) == 0
                    producer.abort_transaction(60)
                else:
                    producer.commit_transaction(60)
                    committed += values
        assert set(leaders(ours, LOG).values()) == {THEIRS}
        assert sorted(read(ours.address, len(committed))) == sorted(committed)
        # Java's producer has the leaders add partitions to transactions (KIP-890).
        perf = ("org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", EACH)
        pace = ("--record-size", 100, "--throughput", 1000)
        java = ("--transactional-id", "java", "--transaction-duration-ms", 50)
        lab.run_class(*perf, *pace, *java, "--producer-props", f"bootstrap.servers={ours.address}")
        assert len(read(ours.address, len(committed) + EACH)) == len(committed) + EACH
        for number in (0, 1):
            name = f"t-{number}"
            wait_for("both logs to be equal", lambda name=name: log_bytes(theirs, name) == log_bytes(ours, name) != b"")


def end(node: KafkaNode, partition: int, *markers: tuple[int, int, int, bool, int], topic: str = "t") -> list[int]:
    """What a broker says to (producer id, its epoch, coordinator epoch, is committed, transaction.version) each."""
    kind = WriteTxnMarkersRequest.WritableTxnMarker
    places = [kind.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])]
    codes = []
    for producer_id, epoch, coordinator, is_commit, version in markers:
        marker = kind(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=is_commit,
            topics=places,
            coordinator_epoch=coordinator,
            transaction_version=version,
        )
        [result] = ask(node, WriteTxnMarkersRequest(markers=[marker]), 2).markers
        codes += [each.error_code for told in result.topics for each in told.partitions]
    return codes


def producers(node: KafkaNode, partition: int) -> list[DescribeProducersResponse.TopicResponse.PartitionResponse]:
    topic = DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[partition])
    return ask(node, DescribeProducersRequest(topics=[topic]), 0).topics[0].partitions[0].active_producers


def test_markers_are_taken_and_refused_as_by_kafka_and_end_what_was_open_before(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    with cluster(kafka, tmp_path, is_ours=True) as (lab, theirs, ours):
        create(lab, theirs, LOG)
        by_leader = ((theirs, 0), (ours, 1))
        unknown = [(77, 0, 0, True, 0), (77, 0, 0, False, 0), (77, 1, 5, True, 0), (77, 0, 5, True, 0)]
        again = [(77, 1, 4, True, 0), (77, 1, 5, True, 2), (77, 2, 5, True, 2), (77, 2**15 - 1, 5, True, 2)]
        told = [end(node, number, *unknown, *again) for node, number in by_leader]
        assert told[0] == told[1] == [0, 0, 0, 47, 52, 0, 0, 0]
        assert [end(node, 2, (77, 0, 0, True, 0)) for node, _ in by_leader] == [[3], [3]]
        assert [end(node, 1 - number, (78, 0, 0, True, 0)) for node, number in by_leader] == [[6], [6]]
        assert [end(node, 0, (78, 0, 0, True, 0), topic="u") for node, _ in by_leader] == [[3], [3]]
        # A transaction is open in both partitions.
        producer = Producer({"bootstrap.servers": ours.address, "transactional.id": "a", "linger.ms": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in (0, 1):
            producer.produce("t", b"first", partition=number)
        assert producer.flush(60) == 0
        [found] = [[each for each in producers(theirs, 0) if each.current_txn_start_offset >= 0]]
        [mine] = [[each for each in producers(ours, 1) if each.current_txn_start_offset >= 0]]
        assert [(each.producer_id, each.producer_epoch) for each in found] == [
            (each.producer_id, each.producer_epoch) for each in mine
        ]
        who, epoch = found[0].producer_id, found[0].producer_epoch
        late = [(who, epoch, 0, True, 2), (who, -1, 0, True, 0), (-1, 0, 0, True, 0)]
        assert [end(node, number, *late) for node, number in by_leader] == [[47, -1, -1]] * 2
        # The partition that Kafka led is taken over by ours: its end comes to us.
        lead(lab, "t", 0, OURS)
        wait_for("ours to lead", lambda: leaders(ours, "t") == {0: OURS, 1: OURS})
        producer.commit_transaction(60)
        assert sorted(read(ours.address, 2)) == [b"first", b"first"]
        # One that ours led is ended by Kafka's broker.
        producer.begin_transaction()
        for number in (0, 1):
            producer.produce("t", b"second", partition=number)
        assert producer.flush(60) == 0
        for number in (0, 1):
            lead(lab, "t", number, THEIRS)
        producer.abort_transaction(60)
        producer.begin_transaction()
        producer.produce("t", b"third", partition=1)
        producer.commit_transaction(60)
        assert sorted(read(theirs.address, 3)) == [b"first", b"first", b"third"]


def lead(lab: KafkaLab, topic: str, partition: int, leader: int) -> None:
    """Have a broker lead a partition."""
    node = lab.nodes[THEIRS]
    follower = OURS if leader == THEIRS else THEIRS
    kind = AlterPartitionReassignmentsRequest.ReassignableTopic
    part = kind.ReassignablePartition(partition_index=partition, replicas=[leader, follower])
    request = AlterPartitionReassignmentsRequest(topics=[kind(name=topic, partitions=[part])], timeout_ms=30_000)
    assert ask(node, request, 0).error_code == 0
    elected = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=[partition])
    brokers = [lab.nodes[each] for each in (THEIRS, OURS)]

    def is_done() -> bool:
        ask(node, ElectLeadersRequest(topic_partitions=[elected], timeout_ms=30_000), 2)
        return all(leaders(each, topic).get(partition) == leader for each in brokers)

    wait_for("it to lead", is_done)


def committed(at: str, group: str) -> list[int]:
    """Offsets of a group in t; transactions that are open are waited for."""
    consumer = Consumer({"bootstrap.servers": at, "group.id": group, "log_level": 0})
    found = consumer.committed([TopicPartition("t", number) for number in (0, 1)], 60)
    consumer.close()
    assert not any(each.error for each in found), found
    return [each.offset for each in found]


@pytest.mark.deep
def test_offsets_in_transactions(kafka: KafkaTools, tmp_path: Path) -> None:
    """Groups that ours coordinates, and that Kafka does: in the first partition of their topic, and in the second."""
    groups = {partition_of(each, 2): each for each in ("g", "h")}
    assert set(groups) == {0, 1}
    with cluster(kafka, tmp_path, is_ours=True) as (lab, theirs, ours):
        for topic in (LOG, OFFSETS):
            create(lab, theirs, topic)
        plain = Producer({"bootstrap.servers": theirs.address, "linger.ms": 0})
        for number in range(EACH):
            plain.produce("t", b"%d" % number, partition=number % 2)
        assert plain.flush(60) == 0
        producer = Producer({"bootstrap.servers": ours.address, "transactional.id": "a", "linger.ms": 0})
        producer.init_transactions(60)
        for number, group in groups.items():
            consumer = Consumer(
                {
                    "bootstrap.servers": ours.address,
                    "group.id": group,
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                }
            )
            consumer.subscribe(["t"])
            wait_for("an assignment", lambda consumer=consumer: [consumer.poll(0.1), consumer.assignment()][1])
            member = consumer.consumer_group_metadata()

            def commit(offset: int, member: object = member) -> None:
                offsets = [TopicPartition("t", number, offset) for number in (0, 1)]
                producer.send_offsets_to_transaction(offsets, member, 60)

            for offset, ends in ((5, producer.commit_transaction), (9, producer.abort_transaction)):
                producer.begin_transaction()
                commit(offset)
                commit(offset + 1)  # more than once in a transaction
                ends(60)
                assert committed(theirs.address, group) == [6, 6]
            # Another broker coordinates the group when the transaction ends.
            producer.begin_transaction()
            commit(12)
            lead(lab, OFFSETS, number, THEIRS if leaders(theirs, OFFSETS)[number] == OURS else OURS)
            producer.commit_transaction(60)
            assert committed(theirs.address, group) == [12, 12]
            consumer.close()
        # Java's consumer and producer, where leaders add partitions to transactions. It copies to the same partition.
        create(lab, theirs, "copy")
        for number, group in {partition_of(each, 2): each for each in ("java-g", "java-h")}.items():
            copier = ("org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", ours.address)
            what = ("--input-topic", "t", "--input-partition", number, "--output-topic", "copy")
            how = ("--consumer-group", group, "--transactional-id", group, "--transaction-size", 50)
            lab.run_class(*copier, *what, *how, "--max-messages", EACH // 2, "--enable-random-aborts", timeout_s=120)
            assert committed(ours.address, group)[number] == EACH // 2
            copies = read(ours.address, EACH // 2, "copy", (number,))
            assert copies == [b"%d" % value for value in range(number, EACH, 2)]


def commit_offsets(node: KafkaNode, group: str, version: int = 5, **more: object) -> list[int]:
    """What a coordinator says of offsets in a transaction, of a partition of t and one of no topic."""
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    part = kind.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=3, committed_metadata="")
    topics = [kind(name=name, partitions=[part]) for name in ("t", "nothing")]
    told = ask(node, TxnOffsetCommitRequest(group_id=group, topics=topics, **more), version)
    codes = {topic.name: each.error_code for topic in told.topics for each in topic.partitions}
    return [codes["t"], codes["nothing"]]


@pytest.mark.deep
def test_offsets_in_transactions_are_refused_as_by_kafka(kafka: KafkaTools, tmp_path: Path) -> None:
    with cluster(kafka, tmp_path, is_ours=True) as (lab, theirs, ours):
        for topic in (LOG, OFFSETS):
            create(lab, theirs, topic)
        by_leader = {theirs: ("h", "g"), ours: ("g", "h")}  # a group that it coordinates, and the other one
        assert [partition_of(group, 2) for group, _ in by_leader.values()] == [0, 1]
        producer = Producer({"bootstrap.servers": ours.address, "transactional.id": "a", "linger.ms": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce("t", b"v", partition=0)
        assert producer.flush(60) == 0
        [found] = producers(theirs, 0)
        who = {"transactional_id": "a", "producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
        member = {"member_id": "m", "generation_id": 1}
        for node in by_leader:
            wait_for("it to coordinate", lambda node=node: commit_offsets(node, by_leader[node][0], **who) == [0, 3])
        told = {
            node: [
                commit_offsets(node, "", **who),
                commit_offsets(node, other, **who),
                commit_offsets(node, group, **who, **member),
                commit_offsets(node, group, **{**who, "producer_id": 999}),
                commit_offsets(node, group, **{**who, "producer_epoch": found.producer_epoch + 1}),
                commit_offsets(node, group, 3, **{**who, "transactional_id": "nobody"}),
                commit_offsets(node, group, 3, **who),
            ]
            for node, (group, other) in by_leader.items()
        }
        assert told[ours] == told[theirs]
        producer.commit_transaction(60)
        assert [committed(ours.address, group)[0] for group in ("g", "h")] == [3, 3]
