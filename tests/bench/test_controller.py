"""The benchmark of controllers runs, at smoke size; no figure is judged, only that each case gives one."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest
from project import ROOT

pytestmark = pytest.mark.deep

CASES = {
    "create-topic-1/1": "topics/s",
    "create-topic-1/16": "topics/s",
    "create-topic-1/64": "topics/s",
    "create-topics-1000": "topics/s",
    "create-topic-9999p": "partitions/s",
    "alter-partition/16": "partitions/s",
    "alter-partition-1000": "partitions/s",
    "configs/16": "requests/s",
    "heartbeats": "heartbeats/s",
    "observers-100": "topics/s",
    "fence": "ms",
    "fence-return": "ms",
    "fence-elect": "ms",
    "restart-log/100k": "ms",
    "failover/100k": "ms",
    "load-1m": "s",
    "load-1m-memory": "MiB",
}


def bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "controller", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)


def test_each_case_gives_a_figure_of_ours(tmp_path):
    done = bench("--smoke", "--json", "--peers", "kraftcore", "--dir", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["case"]: row["unit"] for row in rows} == CASES
    assert all(row["ours"] > 0 and row["note"] for row in rows)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_kafka_stands_beside_ours_with_its_defaults_and_without_its_linger(kafka, tmp_path):
    done = bench("--smoke", "--json", "--only", "create-topics-1000,fence", "--dir", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    names = ["create-topics-1000", "fence", "fence-return", "fence-elect"]
    assert [(row["case"], row["peer_name"]) for row in rows] == [
        (name, peer) for name in names for peer in ("kafka", "kafka-linger0")
    ]
    for row in rows:
        assert row["peer"] > 0
        ratio = row["ours"] / row["peer"] if row["better"] == "higher" else row["peer"] / row["ours"]
        assert row["ratio"] == pytest.approx(ratio, rel=0.01)


@pytest.fixture
def parts():
    """The benchmark's own modules; the folder of the repository is on the path meanwhile."""
    sys.path.append(str(ROOT))
    try:
        yield {name: import_module(f"bench.peers.controller.{name}") for name in ("loops", "nodes", "wire")}
    finally:
        sys.path.remove(str(ROOT))


def test_an_answer_that_is_not_asked_for_ends_the_case(parts, tmp_path):
    """Topics on a broker that is not there are refused: no figure is made of refusals, and the error says why."""
    loops, nodes, wire = parts["loops"], parts["nodes"], parts["wire"]
    with nodes.Quorum(nodes.CONTENDERS[0], tmp_path) as quorum:
        with pytest.raises(wire.Unexpected, match="not the answer that was asked for.*INVALID|error_code=3[89]"):
            loops.run(quorum, 2, loops.creating("none"), 0.0, 0.1)
        quorum.brokers()
        assert loops.run(quorum, 2, loops.creating("some"), 0.0, 0.1).latencies_s
