"""What the two queues of an executor refuse by themselves."""

from __future__ import annotations

import pytest

from kraftcore.errors import InvariantError, LocalError, NotLeaderError, OverloadedError
from kraftcore.executor.decisions import Decision, DecisionQueue
from kraftcore.executor.proposals import Proposal, ProposalQueue
from kraftcore.executor.waiting_queue import check_order


def proposal(size: int) -> Proposal:
    return Proposal([b"x"], size, True)


def test_a_full_queue_refuses_whoever_asks():
    queue = ProposalQueue(max_batch_bytes=1000, max_bytes_in_flight=100)
    room: list[bool] = []
    queue.on_room = lambda: room.append(queue.is_full)
    first, second = proposal(60), proposal(60)
    queue.add(first)
    queue.add(second)
    assert queue.is_full
    with pytest.raises(OverloadedError, match="120 bytes are in flight"):
        queue.add(proposal(1))
    group = queue.next_group()
    assert group is not None and not room
    queue.refused(group, lambda: NotLeaderError("gone"))
    assert room == [False]
    queue.add(proposal(60))
    with pytest.raises(LocalError, match="do not fit a batch"):
        queue.add(proposal(1000))
    assert queue.bytes_in_flight == queue.pending_bytes == 60


def test_the_end_ends_everything_in_each_queue():
    proposals = ProposalQueue(1000, 1000)
    waiting = [proposal(10) for _ in range(3)]
    for each in waiting[:2]:
        proposals.add(each)
    group = proposals.next_group()
    assert group is not None
    group.count = 2
    proposals.appended(group, 5, 1)
    proposals.add(waiting[2])
    proposals.next_group()
    failed: list[str] = []

    class Told(Decision):
        def decide(self, next_offset, leader_epoch):
            return [b"record"]

        def failed(self, error):
            failed.append(str(error))

    decisions = DecisionQueue(1000)
    decisions.pending.append(Told())
    decisions.took(decisions.decide(7, 1, 0))
    decisions.pending.append(Told())
    decisions.decide(8, 1, 0)
    decisions.pending.append(Told())
    for queue in (proposals, decisions):
        queue.end(lambda: NotLeaderError("the end"))
        queue.check_invariants(9, 9)
    assert all(each.done for each in waiting)
    assert len(failed) == 3
    assert proposals.bytes_in_flight == 0


@pytest.mark.parametrize("spans", [[(3, 5)], [(5, 11)], [(5, 7), (6, 8)], [(5, 7), (7, 6)]])
def test_what_waits_lies_between_what_is_applied_and_the_end(spans):
    check_order([(5, 7), (7, 10)], 5, 10)
    with pytest.raises(InvariantError, match="are waited for"):
        check_order(spans, 5, 10)
