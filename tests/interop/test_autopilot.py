"""The autopilot flies quorums of real processes, Kafka's and ours: a dead voter, a standby, a replaced disk."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from kafka_lab import OURS, PATIENCE_S, KafkaLab, KafkaNode, wait_for
from kafka_tools import KafkaTools

from kraftcore import admin
from kraftcore.admin import QuorumDescription

pytestmark = pytest.mark.deep


def quorum_of(lab: KafkaLab) -> QuorumDescription:
    async def ask() -> QuorumDescription:
        async with admin.connect(bootstrap_controllers=lab.bootstrap) as client:
            return await client.describe_quorum()

    return trio.run(ask)


def voters_of(lab: KafkaLab) -> dict[int, str]:
    return {voter.key.id: str(voter.key.directory_id) for voter in quorum_of(lab).voters}


def command(lab: KafkaLab, *arguments: str) -> list[str]:
    everybody = ",".join(node.address for node in lab.nodes.values())
    where = ["--bootstrap-controller", everybody, "--dead-after", "6", "--output", "json"]
    return [*OURS, "autopilot", "run", *where, *arguments]


def look(lab: KafkaLab) -> list[dict[str, Any]]:
    """What it would do, without doing it."""
    done = subprocess.run(command(lab, "--once"), capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done
    (line,) = done.stdout.splitlines()
    found: list[dict[str, Any]] = json.loads(line)["decisions"]
    return found


@contextmanager
def flying(lab: KafkaLab, output: Path) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    with output.open("wb") as out:
        process = subprocess.Popen(command(lab, "--interval", "0.5", "--apply"), stdout=out)
    try:
        yield lambda: [json.loads(line) for line in output.read_text().splitlines()]
    finally:
        process.terminate()
        assert process.wait(PATIENCE_S) == 0


@pytest.fixture(params=["kafka", "kraftcore"])
def lab(request: pytest.FixtureRequest, kafka: KafkaTools, tmp_path: Path) -> Iterator[KafkaLab]:
    """Three voters, and a fourth controller that stands by."""
    with KafkaLab(kafka, tmp_path) as lab:
        make = lab.controller if request.param == "kafka" else lab.kraftcore
        lab.start_quorum([1, 2, 3], make=make)
        make(4).format("--no-initial-controllers").start().wait_listening()
        yield lab


def wipe(node: KafkaNode) -> None:
    """The node's disk is replaced by an empty one."""
    node.kill()
    shutil.rmtree(node.folder)
    node.format("--no-initial-controllers").start()


def test_voters_are_kept_as_wanted(lab: KafkaLab, tmp_path: Path) -> None:
    wait_for("the standby to fetch", lambda: 4 in {seen.key.id for seen in quorum_of(lab).observers})
    before = voters_of(lab)
    assert look(lab) == []
    leader = quorum_of(lab).leader_id
    dead, wiped = sorted({1, 2, 3} - {leader})
    lab.nodes[dead].kill()
    wait_for(
        "it to count as dead", lambda: [(each["action"], each["nodeId"]) for each in look(lab)] == [("remove", dead)]
    )
    assert voters_of(lab) == before  # without --apply it only says so
    with flying(lab, tmp_path / "pilot.jsonl") as told:
        wait_for("the standby to replace the dead voter", lambda: sorted(voters_of(lab)) == sorted({leader, wiped, 4}))
        wipe(lab.nodes[wiped])
        fresh = lab.nodes[wiped].directory_id
        assert fresh != before[wiped]
        wait_for("the node with the new disk to be a voter again", lambda: voters_of(lab).get(wiped) == fresh)
        lab.nodes[dead].start().wait_listening()
        wait_for("nothing to be left to do", lambda: told()[-1]["decisions"] == [])
    assert sorted(voters_of(lab)) == sorted({leader, wiped, 4})
    done = [(line["decisions"][0]["action"], line["decisions"][0]["nodeId"]) for line in told() if line["applied"]]
    assert done == [("remove", dead), ("add", 4), ("remove", wiped), ("add", wiped)]
    assert all(each["reason"] for line in told() for each in line["decisions"])
