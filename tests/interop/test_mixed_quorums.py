"""Quorums of kraftcore and Kafka nodes under load: Kafka's side is its own load generator, kafka.tools.TestRaftServer.

Both sides lead in turn, are killed and come back; kraftcore writes snapshots and cuts its log, Kafka fetches them and
passes them on. In the end all logs hold the same bytes, and every record that was acknowledged.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest
from kafka_lab import HOST, KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools
from partition_files import check_equal, log_end
from project import ROOT
from suite_run import deep

from kraftcore.core.batch import iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.control_records import voter_entries
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.storage.bootstrap import write_initial_voters
from kraftcore.storage.meta_properties import MetaProperties, write_meta_properties
from kraftcore.storage.probation_mark import PROBATION_MARK
from kraftcore.storage.snapshots import SnapshotStore

TOPIC = "__raft_performance_test"
TOPIC_ID = Uuid((2).to_bytes(16, "big"))
"""TestRaftServer's."""
RATE = 500  # records/s of a Kafka leader, of RECORD_BYTES each
RECORD_BYTES = 20
RECORDS = 300  # "under load": so many are committed while something is looked at
OBSERVER = 9
SEGMENT_BYTES = 250_000  # of ours; a Kafka leader that stood still for 15 s catches up with its rate in one batch
SNAPSHOT_BYTES = 100_000
TAIL_BYTES = 1 << 16
N = TypeVar("N", bound=KafkaNode)


class PerformanceNode(KafkaNode):
    """TestRaftServer; it has no meta.properties, so its directory id is told."""

    directory_id = ""

    def command(self) -> list[str]:
        options = ["--throughput", str(RATE), "--record-size", str(RECORD_BYTES)]
        identity = ["--replica-directory-id", self.directory_id]
        return [*self.lab.java(), "kafka.tools.TestRaftServer", "--config", str(self.config), *identity, *options]


class LoadedNode(KraftcoreNode):
    """tests/support/loaded_node.py."""

    stdin = subprocess.PIPE
    begin = 0
    """Where the output of this life begins."""

    def start(self) -> KafkaNode:
        self.begin = self.output.stat().st_size if self.output.exists() else 0
        return super().start()

    def command(self) -> list[str]:
        return [sys.executable, str(ROOT / "tests" / "support" / "loaded_node.py"), str(self.config)]

    def tell(self, line: str) -> None:
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    @property
    def status(self) -> dict[str, Any]:
        """The latest; empty before the first of this life."""
        assert self.process is not None
        assert self.process.poll() is None, self.last_words()
        with self.output.open("rb") as output:
            output.seek(max(self.begin, output.seek(0, os.SEEK_END) - TAIL_BYTES))
            lines = output.read().split(b"\n")[:-1]  # of the first, maybe an end, which is no object
        return next((json.loads(line) for line in reversed(lines) if line.startswith(b"{")), {})

    def acknowledged(self) -> dict[int, bytes]:
        """Offset and value of what it appended, of all its lives."""
        lines = self.output.read_text().rpartition("\n")[0].split("\n")
        return {offset: value.encode() for offset, value in map(json.loads, lines_of(lines, "["))}


def lines_of(lines: Sequence[str], start: str) -> list[str]:
    return [line for line in lines if line.startswith(start)]


