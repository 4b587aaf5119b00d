"""Leases of leaders: what voters promise, what a leader makes of it, and when it asks all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scenario import Stage

from kraftcore.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from kraftcore.raft import leases, partition
from kraftcore.raft.roles import Role

LEASE_MS = 1000
READ_AT_ONCE = "1: barrier NONE offset=3"


def leading(lease_ms: int = LEASE_MS, nodes: int = 3) -> Stage:
    """Node 1 leads; the promises of its election are over."""
    stage = Stage()
    for command in (f"add-nodes {nodes} lease={lease_ms}", "campaign 1", f"pass {600 + lease_ms}"):
        stage.run(command)
    assert stage.nodes[1].replica.role is Role.LEADER
    return stage


def with_lease() -> Stage:
    """Node 1 has asked for a lease, and got it, at the present time."""
    stage = leading()
    stage.run("barrier 1")
    stage.run("stabilize")
    return stage


def lease_ends(stage: Stage) -> int:
    """So many milliseconds from now."""
    return stage.nodes[1].replica.state.role.lease_until_ms - stage.now


def role(stage: Stage, number: int) -> Role:
    return stage.nodes[number].replica.role


def asks(transcript: str) -> bool:
    return "BeginQuorumEpochRequest" in transcript


def test_a_leader_counts_less_of_a_promise_than_clocks_can_take_away():
    assert leases.SHARE[0] / leases.SHARE[1] <= (1 - leases.DRIFT) / (1 + leases.DRIFT)


def test_reads_ask_nobody_while_the_lease_holds():
    stage = with_lease()
    assert lease_ends(stage) == LEASE_MS * 9 // 10
    assert stage.run("barrier 1") == READ_AT_ONCE
    stage.run("tick 300")
    assert stage.run("barrier 1") == READ_AT_ONCE


def test_a_read_renews_a_lease_of_which_less_than_half_is_left():
    stage = with_lease()
    stage.run("tick 500")
    said = stage.run("barrier 1")
    assert READ_AT_ONCE in said
    assert asks(said)
    assert stage.run("barrier 1") == READ_AT_ONCE  # one round at a time
    stage.run("stabilize")
    assert lease_ends(stage) == LEASE_MS * 9 // 10


def test_a_read_asks_when_the_lease_has_ended():
    stage = with_lease()
    stage.run("tick 900")
    said = stage.run("barrier 1")
    assert asks(said)
    assert "barrier" not in said
    assert READ_AT_ONCE in stage.run("stabilize")


def test_a_lease_begins_when_it_was_asked_for_however_long_the_answer_takes():
    stage = leading()
    stage.run("barrier 1")
    stage.run("deliver 1->2")
    stage.run("tick 400")
    stage.run("deliver 2->1")
    assert lease_ends(stage) == LEASE_MS * 9 // 10 - 400


def test_there_is_no_lease_before_the_first_commit_of_the_epoch():
    stage = Stage()
    stage.run(f"add-nodes 3 lease={LEASE_MS}")
    stage.run("campaign 1")
    for command in ("deliver 1->2", "deliver 2->1", "deliver 1->2", "deliver 2->1", "hold-flush 2", "hold-flush 3"):
        stage.run(command)
    stage.run("hold-flush 1")
    stage.run("stabilize")
    assert role(stage, 1) is Role.LEADER
    assert lease_ends(stage) > 0
    assert "barrier" not in stage.run("barrier 1")


def test_without_the_setting_requests_and_answers_are_kafkas():
    stage = leading(0)
    voter = stage.nodes[1].replica.voters.get(2)
    request = partition.begin_quorum_epoch_request(stage.nodes[1].replica.state, voter.key)
    assert request == BeginQuorumEpochRequest(
        cluster_id=request.cluster_id,
        voter_id=2,
        topics=request.topics,
        leader_endpoints=request.leader_endpoints,
    )
    assert BeginQuorumEpochResponse().lease_ms == 0
    stage.run("barrier 1")
    stage.run("stabilize")
    assert lease_ends(stage) < 0
    assert asks(stage.run("barrier 1"))


def test_a_voter_votes_for_nobody_while_its_promise_lasts():
    stage = with_lease()
    stage.run("isolate 1")
    for pre in ("0", "1"):
        assert "vote_granted=True" not in stage.run(f"vote 2 from=3 epoch=9 last=99@8 pre={pre}")
    stage.run(f"tick {LEASE_MS}")
    assert "vote_granted=True" not in stage.run("vote 2 from=3 epoch=9 last=99@8")
    stage.run("tick 1")
    assert "vote_granted=True" in stage.run("vote 2 from=3 epoch=9 last=99@8")


def test_no_voter_stands_while_its_promise_lasts():
    stage = with_lease()
    stage.run("crash 1")
    stage.run("refuse 2->1")
    stage.run("refuse 3->1")
    stage.run(f"pass {LEASE_MS}")
    assert {role(stage, 2), role(stage, 3)} == {Role.FOLLOWER}
    stage.run("pass 1000")
    assert Role.LEADER in {role(stage, 2), role(stage, 3)}


def test_a_voter_whose_election_was_under_way_does_not_win_it_after_a_promise():
    stage = leading()
    stage.run("refuse 2->1")
    while role(stage, 2) is not Role.PROSPECTIVE:
        stage.run("timeout 2")
    stage.run("barrier 1")
    stage.run("deliver 1->2")
    stage.nodes[3].replica.state.role.leader_gone = True  # so that it would grant
    stage.run("deliver 2->3")
    stage.run("deliver 3->2")
    assert role(stage, 2) is Role.FOLLOWER


def test_a_voter_that_starts_is_bound_by_what_it_may_have_promised():
    stage = with_lease()
    stage.run("isolate 1")
    stage.run("crash 2")
    stage.run("tick 300")
    stage.run("restart 2")
    stage.run(f"tick {LEASE_MS}")
    assert "vote_granted=True" not in stage.run("vote 2 from=3 epoch=9 last=99@8")
    stage.run("tick 1")
    assert "vote_granted=True" in stage.run("vote 2 from=3 epoch=9 last=99@8")


def test_one_that_led_and_one_that_never_had_a_leader_are_not_bound_when_they_start():
    stage = with_lease()
    stage.run("crash 1")
    stage.run("restart 1")
    assert not leases.is_bound(stage.nodes[1].replica.state)
    alone = Stage()
    alone.run(f"add-nodes 1 lease={LEASE_MS}")
    assert role(alone, 1) is Role.LEADER
    assert lease_ends(alone) < 0
    alone.run("stabilize")
    assert READ_AT_ONCE in alone.run("barrier 1")  # it asks nobody anyway


def test_a_leader_that_resigns_frees_the_voters_and_has_no_lease():
    stage = with_lease()
    stage.run("transfer 1 2")
    stage.run("stabilize")
    stage.run("pass 100")
    assert role(stage, 2) is Role.LEADER
    assert "NOT_LEADER_OR_FOLLOWER" in stage.run("barrier 1")


def test_voters_that_promise_nothing_are_not_counted():
    stage = leading()
    for number in (2, 3):
        node = stage.nodes[number]
        node.config = replace(node.config, leader_lease_ms=0)
        stage.run(f"crash {number}")
        stage.run(f"restart {number}")
    stage.run("pass 600")
    stage.run("barrier 1")
    assert READ_AT_ONCE in stage.run("stabilize")
    assert lease_ends(stage) < 0
    assert asks(stage.run("barrier 1"))


def test_a_voter_promises_no_more_than_it_waits_for_when_it_starts():
    stage = leading()
    for number in (2, 3):
        node = stage.nodes[number]
        node.config = replace(node.config, leader_lease_ms=200)
        stage.run(f"crash {number}")
        stage.run(f"restart {number}")
    stage.run("pass 600")
    stage.run("barrier 1")
    stage.run("stabilize")
    assert lease_ends(stage) == 180


@pytest.mark.parametrize("answered_ms", [-1, 1 << 30])
def test_no_answer_makes_a_lease_longer_than_what_was_asked_for(monkeypatch, answered_ms):
    stage = leading()
    monkeypatch.setattr(leases, "promise", lambda state, asked_ms: answered_ms)
    stage.run("barrier 1")
    stage.run("stabilize")
    assert lease_ends(stage) == LEASE_MS * 9 // 10 if answered_ms > 0 else lease_ends(stage) < 0


def test_promises_are_those_of_voters_in_force():
    """Of two voters the other one has to promise; once it is removed nobody has to, and barriers end at once."""
    stage = leading(nodes=2)
    stage.run("barrier 1")
    stage.run("stabilize")
    assert lease_ends(stage) > 0
    stage.run("remove-voter 1 2")
    assert lease_ends(stage) < 0
    assert not leases.holds(stage.nodes[1].replica.state, stage.nodes[1].replica.state.role)
