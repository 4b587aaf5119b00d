"""The benchmark of Spark runs, at smoke size; no figure is judged, only that there is one and that results agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT

FIRST_KEYS = ["case", "ours", "unit", "peer_name", "peer", "ratio"]
CASES = ["read-records", "typed-decode", "filter-offset", "live-latency"]


def bench(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bench", "spark", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("bench")
    file = folder / "run.jsonl"
    done = bench("--smoke", "--json", "--only", ",".join(CASES), "--dir", folder, "--save", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == file.read_text().splitlines()[1:]
    return file


@pytest.fixture(scope="module")
def rows(saved: Path) -> dict[str, dict[str, object]]:
    return {row["case"]: row for row in map(json.loads, saved.read_text().splitlines()[1:])}


def test_every_case_has_a_figure(rows):
    assert list(rows) == CASES
    for row in rows.values():
        assert list(row)[:6] == FIRST_KEYS
        assert row["ours"] > 0


def test_results_agree_with_the_peers(rows):
    for case in ("read-records", "typed-decode", "live-latency"):
        assert rows[case]["peer"] is not None, rows[case]["note"]
        assert rows[case]["ratio"] > 0


def test_a_filter_reads_little_of_a_log(rows):
    row = rows["filter-offset"]
    whole = float(row["note"].split("segments ")[1].split(" MB")[0])
    assert row["ours"] < whole / 2


def test_a_live_query_sees_every_record_and_says_how_late(rows):
    details = rows["live-latency"]["details"]
    assert details["records"] > 0
    assert 0 < details["append_p50_ms"] < details["p50_ms"] <= details["p99_ms"] <= details["max_ms"]


def test_a_run_that_is_taken_up_measures_only_what_is_left(saved):
    before = saved.read_text()
    done = bench("--smoke", "--json", "--only", "typed-decode,filter-offset", "--save", saved, "--resume")
    assert (done.returncode, done.stdout) == (0, "")
    assert "measured before: typed-decode, filter-offset" in done.stderr
    assert saved.read_text() == before
    done = bench("--quick", "--only", "typed-decode", "--save", saved, "--resume")
    assert done.returncode == 2
    assert "measured with another effort (smoke)" in done.stderr


def test_a_size_is_compared_with_the_size_before_of_a_saved_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import harness, report
    from bench.peers.spark import processes
    from bench.suites import spark

    monkeypatch.setattr(processes, "run", lambda command, timeout_s: processes.Cost(6.0, 11.0, 700_000_000))
    monkeypatch.setattr(processes, "folder_bytes", lambda folder: 5_000_000)
    monkeypatch.setattr(spark.shutil, "rmtree", lambda folder: None)
    (case,) = (case for case in spark.cases(tmp_path, harness.SMOKE) if case.name == "layers-3m")
    before = {"case": "layers-1m", "ours": 2.5, "details": {"records": 20_000.0}}
    (outcome,) = spark.measure([case], harness.SMOKE, report.Status(), [before])
    (row,) = report.rows(outcome)
    assert (row["ours"], row["peer_name"], row["peer"]) == (6.0, "the size before", 2.5)
    assert "3.0 times the records, 2.40 times the time" in row["note"]
    details = row["details"]
    assert [details[name] for name in ("processor_s", "memory_mb", "tables_mb")] == [11.0, 700, 5.0]
    assert details["records"] >= 60_000
    assert details["log_mb"] > 0
    assert "700 MB of memory" in report.line(row)


def test_cases_are_listed_without_preparing_them(tmp_path):
    done = bench("--list", "--dir", tmp_path)
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {*CASES, "layers-1m", "layers-3m", "layers-10m"}
