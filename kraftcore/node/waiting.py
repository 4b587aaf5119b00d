"""trio tasks that wait for proposals, and for room for more."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

import trio
from trio.lowlevel import cancel_shielded_checkpoint, current_task, reschedule, wait_task_rescheduled

from kraftcore.errors import LocalError
from kraftcore.executor.proposals import Appended, Ended_co, Proposal, ProposalQueue
from kraftcore.state_machine import Result_co

_logger = logging.getLogger("kraftcore.node")
_SUCCEEDED = trio.lowlevel.Abort.SUCCEEDED


class AppendFuture(Protocol[Result_co]):
    """An append in progress, which ``Node.append_nowait`` returns."""

    @property
    def done(self) -> bool:
        """Whether the append ended, with success or an error."""
        ...

    def result(self) -> Appended[Result_co]:
        """Return or raise as ``Node.append`` would have.

        Raises:
            LocalError: the append has not ended.
        """
        ...

    async def wait(self) -> Appended[Result_co]:
        """Wait for the end; returns or raises as ``result``. One task waits; cancelling it does not undo the append.

        Raises:
            LocalError: another task waits already.
        """
        ...

    def add_done_callback(self, callback: Callable[[Any], None], /) -> None:
        """Call a function with this future at its end, or now if it ended; what it raises is logged."""
        ...


class TaskProposal(Proposal[Ended_co]):
    """A proposal that a task waits for, an `AppendFuture`; its ``waiter`` is the task.

    trio hands it to the task that it wakes (see ``unwrap``): an ``outcome`` object for each proposal would cost as much
    as appending the record.
    """

    __slots__ = ()

    wake = staticmethod(reschedule)  # type: ignore[assignment]  # trio only calls the proposal's `unwrap`
    unwrap = Proposal.result  # trio calls this name on the object that a task is woken with

    @staticmethod
    def callback_raised(error: Exception) -> None:
        """Log a callback's error, so that later callbacks are called."""
        _logger.error("a callback of a proposal raised", exc_info=error)

    async def wait(self) -> Ended_co:
        """Wait for the end; returns or raises as ``result``. Cancelling the wait does not undo the proposal."""
        if self.done:
            await cancel_shielded_checkpoint()
            return self.result()
        if self.waiter is not None:
            raise LocalError("another task waits for this proposal: use add_done_callback for more than one")
        self.waiter = current_task()
        ended: Ended_co = await wait_task_rescheduled(self)
        return ended

    def __call__(self, _: Any) -> trio.lowlevel.Abort:
        """Abort the wait, as trio's abort function: a bound method would be one object more for each caller."""
        self.waiter = None
        return _SUCCEEDED


class WaitingRoom:
    """Lets tasks wait, in turn, until a queue is not full."""

    def __init__(self, queue: ProposalQueue) -> None:
        self._queue = queue
        self._lot = trio.lowlevel.ParkingLot()

    async def wait(self) -> None:
        """Wait until the queue is not full."""
        while self._queue.is_full:
            self._queue.on_room = self._lot.unpark_all
            await self._lot.park()