class Quorum:
    """Voters 1 to 3: so many of Kafka first, then ours; and an observer of ours that comes late."""

    def __init__(self, lab: KafkaLab, kafkas: int, kraft_version: int) -> None:
        self.kafkas = [lab.add(PerformanceNode, number) for number in range(1, kafkas + 1)]
        self.ours = [lab.add(LoadedNode, number) for number in range(kafkas + 1, 4)]
        self.observer = lab.add(LoadedNode, OBSERVER)
        voters = dict(enumerate([*self.kafkas, *self.ours], 1))
        static = ",".join(f"{number}@{node.address}" for number, node in voters.items())
        servers = ",".join(node.address for node in voters.values())
        for node in [*voters.values(), self.observer]:
            is_static = kraft_version == 0 and node is not self.observer
            node.write(controller_quorum_voters=static if is_static else None)
            node.write(controller_quorum_bootstrap_servers=None if is_static else servers)
            node.folder.mkdir()
        for node in [*self.ours, self.observer]:
            node.write(
                kraftcore_topic=TOPIC,
                kraftcore_topic_id=TOPIC_ID,
                kraftcore_cluster_id=ZERO_UUID,
                kraftcore_create="join",
                # TestRaftServer closes the connection that an UpdateRaftVoter came on, as if it had died; at
                # kraft.version 0 every follower sends one.
                kraftcore_fast_failover="true" if kraft_version else "false",
                kraftcore_leader_lease_ms=300,  # Kafka's voters ignore the field that asks them for a promise
                kraftcore_cleaning_period_ms=300,
                internal_metadata_log_segment_bytes=SEGMENT_BYTES,
                metadata_log_max_record_bytes_between_snapshots=SNAPSHOT_BYTES,
                metadata_max_retention_bytes=SEGMENT_BYTES,
                internal_metadata_delete_delay_millis=0,
            )
        keys = {number: ReplicaKey(number, Uuid.random()) for number in voters}
        for number, node in voters.items():
            if isinstance(node, PerformanceNode):
                node.directory_id = str(keys[number].directory_id)
        if kraft_version:
            self._bootstrap(voters, keys)

    def _bootstrap(self, voters: dict[int, Any], keys: dict[int, ReplicaKey]) -> None:
        """Write what ``storage format --initial-controllers`` would, for another topic."""
        entries = VoterSet(
            tuple(
                Voter(keys[number], (Endpoint("CONTROLLER", HOST, node.port),), VersionRange(0, 1))
                for number, node in voters.items()
            )
        )
        for number, node in voters.items():
            folder = node.folder / f"{TOPIC}-0"
            write_initial_voters(SnapshotStore(OsFiles(), str(folder)), voter_entries(entries), lambda: 0)
            if isinstance(node, LoadedNode):
                properties = MetaProperties(str(ZERO_UUID), number, keys[number].directory_id)
                write_meta_properties(OsFiles(), str(node.folder), properties, datetime.now(UTC))

    # --- looking ------------------------------------------------------------------------------------------------------

    def view(self) -> dict[str, Any]:
        """The latest of what running nodes of ours say."""
        running = [node.status for node in [*self.ours, self.observer] if node.process is not None]
        return max(running, key=lambda found: (found.get("epoch", -1), found.get("high_watermark", -1)))

    def high_watermark(self) -> int:
        return int(self.view().get("high_watermark", 0))

    def wait_leader(self, among: Sequence[N]) -> N:
        """Wait until one of them leads and commits; nodes of ours that lead hand over to the first of them."""
        nodes = {node.properties["node.id"]: node for node in among}

        def leads() -> N | None:
            leader = self.view().get("leader")
            for node in self.ours:
                if leader not in nodes and leader == node.properties["node.id"] and node.process is not None:
                    node.tell(f"transfer {next(iter(nodes))}")
            return nodes.get(leader)

        leader = wait_for(f"one of {list(nodes)} to lead", leads)
        self.commit_some()
        return leader

    def commit_some(self) -> None:
        """Wait until a good many records more are committed."""
        begin = self.high_watermark()
        wait_for("records to be committed", lambda: self.high_watermark() >= begin + RECORDS)

    def wait_caught_up(self, node: LoadedNode) -> None:
        wanted = self.high_watermark()
        wait_for(f"{node.name} to catch up", lambda: node.status.get("applied", 0) >= wanted)

    def wait_counted(self) -> None:
        """Static voters that formatted themselves do not count before they heard of all others."""
        marks = [node.folder / PROBATION_MARK for node in self.ours]
        wait_for("our voters to count", lambda: not any(mark.exists() for mark in marks))


