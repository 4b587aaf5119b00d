"""The benchmark of Spark runs, at smoke size; no figure is judged, only that there is one and that results agree."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from project import ROOT

from kraftcore.core.batch import iter_batches
from kraftcore.protocol.metadata import decode_metadata_record
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.topic_record import TopicRecord

pytestmark = [pytest.mark.deep, pytest.mark.long]

FIRST_KEYS = ["case", "ours", "unit", "peer_name", "peer", "ratio"]
CASES = ["read-records", "typed-decode", "typed-spark", "filter-offset", "live-latency", "small-run", "small-report"]


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
    for case in ("read-records", "typed-decode", "typed-spark", "live-latency", "small-run", "small-report"):
        assert rows[case]["peer"] is not None, rows[case]["note"]
        assert rows[case]["ratio"] > 0


def test_a_filter_reads_little_of_a_log(rows):
    row = rows["filter-offset"]
    whole = float(row["note"].split("segments ")[1].split(" MB")[0])
    assert row["ours"] < whole / 2


@pytest.fixture
def suite(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])  # behind: what is installed is tested
    return import_module("bench.suites.spark")


def test_configs_are_of_topics_that_the_log_has(suite, tmp_path):
    topics, configured = set(), set()
    for segment in suite.metadata_log.write(tmp_path / "log", 8_000).segments:
        for batch in iter_batches(segment.read_bytes()):
            for value in () if batch.is_control else batch.values():
                record, _ = decode_metadata_record(value)
                if isinstance(record, TopicRecord):
                    topics.add(record.name)
                elif isinstance(record, ConfigRecord):
                    configured.add(record.resource_name)
    assert len(configured) > 1
    assert configured <= topics


class Frame:
    """Counts as a data frame does."""

    def __init__(self, rows: int, asked: int) -> None:
        self.rows = rows
        self.asked = asked

    def where(self, text: str) -> Frame:
        return Frame(self.asked, self.asked)

    def count(self) -> int:
        return self.rows


@pytest.mark.parametrize("pushed", [100, 99])
def test_a_filter_that_loses_rows_has_no_figure(pushed, suite, tmp_path):
    log = suite.metadata_log.write(tmp_path / "log", 1_000)

    class Session:
        def kraft(self, log: object, view: str, **options: str) -> Frame:
            return Frame(1_000, pushed if "pushdown" in options else 100)

    outcome = suite.PlainCase("filter", "MB", "", lambda *_: None).outcome()
    if pushed == 100:
        suite.filtered(log, Session(), "", [400, 499], outcome)
        assert set(outcome.timings) == {suite.OURS, suite.NEEDED}
    else:
        with pytest.raises(suite.harness.DifferentResult, match="99 rows pushed down, 100"):
            suite.filtered(log, Session(), "", [400, 499], outcome)


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


def test_thirty_million_records_are_measured_when_they_are_named(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from bench import cli, harness
    from bench.suites import spark

    cases = spark.cases(tmp_path, harness.SMOKE)
    assert {case.name for case in cases} - {case.name for case in cli.choose(cases, None)} == {"layers-30m"}
    assert [case.name for case in cli.choose(cases, "layers-30m")] == ["layers-30m"]


def test_cases_are_listed_without_preparing_them(tmp_path):
    done = bench("--list", "--dir", tmp_path)
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} >= {*CASES, "layers-1m", "layers-3m", "layers-10m"}
