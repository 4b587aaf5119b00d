"""The order in which effects are carried out, and what a driver does with errors."""

from __future__ import annotations

import pytest
from executor_rig import Quorum
from machines import Values

from kraftcore.core.batch import build_batch
from kraftcore.errors import InvariantError, StateMachineError, StorageError
from kraftcore.executor.executor import size_of
from kraftcore.executor.proposals import Proposal
from kraftcore.raft.events import Barrier, Propose, Shutdown, Tick
from kraftcore.raft.roles import Role
from kraftcore.state_machine import StateMachine


def proposal(*values):
    return Proposal(values, size_of(values), True)


def test_a_vote_is_saved_before_it_is_sent():
    quorum = Quorum(3, Values)
    quorum.elect()
    for member in quorum.members.values():
        names = [entry[0] for entry in member.done]
        for at, name in enumerate(names):
            if name == "save":
                after = names[at:]
                assert names[at - 1] == "handled"
                assert after.index("sent") < after.index("handled") if "handled" in after else True
    votes = [at for at, entry in enumerate(quorum[2].done) if entry == ("answer", "VoteResponse")]
    assert votes
    assert any(entry[0] == "save" for entry in quorum[2].done[: votes[-1]])


def test_peers_are_told_before_the_application():
    """Acknowledging goes before applying, and the flush between them follows the last event at hand."""
    quorum = Quorum(3, Values)
    leader = quorum.elect()
    leader.done.clear()
    ended = []
    batches = [build_batch([b"x"], timestamp_ms=1) for _ in range(2)]
    leader.handle(*(Propose(ended.append, batch) for batch in batches))
    assert [entry[0] for entry in leader.done if entry[0] != "answer"] == [
        *["handled", "sent", "begin flush"] * 2,
        *["flush", "handled", "sent"],  # its own flush counts
    ]
    assert [outcome.offset for outcome in ended] == [1, 2]
    quorum.deliver()
    follower = next(member for member in quorum.members.values() if member is not leader)
    names = [entry[0] for entry in follower.done]
    at = names.index("committed", names.index("flush"))
    assert "send" in names[names.index("flush") : at]  # the Fetch that acknowledges


def test_the_end_of_probation_is_durable_before_anything_is_sent():
    quorum = Quorum(1, Values, may_have_forgotten=True)
    member = quorum.elect()
    names = [entry[0] for entry in member.done]
    at = names.index("end probation")
    assert names[at - 1] == "save"  # its vote
    assert names[at + 1] == "sent"
    assert names.count("end probation") == 1


def test_what_is_committed_is_kept_later_and_never_more_than_is_durable():
    quorum = Quorum(3, Values)
    leader = quorum.elect()
    leader.handle(Propose(lambda outcome: None, build_batch([b"x"], timestamp_ms=1)))
    quorum.pass_ms(1000)
    assert not leader.told("keep")
    quorum.pass_ms(3000)
    for member in quorum.members.values():
        kept = member.told("keep")
        assert [entry[1] for entry in kept] == [member.log.flushed_offset]
        assert kept[0][2] == leader.replica.epoch
        names = [entry[0] for entry in member.done]
        assert names[names.index("keep") - 1] not in ("handled", "save")  # answers go first
    leader.handle(Propose(lambda outcome: None, build_batch([b"y"], timestamp_ms=1)))
    leader.flush_is_inline = False
    quorum.deliver()
    leader.handle(Shutdown())
    assert leader.told("keep")[-1][1] == leader.log.flushed_offset  # without waiting


def test_what_waits_is_handled_at_a_time_not_before_it_came():
    """A read that began later must not be answered by a lease that held when the driver was last told the time."""
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    seen = []
    leader.handling = lambda event, now_ms: seen.append((type(event), now_ms))
    began = quorum.now

    def sent(effects):
        if len(seen) == 1:
            leader.executor.handle(began + 700, Barrier(lambda outcome: None))

    leader.sent = sent
    leader.executor.handle(began, Tick())
    assert seen == [(Tick, began), (Barrier, began + 700)]


