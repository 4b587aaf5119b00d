"""Records that depend on where they will stand: each decision whole, each caller told once."""

from __future__ import annotations

import pytest
from executor_rig import LIMITS, Quorum
from machines import Values

from kraftcore.core.batch import iter_batches
from kraftcore.errors import LocalError, NodeStoppedError, NotLeaderError, OutcomeUnknownError, StorageError
from kraftcore.executor.decisions import Decision
from kraftcore.executor.executor import size_of
from kraftcore.executor.proposals import Proposal
from kraftcore.raft.events import Barrier, Resign, Tick, Transfer


class Note(Decision):
    """Writes down what happens to it, and decides for ``count`` records that name their offset."""

    def __init__(self, count=1, size=0, may_split=False, error=None):
        self.count, self.size, self.may_split, self.error = count, size, may_split, error
        self.told = []

    def decide(self, next_offset, leader_epoch):
        self.told.append(("decide", next_offset, leader_epoch))
        if self.error is not None:
            raise self.error
        return [b"%d" % (next_offset + at) + b"-" * self.size for at in range(self.count)]

    def appended(self, offset):
        self.told.append(("appended", offset))

    def committed(self):
        self.told.append(("committed",))

    def failed(self, error):
        self.told.append(("failed", type(error)))


def batches(member):
    log = member.log
    return [batch for batch in iter_batches(log.read(0, 1 << 20)) if not batch.is_control]


def test_many_decisions_share_a_batch_each_whole_and_at_its_offset():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    made = [Note(count) for count in (1, 3, 2)]
    for decision in made:
        leader.executor.decide(decision)
    leader.settle()
    epoch = leader.replica.epoch
    assert [decision.told for decision in made] == [
        [("decide", at, epoch), ("appended", at), ("committed",)] for at in (1, 2, 5)
    ]
    assert [batch.count for batch in batches(leader)] == [6]
    assert leader.machine.values == [b"%d" % offset for offset in range(1, 7)]


def test_a_decision_is_never_parted_unless_it_says_so():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    made = [Note(4, 150), Note(3, 150), Note(12, 150, may_split=True), Note(1)]
    for decision in made:
        leader.executor.decide(decision)
    leader.settle()
    assert all(decision.told[-1] == ("committed",) for decision in made)
    assert [batch.count for batch in batches(leader)][:2] == [4, 3]
    assert sum(batch.count for batch in batches(leader)) == 20
    assert all(batch.size <= LIMITS.max_batch_bytes for batch in batches(leader))
    assert [int(value.rstrip(b"-")) for value in leader.machine.values] == list(range(1, 21))


def test_one_that_may_be_split_says_how_many_records_a_batch_may_have():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    made = [Note(25, may_split=True), Note(11), Note(10, may_split=True), Note(10, may_split=True)]
    for decision in made:
        decision.records_a_batch = 10
        leader.executor.decide(decision)
        leader.settle()
    assert all(decision.told[-1] == ("committed",) for decision in made)
    assert [batch.count for batch in batches(leader)] == [10, 10, 5, 11, 10, 10]


def test_a_refused_decision_leaves_no_gap():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    made = [Note(), Note(error=ValueError("no")), Note(9, 150), Note(2, 2000, may_split=True), Note()]
    for decision in made:
        leader.executor.decide(decision)
    leader.settle()
    assert [decision.told[-1] for decision in made] == [
        ("committed",),
        ("failed", ValueError),
        ("failed", LocalError),
        ("failed", LocalError),
        ("committed",),
    ]
    assert leader.machine.values == [b"1", b"2"]


def test_one_without_records_waits_for_what_it_saw():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    alone = Note(0)
    leader.executor.decide(alone)
    leader.settle()
    assert alone.told[-1] == ("committed",)
    leader.flush_is_inline = False
    first, reader = Note(), Note(0)
    leader.executor.decide(first)
    leader.executor.decide(reader)
    leader.executor.propose(quorum.now)
    assert first.told[-1] == ("appended", 1)
    assert reader.told[-1] == ("appended", 2)
    leader.end_flush()
    assert first.told[-1] == reader.told[-1] == ("committed",)
    assert len(batches(leader)) == 1


def test_a_linearizable_one_without_records_asks_whether_it_still_leads():
    quorum = Quorum(3, Values)
    leader = quorum.elect()
    quorum.deliver()
    plain, asking = Note(0), Note(0)
    asking.is_linearizable = True
    leader.executor.decide(plain)
    leader.settle()
    assert plain.told[-1] == ("committed",)
    leader.executor.decide(asking)
    leader.settle()
    assert [what for what, *_ in asking.told] == ["decide"]
    quorum.deliver()
    assert asking.told[-1] == ("committed",)


def test_decisions_and_proposals_in_one_log():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    proposal, decision = Proposal((b"a", b"b"), size_of((b"a", b"b")), True), Note(2)
    leader.executor.add(proposal)
    leader.executor.decide(decision)
    leader.settle()
    assert proposal.result().offset == 1
    assert leader.machine.values == [b"a", b"b", b"3", b"4"]


