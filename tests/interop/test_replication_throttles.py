"""Throttled reassignments (KIP-73): brokers of Kafka and ours hold back what the other kind sends or fetches."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from asked_brokers import ask, described
from kafka_lab import KafkaLab, KraftcoreNode, wait_for
from kafka_tools import KafkaTools

from kraftcore.core.batch import build_batch
from kraftcore.protocol.messages.produce import ProduceRequest

pytestmark = pytest.mark.deep

THEIRS, OURS = (11, 12), (21, 22)
COUNT, SIZE = 4000, 1000
RATE = 500_000
LEAST_S = 4  # half of what the rate says: what was not used of the window before comes at once
FAST = 10**9


@pytest.mark.parametrize("limited", [THEIRS, OURS], ids=["by Kafka", "by us"])
def test_a_throttled_reassignment_takes_its_time(kafka: KafkaTools, tmp_path: Path, limited: tuple[int, int]) -> None:
    """One broker's rate holds as a leader, another one's as a follower; the other side is of the other kind."""
    leader, follower = limited
    free_leader, free_follower = OURS if limited == THEIRS else THEIRS
    with KafkaLab(kafka, tmp_path) as lab:
        lab.start_quorum([1])
        settings = {"replica_fetch_max_bytes": 100_000, "replication_quota_window_num": 2}
        nodes = {each: lab.broker(each, **settings) for each in THEIRS}
        nodes |= {each: lab.add(KraftcoreNode, each, "broker", "PLAINTEXT", **settings) for each in OURS}
        for node in nodes.values():
            node.format().start()
        for node in nodes.values():
            node.wait_listening()
        at = nodes[leader].address

        def tool(name: str, *arguments: object) -> str:
            found = lab.tool(name, "--bootstrap-server", at, *arguments)
            assert found.status == 0, found
            return found.out

        # In sync with the leader is a broker of the other kind; the one that is added is of that kind, too, or the
        # limited follower.
        before = {"sent": [leader, free_leader], "fetched": [free_leader, leader]}
        after = {"sent": [*before["sent"], free_follower], "fetched": [*before["fetched"], follower]}

        def made(topic: str) -> bool:
            placed = ":".join(map(str, before[topic]))
            create = ("--create", "--topic", topic, "--replica-assignment", placed)
            return lab.tool("topics", "--bootstrap-server", at, *create).status == 0

        for topic in before:
            wait_for(topic, lambda topic=topic: made(topic))
            perf = ("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", COUNT)
            sizes = ("--record-size", SIZE, "--throughput", -1, "--producer-props", f"bootstrap.servers={at}")
            lab.run_class(*perf, *sizes)

        def in_sync(topic: str) -> set[int]:
            return described(nodes[before[topic][0]], topic)[0][1]

        rows = [{"topic": topic, "partition": 0, "replicas": replicas} for topic, replicas in after.items()]
        plan = tmp_path / "plan.json"
        plan.write_text(json.dumps({"version": 1, "partitions": rows}))
        tool("reassign", "--execute", "--reassignment-json-file", plan, "--throttle", RATE)
        began = time.monotonic()
        for each in (free_leader, free_follower):
            rates = ",".join(f"{side}.replication.throttled.rate={FAST}" for side in ("leader", "follower"))
            tool("configs", "--alter", "--entity-type", "brokers", "--entity-name", each, "--add-config", rates)
        for topic in before:  # who is in sync goes on, as acks=all does
            assert in_sync(topic) == set(before[topic])
            answer = ask(nodes[before[topic][0]], produce(topic), 11)
            assert answer.responses[0].partition_responses[0].error_code == 0
        assert tool("reassign", "--verify", "--reassignment-json-file", plan).count("is still in progress") == 2
        took = {}

        def have_all_joined() -> bool:
            for topic, replicas in after.items():
                found = in_sync(topic)
                if found == set(replicas):
                    took.setdefault(topic, time.monotonic() - began)
                else:
                    assert found == set(before[topic])
            return len(took) == len(after)

        wait_for("the replicas to be there", have_all_joined)
        assert min(took.values()) >= LEAST_S, took

        assert "throttled" in configured(lab, at)
        verified = tool("reassign", "--verify", "--reassignment-json-file", plan)
        assert len(re.findall("Reassignment of partition .* is completed", verified)) == 2
        assert "Clearing broker-level throttles on brokers" in verified
        assert "Clearing topic-level throttles on topic" in verified
        assert "throttled" not in configured(lab, at)


def produce(topic: str) -> ProduceRequest:
    """A record, with acks=all."""
    kind = ProduceRequest.TopicProduceData
    records = build_batch([b"more"], timestamp_ms=1)
    data = kind(name=topic, partition_data=[kind.PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])


def configured(lab: KafkaLab, at: str) -> str:
    """What is set for brokers and topics, as Kafka's tool describes it."""
    found = []
    for kind in ("brokers", "topics"):
        described = lab.tool("configs", "--bootstrap-server", at, "--describe", "--entity-type", kind)
        assert described.status == 0, described
        found.append(described.out)
    return "".join(found)
