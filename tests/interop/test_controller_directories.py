"""A controller's directory, with nothing but a snapshot of most of it, is taken over by the other implementation."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from image_records import end_of, images_of_kafka, machine_at, records_of, snapshots
from kafka_lab import KafkaLab, KafkaNode, wait_for
from kafka_tools import KafkaTools
from proposals import end_offset, log_folder

pytestmark = pytest.mark.deep

SMALL = {
    "internal.metadata.log.segment.bytes": 2000,
    "metadata.log.max.record.bytes.between.snapshots": 3000,
    "kraftcore.offers.log": None,
}
EVERYTHING = 2**62


def tool(lab: KafkaLab, name: str, *arguments: object) -> str:
    """One of Kafka's tools, at the broker; again while that has no controller."""
    at = lab.nodes[11].address

    def ask() -> str | None:
        done = lab.tool(name, "--bootstrap-server", at, *arguments)
        return done.out + "." if done.status == 0 else None

    return wait_for(f"{name} {arguments}", ask)


def work(lab: KafkaLab, turn: int) -> None:
    """Everything a snapshot can tell but what needs an authorizer; enough of it for a few segments."""
    tool(lab, "topics", "--create", "--topic", f"turn-{turn}", "--partitions", 20, "--replication-factor", 1)
    of_topic = ("--entity-type", "topics", "--entity-name", f"turn-{turn}")
    tool(lab, "configs", "--alter", *of_topic, "--add-config", f"retention.ms={turn}000")
    user = ("--entity-type", "users", "--entity-name", f"user-{turn}")
    for text in ("producer_byte_rate=1000", "SCRAM-SHA-512=[password=secret]"):
        tool(lab, "configs", "--alter", *user, "--add-config", text)
    tool(lab, "topics", "--create", "--topic", "passing", "--partitions", 3, "--replication-factor", 1)
    tool(lab, "topics", "--delete", "--topic", "passing")


def seen(lab: KafkaLab) -> list[str]:
    """What the broker tells; a partition's epochs are not in it."""
    kinds = ("topics", "users")
    asked = [tool(lab, "configs", "--describe", "--entity-type", kind) for kind in kinds]
    return [tool(lab, "topics", "--describe"), *asked]


def settled(lab: KafkaLab) -> list[str] | None:
    """What the broker tells, once it tells the same twice and knows of the deletion."""
    told = seen(lab)
    return told if "passing" not in told[0] and told == seen(lab) else None


def keep_only_the_snapshot(node: KafkaNode) -> Path:
    """What cleaning leaves: the newest snapshot, and the segments that it does not cover."""
    folder = log_folder(node)
    *older, newest = snapshots(folder, EVERYTHING)
    for path in older:
        path.unlink()
    logs = sorted(folder.glob("*.log"))
    covered = [one for one, following in pairwise(logs) if int(following.stem) <= end_of(newest)]
    assert covered, "the log is in one segment"
    for log in covered:
        for path in folder.glob(f"{log.stem}.*"):
            if path.suffix in (".log", ".index", ".timeindex"):
                path.unlink()
    return newest


def test_a_directory_with_a_snapshot_changes_hands(kafka: KafkaTools, tmp_path: Path) -> None:
    """Ours, Kafka's, ours: each begins from the other's snapshot, and an unmodified broker goes on."""
    with KafkaLab(kafka, tmp_path) as lab:
        ours = lab.kraftcore(1, **SMALL)
        lab.bootstrap = [ours.address]
        theirs = KafkaNode(lab, ours.name, ours.port, ours.properties)
        lab.nodes[-1] = theirs
        ours.format("--standalone").start().wait_listening()
        lab.broker(11).format().start().wait_listening()
        turns: list[KafkaNode] = [ours, theirs, ours]
        begun_from = None
        for turn, node in enumerate(turns):
            if turn:
                node.start().wait_listening()
            work(lab, turn)
            newer = end_offset(node)

            def is_written(newer: int = newer, node: KafkaNode = node) -> bool:
                found = snapshots(log_folder(node), EVERYTHING)
                return bool(found) and end_of(found[-1]) >= newer - 20

            for number in range(20):
                if is_written():
                    break
                tool(lab, "topics", "--create", "--topic", f"more-{turn}-{number}", "--partitions", 9)
            wait_for("a snapshot", is_written)
            before = wait_for("the broker to have heard of everything", lambda: settled(lab))
            node.stop()
            newest = keep_only_the_snapshot(node)
            assert newest != begun_from
            begun_from = newest
            end = end_offset(node)
            mine = records_of(machine_at(newest.parent, end, newest))
            assert images_of_kafka(kafka, [newest.parent], end) == [mine]
            if turn + 1 < len(turns):
                turns[turn + 1].start().wait_listening()
                wait_for("the broker to tell the same", lambda before=before: seen(lab) == before, timeout_s=240)
                turns[turn + 1].stop()
        broker = lab.nodes[11].process
        assert broker is not None
        assert broker.poll() is None
