"""Clients in trio, asyncio and a thread at once, on nodes that are killed and cut off: is there an order?"""

from __future__ import annotations

import pytest
from recipe_users import STEPS, Users, check_history, in_three_worlds, trouble

from kraftcore.plugins.recipes.client import Client


@pytest.mark.parametrize("kind", STEPS)
def test_histories_of_three_worlds_are_linearizable(kind):
    histories = []

    async def test(cluster, running):
        cluster.network.delay_ms = (0.2, 3)
        users = Users(cluster, kind)
        histories.append(users.recorder.operations)
        async with running(users):
            await trouble(cluster, users)
        await cluster.assert_all_equal()
        users.check_tokens()

    in_three_worlds(test)
    (history,) = histories
    check_history(kind, history)
    assert len({operation.process for operation in history}) == 3


@pytest.mark.parametrize("kind", ["dict", "counter"])
def test_the_checker_sees_a_reader_that_asks_nobody(kind, monkeypatch):
    """The read barrier is left out: a replica that lags, or is cut off, then answers."""

    async def at_once(self):
        pass

    monkeypatch.setattr(Client, "barrier", at_once)
    with pytest.raises(AssertionError, match="not linearizable"):
        for _ in range(5):  # each sees it nearly always
            test_histories_of_three_worlds_are_linearizable(kind)
