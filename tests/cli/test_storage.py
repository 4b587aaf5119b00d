"""``storage`` against what Kafka's own tool said and wrote."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from storage_cases import CONTROLLER, IDS, TERSE, Said, blank, comparable_files, prepare, stored

from kraftcore.cli import main
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import Uuid
from kraftcore.storage.snapshot_batches import SnapshotReader
from kraftcore.storage.snapshots import SnapshotStore

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "formats"
Capture = pytest.CaptureFixture[str]


def run(capture: Capture, *arguments: str) -> Said:
    status = main(["storage", *arguments])
    out, err = capture.readouterr()
    return Said(status, blank(out), err)


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_every_run_ends_as_kafkas_did(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cases = stored()
    assert [case for case, _ in cases] == prepare(tmp_path)
    assert len(cases) > 90
    for case, kafka in cases:
        ours = run(capsys, *case.arguments)
        assert (ours.status, ours.out) == (kafka.status, kafka.out), case
        if kafka.err.startswith("usage:"):
            assert ours.err.startswith(("Usage: kraftcore storage", "Error: Option '-t' requires an argument")), case
        elif kafka.kind in TERSE or case.scene == "refused":
            assert ours.err == kafka.err, case
        else:
            assert ours.err.count("\n") == 1, case


@pytest.mark.parametrize(
    ("node", "arguments"),
    [
        ("c2", ["--no-initial-controllers", "--release-version", "4.0"]),
        ("c3", ["--standalone", "--feature", "transaction.version=0"]),
    ],
)
def test_the_files_are_the_golden_ones(node: str, arguments: list[str], tmp_path: Path, capsys: Capture) -> None:
    golden = GOLDEN / node
    lines = (golden / "server.properties").read_text().splitlines()
    kept = [line for line in lines if not line.startswith(("log.dir", "metadata.log.dir"))]
    file = tmp_path / "server.properties"
    file.write_text("\n".join([*kept, f"log.dirs={tmp_path / 'data'}"]))
    cluster = next(
        line.partition("=")[2]
        for line in (golden / "meta.properties").read_text().splitlines()
        if line.startswith("cluster.id")
    )
    assert run(capsys, "format", "--config", str(file), "--cluster-id", cluster, *arguments).status == 0
    wanted = {name: content[1:] for name, content in comparable_files(golden).items() if is_formatted(name)}
    assert {name: content[1:] for name, content in comparable_files(tmp_path / "data").items()} == wanted


def is_formatted(name: str) -> bool:
    return name in ("meta.properties", "bootstrap.checkpoint") or name.endswith(
        "/" + "0" * 20 + "-" + "0" * 10 + ".checkpoint"
    )


def test_random_uuid_draws_a_usable_id(capsys: Capture) -> None:
    said = run(capsys, "random-uuid")
    assert said.status == 0
    assert str(Uuid.from_string(said.out.strip())) == said.out.strip()
    assert run(capsys, "random-uuid").out != said.out
    (found,) = objects(run(capsys, "random-uuid", "--output", "json").out)
    assert len(found["uuid"]) == 22


@pytest.fixture
def server(tmp_path: Path) -> Path:
    file = tmp_path / "server.properties"
    file.write_text(CONTROLLER + f"log.dirs={tmp_path}/a,{tmp_path}/b\n")
    return file


def test_json_says_what_was_formatted(server: Path, capsys: Capture) -> None:
    voters = f"3@h:9093:{IDS[0]},4@[::1]:9093:{IDS[1]}"
    arguments = ["format", "-c", str(server), "-t", "abc", "-I", voters, "--output", "json"]
    (found,) = objects(run(capsys, *arguments).out)
    assert found["clusterId"] == "abc"
    assert found["metadataVersion"] == "4.3-IV0"
    assert found["levels"]["kraft.version"] == 1
    assert found["initialControllers"] == voters.split(",")
    assert found["bootstrapRecords"][0] == {
        "type": "FEATURE_LEVEL_RECORD",
        "data": {"name": "metadata.version", "featureLevel": 30},
    }
    kinds = {os.path.basename(each["directory"]): each["kind"] for each in found["formatted"]}
    assert kinds == {"a": "dynamic metadata voter directory", "b": "data directory"}
    assert IDS[0] in [each["directoryId"] for each in found["formatted"]]
    (again,) = objects(run(capsys, *arguments, "-g").out)
    assert again["formatted"] == []
    assert len(again["alreadyFormatted"]) == 2
    (info,) = objects(run(capsys, "info", "-c", str(server), "--output", "json").out)
    assert info["metadata"]["node.id"] == "3"
    assert info["problems"] == []
    assert len(info["directories"]) == 2


def test_a_directory_that_is_named_twice_is_one(server: Path, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "twice.properties"
    file.write_text(CONTROLLER + f"log.dirs={tmp_path}/a,{tmp_path}/a/\nmetadata.log.dir={tmp_path}/./a\n")
    (found,) = objects(run(capsys, "format", "-c", str(file), "-t", "abc", "--standalone", "--output", "json").out)
    assert [each["directory"] for each in found["formatted"]] == [f"{tmp_path}/a"]


def test_json_of_the_tables(capsys: Capture) -> None:
    (mapping,) = objects(run(capsys, "version-mapping", "-r", "3.9", "--output", "json").out)
    assert mapping["metadataVersion"] == "3.9-IV0"
    assert mapping["levels"]["kraft.version"] == 1
    (found,) = objects(
        run(capsys, "feature-dependencies", "-f", "eligible.leader.replicas.version=1", "--output", "json").out
    )
    assert found["features"][0]["dependencies"] == {"metadata.version": 23}
    said = run(capsys, "info", "-c", "/nowhere", "--output", "json")
    assert (said.status, said.out) == (1, "")
    assert said.err == "/nowhere: No such file or directory\n"


def test_a_voter_may_have_an_ipv6_address(server: Path, tmp_path: Path, capsys: Capture) -> None:
    # Kafka 4.3.1 forgets the brackets and fails.
    server.write_text(server.read_text() + "advertised.listeners=CONTROLLER://[::1]:19093\n")
    (found,) = objects(run(capsys, "format", "-c", str(server), "-t", "abc", "-s", "--output", "json").out)
    assert found["initialControllers"][0].startswith("3@[::1]:19093:")
    store = SnapshotStore(OsFiles(), str(tmp_path / "a" / "__cluster_metadata-0"))
    with SnapshotReader(store.open((0, 0))) as reader:
        assert reader.voters is not None
        (voter,) = reader.voters
    assert [(each.name, each.host, each.port) for each in voter.endpoints] == [("CONTROLLER", "0:0:0:0:0:0:0:1", 19093)]


def test_a_format_that_was_killed_is_run_again(server: Path, tmp_path: Path, capsys: Capture) -> None:
    arguments = ["format", "-c", str(server), "-t", "abc", "-s"]
    assert run(capsys, *arguments).status == 0
    checkpoint = tmp_path / "a" / "__cluster_metadata-0" / ("0" * 20 + "-" + "0" * 10 + ".checkpoint")
    before = checkpoint.read_bytes()
    (tmp_path / "a" / "meta.properties").unlink()
    said = run(capsys, *arguments, "-g")
    assert said.status == 0
    assert "dynamic metadata voter directory" in said.out
    assert "data directory" not in said.out
    assert checkpoint.read_bytes() != before
    assert stat.S_IMODE(checkpoint.stat().st_mode) == 0o400


def test_a_directory_that_cannot_be_read_is_left_out(server: Path, tmp_path: Path, capsys: Capture) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text("version=1\n")
    said = run(capsys, "format", "-c", str(server), "-t", "abc", "-s")
    assert said.status == 1
    assert said.out.count("I/O error trying to read log directory") == 2
    assert said.err == "No available log directories to format.\n"
    (tmp_path / "b" / "meta.properties").unlink()
    said = run(capsys, "format", "-c", str(server), "-t", "abc", "-s")
    assert said.status == 0
    assert f"I/O error trying to read log directory {tmp_path}/a. Ignoring..." in said.out
    assert f"Formatting data directory {tmp_path}/b" in said.out


@pytest.mark.parametrize("name", ["format", "info", "random-uuid", "version-mapping", "feature-dependencies"])
def test_every_help_has_examples(name: str, capsys: Capture) -> None:
    assert main(["storage", name, "--help"]) == 0
    assert f"kraftcore storage {name}" in capsys.readouterr().out.partition("Examples:")[2]


def test_without_a_command_it_is_wrong_usage(capsys: Capture) -> None:
    said = run(capsys)
    assert said.status == 1
    assert "Missing command" in said.err
