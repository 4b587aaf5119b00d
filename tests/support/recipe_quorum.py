"""Three nodes of recipes in one process, in virtual time."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from kraftcore.plugins import recipes
from kraftcore.plugins.recipes.client import Client
from kraftcore.testing import Cluster


def on_three_nodes(test, *, delay_ms=0, **settings):
    async def main():
        async with Cluster(3, recipes.RecipeMachine, **settings) as cluster:
            cluster.network.delay_ms = delay_ms
            await cluster.wait_leader()
            with trio.fail_after(600):
                await test(cluster)

    # Time passes only while all wait: a busy machine changes nothing.
    trio.run(main, clock=MockClock(autojump_threshold=0))


async def both(cluster):
    return await cluster.wait_leader(), cluster.followers[0]


async def all_items(queue):
    await queue.size()
    return queue.peek_items()


async def take_away(node, name, kind="lock"):
    """Release the lease of a lock, or of a queue's item, in the log, behind its holder's back."""
    state = node.state_machine.find(kind, name)
    (owner,) = state.holders if kind == "lock" else state.taken
    (was_held,) = await Client.of(node).call([kind, name, "release", owner])
    assert was_held


class Interrupted(trio.abc.Instrument):
    """Cancels a call when its task has gone a number of steps and waits for what comes next.

    Args:
        steps: how often the task runs before.
        after_s: how long it waits then, before it is cancelled.
    """

    def __init__(self, steps, after_s):
        self._left = steps
        self._after_s = after_s
        self._task = trio.lowlevel.current_task()
        self._scope = trio.CancelScope()

    def after_task_step(self, task):
        if task is self._task:
            self._left -= 1
            if self._left == 0:
                self._scope.deadline = trio.current_time() + self._after_s

    async def call(self, function):
        """Whether the function came to its end, and what it returned."""
        found = None
        trio.lowlevel.add_instrument(self)
        try:
            with self._scope:
                found = await function()
        finally:
            trio.lowlevel.remove_instrument(self)
        return not self._scope.cancelled_caught, found


async def interrupted_at_each_step(function, check, delays=(0, 0.004)):
    """Call a function again and again, cancelled one step later each time, until it is cancelled nowhere.

    Args:
        function: called without arguments.
        check: called after each call with whether it came to its end, and what it returned.
        delays: how long the call waits at its last step, in seconds.
    """
    steps = 0
    for delay_s in delays:
        steps, is_over = 0, False
        while not is_over:
            steps += 1
            is_over, found = await Interrupted(steps, delay_s).call(function)
            await check(is_over, found)
    assert steps > 1, "it was cancelled somewhere"
