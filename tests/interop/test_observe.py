"""``kraftcore observe`` on a quorum of real Kafka controllers: the same bytes, through everything, and unseen."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from kafka_lab import OURS, KafkaLab, KafkaNode, wait_for
from kafka_tools import KafkaTools
from partition_files import batches

from kraftcore import admin

VOTERS = [1, 2, 3]
BROKER = 10
TOPIC = "__cluster_metadata-0"
# Snapshots and deletion after a few topics; what is deleted stays, renamed, for the comparison.
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": 20_000,
    "internal.metadata.log.segment.bytes": 16_384,
    "metadata.max.retention.bytes": 10_000,
    "internal.metadata.delete.delay.millis": 3_600_000,
}


class Watcher:
    """``kraftcore observe`` as a process, and what it printed."""

    def __init__(self, lab: KafkaLab, directory: Path, output: Path, *arguments: str) -> None:
        self.output = output
        command = [
            *OURS,
            "observe",
            "--bootstrap-controller",
            lab.controllers,
            "--directory",
            str(directory),
            "--output",
            "json",
        ]
        with output.open("wb") as out:
            self.process = subprocess.Popen([*command, *arguments], stdout=out, stderr=subprocess.PIPE)

    def lines(self) -> list[dict[str, Any]]:
        assert self.process.poll() in (None, 0), self.process.stderr and self.process.stderr.read()
        return [json.loads(line) for line in self.output.read_bytes().split(b"\n")[:-1]]

    def topics(self) -> set[str]:
        found = [line["payload"] for line in self.lines() if isinstance(line.get("payload"), dict)]
        return {payload["data"]["name"] for payload in found if payload["type"] == "TOPIC_RECORD"}

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=30)
        assert self.process.returncode == 0, errors.decode()
        assert b"Error" not in errors, errors.decode()  # who leads, and that it waits, is told there


@contextmanager
def watching(lab: KafkaLab, folder: Path, name: str, *arguments: str) -> Iterator[Watcher]:
    watcher = Watcher(lab, folder / "mirror", folder / f"{name}.jsonl", *arguments)
    try:
        yield watcher
    finally:
        watcher.process.kill()
        watcher.process.communicate()


def first_offset(folder: Path) -> int:
    return min(int(path.name.split(".")[0]) for path in (folder / TOPIC).glob("*.log"))


def leader_of(lab: KafkaLab) -> KafkaNode:
    async def ask() -> int:
        async with admin.connect(bootstrap_controllers=lab.bootstrap) as client:
            return (await client.describe_quorum()).leader_id

    return lab.nodes[trio.run(ask)]


def assert_same_batches(lab: KafkaLab, mirror: Path) -> None:
    ours = batches(mirror / TOPIC)
    theirs = batches(leader_of(lab).folder / TOPIC, pattern="*.log*")  # deleted or not
    assert ours
    assert {offset: data for offset, data in theirs.items() if offset in ours} == ours
    # None is missing between them.
    assert [offset for offset in sorted(theirs) if min(ours) <= offset <= max(ours)] == sorted(ours)


def create(lab: KafkaLab, *names: str, partitions: int = 1) -> None:
    where = ["--bootstrap-server", lab.nodes[BROKER].address, "--create", "--replication-factor", "1"]
    for name in names:
        done = lab.tool("topics", *where, "--partitions", partitions, "--topic", name)
        assert done.status == 0, done


def assert_nobody_sees_it(lab: KafkaLab) -> None:
    done = lab.tool("quorum", "--bootstrap-controller", lab.controllers, "describe", "--replication")
    assert done.status == 0, done
    replicas = [line.split() for line in done.out.splitlines() if re.match(r"-?\d", line)]
    assert {int(replica[0]) for replica in replicas} == {*VOTERS, BROKER}
    assert sum(replica[-1] != "Observer" for replica in replicas) == len(VOTERS)


@pytest.mark.deep
def test_an_observer_of_a_kafka_quorum(kafka: KafkaTools, tmp_path: Path) -> None:
    """A leader is killed while topics are made; later the observer is away until the log it needs is deleted."""
    with KafkaLab(kafka, tmp_path) as lab:
        lab.start_quorum(VOTERS, **SMALL)
        lab.broker(BROKER).format().start().wait_listening()
        mirror = tmp_path / "mirror"
        with watching(lab, tmp_path, "first") as watcher:
            create(lab, "one", "two")
            wait_for("the topics to be seen", lambda: watcher.topics() >= {"one", "two"})
            assert_nobody_sees_it(lab)
            dead = leader_of(lab)
            dead.kill()
            create(lab, "three")
            wait_for("the topic made by the new leader", lambda: "three" in watcher.topics())
            dead.start().wait_listening()
            lines = watcher.lines()
            watcher.interrupt()
        assert [line["offset"] for line in lines] == list(range(len(lines)))
        assert {line.get("controlType") for line in lines} >= {"LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"}
        assert not any("error" in line for line in lines)
        assert min(batches(mirror / TOPIC)) == 0
        assert_same_batches(lab, mirror)
        end = max(batches(mirror / TOPIC))

        create(lab, *(f"many-{number}" for number in range(8)), partitions=100)
        wait_for("the log to be deleted", lambda: first_offset(leader_of(lab).folder) > end, timeout_s=120)
        with watching(lab, tmp_path, "second", "--type", "TopicRecord,SNAPSHOT_FOOTER") as watcher:
            create(lab, "last")
            wait_for("the last topic", lambda: "last" in watcher.topics())
            lines = watcher.lines()
            assert_nobody_sees_it(lab)
            watcher.interrupt()
        kinds = [line.get("controlType") or line.get("payload", {}).get("type") or line["kind"] for line in lines]
        mark = kinds.index("snapshot")
        assert set(kinds[:mark]) <= {"TOPIC_RECORD"}  # what a snapshot of its own told to be committed
        assert "SNAPSHOT_FOOTER" in kinds[mark:]
        assert watcher.topics() == {"one", "two", "three", "last", *(f"many-{number}" for number in range(8))}
        checkpoint = max((mirror / TOPIC).glob("*.checkpoint"))
        assert checkpoint.read_bytes() == (leader_of(lab).folder / TOPIC / checkpoint.name).read_bytes()
        assert f"{lines[mark]['endOffset']:020d}-{lines[mark]['epoch']:010d}.checkpoint" == checkpoint.name
        assert_same_batches(lab, mirror)
        assert first_offset(mirror) == lines[mark]["endOffset"]
