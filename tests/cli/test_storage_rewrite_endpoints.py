"""``storage rewrite-endpoints``: three controllers move to other ports, and go on with what they had."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_lab import free_port
from project import ROOT
from server_quorum import note, server_quorum

from kraftcore.cli import main
from kraftcore.core.batch import RecordBatch, build_batch, iter_batches
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.log import Log
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.control_records import (
    control_batch,
    kraft_version,
    kraft_voters,
    leader_change,
    voter_changes,
    voter_entries,
)
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.storage.snapshot_batches import SnapshotWriter
from kraftcore.storage.snapshots import SnapshotStore

Capture = pytest.CaptureFixture[str]
PARTITION = "__cluster_metadata-0"


def rewrite(capture: Capture, file: Path, *arguments: str) -> tuple[int, str, str]:
    status = main(["storage", "rewrite-endpoints", "--config", str(file), *arguments])
    out, err = capture.readouterr()
    return status, out, err


def log_batches(directory: Path) -> list[RecordBatch]:
    return [
        batch for path in sorted((directory / PARTITION).glob("*.log")) for batch in iter_batches(path.read_bytes())
    ]


def named_ports(batches: list[RecordBatch]) -> set[int]:
    return {
        endpoint.port
        for batch in batches
        if batch.is_control
        for _, _, voters in voter_changes(batch)
        for voter in voters or ()
        for endpoint in voter.endpoints
    }


def test_three_controllers_whose_addresses_all_changed(tmp_path: Path, capsys: Capture) -> None:
    """Shown first; then written on each, the same bytes; then they elect a leader and have all records."""
    with server_quorum(tmp_path) as quorum:
        quorum.append([note("kept")], client_id=1)
        for number in (1, 2, 3):
            quorum.stop(number)
        old = {int(address.split(":")[1]) for address in quorum.addresses}
        ports = [free_port() for _ in range(3)]
        quorum.addresses = [f"127.0.0.1:{port}" for port in ports]
        given = ",".join(f"{number}@{address}" for number, address in enumerate(quorum.addresses, 1))
        file = tmp_path / "c1.properties"
        status, _, err = rewrite(capsys, file, "--controllers", given)
        assert (status, "but its file says CONTROLLER://127.0.0.1:" in err) == (1, True)
        for number, port in enumerate(ports, 1):
            listener = f"CONTROLLER://127.0.0.1:{port}"
            servers = ",".join(quorum.addresses)
            quorum.rewrite(number, {"listeners": listener, "controller.quorum.bootstrap.servers": servers})
        status, _, err = rewrite(capsys, file, "--controllers", given.split(",3@")[0])
        assert (status, "name all voters" in err) == (1, True)
        before = log_batches(tmp_path / "d1")
        status, out, _ = rewrite(capsys, file, "--controllers", given)
        assert status == 0
        assert f"-> CONTROLLER://127.0.0.1:{ports[2]}" in out
        assert "Nothing was changed" in out
        assert [batch.raw for batch in log_batches(tmp_path / "d1")] == [batch.raw for batch in before]
        for number in (1, 2, 3):
            rewritten = [f"c{number}.properties", "--controllers", given, "--execute", "--output", "json"]
            status, out, _ = rewrite(capsys, tmp_path / rewritten[0], *rewritten[1:])
            found = json.loads(out)
            assert (status, found["written"]) == (0, True)
            assert [voter["newEndpoints"] for voter in found["voters"]] == [
                [f"CONTROLLER://{address}"] for address in quorum.addresses
            ]
            batches = log_batches(tmp_path / f"d{number}")
            assert named_ports(batches) == set(ports)
            assert not named_ports(batches) & old
        after = log_batches(tmp_path / "d1")
        assert [(each.base_offset, each.leader_epoch, each.max_timestamp_ms, each.count) for each in after] == [
            (each.base_offset, each.leader_epoch, each.max_timestamp_ms, each.count) for each in before
        ]
        for other in (2, 3):  # whoever is behind has the same bytes up to there
            theirs = [batch.raw for batch in log_batches(tmp_path / f"d{other}")]
            ours = [batch.raw for batch in after]
            assert theirs[: min(len(ours), len(theirs))] == ours[: min(len(ours), len(theirs))]
        status, out, _ = rewrite(capsys, file, "--controllers", f"{given},4@127.0.0.1:1", "--execute")
        assert (status, "4 is no voter" in out, "Nothing is to be done here" in out) == (0, True, True)
        for number in (1, 2, 3):
            quorum.start(number)
        quorum.append([note("goes on")], client_id=2)
        assert quorum.voters() == {1, 2, 3}
        leader = tmp_path / f"d{quorum.leader()}" / PARTITION
        log = b"".join(path.read_bytes() for path in leader.glob("*.log"))
        assert b"kept" in log
        assert b"goes on" in log


KILLED = """
import os, sys
from kraftcore.cli import main, rewrite_endpoints
from kraftcore.core.disk.os_files import OsFiles

