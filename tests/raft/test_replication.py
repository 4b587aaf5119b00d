"""Replication, where a transcript would not show it."""

from __future__ import annotations

from scenario import Stage

from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.raft import replication
from kraftcore.raft.events import Failed


def test_made_up_observers_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(replication, "REPLICAS_MAX", 20)
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1", "pass 600"):
        stage.run(command)
    replica = stage.nodes[1].replica
    for number in range(10, 90):
        stage.now += 1
        stage.run(f"fetch 1 from={number} epoch=1 at=3@1")
    ids = {progress.key.id for progress in replica.progress}
    assert len(ids) == 20
    assert {2, 3, 89} <= ids
    assert 10 not in ids


def test_a_leader_that_speaks_no_fetch_we_could_use_is_asked_again_later():
    stage = Stage()
    for command in ("add-nodes 3", "campaign 1", "pass 600"):
        stage.run(command)
    node = stage.nodes[2]
    state = node.replica.state
    request_id = next(number for number, sent in state.in_flight.items() if isinstance(sent.message, FetchRequest))
    stage.handle(node, Failed(request_id, Failure.UNSUPPORTED_VERSION))
    assert node.replica.role.value == "follower"
    leader = state.destination(1, state.role.leader_endpoints)
    assert state.is_backing_off(leader)
    stage.run("tick 30")
    assert not state.is_backing_off(leader)
