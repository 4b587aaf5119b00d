"""The benchmark of Spark runs, at smoke size; no figure is judged, only that there is one and that results agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT

FIRST_KEYS = ["case", "ours", "unit", "peer_name", "peer", "ratio"]
CASES = ["read-records", "typed-decode", "filter-offset"]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    folder: Path = tmp_path_factory.mktemp("bench")
    command = [sys.executable, "-m", "bench", "spark", "--smoke", "--json", "--only", ",".join(CASES), "--dir", folder]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {row["case"]: row for row in map(json.loads, done.stdout.splitlines())}


def test_every_case_has_a_figure(rows):
    assert list(rows) == CASES
    for row in rows.values():
        assert list(row)[:6] == FIRST_KEYS
        assert row["ours"] > 0


def test_results_agree_with_the_peers(rows):
    for case in ("read-records", "typed-decode"):
        assert rows[case]["peer"] is not None, rows[case]["note"]
        assert rows[case]["ratio"] > 0


def test_a_filter_reads_little_of_a_log(rows):
    row = rows["filter-offset"]
    whole = float(row["note"].split("segments ")[1].split(" MB")[0])
    assert row["ours"] < whole / 2
