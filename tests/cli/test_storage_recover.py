"""``storage recover-quorum``: what is left is shown first, and one survivor goes on when it is told to."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from kafka_lab import free_port
from project import ROOT
from server_quorum import ServerQuorum, note, server_quorum

from kraftcore.cli import main

Capture = pytest.CaptureFixture[str]


def recover(capture: Capture, file: Path, *arguments: str) -> tuple[int, str, str]:
    status = main(["storage", "recover-quorum", "--config", str(file), *arguments])
    out, err = capture.readouterr()
    return status, out, err


def records(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*/*.log")))


def test_a_survivor_of_three_goes_on_alone(tmp_path: Path, capsys: Capture) -> None:
    """Two disks are lost. The third's records are kept, it leads, and a new disk becomes a voter again."""
    with server_quorum(tmp_path) as quorum:
        quorum.append([note("kept 1"), note("kept 2")], client_id=1)
        status, _, err = recover(capsys, tmp_path / "c3.properties")
        assert (status, err.count("\n")) == (1, 1)  # it runs
        deadline = time.monotonic() + 60
        while b"kept 2" not in records(tmp_path / "d3"):  # committed by the other two, perhaps
            assert time.monotonic() < deadline
            time.sleep(0.01)
        for number in (1, 2, 3):
            quorum.kill(number)
        before = records(tmp_path / "d3")
        status, out, _ = recover(capsys, tmp_path / "c3.properties", "--output", "json")
        found = json.loads(out)
        assert status == 0
        assert found["onlyVoterFrom"] is None
        assert found["lostVoters"] == [1, 2]
        assert [voter["id"] for voter in found["voters"]] == [1, 2, 3]
        moved = f"CONTROLLER://127.0.0.1:{free_port()}"
        quorum.rewrite(3, {"listeners": moved})
        assert json.loads(recover(capsys, tmp_path / "c3.properties", "--output", "json")[1])["endpointOfFile"] == moved
        assert (
            f"{found['endpoints'][0]} by its log, {moved} by its file" in recover(capsys, tmp_path / "c3.properties")[1]
        )
        quorum.addresses[2] = moved.removeprefix("CONTROLLER://")
        quorum.rewrite(1, {"controller.quorum.bootstrap.servers": quorum.addresses[2]})
        status, out, _ = recover(capsys, tmp_path / "c3.properties")
        assert f"what other voters (1, 2) committed beyond offset {found['logEndOffset']} is lost" in out
        assert "Nothing was changed." in out
        assert records(tmp_path / "d3") == before
        status, out, _ = recover(capsys, tmp_path / "c3.properties", "--accept-data-loss")
        assert (status, "Node 3 is the only voter now" in out) == (0, True)
        assert records(tmp_path / "d3").startswith(before)
        assert json.loads(recover(capsys, tmp_path / "c3.properties", "--output", "json")[1])["endpoints"] == [moved]
        status, _, err = recover(capsys, tmp_path / "c3.properties", "--accept-data-loss")
        assert (status, "is the only voter already" in err) == (1, True)
        quorum.start(3)
        assert quorum.leader() == 3
        quorum.append([note("goes on")], client_id=2)
        assert all(value in records(tmp_path / "d3") for value in (b"kept 1", b"kept 2", b"goes on"))
        grow(quorum, tmp_path, capsys)


