"""The rates that quotas are compared with are Kafka's, whatever comes when."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest
from kafka_tools import KafkaTools

from kraftcore.plugins.broker.quotas.rates import QuotaWindow, Rate, SimpleRate

SEEDS = range(60)
STEPS = 300


def test_rates_are_kafkas(kafka: KafkaTools, tmp_path: Path) -> None:
    script, found = [], []
    for seed in SEEDS:
        rng = Random(seed)
        kind = rng.choice((Rate, SimpleRate))
        samples, seconds = rng.choice((1, 2, 3, 11, 12)), rng.choice((1, 1, 3))
        rate, now_ms = kind(QuotaWindow(samples, 1000 * seconds)), rng.choice((0, 10**12))
        script.append(f"begin {kind.__name__} {samples} {seconds}")
        for _ in range(STEPS):
            now_ms += rng.choice((0, rng.randrange(900), rng.randrange(900), rng.randrange(30_000)))
            if rng.random() < 0.6:
                size = rng.choice((0, rng.randrange(-1000, 0), rng.randrange(5000), rng.randrange(5000)))
                rate.record(size, now_ms)
                script.append(f"record {size} {now_ms}")
            else:
                found.append(rate.per_second(now_ms))
                script.append(f"measure {now_ms}")
    path = tmp_path / "script"
    path.write_text("".join(f"{line}\n" for line in script))
    theirs = [float(line) for line in kafka.java("Interop", "measure-rates", path).splitlines()]
    assert len(theirs) > len(SEEDS) * STEPS // 3
    assert found == pytest.approx(theirs)
