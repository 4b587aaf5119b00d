"""A leader that waits for a commit keeps looking for it, within bounds."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from nodes import Lab, run

from kraftcore.executor.proposals import Group, Proposal, ProposalQueue
from kraftcore.node import busy_poll as module
from kraftcore.node.busy_poll import BusyPoll

LONG_US = 10**9  # nothing here takes so long


class Sleeps(trio.abc.Instrument):
    """How often the loop went to sleep."""

    def __init__(self) -> None:
        self.count = 0

    def before_io_wait(self, timeout: float) -> None:
        self.count += timeout > 0

    async def none(self) -> bool:
        """Whether the loop stays awake although this task has nothing to do."""
        self.count = 0
        await trio.sleep(0.005)
        return self.count == 0

    async def one(self) -> None:
        """Until the loop goes to sleep."""
        self.count = 0
        while not self.count:
            await trio.sleep(0.005)


class Batches(ProposalQueue):
    """What is on its way, without an executor."""

    @property
    def on_its_way(self):
        return self.groups[0] if self.groups else None


def queue_with(count: int) -> Batches:
    queue = Batches(1 << 20, 1 << 20)
    for offset in range(count):
        queue.appended(Group([Proposal(b"x", 1, False)], 1), offset, 1)
    return queue


async def turns(count: int) -> None:
    for _ in range(count):
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def polling(queue: Batches) -> AsyncIterator[BusyPoll]:
    """Its task waits for a first occasion."""
    poll = BusyPoll(queue, LONG_US)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(poll.run)
        await turns(3)
        yield poll
        nursery.cancel_scope.cancel()


def test_the_loop_stays_awake_until_nothing_is_on_its_way():
    async def main():
        sleeps = Sleeps()
        queue = queue_with(2)
        async with polling(queue) as poll:
            trio.lowlevel.add_instrument(sleeps)
            await sleeps.one()  # nobody said that there is something to wait for
            poll.wake()
            assert await sleeps.none()
            queue.settle(0, 1)
            assert await sleeps.none(), "the second batch is still on its way"
            queue.settle(1, 1)
            await sleeps.one()

    run(main)


def test_batches_that_fail_end_it():
    async def main():
        sleeps = Sleeps()
        queue = queue_with(3)
        async with polling(queue) as poll:
            trio.lowlevel.add_instrument(sleeps)
            poll.wake()
            assert await sleeps.none()
            queue.fail_appended(lambda: RuntimeError("lost"))
            await sleeps.one()

    run(main)


def test_where_commits_take_long_it_tries_ever_less_often(monkeypatch):
    """The clock leaps at each reading, so every poll is in vain."""
    leaps = itertools.count(step=LONG_US)
    kept = []

    async def main():
        queue = queue_with(1)
        async with polling(queue) as poll:
            monkeypatch.setattr(module, "perf_counter", lambda: next(leaps))
            for occasion in range(1200):
                before = next(leaps)
                poll.wake()
                await turns(3)
                if next(leaps) > before + LONG_US:  # it asked for the time
                    kept.append(occasion)

    run(main)
    pauses = [later - sooner - 1 for sooner, later in itertools.pairwise(kept)]
    assert pauses == [1, 3, 7, 15, 31, 63, 127, 255, 255, 255]


def test_one_that_was_in_time_ends_the_restraint(monkeypatch):
    leaps = itertools.count(step=LONG_US)

    async def main():
        queue = queue_with(1)
        async with polling(queue) as poll:
            monkeypatch.setattr(module, "perf_counter", lambda: next(leaps))
            poll.wake()
            await turns(3)
            monkeypatch.undo()
            poll.wake()  # passed over: the first was in vain
            queue.settle(0, 1)
            queue.appended(Group([Proposal(b"x", 1, False)], 1), 1, 1)
            poll.wake()
            await turns(3)
            queue.settle(1, 1)
            await turns(3)
            sleeps = Sleeps()
            trio.lowlevel.add_instrument(sleeps)
            queue.appended(Group([Proposal(b"x", 1, False)], 1), 2, 1)
            poll.wake()
            assert await sleeps.none()

    run(main)


@pytest.mark.parametrize(("limit_us", "processors", "pays"), [(500, 2, True), (500, 1, False), (0, 2, False)])
def test_it_takes_no_processor_that_others_need(monkeypatch, limit_us, processors, pays):
    monkeypatch.setattr(module, "processors", lambda: processors)
    assert BusyPoll(queue_with(0), limit_us).pays is pays


@pytest.mark.parametrize(("busy_poll_us", "awake"), [(LONG_US, True), (0, False)])
def test_a_leader_polls_while_its_followers_are_far_away(monkeypatch, busy_poll_us, awake):
    monkeypatch.setattr(module, "processors", lambda: 2)

    async def main():
        lab = Lab()
        async with lab.quorum(busy_poll_us=busy_poll_us) as (leader, *_):
            await leader.append(b"before")
            sleeps = Sleeps()
            trio.lowlevel.add_instrument(sleeps)
            lab.network.delay_ms = 400
            proposal = leader.append_nowait(b"waits")
            await turns(3)
            if awake:
                assert await sleeps.none()
            else:
                await sleeps.one()
            lab.network.delay_ms = 0
            await proposal.wait()
            await sleeps.one()

    run(main)
