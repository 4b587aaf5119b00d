"""``kraftcore autopilot``: what it prints, and how it ends. What it decides and does: tests/plugins, tests/interop."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_lab import OURS
from served_node import Served, serve

from kraftcore.cli import main
from kraftcore.cli.autopilot import Printer
from kraftcore.plugins.autopilot import Action, Decision, Pilot, Round, State
from kraftcore.protocol.election_state import ReplicaKey


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serve(tmp_path_factory.mktemp("node")) as found:
        yield found


def once(served: Served, *arguments: str) -> int:
    return main(["autopilot", "run", "--bootstrap-controller", served.address, "--once", *arguments])


def test_what_is_decided_is_said_as_text_and_as_json(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    assert once(served) == 0
    assert capsys.readouterr().out.endswith("Z hold: 1 of 3 voters, and no controller waits\n")
    assert once(served, "--voters", "1") == 0
    assert capsys.readouterr().out.endswith("Z all is as wanted: 1 voters\n")
    assert once(served, "--output", "json", "--apply") == 0
    line = json.loads(capsys.readouterr().out)
    assert set(line) == {"time", "applied", "error", "survey", "decisions"}
    (decision,) = line["decisions"]
    assert (line["applied"], decision["action"], decision["nodeId"]) == (None, "hold", None)


def test_a_quorum_that_cannot_be_looked_at_is_an_error(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=300\n")
    arguments = ["--bootstrap-controller", "127.0.0.1:1", "--once", "--command-config", str(config)]
    assert main(["autopilot", "run", *arguments]) == 1
    out = capsys.readouterr().out
    assert "cannot be looked at" in out
    assert "nobody listens there" in out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--candidates", "1,x"],
        ["--voters", "0"],
        ["--dead-after", "0"],
        ["--dead-after", "nan"],
        ["--interval", "-1"],
        ["--interval", "inf"],
        ["--interval", "1e308"],
        ["--dead-after", "1e308"],
    ],
)
def test_wrong_usage_is_said(served: Served, capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert once(served, *arguments) == 2
    assert arguments[0] in capsys.readouterr().err


def test_what_others_say_cannot_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    refused = Decision(Action.REMOVE, ReplicaKey(2), "it is gone")
    printer = Printer(apply=True, as_json=False)
    printer.tell(Round(None, (), error="\x1b[2Jnobody is here"))
    printer.tell(Round(State(1, True, ()), [refused], applied=False, error="\x1b]0;title\x07"))
    told, again = capsys.readouterr().out.splitlines()
    assert told.endswith(" \\u001b[2Jnobody is here")
    assert again.endswith(" [refused: \\u001b]0;title\\u0007]")


def test_the_least_pause_is_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses = []

    async def run(self: Pilot, tell: object, interval_ms: int = 5000) -> None:
        pauses.append(interval_ms)

    monkeypatch.setattr(Pilot, "run", run)
    assert main(["autopilot", "run", "--bootstrap-controller", served.address, "--interval", "0.0001"]) == 0
    assert pauses == [1]


def test_a_reader_that_goes_away_ends_it(served: Served) -> None:
    command = [*OURS, "autopilot", "run", "--bootstrap-controller", served.address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(20) == 141
