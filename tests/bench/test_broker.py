"""The benchmark of brokers runs at smoke size; no figure is judged, only that each case gives one, ours and Kafka's."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from project import ROOT

pytestmark = pytest.mark.deep

OF_OURS = {
    "produce-all-100/1": "records/s",
    "consume-100/1": "records/s",
    "single-p50": "ms",
    "single-p99": "ms",
    "paced-p50": "ms",
    "memory": "MiB",
    "single-among-p50": "ms",
    "single-among-p99": "ms",
    "topic-1": "ms",
    "again-1": "ms",
    "topic-64": "ms",
    "again-64": "ms",
    "topic-1000": "ms",
    "again-1000": "ms",
    "topics-1000": "ms",
    "again-64-late": "ms",
    "restart-10000": "s",
    "start": "s",
    "start-up": "s",
    "start-processes": "s",
    "failover": "s",
    "failover-fast": "s",
}
BESIDE = ["topic-64"]  # both clusters stand at the same time


def bench(*arguments: object) -> list[dict]:
    command = [sys.executable, "-m", "bench", "broker", "--smoke", "--json", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.long
def test_each_kind_of_case_gives_a_figure_of_ours(tmp_path):
    rows = bench("--peers", "kraftcore", "--only", ",".join(OF_OURS), "--dir", tmp_path)
    assert {row["case"]: row["unit"] for row in rows} == OF_OURS
    assert all(row["ours"] > 0 and row["note"] for row in rows)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_kafka_stands_beside_ours(kafka, tmp_path):
    rows = bench("--only", ",".join(BESIDE), "--dir", tmp_path)
    assert [(row["case"], row["peer_name"]) for row in rows] == [(case, "kafka") for case in BESIDE]
    assert all(row["peer"] > 0 and row["ratio"] > 0 for row in rows)
