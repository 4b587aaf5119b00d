"""``storage repair``, and what ``server start`` says of damage: the commands that docs/damage.md names."""

from __future__ import annotations

import json
import re
import socket
from pathlib import Path

import click
import pytest
import trio
from project import ROOT

from kraftcore import NodeConfig, StateMachine, open_node
from kraftcore.cli import cli, main

Capture = pytest.CaptureFixture[str]
LOG = "__cluster_metadata-0"


class Nothing(StateMachine):
    def apply(self, batch):
        return None

    def snapshot(self, sink):
        sink.append([b"x"])

    def restore(self, values):
        list(values)


@pytest.fixture
def file(tmp_path: Path, capsys: Capture) -> Path:
    """A server that ran, with a log in several segments."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    path = tmp_path / "c1.properties"
    path.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=C\ninternal.metadata.log.segment.bytes=4096\n"
        f"internal.metadata.max.batch.size.in.bytes=2048\nlisteners=C://127.0.0.1:{port}\nlog.dirs={tmp_path}/data\n"
        f"controller.quorum.bootstrap.servers=127.0.0.1:{port}\n"
    )
    assert main(["storage", "format", "-c", str(path), "-t", "abc", "--standalone"]) == 0

    async def fill():
        async with open_node(NodeConfig.from_properties(path), Nothing()) as node:
            await node.wait_leader()
            for number in range(100):
                await node.append(b"%d" % number + bytes(100))

    trio.run(fill)
    capsys.readouterr()
    return path


def run(capture: Capture, *arguments: str) -> tuple[int, str]:
    status = main(list(arguments))
    out, err = capture.readouterr()
    return status, out + err


def test_it_says_what_it_would_cut_before_it_cuts(file: Path, capsys: Capture):
    segments = sorted((file.parent / "data" / LOG).glob("*.log"))
    data = bytearray(segments[1].read_bytes())
    data[1000] ^= 1
    segments[1].write_bytes(data)
    status, refused = run(capsys, "server", "start", str(file))
    assert status == 1
    assert f"{segments[1]}: " in refused and "kraftcore storage repair (docs/damage.md)" in refused
    assert refused.count("\n") == 2  # the event "stopped", and the error
    sizes = [segment.stat().st_size for segment in segments]
    status, said = run(capsys, "storage", "repair", "--config", str(file))
    assert status == 1
    damage, remedy, loses = said.splitlines()
    assert damage.removeprefix("Damaged: ") == refused.splitlines()[-1]
    offset = int(re.fullmatch(r"With --execute: cut the log at offset (\d+), and delete .*\.log", remedy)[1])
    assert int(segments[1].stem) <= offset < int(segments[2].stem)
    assert re.fullmatch(rf"That loses: the records from offset {offset} on, at least up to \d+", loses)
    assert [segment.stat().st_size for segment in segments] == sizes
    status, done = run(capsys, "storage", "repair", "-c", str(file), "--execute")
    assert (status, done) == (0, said.replace("With --execute", "Now") + "Nothing is damaged.\n")
    assert [segment.exists() for segment in segments] == [True, True] + [False] * (len(segments) - 2)
    assert run(capsys, "storage", "repair", "-c", str(file)) == (0, "Nothing is damaged.\n")


def test_meta_properties_are_written_from_the_log(file: Path, capsys: Capture):
    path = file.parent / "data" / "meta.properties"
    before = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    path.unlink()
    status, refused = run(capsys, "server", "start", str(file))
    assert status == 1
    assert "is missing, though this directory holds a log" in refused and "--cluster-id" in refused
    status, said = run(capsys, "storage", "repair", "-c", str(file), "--execute")
    assert status == 1
    assert said.endswith("give --cluster-id (cluster_id)\n")
    status, said = run(capsys, "storage", "repair", "-c", str(file), "-t", "abc", "--execute", "--output", "json")
    assert status == 0
    (told,) = map(json.loads, said.splitlines())
    assert (told["mended"], told["loses"]) == (True, "nothing")
    assert sorted(before) == sorted(line for line in path.read_text().splitlines() if not line.startswith("#"))


def test_what_cannot_be_mended(file: Path, capsys: Capture):
    for path in (file.parent / "data" / LOG).iterdir():
        path.unlink()
    (file.parent / "data" / LOG).rmdir()
    status, refused = run(capsys, "server", "start", str(file))
    assert status == 1
    assert f"{LOG}: is missing; this node would forget" in refused and "as after a lost disk" in refused
    status, said = run(capsys, "storage", "repair", "-c", str(file), "--execute")
    assert status == 1
    assert said.endswith("Nothing here can mend it.\n")
    status, said = run(capsys, "storage", "repair", "-c", str(file), "--output", "json")
    assert json.loads(said)["remedy"] is None
    assert main(["storage", "repair", "--help"]) == 0


def test_the_pages_commands_exist():
    """Each command line in docs/damage.md: its commands and options."""
    text = (ROOT / "docs" / "damage.md").read_text()
    lines = [line.partition("#")[0].split() for line in text.splitlines() if line.startswith("    kraftcore ")]
    assert len(lines) >= 7
    for _, *words in lines:
        command, known = cli, set()
        while words:
            word = words.pop(0)
            if word.startswith("--"):
                option = next((each for each in known if word in each.opts), None)
                assert option is not None, f"{command.name} has no {word}"
                if not option.is_flag:
                    words.pop(0)
            elif isinstance(command, click.Group):
                command = command.get_command(click.Context(command), word)
                assert command is not None, f"there is no command {word}"
                known |= set(command.params)
