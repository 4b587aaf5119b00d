"""What ``handle`` makes durable itself, and what it leaves to effects: see `Effects`."""

from __future__ import annotations

from functools import partial

import executor_rig
from executor_rig import Member, Quorum
from machines import Values

from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.executor.executor import size_of
from kraftcore.executor.proposals import Proposal

SYNCS = {"sync", "sync_folder"}


def test_handling_waits_for_the_disk_only_where_an_epoch_begins_and_where_logs_part(monkeypatch):
    """An epoch begins with a new leader, and on a follower with its first batch of that epoch."""
    seen = {"epoch": 0, "cut": 0, "neither": 0}

    def state(member):
        return len(member.disk.trace), member.log.epoch_entries(), member.log.log_end_offset

    def handling(member, event, now_ms):
        member.before = state(member)

    def handled(member, event, effects):
        (mark, epochs, end), (_, epochs_now, end_now) = member.before, state(member)
        synced = [step for step in member.disk.trace[mark:] if step[0] in SYNCS]
        what = "cut" if end_now < end else "epoch" if epochs_now != epochs else "neither"
        assert bool(synced) == (what != "neither"), (event, synced)
        seen[what] += 1

    monkeypatch.setattr(executor_rig, "SimulatedDisk", partial(SimulatedDisk, record=True))
    monkeypatch.setattr(Member, "handling", handling)
    monkeypatch.setattr(Member, "handled", handled)
    quorum = Quorum(3, Values)
    former = quorum.elect()
    quorum.deliver()
    quorum.cut.add(former.number)
    for number in range(3):
        former.executor.add(Proposal((b"%d" % number,), size_of((b"x",)), True))
        former.settle()
    quorum.queue.clear()  # nothing of it arrives
    leader = quorum.elect()
    assert leader is not former
    leader.executor.add(Proposal((b"kept",), size_of((b"kept",)), True))
    leader.settle()
    quorum.deliver()
    quorum.cut.clear()
    quorum.pass_ms(10_000)
    assert all(member.machine.values == [b"kept"] for member in quorum.members.values())
    assert seen["epoch"] >= 6 and seen["cut"] == 1 and seen["neither"] > 50
