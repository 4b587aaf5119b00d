"""Scenes of clusters: turns, and what becomes of a case when a contender fails."""

from __future__ import annotations

import importlib
import sys

import pytest
from project import ROOT


@pytest.fixture
def bench_module(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])  # behind: what is installed is tested
    return importlib.import_module


@pytest.fixture
def outcomes(bench_module, tmp_path):
    """Play one scene with contenders ours and peer; the outcomes of cases a and b, by name."""
    scenes = bench_module("bench.scenes")
    nodes = bench_module("bench.peers.controller.nodes")
    harness = bench_module("bench.harness")
    contenders = {name: nodes.Contender(name, {}, "") for name in (harness.OURS, "peer")}

    def play(scene):
        cases = [scenes.SceneCase(name, "s", contenders, "", scene, tmp_path) for name in "ab"]
        sizes = type("Sizes", (), {"SMOKE": None})
        found = scenes.measuring(sizes)(cases, harness.SMOKE, lambda text: None)
        return {outcome.name: outcome for outcome in found}

    return play


def sample(bench_module, seconds):
    return bench_module("bench.peers.controller.sizes").events([seconds], "")


def test_a_contender_that_fails_alone_leaves_the_other_its_figures(bench_module, outcomes):
    def scene(contender, folder, sizes, wanted):
        yield "a", sample(bench_module, 1.0)
        if contender.is_ours:
            raise OSError("gone")
        yield "b", sample(bench_module, 2.0)

    found = outcomes(scene)
    assert list(found["a"].timings) == ["kraftcore", "peer"]
    assert list(found["b"].timings) == ["peer"] and found["b"].missing == {"kraftcore": "gone"}


def test_in_rounds_all_contenders_are_played_at_once(bench_module, outcomes):
    def play(contenders, folder, sizes, wanted, told):
        assert wanted == {"a", "b"}
        for contender in contenders:
            yield "a", contender.name, sample(bench_module, 1.0)
        yield "b", "peer", OSError("gone")
        raise OSError("all of it")

    found = outcomes(bench_module("bench.scenes").Rounds(play))
    assert list(found["a"].timings) == ["kraftcore", "peer"] and not found["a"].missing
    assert found["b"].missing == {"peer": "gone", "kraftcore": "all of it"}


def test_who_begins_a_round_ends_the_next_one(bench_module):
    topics = bench_module("bench.peers.broker.topics")
    rounds = [list(topics.turns(["ours", "peer"], number)) for number in range(-1, 2)]
    assert rounds == [["ours", "peer"], ["peer", "ours"], ["ours", "peer"]]


def test_partitions_serve_when_they_took_a_record_and_not_when_they_refuse_it(bench_module):
    asker = bench_module("bench.peers.broker.asker")
    produce = bench_module("kraftcore.protocol.messages.produce").ProduceResponse
    codes = bench_module("kraftcore.protocol.error_codes").ErrorCode
    topic_id = bench_module("kraftcore.core.uuid").Uuid.random()

    def answer(*errors):
        kind = produce.TopicProduceResponse
        parts = [kind.PartitionProduceResponse(index=at, error_code=error) for at, error in enumerate(errors)]
        return produce(responses=[kind(topic_id=topic_id, partition_responses=parts)])

    assert asker.accepted(answer(codes.NONE, codes.NOT_LEADER_OR_FOLLOWER)) == {(topic_id, 0)}
    with pytest.raises(Exception, match=r"partition 1 of topic .*: MESSAGE_TOO_LARGE"):
        asker.accepted(answer(codes.NONE, codes.MESSAGE_TOO_LARGE))
