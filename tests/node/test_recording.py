"""What a node recorded is replayed to the same effects; a changed replica, or a changed recording, is noticed."""

from __future__ import annotations

import json
import threading

import pytest
import trio
from click.testing import CliRunner
from nodes import Lab, run

from kraftcore.cli.simulate import simulate
from kraftcore.errors import InvariantError, LocalError
from kraftcore.node import installer
from kraftcore.raft import succession
from kraftcore.simulation.replay import replay


def record(path, busy, **settings):
    """Three nodes, the first of which records while ``busy(nodes)`` runs; what it said of itself at the end."""
    found = []

    async def main():
        lab = Lab(snapshot_bytes=3000, segment_bytes=4096, retention_bytes=2000, cleaning_period_ms=50, **settings)
        async with lab.node(1, record_file=str(path)) as one, lab.node(2) as two, lab.node(3) as three:
            await one.wait_leader()
            while len(one.status().voters) < 3:
                await trio.sleep(0.01)
            await busy([one, two, three])
            found.append(one.status())

    run(main, limit_s=60)
    return found[0]


async def leads_and_follows(nodes):
    one, two, three = nodes
    for number in range(60):
        await one.append(b"%d" % number * 50)
    await one.read_barrier()
    await one.snapshot_now()
    await one.transfer_leadership(2)
    while not two.is_leader:
        await trio.sleep(0.01)
    for number in range(40):
        await two.append(b"%d" % number * 60, forward=True)
    await one.append(b"forwarded", forward=True)
    await three.read_barrier()
    await trio.sleep(0.2)  # it cleans meanwhile


@pytest.mark.parametrize("inline_flush_bytes", [1 << 20, 0], ids=["flushed at once", "flushed in a thread"])
def test_a_recorded_run_is_had_again(tmp_path, inline_flush_bytes):
    path = tmp_path / "recording"
    status = record(path, leads_and_follows, inline_flush_bytes=inline_flush_bytes)
    with path.open() as lines:
        found = replay(lines)
    assert found.events > 100
    assert found.epoch >= status.epoch
    assert found.log_end_offset >= status.log_end_offset
    kinds = {json.loads(line).get("event") for line in path.read_text().splitlines()}
    assert {"received", "answered", "propose", "flushed", "tick", "snapshot written", "barrier", "transfer"} <= kinds
    result = CliRunner().invoke(simulate, ["--replay", str(path), "--json"])
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["events"] == found.events


def test_a_change_is_noticed(tmp_path, monkeypatch):
    async def short(nodes):
        for _ in range(5):
            await nodes[0].append(b"record")

    path = tmp_path / "recording"
    record(path, short)
    lines = path.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"propose"' in line)
    entry = json.loads(lines[at])
    entry["batches"] = entry["batches"] * 2
    changed = [*lines[:at], json.dumps(entry) + "\n", *lines[at + 1 :]]
    with pytest.raises(InvariantError, match="was recorded, it is"):
        replay(changed)
    with monkeypatch.context() as patch:
        patch.setattr(succession, "heard_from", lambda *_: None)
        with pytest.raises(InvariantError, match="event"):
            replay(lines)
    assert replay([*lines[:at], lines[at][:-9]]).events <= at  # cut off in the middle of a line
    (tmp_path / "changed").write_text("".join(changed))
    result = CliRunner().invoke(simulate, ["--replay", str(tmp_path / "changed")])
    assert result.exit_code == 1
    assert "VIOLATION: event" in result.output


@pytest.mark.parametrize("text", ["", "{}\n", "nonsense\n", '{"format": 99}\n'])
def test_what_is_no_recording_is_refused(text):
    with pytest.raises(LocalError, match="recording"):
        replay([text] if text else [])


def test_a_received_snapshot_is_had_again(tmp_path, monkeypatch):
    """A node that comes late installs a snapshot, in another thread than its own; the recording has both events."""
    path = tmp_path / "recording"
    steps = []

    def watched(name):
        original = getattr(installer, name)

        def generator(*arguments):
            steps.append((name, threading.current_thread() is threading.main_thread()))
            event = yield from original(*arguments)
            steps.append((name, threading.current_thread() is threading.main_thread()))
            return event

        monkeypatch.setattr(installer, name, generator)

    watched("verifying")
    watched("installing")

    async def main():
        lab = Lab(snapshot_bytes=3000, segment_bytes=4096, retention_bytes=2000, cleaning_period_ms=50)
        async with lab.node(1) as one, lab.node(2):
            await one.wait_leader()
            while not one.status().log_start_offset:
                await one.append(b"x" * 100, forward=True)
            async with lab.node(3, record_file=str(path)) as three:
                while not three.status().log_start_offset:
                    await trio.sleep(0.01)
                offset = (await one.append(b"after", forward=True)).offset
                await three.wait_applied(offset)

    run(main, limit_s=60)
    # Generators begin when the thread first asks them.
    assert {name for name, _ in steps} == {"verifying", "installing"}
    assert {is_main for _, is_main in steps} == {False}
    kinds = [json.loads(line).get("event") for line in path.read_text().splitlines()]
    assert kinds.index("snapshot verified") < kinds.index("snapshot installed")
    with path.open() as lines:
        assert replay(lines).log_end_offset > 0
    broken = [line.replace('"install (', '"install (9') for line in path.read_text().splitlines(keepends=True)]
    with pytest.raises(InvariantError, match="install"):
        replay(broken)
