"""Gives an executor its turns: to batch pending proposals, and to apply records that one turn left over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kraftcore.executor.executor import Executor


class Pump:
    """Gives an executor its turns: to batch pending proposals, and to apply what one turn left over.

    Args:
        executor: gets the turns.
        run: calls a method of the executor with the time.
        linger_ms: pause before each turn, in which more proposals may come; 0: none.
    """

    def __init__(self, executor: Executor, run: Callable[..., None], linger_ms: int) -> None:
        self._executor = executor
        self._run = run
        self._linger_s = linger_ms / 1000
        self._task: trio.lowlevel.Task | None = None

    def wake(self) -> None:
        """Give a turn, after all tasks that can run now."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def run(self) -> None:
        """Give turns, until cancelled."""
        executor = self._executor
        while True:
            if not executor.wants_turn or executor.stopped:
                await self._park()
            else:
                await trio.lowlevel.checkpoint()
            if self._linger_s:
                await trio.sleep(self._linger_s)
            self._run(executor.turn)

    async def _park(self) -> None:
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._stop)

    def _stop(self, _: Any) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
