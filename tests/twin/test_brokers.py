"""Kafka's broker and ours answer the same scripts of clients' requests; seeds are other ones with every change."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from broker_twin.pair import Pair, hard
from fresh_seeds import first_fresh_seed
from kafka_tools import KafkaTools

from kraftcore.plugins import broker
from kraftcore.plugins.broker import api

STEPS = 400
FRESH = first_fresh_seed([broker, api])


@pytest.fixture(scope="module")
def pair(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with Pair(kafka, tmp_path_factory.mktemp("brokers") / "pair") as pair:
        yield pair


@pytest.mark.parametrize("seed", [5, 7, 8, *range(FRESH, FRESH + 3)])
def test_scripts(pair: Pair, seed: int) -> None:
    found = hard(pair.run(seed, STEPS))
    told = "\n".join(map(str, found[:5]))
    assert not found, f"python tests/twin/brokers.py --seeds {seed} --steps {STEPS}\n{told}"
    assert len(pair.codes) > 60  # pairs of a request and an error
