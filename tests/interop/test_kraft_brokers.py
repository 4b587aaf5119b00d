"""Brokers of ours and of Kafka in one cluster, under controllers of either."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from asked_brokers import ask, described, log_bytes
from kafka_lab import OURS as COMMAND
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools
from project import ROOT
from suite_run import deep

from kraftcore.core.batch import iter_batches
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest

THEIRS, OURS = 10, 11
EACH = 2000
QUICK = {"broker_heartbeat_interval_ms": 200, "replica_lag_time_max_ms": 5000, "log_initial_task_delay_ms": 200}
PRODUCER = ("acks=all", "batch.size=2000", "compression.type=lz4")


def our_broker(lab: KafkaLab, node_id: int, **properties: object) -> KafkaNode:
    return lab.add(KraftcoreNode, node_id, "broker", "PLAINTEXT", **{**QUICK, **properties})


def produce(lab: KafkaLab, at: str, topic: str) -> None:
    perf = ("org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", EACH)
    sizes = ("--record-size", 100, "--throughput", -1)
    lab.run_class(*perf, *sizes, "--producer-props", f"bootstrap.servers={at}", *PRODUCER)


def consume(lab: KafkaLab, at: str, topic: str, partition: int, count: int) -> None:
    consumer = ("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", at, "--topic", topic)
    which = ("--partition", partition, "--offset", 0, "--max-messages", count, "--timeout-ms", 60_000)
    assert f"Processed a total of {count} messages" in lab.run_class(*consumer, *which)


@pytest.mark.parametrize("is_ours", [*deep(False), True], ids=["kafka", "kraftcore"])
def test_either_leads_and_follows_is_killed_and_takes_a_partition_over(
    kafka: KafkaTools, tmp_path: Path, is_ours: bool
) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        make: Callable[..., KafkaNode] | None = lab.kraftcore if is_ours else None
        only_ours = {"kraftcore_offers_log": None} if is_ours else {}
        [controller] = lab.start_quorum([1], make=make, broker_session_timeout_ms=3000, **only_ours)
        theirs = lab.broker(THEIRS, **QUICK).format().start()
        ours = our_broker(lab, OURS).format().start()
        theirs.wait_listening()
        ours.wait_listening()
        at = theirs.address

        def is_in_sync(*leaders: int) -> bool:
            found = described(theirs, "t")
            return [found.get(number) for number in range(2)] == [(leader, {THEIRS, OURS}) for leader in leaders]

        placed = ("--replica-assignment", f"{THEIRS}:{OURS},{OURS}:{THEIRS}", "--config", "min.insync.replicas=1")
        wait_for(
            "a topic on both",
            lambda: lab.tool("topics", "--bootstrap-server", at, "--create", *("--topic", "t"), *placed).status == 0,
        )
        wait_for("both to lead, in sync", lambda: is_in_sync(THEIRS, OURS))
        produce(lab, f"{theirs.address},{ours.address}", "t")
        for number in range(2):
            wait_for(
                "both logs to be equal",
                lambda number=number: log_bytes(theirs, f"t-{number}") == log_bytes(ours, f"t-{number}") != b"",
            )
        # Ours is killed while it leads, and comes back; then Kafka's.
        for victim, other, survivor in ((ours, theirs, THEIRS), (theirs, ours, OURS)):
            victim.kill()
            wait_for(
                "the other one to lead all",
                lambda survivor=survivor, other=other: (
                    described(other, "t") == {number: (survivor, {survivor}) for number in range(2)}
                ),
            )
            produce(lab, other.address, "t")
            victim.start()
            wait_for("it to be in sync again", lambda survivor=survivor: is_in_sync(survivor, survivor))
        for number in range(2):
            wait_for(
                "both logs to be equal again",
                lambda number=number: log_bytes(theirs, f"t-{number}") == log_bytes(ours, f"t-{number}"),
            )
        assert sum(end_of(theirs, number) for number in range(2)) == 3 * EACH
        # A partition moves from one to the other.
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        moves = [
            kind.ReassignablePartition(partition_index=number, replicas=[node_id])
            for number, node_id in enumerate((OURS, THEIRS))
        ]
        request = AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=[kind(name="t", partitions=moves)])
        assert ask(controller, request, 0).error_code == 0
        wait_for(
            "both to have moved",
            lambda: described(theirs, "t") == {0: (OURS, {OURS}), 1: (THEIRS, {THEIRS})},
        )
        wait_for("what went to be deleted", lambda: not (ours.folder / "t-1").exists())
        consume(lab, ours.address, "t", 0, end_of(ours, 0))
        # Stops in order hand leadership over, and are remembered.
        ours.stop(signal.SIGTERM)
        assert json.loads((ours.folder / ".kafka_cleanshutdown").read_text())["brokerEpoch"] > 0


def test_the_readmes_three_commands(kafka: KafkaTools, tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    up, produces, consumes = re.search(r"## A whole Kafka.*?```text\n(.*?)```", text, re.DOTALL)[1].splitlines()
    tools = {
        "bin/kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
        "bin/kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    }
    with KafkaLab(kafka, tmp_path) as lab:
        command = shlex.split(up.removesuffix(" &").replace("9092", "0"))
        assert command[0] == "kraftcore"
        with subprocess.Popen([*COMMAND, *command[1:]], stdout=subprocess.PIPE, text=True) as process:
            try:
                line = next(line for line in process.stdout if "bootstrapServers=" in line)
                place = re.search(r"bootstrapServers=\"?([^\s,\"]+)", line)[1]

                def run(text: str, entered: str = "") -> str:
                    tool, *arguments = shlex.split(text.replace("127.0.0.1:9092", place))
                    java = [*lab.java(), tools[tool], *arguments]
                    done = subprocess.run(java, input=entered, capture_output=True, text=True, check=False, timeout=240)
                    assert done.returncode == 0, done
                    return done.stdout

                said = re.match(r'echo "(.*)" \| (.*)', produces)
                run(said[2], said[1] + "\n")
                assert said[1] in run(consumes).splitlines()
            finally:
                process.send_signal(signal.SIGINT)


def end_of(node: KafkaNode, partition: int) -> int:
    """How many records the log of a partition has, by its bytes."""
    *_, last = iter_batches(log_bytes(node, f"t-{partition}"))
    return int(last.next_offset)
