"""The log on disk under pytest-benchmark; Kafka's own log only takes part in ``python -m bench core``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from bench import cases_log
from bench.harness import QUICK
from bench.pytest_suite import CLOCK, parameters, run

pytestmark = pytest.mark.benchmark(timer=CLOCK)
# Cases are made while tests are collected, before there is a tmp_path; nothing is written until one runs.
FOLDER = tempfile.TemporaryDirectory(prefix="kraftcore-bench-")


@pytest.mark.parametrize(("case", "name"), parameters(cases_log.cases(Path(FOLDER.name), QUICK)))
def test_log(benchmark, case, name):
    run(benchmark, case, name)
