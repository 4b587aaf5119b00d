"""The ``simulate`` command: what it prints, and its exit status."""

from __future__ import annotations

import json
import re
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from kraftcore.cli import cli
from kraftcore.plugins.broker.simulated.planted import FAULTS as IN_PARTITIONS
from kraftcore.simulation.planted import FAULTS


def run(*arguments):
    return CliRunner().invoke(cli, ["simulate", *arguments])


def test_a_seed_prints_its_options_first_and_its_verdict_last():
    result = run("--seed", "7", "--nodes", "3", "--minutes", "0.2")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("seed=7 commit=")
    assert "nodes=3" in lines[0]
    assert lines[-1].startswith("seed 7: ok; ")


def test_seeds_as_json():
    result = run("--seeds", "1..3", "--nodes", "3", "--minutes", "0.1", "--json")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert [line.get("seed") for line in lines] == [1, 2, 3, None]
    assert lines[-1]["violations"] == 0


def test_a_violation_is_explained_and_the_status_tells():
    with FAULTS["stale-log-elected"].planted():
        result = run("--seed", "1", "--nodes", "4", "--minutes", "0.5", "--faults", "loss,partition,crash")
    assert result.exit_code == 1
    assert "seed 1: VIOLATION" in result.output
    assert "replay: kraftcore simulate --seed 1 --nodes 4 --minutes 0.5 --faults loss,partition,crash" in result.output
    assert "shortest failing prefix found: " in result.output
    assert "role         leader in epoch" in result.output


def test_a_partition_s_history_explains_what_broke():
    with IN_PARTITIONS["leader-alone"].planted():
        result = run("--workload", "partitions", "--seed", "1", "--nodes", "3", "--minutes", "0.2")
    assert result.exit_code == 1
    assert "replay: kraftcore simulate --seed 1 --nodes 3 --minutes 0.2 --workload partitions" in result.output
    found = re.search(r"history of (\S+-\d), and what else went wrong", result.output)
    trace = result.output[found.end() :].splitlines()[2:]
    lines = [line for line in trace if line.split()[2:3] == [found[1]]]
    assert any(re.search(r" leads in epoch \d+, log 0-\d+ of epoch \d+, high watermark \d+$", line) for line in lines)
    assert not any("->" in line for line in trace)
    assert {line.split()[2] for line in trace if re.fullmatch(r"\S+-\d", line.split()[2])} == {found[1]}


def test_the_picture(tmp_path):
    target = tmp_path / "run.svg"
    assert run("--seed", "2", "--nodes", "3", "--minutes", "0.1", "--trace", str(target)).exit_code == 0
    assert target.read_text().startswith("<svg")


def test_partitions_of_brokers():
    result = run("--workload", "partitions", "--seed", "3", "--nodes", "3", "--minutes", "0.1", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output.splitlines()[-1])["verdict"] == "ok"
    result = run("--workload", "partitions", "--planted-faults", "--fault", "leader-alone", "--tries", "3", "--json")
    assert json.loads(result.output)["caught"]


def test_planted_faults_print_one_object_a_line():
    result = run("--planted-faults", "--fault", "votes-twice", "--fault", "appended-twice", "--tries", "20", "--json")
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.output.splitlines()]
    assert [(line["fault"], line["caught"]) for line in lines] == [("votes-twice", True), ("appended-twice", True)]
    assert all(1 <= line["seeds"] <= 20 for line in lines)


def test_a_planted_fault_that_is_not_caught_fails():
    assert run("--planted-faults", "--fault", "barrier-unasked", "--tries", "1").exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--seed", "1", "--seeds", "1..2"),
        ("--seeds", "3..1"),
        ("--seeds", "x"),
        ("--seed", "1", "--faults", "earthquake"),
        ("--seeds", "1..2", "--trace", "x.svg"),
        ("--planted-faults", "--fault", "nothing"),
        ("--seed", "1", "--fault", "votes-twice"),
        ("--seed", "1", "--minutes", "nan"),
        ("--seed", "1", "--minutes", "inf"),
    ],
)
def test_wrong_usage(arguments):
    assert run(*arguments).exit_code == 2


def test_what_is_no_text_is_no_recording(tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xfe\0")
    result = run("--replay", str(tmp_path / "x"))
    assert (result.exit_code, "this is no recording of a node" in result.output) == (2, True)


def test_there_may_be_more_seeds_than_a_list_can_have_elements(monkeypatch):
    monkeypatch.setattr("kraftcore.cli.simulate._run", Mock(side_effect=KeyboardInterrupt))
    assert run("--seeds", f"1..{2**64}").exit_code == 130