@pytest.mark.parametrize(
    ("kafkas", "kraft_version"), [(1, 0), *deep((2, 1))], ids=["two-ours-static", "two-kafkas-dynamic"]
)
def test_load(kafka: KafkaTools, tmp_path: Path, kafkas: int, kraft_version: int) -> None:
    with KafkaLab(kafka, tmp_path) as lab:
        quorum = Quorum(lab, kafkas, kraft_version)
        follower = quorum.ours[-1]
        for node in lab.nodes.values():
            node.start()
        for node in lab.nodes.values():
            node.wait_listening()

        theirs = quorum.wait_leader(quorum.kafkas)  # ours follow; one dies under the load and comes back
        quorum.wait_counted()
        follower.kill()
        quorum.commit_some()
        follower.start()
        quorum.wait_caught_up(follower)

        others = [node for node in quorum.kafkas if node is not theirs]
        for node in others:
            node.kill()
        quorum.commit_some()  # of three voters one of ours acknowledges everything
        theirs.kill()
        for node in others:
            node.start()
        ours = quorum.wait_leader(quorum.ours)
        away_at = quorum.high_watermark()
        wait_for("the log to be cut", lambda: quorum.view()["start"] > away_at)
        theirs.start()  # it needs the snapshot
        there = str(theirs.properties["node.id"])
        wait_for("Kafka to catch up", lambda: (quorum.view().get("ends", {}).get(there) or 0) > away_at)
        assert snapshots(theirs)[-1] > away_at

        ours.kill()  # the leader; its records go on from where it stopped
        theirs = quorum.wait_leader(quorum.kafkas)
        led_at = quorum.high_watermark()
        ours.start()
        quorum.wait_caught_up(ours)

        quorum.observer.kill()
        shutil.rmtree(quorum.observer.folder)
        quorum.observer.start()  # with a new disk, from a Kafka leader
        quorum.wait_caught_up(quorum.observer)
        if snapshots(theirs):
            assert quorum.observer.status["start"] > 0

        for node in [*quorum.ours, quorum.observer]:
            quorum.wait_caught_up(node)
        nodes = list(lab.nodes.values())
        for node in nodes:
            node.signal(signal.SIGSTOP)  # all at once, so that nothing to compare is cut off meanwhile
        committed = quorum.high_watermark()
        for node in nodes:
            node.kill()
        end = min(committed, *(log_end(node.folder / f"{TOPIC}-0") for node in nodes))
        assert end > led_at
        check_logs(nodes, end)
        check_counts([*quorum.ours, quorum.observer])


def snapshots(node: KafkaNode) -> list[int]:
    """End offsets of a node's snapshots, the bootstrap checkpoint aside."""
    found = [int(path.name.split("-")[0]) for path in (node.folder / f"{TOPIC}-0").glob("*.checkpoint")]
    return sorted(offset for offset in found if offset > 0)


def check_logs(nodes: Sequence[KafkaNode], end: int) -> None:
    """Logs are equal, and the acknowledged records are in them."""
    everything = check_equal([node.folder / f"{TOPIC}-0" for node in nodes], end)
    values: dict[int, bytes | None] = {}
    for start, data in everything.items():
        (batch,) = iter_batches(data)
        if not batch.is_control:
            values |= dict(enumerate(batch.values(), start))
    acknowledged: dict[int, bytes] = {}
    for node in nodes:
        if isinstance(node, LoadedNode):
            acknowledged |= node.acknowledged()
    expected = {offset: value for offset, value in acknowledged.items() if min(everything) <= offset < end}
    assert expected
    assert {offset: values.get(offset) for offset in expected} == expected


def check_counts(nodes: Iterable[LoadedNode]) -> None:
    """State machines that applied up to one offset agree, whether from the log or a snapshot."""
    counts: dict[int, int] = {}
    for node in nodes:
        for line in lines_of(node.output.read_text().split("\n")[:-1], "{"):
            status = json.loads(line)
            assert counts.setdefault(status["applied"], status["count"]) == status["count"]
