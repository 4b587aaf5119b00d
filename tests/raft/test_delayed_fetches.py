"""Fetches that wait, where a transcript would not show it."""

from __future__ import annotations

import pytest
from scenario import Stage

from kraftcore.errors import InvariantError

LATEST = 3  # where the log ends when a leader of three has begun


def leading(observer_linger_ms: int) -> Stage:
    stage = Stage()
    for command in (f"add-nodes 3 observer_linger={observer_linger_ms}", "campaign 1", "pass 600"):
        stage.run(command)
    return stage


@pytest.fixture
def replies(monkeypatch):
    """Messages that were sent as answers to somebody outside."""
    found = []
    before = Stage.reply

    def reply(stage, ticket, message):
        if ticket.source == 0:
            found.append(message)
        before(stage, ticket, message)

    monkeypatch.setattr(Stage, "reply", reply)
    return found


def read_offsets(stage: Stage) -> list[int]:
    """Where the leader's log is read from, from now on."""
    log, found = stage.nodes[1].replica.state.log, []

    class Watched:
        def __getattr__(self, name):
            return getattr(log, name)

        def read(self, offset, max_bytes):
            found.append(offset)
            return log.read(offset, max_bytes)

    stage.nodes[1].replica.state.log = Watched()
    return found


@pytest.mark.parametrize("linger_ms", [0, 10])
def test_observers_that_wait_for_the_same_get_one_answer_made_once(replies, linger_ms):
    stage = leading(linger_ms)
    for number in range(10, 60):
        stage.run(f"fetch 1 from={number} epoch=1 at={LATEST}@1 wait=400")
    read = read_offsets(stage)
    stage.run("append 1 a")
    stage.run("stabilize")
    stage.run("tick 1")
    assert len(replies) == 50
    assert len({id(message) for message in replies}) == 1
    # One more for the voters, where they are answered by themselves.
    assert read == [LATEST] * (2 if linger_ms else 1)


def test_a_commit_costs_an_observer_one_fetch_and_commits_in_a_row_share_it(replies):
    stage = leading(10)
    at = LATEST
    for _ in range(20):  # commits, four of them within a round's time
        stage.run(f"fetch 1 from=9 epoch=1 at={at}@1 wait=400 hw={at}")
        for _ in range(4):
            stage.run("append 1 a")
            stage.run("stabilize")
            at += 1
        before = len(replies)
        stage.run("tick 10")
        assert len(replies) == before + 1
        answer = replies[-1].responses[0].partitions[0]
        assert answer.high_watermark == at
        assert answer.records
    assert len(replies) == 20


def test_without_observers_there_is_no_timer_for_their_rounds():
    stage = leading(10)
    stage.run("append 1 a")
    stage.run("stabilize")
    role = stage.nodes[1].replica.state.role
    assert role.round_due_ms is None
    assert role.round_told == role.watermark.value == LATEST + 1


def test_an_observer_that_comes_back_late_finds_what_it_missed(replies):
    stage = leading(10)
    stage.run(f"fetch 1 from=9 epoch=1 at={LATEST}@1 wait=400 hw={LATEST}")
    stage.run("append 1 a")
    stage.run("stabilize")
    stage.run("tick 1")  # a round
    stage.run("append 1 b")
    stage.run("stabilize")
    stage.run("tick 10")  # the next, without it
    assert len(replies) == 1
    stage.run(f"fetch 1 from=9 epoch=1 at={LATEST + 1}@1 wait=400 hw={LATEST + 1}")
    assert len(replies) == 2
    assert replies[-1].responses[0].partitions[0].high_watermark == LATEST + 2


def test_who_waits_while_its_place_is_deleted_is_sent_to_the_snapshot(replies):
    stage = leading(10)
    stage.run(f"fetch 1 from=9 epoch=1 at={LATEST}@1 wait=400 hw={LATEST}")
    stage.run("append 1 a")
    stage.run("stabilize")
    stage.run("snapshot 1")
    assert stage.nodes[1].log.log_start_offset == LATEST + 1
    stage.run("tick 1")
    (told,) = replies[-1].responses[0].partitions
    assert (told.snapshot_id.end_offset, told.snapshot_id.epoch) == (LATEST + 1, 1)


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (lambda role: setattr(role, "round_told", role.round_told - 1), "no round is to come"),
        (lambda role: setattr(role, "round_told", role.round_told + 1), "holds an observer's Fetch"),
        (lambda role: setattr(role.delayed_observers, "due_ms", None), "none of their deadlines"),
        (lambda role: role.delayed_observers.fetches.extend(role.delayed.fetches), "as an observer's"),
    ],
)
def test_held_fetches_that_would_not_be_answered_are_noticed(mistake, text):
    stage = leading(10)
    stage.run(f"fetch 1 from=9 epoch=1 at={LATEST}@1 wait=400 hw={LATEST}")
    replica = stage.nodes[1].replica
    replica.check_invariants()
    mistake(replica.state.role)
    with pytest.raises(InvariantError, match=text):
        replica.check_invariants()
