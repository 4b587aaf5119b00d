"""Kafka's controllers under a kraftcore leader, quorums that become dynamic, and directories that change hands."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, ToolResult, free_port, wait_for
from kafka_tools import KafkaTools
from proposals import end_offset, log_folder, log_of, opening, propose, setting
from suite_run import deep

SEGMENT_BYTES = 10_000


def wait_leader(lab: KafkaLab, *ids: int) -> int:
    def leader() -> int:
        found = lab.describe()
        return found.leader_id if found is not None and found.high_watermark >= 0 and found.leader_id in ids else 0

    return wait_for(f"one of {ids} to lead", leader)


def is_observed(lab: KafkaLab, node_id: int) -> bool:
    found = lab.describe()
    return found is not None and node_id in {each.key.id for each in found.observers}


def wait_equal(nodes: Sequence[KafkaNode], end: int) -> None:
    """Everybody has the same bytes below an offset."""
    wait_for(f"everybody to have {end} records", lambda: all(end_offset(node) >= end for node in nodes))
    logs = [log_of(node) for node in nodes]
    start = max(min(log) for log in logs)  # who came late may have a snapshot of what was before
    first, *others = ({at: raw for at, raw in log.items() if start <= at < end} for log in logs)
    assert first
    for other in others:
        assert other == first


def done(lab: KafkaLab, tool: str, *arguments: object) -> str:
    result = lab.tool(tool, "--bootstrap-controller", lab.controllers, *arguments)
    assert result.status == 0, result
    return result.out


def assert_alive(*nodes: KafkaNode) -> None:
    for node in nodes:
        assert node.process is not None
        assert node.process.poll() is None, node.last_words()


def test_kafka_follows_a_kraftcore_leader(kafka: KafkaTools, tmp_path: Path) -> None:
    """As observers, as voters that commits need, by FetchSnapshot, and over a restart of the leader."""
    with KafkaLab(kafka, tmp_path) as lab:
        small = {"internal_metadata_log_segment_bytes": SEGMENT_BYTES}
        ours = lab.kraftcore(1, metadata_log_max_record_bytes_between_snapshots=5000, **small)
        lab.bootstrap = [ours.address]
        ours.format("--standalone").start().wait_listening()
        wait_leader(lab, 1)
        propose(ours, opening())
        for number in range(0, 300, 50):
            propose(ours, *(setting(each) for each in range(number, number + 50)))
        wait_for("a snapshot of ours", lambda: len(list(log_folder(ours).glob("*.checkpoint"))) > 1)
        theirs = [lab.controller(number, **small).format("--no-initial-controllers").start() for number in (2, 3)]
        for node in theirs:
            node.wait_listening()
        for number in (2, 3):
            wait_for(f"{number} to watch", lambda number=number: is_observed(lab, number))
        end = propose(ours, setting(1), setting(2)) + 2
        wait_equal([ours, *theirs], end)
        for node in theirs:
            done(lab, "quorum", "--command-config", node.config, "add-controller")
        found = lab.describe()
        assert found is not None
        assert {each.key.id for each in found.voters} == {1, 2, 3}
        assert {str(each.key.directory_id) for each in found.voters} == {each.directory_id for each in (ours, *theirs)}
        listed = lab.tool("cluster", "list-endpoints", "--bootstrap-controller", lab.controllers).out
        assert all(str(node.port) in listed for node in (ours, *theirs))
        # One of the followers is enough for commits, and one is needed.
        theirs[0].kill()
        away_at = end_offset(ours)
        for number in range(0, 500, 50):
            end = propose(ours, *(setting(each) for each in range(number, number + 50))) + 50
        wait_equal([ours, theirs[1]], end)
        # In one answer this would end the process of a Kafka follower with such segments.
        assert sum(len(raw) for at, raw in log_of(ours).items() if at >= away_at) > SEGMENT_BYTES
        theirs[0].start().wait_listening()
        wait_equal([ours, *theirs], end)
        assert_alive(ours, *theirs)
        # The leader goes in good order: a Kafka controller leads, writes records of its own, and we follow.
        lab.bootstrap = [node.address for node in theirs]
        ours.stop()
        wait_leader(lab, 2, 3)
        ours.start().wait_listening()
        wait_for("it to follow", lambda: end_offset(ours) > end + 1)
        wait_equal([ours, *theirs], end_offset(ours))
        done(lab, "quorum", "remove-controller", "-i", 1, "-d", ours.directory_id)


@pytest.mark.parametrize("leader", ["kraftcore", *deep("kafka")])
def test_a_mixed_static_quorum_becomes_dynamic(kafka: KafkaTools, tmp_path: Path, leader: str) -> None:
    """kraft.version 0 to 1 by kafka-features, whoever leads; then voters come and go."""
    with KafkaLab(kafka, tmp_path) as lab:
        extra = {"kraftcore_reluctant": "true"} if leader == "kafka" else {}
        ours: list[KraftcoreNode] = [lab.kraftcore(number, **extra) for number in (1, 2)]
        theirs = lab.controller(3)
        nodes: list[KafkaNode] = [*ours, theirs]
        voters = ",".join(f"{number}@{node.address}" for number, node in enumerate(nodes, 1))
        for node in nodes:
            node.write(controller_quorum_voters=voters, controller_quorum_bootstrap_servers=None)
            node.format("--feature", "kraft.version=0")
        lab.bootstrap = [node.address for node in nodes]
        for node in ours if leader == "kraftcore" else [theirs, ours[0]]:
            node.start()
        if leader == "kraftcore":
            first = wait_leader(lab, 1, 2)
            propose(lab.nodes[first], opening())
            theirs.start().wait_listening()
        else:
            wait_leader(lab, 3)
            ours[1].start().wait_listening()
        found = lab.describe()
        assert found is not None
        assert all(not each.key.has_directory for each in found.voters)
        assert lab.tool(
            "quorum",
            "--bootstrap-controller",
            lab.controllers,
            "remove-controller",
            "-i",
            1,
            "-d",
            ours[0].directory_id,
        ).status
        upgrade = ["features", "--bootstrap-controller", lab.controllers, "upgrade", "--feature", "kraft.version=1"]
        said: list[ToolResult] = []

        def upgraded() -> bool:
            said.append(lab.tool(*upgrade))
            return said[-1].status == 0

        try:
            wait_for("every voter to have told what it supports", upgraded)
        except TimeoutError as error:
            error.add_note(str(said[-1]))
            raise
        found = lab.describe()
        assert found is not None
        assert {(each.key.id, str(each.key.directory_id)) for each in found.voters} == {
            (number, node.directory_id) for number, node in enumerate(nodes, 1)
        }
        wait_leader(lab, *((1, 2) if leader == "kraftcore" else (3,)))
        done(lab, "quorum", "remove-controller", "-i", 2, "-d", ours[1].directory_id)
        wait_for("the removed one to watch", lambda: is_observed(lab, 2))
        done(lab, "quorum", "--command-config", ours[1].config, "add-controller")
        found = lab.describe()
        assert found is not None
        wait_equal(nodes, found.high_watermark)
        assert_alive(*nodes)


def assert_locked(owner: KafkaNode, other: type[KafkaNode]) -> None:
    """The other program does not start in a directory that runs."""
    rival = other(owner.lab, f"rival-of-{owner.name}", free_port(), owner.properties)
    rival.folder = owner.folder
    address = f"CONTROLLER://{rival.address}"
    rival.write(log_dirs=owner.folder, listeners=address, advertised_listeners=address).start()
    try:
        assert rival.process is not None
        wait_for("the rival to give up", lambda: rival.process.poll() is not None)
        assert rival.process.returncode
        assert ".lock" in rival.output.read_text(), rival.last_words()
    finally:
        rival.kill()


@pytest.mark.deep
def test_directories_change_hands(kafka: KafkaTools, tmp_path: Path) -> None:
    """One directory, run in turn by Kafka and by us, after clean stops and after kill -9; with snapshots of both."""
    with KafkaLab(kafka, tmp_path) as lab:
        ours = lab.kraftcore(1, metadata_log_max_record_bytes_between_snapshots=5000)
        lab.bootstrap = [ours.address]
        theirs = KafkaNode(lab, ours.name, ours.port, ours.properties)
        lab.nodes[-1] = theirs
        ours.format("--standalone")
        kept: dict[int, bytes] = {}
        epoch = 0
        turns: list[tuple[KafkaNode, signal.Signals]] = [
            (ours, signal.SIGTERM),
            (theirs, signal.SIGTERM),
            (ours, signal.SIGKILL),
            (theirs, signal.SIGKILL),
            (ours, signal.SIGTERM),
            (theirs, signal.SIGTERM),
        ]
        for turn, (node, how) in enumerate(turns):
            node.start().wait_listening()
            wait_leader(lab, 1)
            found = lab.describe()
            assert found is not None
            assert found.leader_epoch > epoch
            epoch = found.leader_epoch
            if turn < 2:
                assert_locked(node, KafkaNode if node is ours else KraftcoreNode)
            assert str(found.voters[0].key.directory_id) == ours.directory_id
            if node is ours:
                if turn == 0:
                    propose(ours, opening())
                for number in range(10):
                    propose(ours, *(setting(20 * turn + 100 * number + each) for each in range(20)))
            end = end_offset(node)
            begin = set(log_folder(node).glob("*.checkpoint"))
            if node is ours:
                wait_for("a snapshot", lambda begin=begin: set(log_folder(ours).glob("*-*.checkpoint")) >= begin)
            else:
                # Its active controller writes a record now and then.
                wait_for("records of Kafka", lambda end=end: end_offset(theirs) > end)
            node.stop(how)
            now = log_of(node)
            start = min(now)
            assert {at: raw for at, raw in kept.items() if at >= start}.items() <= now.items()
            kept = now