def test_nobody_decides_before_its_predecessors_records_are_applied():
    quorum = Quorum(3, Values)
    with pytest.raises(NotLeaderError):
        quorum[1].executor.decide(Note())
    refused = []

    def leader_changed(found):
        if found.is_local:
            with pytest.raises(NotLeaderError, match="predecessors") as error:
                quorum[found.leader_id].executor.decide(Note())
            refused.append(error)

    for member in quorum.members.values():
        member.leader_changed = leader_changed
    first = quorum.elect()
    assert len(refused) == 1
    assert first.told("leading", "leading ended") == [("leading", first.replica.epoch)]
    first.executor.decide(Note())
    quorum.cut.add(first.number)
    second = quorum.elect()
    assert len(refused) == 2
    assert second is not first
    assert second.told("leading") == [("leading", second.replica.epoch)]


def test_a_leader_that_is_cut_off_does_not_know():
    quorum = Quorum(3, Values)
    leader = quorum.elect()
    before = Note()
    leader.executor.decide(before)
    leader.settle()
    quorum.pass_ms(1000)
    assert before.told[-1] == ("committed",)
    quorum.cut |= {1, 2, 3} - {leader.number}
    lost, never = Note(), Note()
    leader.executor.decide(lost)
    leader.settle()
    leader.executor.decide(never)  # waits for the first
    leader.handle(Resign())
    assert lost.told[-1] == ("failed", OutcomeUnknownError)
    assert never.told == [("failed", NotLeaderError)]
    assert leader.told("leading", "leading ended")[-1][0] == "leading ended"
    assert leader.executor.leading_epoch is None
    with pytest.raises(NotLeaderError):
        leader.executor.decide(Note())


def test_while_leadership_is_handed_over_nothing_is_appended():
    quorum = Quorum(3, Values)
    leader = quorum.elect()
    other = next(number for number in quorum.members if number != leader.number)
    quorum.cut |= {1, 2, 3} - {leader.number}
    leader.handle(Barrier(lambda outcome: None))
    filler = Note()
    leader.executor.decide(filler)
    leader.settle()
    leader.handle(Transfer(lambda outcome: None, other))
    decision = Note()
    leader.executor.decide(decision)
    leader.executor.propose(quorum.now)
    assert decision.told[-1] == ("failed", NotLeaderError)
    assert filler.told[-1][0] == "appended"
    leader.executor.check_invariants()


def test_one_that_is_brought_within_another_is_made_later():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    inner = Note()

    class Outer(Note):
        def committed(self):
            super().committed()
            leader.executor.decide(inner)

    outer = Outer()
    leader.executor.decide(outer)
    leader.settle()
    assert inner.told[0] == ("decide", 2, leader.replica.epoch)
    assert inner.told[-1] == ("committed",)


def test_a_log_that_fails_keeps_nobody_waiting():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    leader.disk.capacity = leader.disk.used_bytes
    decision = Note(20, 800, may_split=True)
    leader.executor.decide(decision)
    with pytest.raises(StorageError) as error:
        leader.settle()
    leader.executor.end(lambda: NodeStoppedError(str(error.value)))
    assert decision.told[-1] == ("failed", NodeStoppedError)


def test_the_end_ends_every_decision():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    leader.flush_is_inline = False
    appended, pending = Note(), Note()
    leader.executor.decide(appended)
    leader.settle()
    leader.executor.decide(pending)
    leader.executor.end(lambda: NodeStoppedError("over"))
    assert appended.told[-1] == pending.told[-1] == ("failed", NodeStoppedError)
    with pytest.raises(NodeStoppedError):
        leader.executor.decide(Note())
    leader.executor.handle(quorum.now, Tick())


def batches_of_rounds(leader, rounds):
    """Decisions that come so many at a time, a turn after each time; how many shared each batch."""
    before = len(batches(leader))
    for count in rounds:
        for _ in range(count):
            leader.executor.decide(Note())
            if leader.executor.wants_batch:
                leader.executor.propose(0)
        leader.settle()
    return [batch.count for batch in batches(leader)][before:]


def test_decisions_that_come_together_soon_share_batches():
    """Where each is flushed at once the first of many would always go alone: now and then one waits for a turn."""
    leader = Quorum(1, Values).elect()
    made = batches_of_rounds(leader, [4] * 20)
    assert made[0] == 1
    assert made[-15:] == [4] * 15
    assert sum(made) == 80


def test_one_decision_at_a_time_seldom_waits_for_others():
    leader = Quorum(1, Values).elect()
    batches_of_rounds(leader, [3] * 10)
    waited = 0
    for at in range(100):
        leader.executor.decide(Note())
        if at >= 10:
            waited += leader.executor.wants_turn
        leader.settle()
    assert 0 < waited <= 15
