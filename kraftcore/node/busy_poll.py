"""Busy polling: a leader stays awake for a commit that is about to come.

A loop that sleeps is woken late: a processor has to be found, and its caches are cold. While batches are on their way
to being committed, news of them is a few hundred microseconds off, so a leader goes round its loop and looks for it
instead, as Go's and tokio's schedulers do before they sleep. It takes processor time that nobody else wanted, so it is
bounded by ``busy_poll_us``; where commits take longer than that, it tries ever less often.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any, Protocol

import trio
from trio.lowlevel import checkpoint, current_task, reschedule, wait_task_rescheduled

_PASSED_OVER_MAX = 255


class BatchesInFlight(Protocol):
    """What is on its way to being committed."""

    @property
    def on_its_way(self) -> object | None:
        """Stands for what will be committed next; None: nothing."""
        ...


class BusyPoll:
    """See the module text.

    Args:
        batches: what is awaited.
        limit_us: stay awake so long for one of them; 0: not at all.
    """

    def __init__(self, batches: BatchesInFlight, limit_us: int) -> None:
        self._batches = batches
        self._limit_s = limit_us / 1e6
        self._task: trio.lowlevel.Task | None = None
        self._pass_over = 0  # so many occasions, after the last was in vain
        self._left = 0  # of those

    @property
    def pays(self) -> bool:
        """Whether it is wanted and has a processor to take: with a single one it would keep others from working."""
        return self._limit_s > 0 and _processors() > 1

    def wake(self) -> None:
        """Batches are on their way."""
        if self._task is not None:
            if self._left:
                self._left -= 1
            else:
                task, self._task = self._task, None
                reschedule(task)

    async def run(self) -> None:
        """Poll whenever there is something to wait for, until cancelled."""
        while True:
            self._task = current_task()
            await wait_task_rescheduled(self._stop)
            self._pass_over = 0 if await self._poll() else min(2 * self._pass_over + 1, _PASSED_OVER_MAX)
            self._left = self._pass_over

    async def _poll(self) -> bool:
        """Stay awake until nothing is on its way; False if one batch took too long."""
        batches = self._batches
        while (awaited := batches.on_its_way) is not None:
            end = perf_counter() + self._limit_s
            while batches.on_its_way is awaited:
                if perf_counter() >= end:
                    return False
                await checkpoint()
        return True

    def _stop(self, _: Any) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
