"""Replication, where a transcript would not show it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scenario import Stage

from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.raft import roles
from kraftcore.raft.events import Failed


def test_made_up_observers_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(roles, "REPLICAS_MAX", 20)
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1", "pass 600"):
        stage.run(command)
    replica = stage.nodes[1].replica
    for number in range(10, 90):
        for each in (number, 11) if number % 9 == 0 else (number,):
            stage.now += 1
            stage.run(f"fetch 1 from={each} epoch=1 at=3@1")
        ids = {progress.key.id for progress in replica.progress}
        assert number <= 11 or 11 in ids, "it has fetched lately"
    assert len(ids) == 20
    assert {2, 3, 89} <= ids
    assert 10 not in ids


@pytest.mark.parametrize("observer_linger_ms", [0, 50])
def test_fetches_that_wait_are_bounded(monkeypatch, observer_linger_ms):
    """Beyond the bound those that wait are answered, and their replicas fetch again."""
    monkeypatch.setattr(roles, "DELAYED_MAX", 20)
    stage = Stage()
    for command in (f"add-nodes 3 observer_linger={observer_linger_ms}", "campaign 1", "pass 600"):
        stage.run(command)
    replica = stage.nodes[1].replica
    answered = []
    for number in range(10, 90):
        answered.append(stage.run(f"fetch 1 from={number} epoch=1 at=3@1 wait=500").count("outside FetchResponse"))
        role = replica.state.role
        assert max(len(role.delayed.fetches), len(role.delayed_observers.fetches)) <= 20
        replica.check_invariants()
    assert 60 <= sum(answered) < 80 and max(answered) <= 20


def test_a_leader_that_speaks_no_fetch_we_could_use_is_asked_again_later():
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1", "pass 600"):
        stage.run(command)
    node = stage.nodes[2]
    state = node.replica.state
    request_id = next(number for number, sent in state.in_flight.items() if isinstance(sent.message, FetchRequest))
    node.handle(Failed(request_id, Failure.UNSUPPORTED_VERSION))
    assert node.replica.role.value == "follower"
    leader = state.destination(1, state.role.leader_endpoints)
    assert state.is_backing_off(leader)
    stage.run("tick 30")
    assert not state.is_backing_off(leader)


def test_a_follower_that_does_not_say_what_it_knows_is_told_of_the_commit_it_brought_about():
    """Before version 18 a Fetch has no high watermark. Nobody else waits when its Fetch commits the record."""
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1", "pass 600"):
        stage.run(command)
    state = stage.nodes[1].replica.state
    state.config = replace(state.config, high_watermark_linger_ms=5)
    stage.run("append 1 a")  # goes to those that wait, who do not ask again: nothing is delivered
    stage.run("flush 1")
    assert not state.role.delayed.fetches
    stage.lines = []
    stage.run("fetch 1 from=2 epoch=1 at=4@1 wait=500")
    assert state.high_watermark == 4
    assert len(state.role.delayed.fetches) == 1
    stage.run("tick 5")
    assert not state.role.delayed.fetches
    assert any("FetchResponse high_watermark=4" in line for line in stage.lines)


def test_a_follower_that_wants_to_wait_for_long_does_not_look_dead():
    """It may have another fetch timeout than its leader, who resigns unless it fetches in time."""
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1", "pass 600", "crash 2", "crash 3"):
        stage.run(command)
    state = stage.nodes[1].replica.state
    for _ in range(10):
        assert "outside FetchResponse" not in stage.run("fetch 1 from=2 epoch=1 at=3@1 wait=60000")
        assert "outside FetchResponse high" in stage.run(f"pass {state.config.fetch_timeout_ms // 2}")
    assert stage.nodes[1].replica.role.value == "leader"
