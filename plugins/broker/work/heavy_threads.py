"""A thread for work that would hold the event loop for long: one piece of work at a time, for all requests.

So the memory of the work is bounded, and the event loop keeps a processor. Compiled code and codecs release the GIL.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

import trio

from kraftcore.plugins.broker.work.heavy_steps import Done, failure_of, others_first

_logger = logging.getLogger("kraftcore.broker")


class HeavyThreads:
    """Does heavy work in threads, one piece at a time; called as ``kraftcore.plugins.broker.work.heavy_steps.DoAside``.

    Args:
        nursery: runs the tasks that wait for the thread.
    """

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self._one = trio.CapacityLimiter(1)

    def __call__(self, work: Callable[[], object], done: Done) -> None:
        """Have the thread do the work; see ``DoAside``. A broker that stops does not wait for the thread."""
        self._nursery.start_soon(self._run, work, done)

    async def _run(self, work: Callable[[], object], done: Done) -> None:
        error = None
        if work is others_first:
            await trio.lowlevel.checkpoint()
        else:
            run = partial(trio.to_thread.run_sync, abandon_on_cancel=True, limiter=self._one)
            error = await run(failure_of, work)
        try:
            done(error)
        except Exception:
            _logger.exception("what a thread has done cannot be gone on with")
