"""The benchmark of whole clusters runs, at smoke size: with our nodes, and with a stand-in for a peer.

No figure is judged here. Real peers need toolchains and the network: ``python -m bench nodes --build`` proves those.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from project import ROOT

pytestmark = pytest.mark.deep

CASES = ["commit-1", "commit-1-p50", "commit-64", "commit-1024", "commit-batch1000", "commit-batch1000-p99"]
CASES += ["read-1", "read-64", "read-lease-1", "read-lease-64"]
CASES += ["failover", "idle", "soak"]
FIRST_KEYS = ["case", "ours", "unit", "peer_name", "peer", "ratio"]
STAND_IN = Path(__file__).with_name("stand_in_node.py")


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "bench", "nodes", *map(str, arguments)]


def bench(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )


@pytest.fixture
def suite() -> Iterator[object]:
    sys.path.append(str(ROOT))
    try:
        from bench.suites import nodes
    finally:
        sys.path.remove(str(ROOT))
    return nodes


def test_every_case_runs_with_our_nodes(tmp_path):
    saved = tmp_path / "run.jsonl"
    done = bench(
        "--smoke", "--json", "--peers", "kraftcore", "--only", ",".join(CASES), "--dir", tmp_path, "--save", saved
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["case"] for row in rows] == CASES
    for row in rows:
        assert list(row)[:6] == FIRST_KEYS
        assert row["ours"] > 0
    limited, disks = (row for row in rows if (row["peer_name"] or "").startswith("limit: "))
    assert (limited["case"], disks["case"]) == ("commit-1-p50", "commit-batch1000")
    assert limited["ratio"] == pytest.approx(limited["peer"] / limited["ours"], rel=0.01)
    assert disks["ratio"] == pytest.approx(disks["ours"] / disks["peer"], rel=0.01)
    assert {row["peer"] for row in rows if row not in (limited, disks)} == {None}
    head, *rest = map(json.loads, saved.read_text().splitlines())
    assert rest == rows
    assert "fdatasync of 4 KiB" in head["environment"]["limits"]
    assert "kraftcore" in head["environment"]["settings"]
    assert sorted(tmp_path.iterdir()) == [saved]  # every log and folder is gone


def test_a_peer_is_compared_and_a_broken_one_has_its_row(suite, tmp_path):
    from bench import harness, report
    from bench.peers.nodes.catalog import Built, Peer

    def stand_in(*flags: str) -> Peer:
        def build(purpose: str) -> Built:
            return Built(lambda place: [sys.executable, str(STAND_IN), str(place.index), place.control, *flags])

        return Peer("stand-in", build, "commits nothing anywhere")

    contenders = {harness.OURS: stand_in(), "slower": stand_in("--slow"), "broken": stand_in("--broken")}
    cases = [
        suite.NodeCase(case.name, case.unit, contenders, case.about, case.load, case.seconds)
        for case in suite.cases(tmp_path, harness.SMOKE)
        if case.name in ("commit-1", "commit-1-p50", "commit-batch1000", "failover")
    ]
    outcomes = suite.measure(cases, suite.plan_for(harness.SMOKE, 2, None), tmp_path, {}, lambda text: None)
    rows = {(row["case"], row["peer_name"]): row for outcome in outcomes for row in report.rows(outcome)}
    for case in cases:
        broken = rows[case.name, "broken"]
        assert (broken["peer"], broken["ratio"]) == (None, None)
        assert "ended with code 3: no luck" in broken["note"]
        row = rows[case.name, "slower"]
        if case.name == "commit-batch1000":
            assert row["note"] == "one value a call"
            continue
        assert row["peer_rounds"] == 2
        ratio = row["ours"] / row["peer"] if row["better"] == "higher" else row["peer"] / row["ours"]
        assert row["ratio"] == pytest.approx(ratio, rel=0.01)
    # The stand-in says what it measured: 1,000 calls in 0.5 s, or 10 calls; and half a millisecond.
    assert rows["commit-1", "slower"]["ours"] == 2000
    assert rows["commit-1", "slower"]["ratio"] == 100
    assert rows["commit-1-p50", "slower"]["ours"] == 0.5
    assert rows["failover", "slower"]["ours"] > 0
    assert not list(tmp_path.iterdir())


def test_a_missing_toolchain_is_an_error_that_names_the_peer(tmp_path):
    nowhere = {"PATH": str(tmp_path), "HOME": str(tmp_path), "KRAFTCORE_CACHE": str(tmp_path / "cache")}
    done = bench("--build", "--peers", "openraft,kafka", **nowhere)
    assert done.returncode == 1
    assert "openraft: cannot be built: cargo not found: install Rust" in done.stdout
    assert "kafka-raft: cannot be built: java not found: install a JDK" in done.stdout
    assert "kraftcore: ready" in done.stdout


def test_an_unknown_peer_is_refused():
    done = bench("--peers", "paxos")
    assert done.returncode == 2
    assert "no peer 'paxos'; there are etcd-embed-inproc, hashicorp-boltdb" in done.stderr


def test_the_soak_runs_only_when_it_is_named():
    done = bench("--list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == CASES
    sys.path.append(str(ROOT))
    try:
        from bench.cli import choose
        from bench.harness import SMOKE
        from bench.suites import nodes
    finally:
        sys.path.remove(str(ROOT))
    cases = nodes.cases(Path(), SMOKE)
    assert [case.name for case in choose(cases, None)] == CASES[:-1]
    assert [case.name for case in choose(cases, "soak,commit-1")] == ["commit-1", "commit-1-p50", "soak"]


def processes(folder: Path) -> list[str]:
    """Process ids whose command line names the folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def wait_for(condition, what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nodes_do_not_outlive_the_driver(tmp_path, number):
    folder = tmp_path / "disk"
    folder.mkdir()
    arguments = command("--only", "soak", "--minutes", 5, "--peers", "kraftcore", "--dir", folder)
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as driver:
        try:
            wait_for(lambda: len(processes(folder)) == 4, "the driver and three nodes")
        finally:
            driver.send_signal(number)
    wait_for(lambda: not processes(folder), "all of them gone")
    assert number == signal.SIGKILL or not list(folder.iterdir())