steps = int(sys.argv[1])

def counted(call):
    def step(self, *arguments):
        global steps
        steps -= 1
        if steps == 0:
            os.kill(os.getpid(), 9)
        call(self, *arguments)
    return step

class Files(OsFiles):
    rename = counted(OsFiles.rename)
    unlink = counted(OsFiles.unlink)
    set_read_only = counted(OsFiles.set_read_only)
    sync_folder = counted(OsFiles.sync_folder)

rewrite_endpoints.OsFiles = Files
sys.exit(main(sys.argv[2:]))
"""


def make_controller(folder: Path) -> Path:
    """A stopped controller: two segments and two snapshots, each with a record of voters. Returns its file."""
    file = folder / "c1.properties"
    file.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlisteners=CONTROLLER://new1:9093\n"
        f"controller.quorum.bootstrap.servers=new1:9093\nlog.dirs={folder}/d1\n"
    )
    ids = [Uuid.random() for _ in range(2)]
    initial = ",".join(f"{number}@old{number}:9093:{each}" for number, each in enumerate(ids, 1))
    format_ = ["storage", "format", "-c", str(file), "-t", "MkU3OEVBNTcwNTJENDM2Qk", "--initial-controllers", initial]
    assert main(format_) == 0
    voters = VoterSet(
        tuple(
            Voter(ReplicaKey(number, each), (Endpoint("CONTROLLER", f"old{number}", 9093),), VersionRange(0, 1))
            for number, each in enumerate(ids, 1)
        )
    )
    files, partition = OsFiles(), str(folder / "d1" / PARTITION)
    with Log.open(files, partition, now_ms=1) as log:
        for epoch in (1, 2):
            entries = [leader_change(1, voters, [1]), kraft_version(1), kraft_voters(voters)]
            log.assign_epoch_start_offset(epoch, log.log_end_offset)
            log.append_as_leader(control_batch(entries, 1), epoch, 1)
            log.append_as_leader(build_batch([note(f"epoch {epoch}")], timestamp_ms=1), epoch, 1)
            log.flush()
            log.roll(1)
    with SnapshotWriter(
        SnapshotStore(files, partition).create((4, 1)), now_ms=1, kraft_version=1, voters=voter_entries(voters)
    ) as writer:
        writer.append([note("epoch 1")], 1)
        writer.freeze(1)
    return file


def named_hosts(directory: Path) -> set[str]:
    files = [path for ending in ("log", "checkpoint") for path in (directory / PARTITION).glob(f"*.{ending}")]
    data = b"".join(path.read_bytes() for path in files)
    return {host for host in ("old1", "old2", "new1", "new2") if host.encode() in data}


def test_a_kill_at_any_step_leaves_a_directory_that_opens(tmp_path: Path, capsys: Capture) -> None:
    """Killed before each change of a name, then looked at, then run again: all is there, with the new addresses."""
    file = make_controller(tmp_path)
    capsys.readouterr()
    given = ["--controllers", "1@new1:9093,2@new2:9093"]
    whole = tmp_path / "whole"
    (tmp_path / "d1").rename(whole)
    killed = 0
    for step in range(1, 100):
        shutil.copytree(whole, tmp_path / "d1")
        command = ["storage", "rewrite-endpoints", "-c", str(file), *given, "--execute"]
        done = subprocess.run(
            [sys.executable, "-P", "-c", KILLED, str(step), *command], check=False, capture_output=True
        )
        if done.returncode == 0:
            break
        assert done.returncode == -signal.SIGKILL, done
        killed += 1
        status, out, _ = rewrite(capsys, file, *given, "--output", "json")
        found = json.loads(out)
        assert status == 0
        assert [voter["id"] for voter in found["voters"]] == [1, 2]
        assert rewrite(capsys, file, *given, "--execute")[0] == 0
        assert named_hosts(tmp_path / "d1") == {"new1", "new2"}
        assert [batch.base_offset for batch in log_batches(tmp_path / "d1")] == [0, 3, 4, 7]
        assert not list((tmp_path / "d1" / PARTITION).glob("*.log.deleted"))
        shutil.rmtree(tmp_path / "d1")
    assert killed >= 8


def test_the_page_shows_the_command() -> None:
    text = (ROOT / "docs" / "operating.md").read_text()
    assert "kraftcore storage rewrite-endpoints -c c1.properties --controllers 1@h1:9093,2@h2:9093,3@h3:9093" in text
