"""Kafka's controller and ours play the same scripts, from seeds that are other ones with every change."""

import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from fresh_seeds import first_fresh_seed
from twin import fields
from twin.generate import generate
from twin.image import Image
from twin.known import CONFIGS, ELR, ELR_FEATURE, SCRAM, fault_of_kafka
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


@pytest.mark.deep
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


@pytest.mark.deep
def test_bad_values_in_every_field(twins):
    """Null, ends of types, unknown numbers, odd texts: the same answers as Kafka's, and no record that it has not."""
    script = fields.script(43, 250, every_version=False)
    walked = Counter(step["api"] for step in script["steps"] if "field" in step)
    assert len(walked) == 26 and sum(walked.values()) > 700
    found, pair = twins.run(script)
    assert len(pair.codes) > 50  # pairs of a request and an error
    wrong = [each for each in found if not fields.is_better(script, each)]
    assert not wrong, "\n".join(twins.explain(script, each) for each in wrong[:5])


@pytest.mark.parametrize("file", sorted((Path(__file__).parent / "scripts").glob("*.json")), ids=lambda file: file.stem)
def test_kept_scripts(twins, file):
    """What seeds seldom draw, with the errors that each is about."""
    script = json.loads(file.read_text())
    found, pair = twins.run(script)
    assert not found, "\n".join(twins.explain(script, difference) for difference in found)
    for api, code, steps in script["meets"]:
        assert pair.codes[api, code] == steps


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


def side(kind, *records):
    """What the verdict looks at: the records of a side's log, and what they add up to."""
    found = SimpleNamespace(kind=kind, symbols=Symbols(), image=Image())
    found.batches = [SimpleNamespace(control=False, records=list(records))]
    return found


def test_configs_of_a_removed_topic_are_forgiven_kafka_alone():
    path = ("configs", "2 't'", "retention.ms")
    for kind, topics, why in [("kafka", {}, CONFIGS), ("kafka", {"gone": {}}, None), ("kraftcore", {}, None)]:
        one = side(kind)
        one.symbols.topic_ids["t"], one.image.topics = ["gone"], topics
        assert fault_of_kafka(one, path, "(absent)", "1") == why
        assert fault_of_kafka(one, path, "1", "(absent)") is None


def test_credentials_are_forgiven_after_a_removal_of_their_mechanism():
    path = ("scram", "bob 2")
    removal = {"kind": "RemoveUserScramCredentialRecord", "Mechanism": 2}
    assert fault_of_kafka(side("kafka"), path, "x", "(absent)") is None
    assert fault_of_kafka(side("kafka", {**removal, "Mechanism": 1}), path, "x", "(absent)") is None
    assert fault_of_kafka(side("kafka", removal), path, "x", "(absent)") == SCRAM
    assert fault_of_kafka(side("kraftcore", removal), path, "x", "(absent)") is None


def test_eligible_leaders_are_forgiven_while_the_feature_was_off():
    path = ("topics", "topic t #1", "2", "last_known_elr")
    level = {"kind": "FeatureLevelRecord", "Name": ELR_FEATURE, "FeatureLevel": 1}
    assert fault_of_kafka(side("kafka", level), path, [3], []) is None
    assert fault_of_kafka(side("kafka", level, {**level, "FeatureLevel": 0}, level), path, [3], []) == ELR
    assert fault_of_kafka(side("kafka", {**level, "FeatureLevel": 0}), path, [3], [4]) is None
