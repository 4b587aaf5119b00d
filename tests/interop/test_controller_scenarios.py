"""The controller's scenarios hold for Kafka's own controller: the same requests give the same records and answers.

Left out: what only a clock, a restart or another configuration can show, and where Kafka draws at random or misbehaves.
"""

from __future__ import annotations

import re
from itertools import groupby

import pytest
from controller_scenario import Stage
from kafka_controller_stage import KafkaStage, Wire
from kafka_lab import KafkaLab, wait_for
from project import ROOT
from scenario import run_file

FOLDER = ROOT / "tests" / "controller" / "scenarios"
LEFT_OUT = {
    "cordoned_directories": "places replicas, among them on a broker with two directories",
    "create_topic_placed": "placement is random",
    "placed_on_fenced_brokers": "placement is random",
    "kafka_would_resign": "Kafka's controller resigns",
    "reassign_cancelled_with_nobody_active": "Kafka puts a fenced broker into an ISR",
}
OTHER_FEATURES = ("group.version", "transaction.version", "share.version", "streams.version")
NOT_ON_KAFKA = re.compile(r"^(quietly )?(cluster|pass|expire|rebalance|elect-offline|failover|set)\b", re.MULTILINE)
FILES = [
    path
    # Kafka forgets to take deleted topics off its list of what is in a directory, and resigns over them when one fails.
    for path in sorted(FOLDER.glob("*.txt"), key=lambda path: (path.stem != "offline_directories", path.stem))
    if path.stem not in LEFT_OUT and not NOT_ON_KAFKA.search(path.read_text())
]


@pytest.fixture(scope="module")
def controller(kafka, tmp_path_factory):
    with KafkaLab(kafka, tmp_path_factory.mktemp("lab")) as lab:
        node = lab.controller(
            1,
            metadata_max_idle_interval_ms=0,
            broker_session_timeout_ms=3_600_000,
            auto_leader_rebalance_enable="false",
        )
        off = [word for name in OTHER_FEATURES for word in ("--feature", f"{name}=0")]
        node.format("--standalone", *off).start().wait_listening()
        # It registers itself a moment after it leads; nothing else is written but what the scenarios ask for.
        wire = Wire(node.port)
        seen: list[str] = []

        def is_registered() -> bool:
            seen.extend(type(record).__name__ for record, _ in wire.new_records()[1])
            return "RegisterControllerRecord" in seen

        wait_for("the controller to register", is_registered)
        wire.close()
        yield node


_HASH_ORDER = ("-> responses=", "-> replica_election_results=")


def in_one_order(transcript: str) -> list[str]:
    """With what Kafka gives in the order of a hash table in the order of the alphabet."""
    lines = []
    for is_change, run in groupby(transcript.split("\n"), lambda line: " PartitionChange " in line):
        found = list(run)
        lines += sorted(re.sub(r"^\d+: ", "", line) for line in found) if is_change else found
    return [" ".join(sorted(re.split(r"[ \[\]()]+", line))) if line.startswith(_HASH_ORDER) else line for line in lines]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_kafka_keeps_the_scenario(path, controller):
    wire = Wire(controller.port)

    def make_stage() -> Stage:
        stage = Stage()
        stage.stage = KafkaStage(wire, controller.cluster_id)
        return stage

    try:
        assert in_one_order(run_file(path, make_stage)) == in_one_order(path.read_text())
    finally:
        wire.close()
