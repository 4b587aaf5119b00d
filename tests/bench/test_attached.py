"""The benchmark of attached processes runs, and has all its rows."""

from __future__ import annotations

import json
import subprocess
import sys

from project import ROOT


def test_every_load_and_place(tmp_path):
    options = ["--seconds", "0.1", "--rounds", "1", "--json", "--dir", str(tmp_path)]
    command = [sys.executable, "-m", "bench.attached", *options]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = {"commit-1": 2, "commit-64": 3, "commit-1024": 3, "read-1": 2}
    places = ["own", "attached", "attached x4"]
    assert [(row["case"], row["place"]) for row in rows] == [
        (case, place) for case, count in wanted.items() for place in places[:count]
    ]
    assert all(row["per_second"] > 0 and 0 < row["p50_ms"] <= row["p99_ms"] for row in rows)
    assert list(tmp_path.iterdir()) == []
