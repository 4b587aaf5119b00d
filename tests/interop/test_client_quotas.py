"""Client quotas at a broker of ours and at one of Kafka: both hold the same clients back for as long."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from asked_brokers import ask, ask_in_a_row, described
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.produce import ProduceRequest

THEIRS, OURS = 10, 11
SIZES = (1000, 8000)


def test_both_hold_clients_back(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        lab.start_quorum([1])
        nodes = {
            THEIRS: lab.broker(THEIRS, **{"quota.window.num": "3"}).format().start(),
            OURS: lab.add(KraftcoreNode, OURS, "broker", "PLAINTEXT", **{"quota.window.num": "3"}).format().start(),
        }
        for node in nodes.values():
            node.wait_listening()
        wait_for("topics", lambda: create(nodes[THEIRS]) or None)
        for number, node in nodes.items():
            wait_for("the topic", lambda node=node, number=number: leader(node, number) == number or None)
        alter(nodes[THEIRS], ("producer_byte_rate", 2000.0), ("consumer_byte_rate", 3000.0))
        for node in nodes.values():
            wait_for("the quotas", lambda node=node: described_quotas(node) or None)
        theirs, ours = (held_back(node, number) for number, node in nodes.items())
        assert [told for told, _ in ours] == [told for told, _ in theirs]
        assert [times == 0 for _, times in ours] == [times == 0 for _, times in theirs]
        assert [times for _, times in ours] == pytest.approx([times for _, times in theirs], rel=0.1)


def held_back(node: KafkaNode, number: int) -> list[tuple[Any, int]]:
    """What is answered to two Produces and two Fetches, and for how long the client is to be silent."""
    found: list[tuple[Any, int]] = []
    for answer in ask_in_a_row(node, *((produce(number, size), 11) for size in SIZES)):
        part = answer.responses[0].partition_responses[0]
        found.append(((part.error_code, part.base_offset), answer.throttle_time_ms))
    for answer in ask_in_a_row(node, *((fetch(number, offset), 12) for offset in (0, 1))):
        parts = [part for topic in answer.responses for part in topic.partitions]
        counts = [sum(batch.count for batch in iter_batches(bytes(part.records or b""))) for part in parts]
        found.append(((answer.error_code, answer.session_id > 0, counts), answer.throttle_time_ms))
    assert found[1][1] > 1000
    assert found[3][1] > 500
    return found


def create(node: KafkaNode) -> bool:
    """A topic for each of them."""
    kind = CreateTopicsRequest.CreatableTopic
    topics = [
        kind(
            name=f"t-{number}",
            num_partitions=-1,
            replication_factor=-1,
            assignments=[kind.CreatableReplicaAssignment(partition_index=0, broker_ids=[number])],
        )
        for number in (THEIRS, OURS)
    ]
    answer = ask(node, CreateTopicsRequest(topics=topics, timeout_ms=30_000), 7)
    return all(each.error_code in (0, 36) for each in answer.topics)


def leader(node: KafkaNode, number: int) -> int:
    return described(node, f"t-{number}").get(0, (-1, set()))[0]


def alter(node: KafkaNode, *limits: tuple[str, float]) -> None:
    """Quotas of the client id that tests ask by."""
    kind = AlterClientQuotasRequest.EntryData
    entry = kind(
        entity=[kind.EntityData(entity_type="client-id", entity_name="test")],
        ops=[kind.OpData(key=key, value=value, remove=False) for key, value in limits],
    )
    answer = ask(node, AlterClientQuotasRequest(entries=[entry], validate_only=False), 1)
    assert answer.entries[0].error_code == 0


def described_quotas(node: KafkaNode) -> bool:
    answer = ask(node, DescribeClientQuotasRequest(components=[], strict=False), 1)
    return bool(answer.entries)


def produce(number: int, size: int) -> ProduceRequest:
    kind = ProduceRequest.TopicProduceData
    batch = bytes(build_batch([bytes(size)], timestamp_ms=1))
    data = kind(name=f"t-{number}", partition_data=[kind.PartitionProduceData(index=0, records=batch)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


def fetch(number: int, offset: int) -> FetchRequest:
    kind = FetchRequest.FetchTopic
    asked = kind.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    topics = [kind(topic=f"t-{number}", partitions=[asked])]
    # No more than the first batch: Kafka's answers end inside of another one where there is room.
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1, topics=topics, session_epoch=0)
