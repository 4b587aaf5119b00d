"""Busy polling: while a batch is uncommitted, a leader's event loop does not sleep.

Waking a process that sleeps takes the operating system some time, and its caches are cold then. A commit usually takes
a few hundred microseconds, so a leader runs its loop without sleeping until the commit, as Go's and tokio's schedulers
do before they sleep. Each poll lasts ``busy_poll_us`` at most; after a poll that ended without the commit, the next
occasions are passed over: 1, then 3, 7 and so on up to 255.
"""

from __future__ import annotations

import os
from time import perf_counter
from typing import Any, Protocol

import trio
from trio.lowlevel import checkpoint, current_task, reschedule, wait_task_rescheduled

_PASSED_OVER_MAX = 255


class BatchesInFlight(Protocol):
    """Knows the appended batches that are not committed."""

    @property
    def on_its_way(self) -> object | None:
        """The oldest batch that is appended and not committed; None: there is none."""
        ...


class BusyPoll:
    """Keeps the event loop of a leader awake while a batch is uncommitted.

    Args:
        batches: the batches whose commit is awaited.
        limit_us: how long to poll for one batch, microseconds; 0: not at all.
    """

    def __init__(self, batches: BatchesInFlight, limit_us: int) -> None:
        self._batches = batches
        self._limit_s = limit_us / 1e6
        self._task: trio.lowlevel.Task | None = None
        self._pass_over = 0  # occasions to pass over after the last poll; 0 if its commit came in time
        self._left = 0  # occasions that are still to be passed over

    @property
    def pays(self) -> bool:
        """Whether polling is configured, and there is a second processor: a single one is left to other processes."""
        return self._limit_s > 0 and processors() > 1

    def wake(self) -> None:
        """Begin to poll: a batch was appended."""
        if self._task is not None:
            if self._left:
                self._left -= 1
            else:
                task, self._task = self._task, None
                reschedule(task)

    async def run(self) -> None:
        """Poll whenever a batch is uncommitted, until cancelled."""
        while True:
            self._task = current_task()
            await wait_task_rescheduled(self._stop)
            self._pass_over = 0 if await self._poll() else min(2 * self._pass_over + 1, _PASSED_OVER_MAX)
            self._left = self._pass_over

    async def _poll(self) -> bool:
        """Poll until every batch is committed; False if one took longer than the limit."""
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


def processors() -> int:
    """How many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
