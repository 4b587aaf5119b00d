"""Every benchmark runs, at smoke size: no figure is judged here, only that there is one and that results agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from project import ROOT

FIRST_KEYS = ["case", "ours", "unit", "peer_name", "peer", "ratio"]
CASES = {
    *(f"{kind}-{records}x100" for kind in ("encode", "decode", "decode-objects") for records in (1, 100, 1000)),
    *("append", "append-1x100", "append-1000x100", "tail-read", "open-1gb", "crc32c-64k", "decode-all-columns-100x100"),
    *(f"wire-fetch-{end}-{way}" for end in ("request", "response") for way in ("encode", "decode")),
    "wire-fetch",
}


def bench(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", "core", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | environment,
    )


def rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, object]], Path]:
    saved = tmp_path_factory.mktemp("bench") / "run.jsonl"
    done = bench("--smoke", "--json", "--save", saved)
    assert done.returncode == 0, done.stdout + done.stderr
    return rows(done), saved


@pytest.mark.deep
def test_every_case_has_every_peer(smoke):
    found, _ = smoke
    assert {row["case"] for row in found} == CASES
    for row in found:
        assert list(row)[:6] == FIRST_KEYS
        assert row["peer"] is not None, f"{row['case']}: {row['peer_name']} is missing: {row['note']}"
        assert row["ours"] > 0
        assert row["peer"] > 0
        assert row["ratio"] == pytest.approx(
            row["ours"] / row["peer"] if row["better"] == "higher" else row["peer"] / row["ours"], rel=0.01
        )
    peers = {name.split()[0] for name in (row["peer_name"] for row in found)}
    assert peers >= {"aiokafka", "kafka-python", "kio", "Java", "plain", "memcpy"}


@pytest.mark.deep
def test_a_saved_run_says_where_it_came_from(smoke):
    found, saved = smoke
    head, *rest = map(json.loads, saved.read_text().splitlines())
    assert rest == found
    assert {"machine", "python", "java", "packages", "load", "seed", "measured", "commit"} <= head["environment"].keys()


def test_a_missing_peer_is_a_row_that_says_what_to_install(tmp_path):
    nothing = tmp_path / "bin"
    nothing.mkdir()
    done = bench("--smoke", "--json", "--only", "encode-1x100", "--peers", "java", PATH=str(nothing))
    assert done.returncode == 0, done.stderr
    (row,) = rows(done)
    assert (row["peer"], row["ratio"]) == (None, None)
    assert "install a JDK" in row["note"]
    table = bench("--smoke", "--only", "encode-1x100", "--peers", "java", PATH=str(nothing))
    assert "missing" in table.stdout
    assert "install a JDK" in table.stdout


def test_the_table_explains_itself():
    done = bench("--smoke", "--only", "encode-1x100,append", "--peers", "aiokafka,plain")
    assert done.returncode == 0, done.stderr
    assert "ratio above 1: kraftcore is better" in done.stdout
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith(("encode", "append"))] == [
        "encode-1x100",
        "append",
        "append-1x100",
        "append-1000x100",
    ]


def test_an_unknown_case_is_refused():
    done = bench("--only", "encode-2x2")
    assert done.returncode == 2
    assert "no case 'encode-2x2'" in done.stderr


def test_the_repository_does_not_shadow_an_installed_package(tmp_path):
    # A package of this name that stands on the path stands in for an installed wheel: it must win over the sources.
    package = tmp_path / "kraftcore"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('the installed one')\n")
    done = bench("--list", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "the installed one" in done.stderr


def test_different_work_is_not_compared():
    sys.path.append(str(ROOT))
    try:
        from bench import harness
    finally:
        sys.path.remove(str(ROOT))
    operations = {
        harness.OURS: lambda: harness.Operation(harness.loop(int), lambda: "one"),
        "same": lambda: harness.Operation(harness.loop(int), lambda: "one"),
        "other": lambda: harness.Operation(harness.loop(int), lambda: "two"),
    }
    outcome = harness.measure(harness.Case("case", "us", operations), harness.SMOKE)
    assert set(outcome.timings) == {harness.OURS, "same"}
    assert "differs" in outcome.missing["other"]
