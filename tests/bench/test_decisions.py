"""The benchmark of decisions runs, counts what it did, and says so."""

from __future__ import annotations

import json
import subprocess
import sys

from project import ROOT


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench.decisions", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_every_case_has_a_figure():
    done = bench("--partitions", "1200", "--acls", "500", "--rounds", "1", "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [each["case"] for each in rows] == [
        "alter-partition",
        "fence",
        "elect-preferred",
        "create-topic",
        "heartbeat",
        "authorize",
        "entry removed and added",
        "load",
        "table",
        "find a broker's partitions",
    ]
    assert all(each["value"] >= 0 and each["unit"] for each in rows)
    table = next(each for each in rows if each["case"] == "table")
    assert 40 < table["value"] < 200  # two chunks of 1,024 rows of 49 bytes, and what they name


def test_nothing_to_measure_is_refused():
    done = bench("--partitions", "0")
    assert done.returncode == 2
    assert "at least 1" in done.stderr
