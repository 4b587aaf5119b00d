"""Kafka's controller and ours play the same scripts, from seeds that are other ones with every commit."""

import json

import pytest
from fresh_seeds import first_fresh_seed
from twin.generate import generate
from twin.image import Image
from twin.known import CONFIGS, fault_of_kafka
from twin.normal import Symbols
from twin.session import Session

from kraftcore import metadata
from kraftcore.plugins import controller

STEPS = 120
FRESH = first_fresh_seed([controller, metadata])


@pytest.fixture(scope="module")
def twins(kafka, tmp_path_factory):
    with Session(tmp_path_factory.mktemp("twins"), kafka) as session:
        yield session


@pytest.mark.parametrize("seed", range(FRESH, FRESH + 2))
def test_fresh_seeds(twins, seed):
    """No difference; one that is found comes with the smallest script that shows it."""
    script = generate(seed, STEPS)
    found, pair = twins.run(script)
    assert pair.codes and pair.record_types
    if not found:
        return
    first = next((d for d in found if not d.soft), found[0])
    small, again = twins.smallest(script, first.sign, tries=40)
    text = f"python tests/twin/run.py --seeds {seed} --steps {STEPS}\n{twins.explain(script, first)}"
    if small is not None:
        text += f"\nthe smallest script (--replay FILE with this in it):\n{json.dumps(small)}"
        text += f"\n{twins.explain(small, again)}"
    pytest.fail(text, pytrace=False)


def test_a_planted_fault_is_found_and_shrunk(kafka, tmp_path):
    """Behind a proxy that answers registrations with another epoch, the comparison says so; two steps are enough."""
    steps = [step for step in generate(3, 30)["steps"] if "api" in step]
    script = {**generate(3, 0), "steps": steps}
    with Session(tmp_path, kafka, ("kraftcore", "kraftcore"), mutation="epoch-plus-one") as twins:
        found, _ = twins.run(script, lambda _: True)
        assert found[-1].sign == "answer BrokerRegistration BrokerEpoch"
        small, difference = twins.smallest(script, found[-1].sign, tries=20)
    assert difference.sign == found[-1].sign
    assert [step["api"] for step in small["steps"]] == ["BrokerRegistration"]


def test_only_kafkas_snapshots_are_forgiven_and_only_what_was_removed():
    class Side:
        kind, batches = "kafka", ()
        symbols, image = Symbols(), Image()

    Side.symbols.topic_ids["t"] = ["gone"]
    path = ("configs", "2 't'", "retention.ms")
    assert fault_of_kafka(Side, path, "(absent)", "1") == CONFIGS
    assert fault_of_kafka(Side, path, "1", "(absent)") is None
    assert fault_of_kafka(Side, ("scram", "bob 2"), "x", "(absent)") is None
    Side.image.topics["gone"] = {}
    assert fault_of_kafka(Side, path, "(absent)", "1") is None
    Side.image.topics.clear()
    Side.kind = "kraftcore"
    assert fault_of_kafka(Side, path, "(absent)", "1") is None
