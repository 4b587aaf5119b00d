"""Record batches under pytest-benchmark; the Java peer only takes part in ``python -m bench core``."""

from __future__ import annotations

import pytest

from bench import cases_batch
from bench.pytest_suite import CLOCK, parameters, run

pytestmark = pytest.mark.benchmark(timer=CLOCK)


@pytest.mark.parametrize(("case", "name"), parameters(cases_batch.cases()))
def test_batch(benchmark, case, name):
    run(benchmark, case, name)
