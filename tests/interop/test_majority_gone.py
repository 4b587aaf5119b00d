"""What commands say of Kafka's own quorum when two of its three controllers are killed: by controllers, by a broker."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from kafka_lab import OURS, PATIENCE_S, KafkaLab, wait_for
from kafka_tools import KafkaTools

pytestmark = pytest.mark.deep


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OURS, *arguments], capture_output=True, text=True, timeout=PATIENCE_S)


def test_who_answers_is_said(kafka: KafkaTools, tmp_path: Path) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        controllers = lab.start_quorum([1, 2, 3])
        broker = lab.broker(10).format().start()
        look = ("cluster", "list-endpoints", "--bootstrap-server", broker.address)
        wait_for("the broker", lambda: "unfenced" in run(*look, "--include-fenced-brokers").stdout)
        wait_for("all registrations", lambda: len(_listed(controllers[0].address)) == 3)
        leader = wait_for("a leader", lab.describe).leader_id
        survivor, other = (number for number in (1, 2, 3) if number != leader)
        for number in (leader, other):
            lab.nodes[number].kill()
        address = lab.nodes[survivor].address
        done = run("quorum", "describe", "--status", "--output", "json", "--bootstrap-controller", address)
        assert done.returncode == 1
        found = json.loads(done.stdout)
        assert (found["controllers"], found["answering"], found["majority"]) == ([1, 2, 3], [survivor], 2)
        assert {node["endpoint"] for node in found["nodes"]} == {node.address for node in controllers}
        assert "Nobody can answer now" in done.stderr
        assert "start node {} or {}".format(*sorted((leader, other))) in done.stderr
        done = run("quorum", "describe", "--status", "--bootstrap-server", broker.address)
        assert done.returncode == 1
        assert f"node 10 ({broker.address}) answers" in done.stderr
        assert "it is the controllers that have not answered" in done.stderr
        assert run(*look).returncode == 0


def _listed(address: str) -> list[str]:
    return run("cluster", "list-endpoints", "--bootstrap-controller", address).stdout.splitlines()[1:]
