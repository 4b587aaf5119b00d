"""All addresses changed: Kafka's controllers and ours go on from what ``storage rewrite-endpoints`` wrote."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from kafka_lab import OURS, KafkaLab, KafkaNode, free_port, new_uuid, wait_for
from kafka_tools import KafkaTools

from kraftcore.core.disk.os_files import OsFiles
from kraftcore.node.recovering import look


def move(lab: KafkaLab, nodes: list[KafkaNode]) -> str:
    """Give stopped nodes other ports; returns what --controllers takes."""
    for node in nodes:
        node.port = free_port()
    lab.bootstrap = [node.address for node in nodes]
    for node in nodes:
        listener = f"CONTROLLER://{node.address}"
        node.write(
            listeners=listener, advertised_listeners=listener, controller_quorum_bootstrap_servers=lab.controllers
        )
    return ",".join(f"{number}@{node.address}" for number, node in enumerate(nodes, 1))


def rewrite(node: KafkaNode, controllers: str) -> dict[str, object]:
    command = [*OURS, "storage", "rewrite-endpoints", "-c", str(node.config), "--controllers", controllers]
    done = subprocess.run([*command, "--execute", "--output", "json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def ports_in_log(node: KafkaNode, number: int) -> set[int]:
    """Of the voters in force by the log of a stopped node."""
    found = look(OsFiles(), str(node.folder), number)
    return {endpoint.port for voter in found.voters for endpoint in voter.endpoints}


@pytest.mark.deep
def test_a_quorum_of_both_kinds_moves(kafka: KafkaTools, tmp_path: Path) -> None:
    """Two of three are rewritten, one of each kind: they elect a leader, and the third follows; then it, too."""
    with KafkaLab(kafka, tmp_path) as lab:
        nodes: list[KafkaNode] = [lab.controller(1), lab.kraftcore(2), lab.controller(3)]
        voters = ",".join(f"{number}@{node.address}:{new_uuid()}" for number, node in enumerate(nodes, 1))
        lab.bootstrap = [node.address for node in nodes]
        for node in nodes:
            node.write(controller_quorum_bootstrap_servers=lab.controllers).format("--initial-controllers", voters)
            node.start()

        def is_everywhere() -> bool:
            found = lab.describe()
            return found is not None and all(voter.log_end_offset >= found.high_watermark for voter in found.voters)

        wait_for("a leader whom all follow", is_everywhere)
        before = lab.describe()
        assert before is not None
        for node in nodes:
            node.stop()
        controllers = move(lab, nodes)
        for node in nodes[:2]:
            assert rewrite(node, controllers)["written"]
        for node in nodes:
            node.start()
        found = wait_for("a leader at the new addresses", lab.describe)
        assert {voter.key for voter in found.voters} == {voter.key for voter in before.voters}
        wait_for("all to follow it", is_everywhere)
        assert found.high_watermark >= before.high_watermark
        nodes[2].stop()
        assert not ports_in_log(nodes[2], 3) & {node.port for node in nodes}
        assert rewrite(nodes[2], controllers)["written"]
        assert ports_in_log(nodes[2], 3) == {node.port for node in nodes}
        nodes[2].start()
        wait_for("it to follow again", is_everywhere)
