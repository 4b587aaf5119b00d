"""What commands say of a quorum of three processes when two of them are killed or hang."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, NamedTuple

import pytest
from kafka_lab import OURS
from server_quorum import server_quorum

PATIENCE_S = 120


LOOKS = (
    ("quorum", "describe", "--status"),
    ("cluster", "list-endpoints"),
)
HEALTH = ("quorum", "health")
HEALTH_JSON = (*HEALTH, "--output", "json")
AS_JSON = ("quorum", "describe", "--status", "--output", "json")
PILOT = ("autopilot", "run", "--once")
PILOT_JSON = (*PILOT, "--output", "json")
WITH_A_TIMEOUT = (
    ("quorum", "describe", "--replication", "--output", "text"),
    ("quorum", "remove-controller", "-i", "9", "-d", "AAAAAAAAAAAAAAAAAAAAAQ"),
)
TOOL_AS_JSON = ("reassign", "--list", "--output", "json")
TO_THE_DEAD = ("quorum", "describe", "--replication", "--human-readable")


class Gone(NamedTuple):
    """A quorum without a majority, and what commands said about it, all of them run at the same time."""

    addresses: list[str]
    survivor: int
    why: str
    done: dict[tuple[str, ...], subprocess.CompletedProcess[str]]

    def address(self, number: int) -> str:
        return self.addresses[number - 1]

    @property
    def lost(self) -> list[int]:
        return [number for number in (1, 2, 3) if number != self.survivor]


@pytest.fixture(scope="module", params=["killed", "frozen"])
def gone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gone]:
    folder = tmp_path_factory.mktemp("quorum")
    config = folder / "client.properties"
    config.write_text("default.api.timeout.ms=5000\n")
    with server_quorum(folder) as quorum:
        leader = quorum.leader()
        survivor = next(number for number in (1, 2, 3) if number != leader)
        quorum.wait_registered(survivor)
        is_killed = request.param == "killed"
        found = Gone(quorum.addresses, survivor, "nobody listens there" if is_killed else "no answer for 2 s", {})
        for number in found.lost:
            (quorum.kill if is_killed else quorum.freeze)(number)
        where = ("--bootstrap-controller", found.address(survivor))
        commands = {
            command: (*command, *where) for command in (*LOOKS, HEALTH, HEALTH_JSON, AS_JSON, PILOT, PILOT_JSON)
        }
        commands |= {
            command: (*command, *where, "--command-config", str(config)) for command in (*WITH_A_TIMEOUT, TOOL_AS_JSON)
        }
        commands[TO_THE_DEAD] = (*TO_THE_DEAD, "--bootstrap-controller", found.address(found.lost[0]))
        with ThreadPoolExecutor(4) as pool:
            found.done.update(zip(commands, pool.map(run, commands.values()), strict=True))
        yield found


def run(arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*OURS, *arguments], capture_output=True, text=True, timeout=PATIENCE_S)


def check_said(gone: Gone, said: str) -> None:
    """Who answers, who does not and why, what is missing and what to do are told; nobody else is named."""
    low, high = gone.lost
    assert f"node {gone.survivor} ({gone.address(gone.survivor)}) answers" in said
    for number in gone.lost:
        assert f"node {number} ({gone.address(number)}) does not answer, since " in said
    assert said.count(gone.why) >= 2
    assert f"node {gone.survivor} of the controllers 1, 2, 3 answers; a majority of 2 is needed" in said
    assert f"start node {low} or {high} (kraftcore server start FILE)" in said
    assert "kraftcore storage recover-quorum" in said


@pytest.mark.parametrize("command", LOOKS, ids=" ".join)
def test_a_look_says_who_answers_and_does_not_wait_for_them(gone: Gone, command: tuple[str, ...]) -> None:
    done = gone.done[command]
    if command[0] == "cluster" and done.returncode == 0:  # the survivor knew no leader just then: it tells all it knows
        assert gone.address(gone.lost[0]).split(":")[1] in done.stdout
        return
    assert (done.returncode, done.stdout) == (1, "")
    assert "Nobody can answer now" in done.stderr, "it waited for its timeout"
    check_said(gone, done.stderr)


def test_health_says_it_a_line_a_reason_and_does_not_wait_either(gone: Gone) -> None:
    done = gone.done[HEALTH]
    assert done.returncode == 1
    lacking, low, high, advice = done.stdout.splitlines()
    assert lacking == (
        f"no leader of the quorum answers: node {gone.survivor} of the controllers 1, 2, 3 answers; a majority of 2 is "
        "needed: no leader can be elected"
    )
    for number, line in zip(gone.lost, (low, high), strict=True):
        assert line.startswith(f"node {number} ({gone.address(number)}) does not answer, since ")
        assert line.endswith(f": {gone.why}")
    assert advice.startswith(f"what to do: start node {gone.lost[0]} or {gone.lost[1]} ")
    assert "does not answer" not in done.stderr, "it waited for its timeout"
    found = json.loads(gone.done[HEALTH_JSON].stdout)
    assert found["reasons"][0] == lacking and len(found["reasons"]) == 3
    assert found["advice"] == advice.removeprefix("what to do: ")


def test_json_has_the_same(gone: Gone) -> None:
    done = gone.done[AS_JSON]
    assert done.returncode == 1
    found = json.loads(done.stdout)
    assert (found["controllers"], found["answering"], found["majority"]) == ([1, 2, 3], [gone.survivor], 2)
    for node in found["nodes"]:
        assert node["endpoint"] == gone.address(node["nodeId"])
        assert node["answers"] == (node["nodeId"] == gone.survivor)
        assert (node["unreachableSince"] is None) == node["answers"]
        assert node["trouble"] == (None if node["answers"] else gone.why)
    assert len(found["nodes"]) == 3
    assert "no leader can be elected" in found["finding"]
    assert "recover-quorum" in found["advice"]


def test_json_of_kafkas_other_tools_has_it_too(gone: Gone) -> None:
    done = gone.done[TOOL_AS_JSON]
    assert done.returncode == 1
    assert json.loads(done.stdout)["answering"] == [gone.survivor]
    check_said(gone, done.stderr)


def test_the_autopilot_says_it(gone: Gone) -> None:
    assert gone.done[PILOT].returncode == 1
    check_said(gone, gone.done[PILOT].stdout)
    assert json.loads(gone.done[PILOT_JSON].stdout)["survey"]["answering"] == [gone.survivor]


def test_where_only_the_dead_are_named_they_are_the_only_ones_told_of(gone: Gone) -> None:
    done, dead = gone.done[TO_THE_DEAD], gone.address(gone.lost[0])
    assert done.returncode == 1
    assert f"{dead} does not answer, since " in done.stderr
    assert "none of the nodes that were asked answers" in done.stderr
    assert gone.address(gone.survivor) not in done.stderr


@pytest.mark.parametrize("command", WITH_A_TIMEOUT, ids=" ".join)
def test_a_timeout_that_is_given_is_kept_and_it_is_said_meanwhile(gone: Gone, command: tuple[str, ...]) -> None:
    done = gone.done[command]
    assert done.returncode == 1
    waiting, failed = (done.stderr + done.stdout).split("Timed out waiting for a node assignment. Call: ")
    assert waiting.startswith("still waiting for the answer to ")
    check_said(gone, waiting)
    check_said(gone, failed)


def test_an_observer_says_whom_it_follows_and_for_whom_it_waits(tmp_path: Path) -> None:
    with server_quorum(tmp_path) as quorum:
        leader = quorum.leader()
        survivor, other = (number for number in (1, 2, 3) if number != leader)
        command = ["observe", "--output", "none", "--bootstrap-controller", quorum.addresses[survivor - 1]]
        with subprocess.Popen([*OURS, *command], stderr=subprocess.PIPE, text=True) as observing:
            watchdog = threading.Timer(PATIENCE_S, observing.kill)
            watchdog.start()
            assert observing.stderr is not None
            followed = (
                rf"connected to cluster {quorum.cluster_id}: node {leader} leads in epoch \d+; .* up to offset \d+"
            )
            assert re.match(followed, _line_with(observing.stderr, "connected"))
            quorum.freeze(other)
            quorum.kill(leader)
            assert re.search(r"goes up to offset \d+; waiting", _line_with(observing.stderr, "no leader answers"))
            assert "nobody listens there" in _line_with(observing.stderr, f"node {leader} (")
            assert "no leader can be elected" in _line_with(observing.stderr, f"node {survivor} of the controllers")
            quorum.thaw(other)
            assert "leads in epoch" in _line_with(observing.stderr, "connected")
            observing.send_signal(signal.SIGINT)
            assert observing.wait() == 0
            watchdog.cancel()


def _line_with(output: IO[str], text: str) -> str:
    return next(line for line in output if text in line)
