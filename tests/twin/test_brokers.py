"""Kafka's broker and ours answer the same scripts of clients' requests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_twin.pair import Pair, hard
from kafka_tools import KafkaTools
from suite_run import deep

STEPS = 400


@pytest.fixture(scope="module")
def pair(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(kafka, tmp_path_factory.mktemp("brokers") / "pair") as pair:
        yield pair


@pytest.mark.parametrize("seed", [5, 8, *deep(7, 252537272, 252537273, 252537274)])
def test_scripts(pair: Pair, seed: int) -> None:
    found = hard(pair.run(seed, STEPS))
    told = "\n".join(map(str, found[:5]))
    assert not found, f"python tests/twin/brokers.py --seeds {seed} --steps {STEPS}\n{told}"
    assert len(pair.codes) > 60  # pairs of a request and an error
