"""When pending proposals become a batch.

No timer decides (unless ``append_linger_ms`` is set): whatever arrives while a batch is on its way to being committed
becomes the next one, or goes earlier once it is worth a batch by itself. A proposal that finds nothing on its way goes
at once. Of many callers that one commit woke together, the first must not go alone: it waits until the others, which
run in the same turn of the loop, have added theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import trio

from kraftcore.node.clock import Clock
from kraftcore.node.driver import Driver
from kraftcore.node.proposals import Proposal, ProposalQueue
from kraftcore.raft.events import Propose, Tick

ENOUGH_BYTES = 128 * 1024  # pending: more would not make a batch cheaper, only later


class Pump:
    """Proposes what is pending, and goes on applying what one turn could not.

    Args:
        queue: the proposals.
        driver: takes the batches.
        clock: stamps them.
        linger_ms: wait so long for more, > 0, or 0.
        has_backlog: whether committed records wait to be applied.
    """

    def __init__(
        self,
        queue: ProposalQueue,
        driver: Driver,
        clock: Clock,
        linger_ms: int,
        has_backlog: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._driver = driver
        self._clock = clock
        self._linger_s = linger_ms / 1000
        self._has_backlog = has_backlog
        self._task: trio.lowlevel.Task | None = None

    def submit(self, proposal: Proposal) -> None:
        """Take a proposal in; propose it now if that is best."""
        queue = self._queue
        queue.add(proposal)
        if not queue.groups:
            if queue.last_settled <= 1 and not self._linger_s:
                self._propose()
            elif self._task is not None:
                self.wake()
        elif queue.pending_bytes >= ENOUGH_BYTES and self._task is not None:
            self.wake()

    @property
    def _is_time(self) -> bool:
        queue = self._queue
        return bool(queue.pending) and (not queue.groups or queue.pending_bytes >= ENOUGH_BYTES)

    def wake(self) -> None:
        """There may be something to do."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    def _propose(self) -> None:
        queue = self._queue
        proposed = []
        while (group := queue.next_group(perf_counter())) is not None:
            batch = group.build(self._clock.now_ms())
            self._driver.flusher.note_bytes(len(batch))
            proposed.append(Propose(group, batch))
        self._driver.feed(*proposed)

    async def run(self) -> None:
        """Work whenever there is something to do, until cancelled."""
        while True:
            if not self._is_time and not self._has_backlog():
                await self._park()
            if self._linger_s:
                await trio.sleep(self._linger_s)
            if self._is_time:
                self._propose()
            if self._has_backlog():
                self._driver.feed(Tick())
                await trio.lowlevel.checkpoint()

    async def _park(self) -> None:
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._stop)

    def _stop(self, _: Any) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