def test_a_mirror_starts_as_a_node_after_one_command(tmp_path: Path, capsys: Capture) -> None:
    """All disks are lost, but for what ``observe`` kept: a node refuses it with the command, which makes it its own."""
    file, mirror = tmp_path / "c1.properties", tmp_path / "mirror"
    with server_quorum(tmp_path) as quorum:
        quorum.append([note("kept 1"), note("kept 2")], client_id=1)
        servers = ",".join(quorum.addresses)
        observe = ["observe", "--bootstrap-controller", servers, "--directory", str(mirror), "--output", "none"]
        assert main([*observe, "--once"]) == 0
        for number in (1, 2, 3):
            quorum.kill(number)
            (tmp_path / f"d{number}").rename(tmp_path / f"lost{number}")
        quorum.rewrite(1, {"log.dirs": str(mirror)})
        capsys.readouterr()
        assert main(["server", "start", str(file)]) == 1
        assert "is a mirror, as kraftcore observe keeps it" in (said := capsys.readouterr().err)
        assert "make node 1 of it (kraftcore storage recover-quorum" in said
        status, out, _ = recover(capsys, file)
        assert (status, "a directory without an id" in out, "voters        1, 2, 3" in out) == (0, True, True)
        assert "node.id=-1" in (mirror / "meta.properties").read_text()  # looking changes nothing
        status, out, _ = recover(capsys, file, "--accept-data-loss")
        assert (status, "Node 1 is the only voter now" in out) == (0, True)
        quorum.start(1)
        assert (quorum.leader(), quorum.voters()) == (1, {1})
        quorum.append([note("goes on")], client_id=2)
        assert all(value in records(mirror) for value in (b"kept 1", b"kept 2", b"goes on"))


def test_a_directory_that_is_deleted_while_the_node_runs(tmp_path: Path, capsys: Capture) -> None:
    """The node stops, and does not start again: both times it says of which directory, and what to do."""
    with server_quorum(tmp_path) as quorum:
        shutil.rmtree(tmp_path / "d3")
        for sequence in range(600):
            if not quorum.runs(3):
                break
            quorum.append([note(f"{sequence}")], client_id=1, sequence=sequence)
            time.sleep(0.1)
        assert not quorum.runs(3)
        said = (tmp_path / "c3.out").read_text()
        assert "[Errno" not in said
        assert f"the node's directory {tmp_path}/d3 is gone: if its disk is not mounted, mount it" in said
        assert "(kraftcore storage format --no-initial-controllers; docs/damage.md, Lost disks)" in said
        capsys.readouterr()
        assert main(["server", "start", str(tmp_path / "c3.properties")]) == 1
        said = capsys.readouterr().err
        assert f"{tmp_path}/d3 is not there. Of a node that ran before, it is gone" in said
        assert f"format {tmp_path}/d3 anew, as a node that joins the others (kraftcore storage format --no-ini" in said


def grow(quorum: ServerQuorum, folder: Path, capsys: Capture) -> None:
    """Node 1 begins with an empty directory and is made a voter."""
    (folder / "d1").rename(folder / "lost")
    file = str(folder / "c1.properties")
    assert main(["storage", "format", "-c", file, "-t", quorum.cluster_id, "--no-initial-controllers"]) == 0
    quorum.start(1)
    quorum.add(1)
    assert quorum.voters() == {1, 3}
    capsys.readouterr()


def test_static_voters_and_foreign_directories_are_told_what_to_do(tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "c1.properties"
    file.write_text(
        "process.roles=controller\nnode.id=1\ncontroller.listener.names=CONTROLLER\nlisteners=CONTROLLER://127.0.0.1:1\n"
        f"controller.quorum.voters=1@127.0.0.1:1,2@127.0.0.1:2\nlog.dirs={tmp_path}/d1\n"
    )
    status, _, err = recover(capsys, file)
    assert (status, "holds no __cluster_metadata-0" in err) == (1, True)
    assert main(["storage", "format", "-c", str(file), "-t", "MkU3OEVBNTcwNTJENDM2Qk"]) == 0
    (tmp_path / "d1" / "__cluster_metadata-0").mkdir()
    capsys.readouterr()
    status, _, err = recover(capsys, file, "--accept-data-loss")
    assert (status, "name the nodes that are left in controller.quorum.voters" in err) == (1, True)


def test_the_page_shows_the_commands() -> None:
    text = (ROOT / "docs" / "operating.md").read_text()
    assert "kraftcore storage recover-quorum -c c1.properties --accept-data-loss" in text
