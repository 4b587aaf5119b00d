"""An earlier version gives way to the present one, and comes back: real processes, on the directories of the other."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from earlier import EarlierMissingError, earlier_python, has_history
from kafka_lab import HOST, free_port
from project import ROOT
from up_command import UP, Up, free_from

import kraftcore

pytestmark = [pytest.mark.deep, pytest.mark.long]

MEMBER = ROOT / "tests" / "support" / "rolling_member.py"
NODES = (1, 2, 3)
WRITES = 40  # of each node between two steps
PATIENCE_S = 120.0
# Small: between two steps every node rolls segments, writes snapshots and deletes the log behind them.
SIZES = {
    "segment_bytes": 15_000,
    "max_batch_bytes": 15_000,
    "snapshot_bytes": 20_000,
    "retention_bytes": 20_000,
    "cleaning_period_ms": 300,
}


class Member:
    """A node's place, and the process that is there."""

    def __init__(self, number: int, folder: Path, ports: dict[int, int]) -> None:
        self._number = number
        self._said = folder / f"node{number}.jsonl"
        self._errors = folder / f"node{number}.log"
        self._starts = 0
        self._lines: dict[str, list[list]] = {"runs": [], "done": [], "paused": [], "state": []}
        self._seen = 0  # bytes of what it said
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {
            "node_id": number,
            "directory": str(folder / f"node{number}"),
            "cluster_id": "a-quorum-that-rolls",
            "listeners": [f"{HOST}:{ports[number]}"],
            "bootstrap_servers": [f"{HOST}:{port}" for port in ports.values()],
            "auto_join": True,
            "create": "standalone" if number == 1 else "join",
            **SIZES,
        }

    def start(self, python: Path) -> None:
        """Start it with this interpreter's kraftcore; returns when it says which that is."""
        self._starts += 1
        given = {"settings": self._settings, "name": f"{self._number}.{self._starts}"}
        command = [str(python), "-P", str(MEMBER), json.dumps(given)]
        with self._said.open("ab") as said, self._errors.open("ab") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=errors)
        self.wait(self._starts, "runs")

    def stop(self) -> None:
        """SIGTERM; it must end well."""
        assert self._process is not None and self._process.stdin is not None
        self._process.terminate()
        assert self._process.wait(PATIENCE_S) == 0, self._errors.read_text()[-3000:]
        self._process.stdin.close()

    def tell(self, word: str) -> None:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(word.encode() + b"\n")
        self._process.stdin.flush()

    def said(self, kind: str) -> list[list]:
        """Everything of a kind that it said, in all its starts."""
        with self._said.open("rb") as said:
            said.seek(self._seen)
            news = said.read()
        whole = news[: news.rfind(b"\n") + 1]
        self._seen += len(whole)
        for found, *rest in map(json.loads, whole.splitlines()):
            self._lines[found].append(rest)
        return self._lines[kind]

    def wait(self, count: int, kind: str) -> list:
        """Wait until it said so much; the last of it."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE_S
        while len(found := self.said(kind)) < count:
            ended = self._process.poll()
            late = time.monotonic() > deadline
            if ended is not None or late:
                state = f"does not go on: {len(found)} of {count} times {kind!r}" if late else f"ended with {ended}"
                pytest.fail(f"node {self._number} {state}\n{self._errors.read_text()[-3000:]}")
            time.sleep(0.05)
        return found[-1]

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdin is not None:
                self._process.stdin.close()


class Quorum:
    """Three of them."""

    def __init__(self, folder: Path) -> None:
        ports = {number: free_port() for number in NODES}
        self.members = {number: Member(number, folder, ports) for number in NODES}

    def go_on(self) -> None:
        """Wait until every node had more of its writes acknowledged."""
        before = {member: len(member.said("done")) for member in self.members.values()}
        for member, count in before.items():
            member.wait(count + WRITES, "done")

    def roll(self, python: Path) -> None:
        """Move one node after the other to this interpreter's kraftcore, while the others write."""
        for member in self.members.values():
            member.stop()
            member.start(python)
            self.go_on()

    def files_in_use(self) -> list[str]:
        """The file that each node imported kraftcore from, at its last start."""
        return [member.said("runs")[-1][0] for member in self.members.values()]

    def check(self) -> None:
        """Every acknowledged write is on every node, once, and their states are equal."""
        for member in self.members.values():
            member.tell("pause")
        for member in self.members.values():
            member.wait(1, "paused")
        acknowledged = {key for member in self.members.values() for (key,) in member.said("done")}
        states = []
        for member in self.members.values():
            member.tell("state")
            keys, count, snapshots = member.wait(1, "state")
            assert not acknowledged - set(keys), "acknowledged writes are lost"
            assert count == len(keys), "writes were applied twice, or in part"
            assert snapshots, "no snapshot was written: the test moves no snapshot between versions"
            states.append(keys)
        assert states[0] == states[1] == states[2]

    def close(self) -> None:
        for member in self.members.values():
            member.kill()


@pytest.fixture(scope="module")
def versions() -> tuple[Path, Path]:
    """The interpreters of the earlier version and of the present one."""
    if not has_history():
        pytest.skip("there is no history here to take an earlier version from: run this in a whole clone")
    try:
        return earlier_python(), Path(sys.executable)
    except EarlierMissingError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def quorum(tmp_path: Path) -> Iterator[Quorum]:
    found = Quorum(tmp_path)
    try:
        yield found
    finally:
        found.close()


def test_a_quorum_moves_to_the_present_version_and_back_node_by_node(
    versions: tuple[Path, Path], quorum: Quorum
) -> None:
    """In one run: on its way back the earlier version finds what the present one wrote."""
    earlier, present = versions
    for member in quorum.members.values():
        member.start(earlier)
    quorum.go_on()
    assert all(Path(file).is_relative_to(earlier.parents[1]) for file in quorum.files_in_use())
    quorum.roll(present)
    assert set(quorum.files_in_use()) == {kraftcore.__file__}
    quorum.roll(earlier)
    quorum.roll(present)
    quorum.check()


def test_the_directories_of_a_cluster_are_opened_by_either_version(versions: tuple[Path, Path], tmp_path: Path) -> None:
    """Three brokers and their controller: topics, records and what a group has read are there, whoever wrote them."""
    place = ("--directory", tmp_path / "kafka", "--first-port", free_from(4))
    kept: list[bytes] = []
    for start, python in enumerate([*versions, *versions]):
        with Up(*place, command=[str(python), *UP[1:]]) as up:
            servers = up.started["bootstrapServers"]
            more = [b"%d-%d" % (start, number) for number in range(20)]
            produce(servers, more)
            assert consume(servers, "readers", len(more)) == more  # from where the group was at the last start
            kept += more
            assert consume(servers, f"start-{start}", len(kept)) == kept
            assert up.end() == (None, 0)


def produce(servers: str, values: list[bytes]) -> None:
    """With acks=all."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0, "retry.backoff.ms": 20})
    errors: list[object] = []
    for value in values:
        producer.produce("kept", value, partition=0, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(PATIENCE_S) == 0
    assert errors == [None] * len(values)


def consume(servers: str, group: str, count: int) -> list[bytes | None]:
    """From the group's offset on, which is committed in the end."""
    consumer = Consumer(
        {"bootstrap.servers": servers, "group.id": group, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    consumer.assign([TopicPartition("kept", 0)])
    messages = consumer.consume(count, PATIENCE_S)
    consumer.commit(asynchronous=False)
    consumer.close()
    return [message.value() for message in messages]
