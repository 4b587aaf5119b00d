"""kraftcore nodes among Kafka's controllers: the changes and recoveries of KIP-853, with Kafka's own tools."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator

import pytest
import trio
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, ToolResult, wait_for
from kafka_tools import KafkaTools
from partition_files import check_equal

from kraftcore import admin
from kraftcore.errors import KraftError

RELUCTANT = {"kraftcore_reluctant": "true"}
QUICK = admin.Timing(call_timeout_ms=2000)


def describe(lab: KafkaLab) -> admin.QuorumDescription | None:
    """What the leader says now; None while there is none."""

    async def ask() -> admin.QuorumDescription:
        async with admin.connect(bootstrap_controllers=lab.bootstrap, timing=QUICK) as client:
            return await client.describe_quorum()

    try:
        return trio.run(ask)
    except KraftError:
        return None


def voters(lab: KafkaLab) -> set[tuple[int, str]]:
    found = describe(lab)
    return set() if found is None else {(each.key.id, str(each.key.directory_id)) for each in found.voters}


def key(node: KafkaNode) -> tuple[int, str]:
    return int(str(node.properties["node.id"])), node.directory_id


def wait_voters(lab: KafkaLab, *nodes: KafkaNode) -> None:
    wait_for(f"{[node.name for node in nodes]} to be the voters", lambda: voters(lab) == {key(node) for node in nodes})


def wait_leader(lab: KafkaLab, *nodes: KafkaNode) -> KafkaNode:
    def leads() -> KafkaNode | None:
        found = describe(lab)
        return next((node for node in nodes if found is not None and key(node)[0] == found.leader_id), None)

    return wait_for(f"one of {[node.name for node in nodes]} to lead", leads)


def wait_commits(lab: KafkaLab) -> int:
    """The active controller writes a record every half second: wait until two of them are committed."""
    begin = wait_for("a leader", lambda: describe(lab)).high_watermark

    def moved() -> int:
        found = describe(lab)
        return found.high_watermark if found is not None and found.high_watermark > begin + 1 else 0

    return wait_for("commits", moved)


def observers(lab: KafkaLab) -> set[tuple[int, str]]:
    found = describe(lab)
    return set() if found is None else {(each.key.id, str(each.key.directory_id)) for each in found.observers}


def add(lab: KafkaLab, node: KafkaNode) -> None:
    """Once it fetches, make it a voter, with Kafka's tool."""
    wait_for(f"{node.name} to be seen", lambda: key(node) in observers(lab))
    change(lab, "--command-config", node.config, "add-controller")


def remove(lab: KafkaLab, voter: tuple[int, str]) -> None:
    change(lab, "remove-controller", "-i", voter[0], "-d", voter[1])


def change(lab: KafkaLab, *arguments: object) -> None:
    done = lab.tool("quorum", "--bootstrap-controller", lab.controllers, *arguments)
    assert done.status == 0, done


@pytest.fixture(scope="module")
def pair(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaLab]:
    """Two controllers of Kafka: 1, and 2."""
    with KafkaLab(kafka, tmp_path_factory.mktemp("pair")) as lab:
        lab.start_quorum([1, 2])
        wait_leader(lab, *lab.nodes.values())
        yield lab


def test_a_voter_of_ours(pair: KafkaLab) -> None:
    """It is added, commits need it, its vote elects a Kafka leader, and it is removed."""
    one, two = pair.nodes[1], pair.nodes[2]
    ours = pair.kraftcore(3, **RELUCTANT).format("--no-initial-controllers").start().wait_listening()
    add(pair, ours)
    wait_voters(pair, one, two, ours)

    leader = wait_leader(pair, one, two)
    other = two if leader is one else one
    other.kill()
    wait_commits(pair)
    ours.signal(signal.SIGSTOP)
    before = describe(pair)
    time.sleep(1.2)  # two records of the active controller, well before it gives up for want of a majority
    after = describe(pair)
    ours.signal(signal.SIGCONT)
    assert before is not None
    assert after is not None
    assert after.end_offset > after.high_watermark
    assert after.high_watermark <= before.high_watermark + 1
    wait_commits(pair)

    other.start().wait_listening()
    wait_commits(pair)
    leader = wait_leader(pair, one, two)
    epoch = describe(pair).leader_epoch
    leader.kill()
    other = two if leader is one else one
    assert wait_leader(pair, other, ours) is other
    end = wait_commits(pair)
    leader.start().wait_listening()
    remove(pair, key(ours))
    wait_voters(pair, one, two)
    wait_for("it to watch", lambda: key(ours) in observers(pair))
    end = wait_commits(pair)
    ours.stop()
    check_equal([node.folder / "__cluster_metadata-0" for node in (one, two, ours)], end)
