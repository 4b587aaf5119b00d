"""A cluster of Kafka's and one of ours, with the settings that sarama runs its tests with."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kafka_lab import KafkaLab, wait_for
from kafka_tools import KafkaTools
from up_command import UP

CONTROLLER, BROKERS = 100, (1, 2, 3)
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "default.replication.factor": "2",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "2",
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
}


@contextmanager
def kafka(folder: Path) -> Iterator[list[int]]:
    """Three brokers and a controller of Kafka 4.3.1, a process each; the brokers' ports."""
    with KafkaLab(KafkaTools(), folder) as lab:
        lab.start_quorum([CONTROLLER])
        brokers = [lab.broker(number, **PROPERTIES).format().start() for number in BROKERS]
        for broker in brokers:
            broker.wait_listening()
        yield [broker.port for broker in brokers]


@contextmanager
def kraftcore(folder: Path) -> Iterator[list[int]]:
    """``kraftcore up --brokers 3``; the brokers' ports. What it tells is in the file ``up``."""
    told = folder / "up"
    properties = [text for key, value in PROPERTIES.items() for text in ("--property", f"{key}={value}")]
    where = ["--directory", str(folder / "nodes"), "--output", "json"]
    with told.open("wb") as output:
        process = subprocess.Popen([*UP, "--brokers", "3", *where, *properties], stdout=output, stderr=output)
    try:
        started = wait_for("kraftcore up to start", lambda: _started(process, told))
        yield [int(address.rpartition(":")[2]) for address in started["bootstrapServers"].split(",")]
    finally:
        process.kill()
        process.wait()


def _started(process: subprocess.Popen[bytes], told: Path) -> dict[str, Any] | None:
    text = told.read_text()
    assert process.poll() is None, f"kraftcore up ended: {text}"
    for line in text.splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            found: dict[str, Any] = json.loads(line)
            if found["event"] == "started":
                return found
    return None