def test_what_comes_up_meanwhile_waits():
    class Reentrant(Values):
        member = None
        depth = 0

        def apply(self, batch):
            self.depth += 1
            assert self.depth == 1
            if self.member is not None and len(self.values) < 3:
                self.member.executor.add(proposal(b"more"))
                self.member.executor.propose(self.member.quorum.now)
            self.depth -= 1
            return super().apply(batch)

    quorum = Quorum(1, Reentrant)
    leader = quorum.elect()
    leader.machine.member = leader
    first = proposal(b"first")
    leader.executor.add(first)
    leader.executor.propose(quorum.now)
    assert first.result().offset == 1
    assert leader.machine.values == [b"first", b"more", b"more", b"more"]
    leader.executor.check_invariants()


@pytest.mark.parametrize("step", ["save", "send", "handled", "sent", "begin flush", "flush", "committed"])
def test_whatever_raises_ends_it(step):
    quorum = Quorum(3, Values)
    member = quorum[1]
    member.raises[step] = StorageError(5, "broken")
    with pytest.raises(StorageError, match="broken"):
        quorum.elect()
    assert member.executor.stopped
    before = len(member.done)
    member.executor.handle(quorum.now, Tick())
    assert len(member.done) == before


def test_a_machine_that_raises_ends_it():
    class Broken(StateMachine):
        def apply(self, batch):
            raise ValueError("not that")

    quorum = Quorum(1, Broken)
    leader = quorum.elect()
    leader.executor.add(proposal(b"x"))
    with pytest.raises(StateMachineError, match="not that"):
        leader.executor.propose(quorum.now)
    assert leader.executor.stopped


def test_a_flush_that_takes_its_time():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    leader.flush_is_inline = False
    first, second = proposal(b"first"), proposal(b"second")
    leader.executor.add(first)
    leader.executor.propose(quorum.now)
    leader.executor.check_invariants()
    leader.executor.add(second)
    assert not leader.executor.wants_batch  # it waits for what is on its way
    assert not first.done
    leader.end_flush()
    assert first.result().offset == 1
    leader.flush_is_inline = True
    leader.settle()
    assert second.result().offset == 2


def test_invariants_name_what_is_wrong():
    quorum = Quorum(1, Values)
    leader = quorum.elect()
    executor = leader.executor
    executor.check_invariants()
    executor.queue.bytes_in_flight += 1
    with pytest.raises(InvariantError, match="in flight"):
        executor.check_invariants()
    executor.queue.bytes_in_flight -= 1
    executor.high_watermark += 1
    with pytest.raises(InvariantError, match="high watermark"):
        executor.check_invariants()
    executor.high_watermark -= 1
    executor.is_leader = False
    with pytest.raises(InvariantError, match="is_leader"):
        executor.check_invariants()
    executor.is_leader = True
    leader.log.append_as_leader(build_batch([b"x"], timestamp_ms=1), leader.replica.epoch, quorum.now)
    with pytest.raises(InvariantError, match="no flush was asked for"):
        executor.check_invariants()


def test_a_dead_leader_that_is_remembered_is_told_as_none_once():
    """Two of three are gone: the third takes Kafka's roles to and fro, and tells one change of leaders."""
    quorum = Quorum(3, Values)
    leader = quorum.elect()
    survivor, lost = (member for member in quorum.members.values() if member is not leader)
    assert survivor.told("leader")[-1] == ("leader", leader.number)
    survivor.done.clear()
    quorum.cut = {leader.number, lost.number}
    roles, remembered = set(), 0
    died_ms = quorum.now
    for _ in range(600):
        quorum.pass_ms(100)
        roles.add(survivor.replica.role)
        remembered += survivor.replica.leader_id == leader.number
        if quorum.now - died_ms > 2_000:
            assert survivor.replica.answering_leader_id is None
            assert survivor.replica.leader_silent_ms(quorum.now) == pytest.approx(quorum.now - died_ms, abs=500)
    assert roles == {Role.FOLLOWER, Role.PROSPECTIVE} and remembered == 600
    assert survivor.told("leader") == [("leader", None)]


def test_a_leader_knows_for_how_long_no_majority_has_fetched():
    quorum = Quorum(3, Values)
    leader = quorum.elect()
    quorum.pass_ms(5_000)
    assert leader.replica.leader_silent_ms(quorum.now) <= 500
    quorum.cut = {member.number for member in quorum.members.values() if member is not leader}
    quorum.pass_ms(2_500)
    assert leader.executor.is_leader and leader.replica.leader_silent_ms(quorum.now) >= 2_000
    alone = Quorum(1, Values).elect()
    assert alone.replica.leader_silent_ms(1_000_000) == 0
