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

    outcome = suite.PlainCase("filter", "MB", "", lambda _: None).outcome()
    if pushed == 100:
        suite._filtered(log, Session(), "", [400, 499], outcome)
        assert set(outcome.timings) == {suite.OURS, suite.NEEDED}
    else:
        with pytest.raises(suite.harness.DifferentResult, match="99 rows pushed down, 100"):
            suite._filtered(log, Session(), "", [400, 499], outcome)
