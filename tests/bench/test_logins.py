"""The benchmark of refused logins runs, and its measure of what can be told apart is right."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable

import pytest
from project import ROOT

KINDS = ("wrong", "wrong, other user", "unknown")


def test_every_mechanism_and_kind():
    command = [sys.executable, "-m", "bench.logins", "--count", "30", "--json"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert [(row["mechanism"], row["kind"]) for row in rows] == [(one, kind) for one in mechanisms for kind in KINDS]
    assert all(row["median_us"] > 0 for row in rows)
    assert [row["auc"] for row in rows if row["kind"] == "wrong"] == [0.5] * 3


@pytest.fixture
def auc() -> Callable[[list[int], list[int]], float]:
    sys.path.append(str(ROOT))
    try:
        from bench.logins import auc
    finally:
        sys.path[:] = [entry for entry in sys.path if entry != str(ROOT)]
    return auc


def test_auc_counts_pairs(auc):
    draw = random.Random(1)
    for _ in range(20):
        ones, others = ([draw.randrange(9) for _ in range(draw.randint(1, 12))] for _ in range(2))
        pairs = [(one > other) + (one == other) / 2 for one in ones for other in others]
        assert auc(ones, others) == sum(pairs) / len(pairs)
    assert (auc([2, 3], [1, 1]), auc([1], [2])) == (1.0, 0.0)
