"""Calls functions when their time has come, unless they were cancelled: they answer requests that wait."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from itertools import count

import trio

_logger = logging.getLogger("kraftcore.broker")

REQUEST_TIMEOUT_MS = 30_000
"""The longest time for a request to another node, milliseconds (Kafka: ``request.timeout.ms`` of a broker)."""

_SPARE = 1000  # cancelled entries that may stay beside as many live ones


def _log(error: Exception) -> None:
    _logger.error("an action that was due raised an error", exc_info=error)


class Deadline:
    """A function that is to be called at a time; made by `Deadlines.after`."""

    __slots__ = ("_action", "_owner")

    def __init__(self, owner: Deadlines, action: Callable[[], None]) -> None:
        self._owner = owner
        self._action: Callable[[], None] | None = action

    @property
    def is_live(self) -> bool:
        """Whether the function is neither called nor cancelled yet."""
        return self._action is not None

    def cancel(self) -> None:
        """Do not call the function."""
        if self._action is not None:
            self._action = None
            self._owner._cancelled()

    def _run(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            self._owner._live -= 1
            try:
                action()
            except Exception as error:
                self._owner._on_error(error)


class Deadlines:
    """The deadlines of a broker. ``run`` is a task that calls them; without trio, call ``run_due`` at ``due``.

    Args:
        now: seconds of a clock that never falls.
        on_error: called with what an action raised; the other actions are called all the same.
        on_earlier: called when ``due`` came nearer, where ``run`` does not run.
    """

    def __init__(
        self,
        now: Callable[[], float] = trio.current_time,
        on_error: Callable[[Exception], object] = _log,
        on_earlier: Callable[[], object] = lambda: None,
    ) -> None:
        self._on_earlier = on_earlier
        self._on_error = on_error
        self._now = now
        self._heap: list[tuple[float, int, Deadline]] = []
        self._number = count()
        self._live = 0

    def after(self, delay_ms: int, action: Callable[[], None]) -> Deadline:
        """Have ``action`` called once, after so many milliseconds."""
        deadline = Deadline(self, action)
        due = self._now() + delay_ms / 1000
        heapq.heappush(self._heap, (due, next(self._number), deadline))
        self._live += 1
        if self._heap[0][2] is deadline:
            self._on_earlier()
        return deadline

    def _cancelled(self) -> None:
        self._live -= 1
        if len(self._heap) > 2 * self._live + _SPARE:
            self._heap = [entry for entry in self._heap if entry[2].is_live]
            heapq.heapify(self._heap)

    @property
    def due(self) -> float:
        """When the next action is due, by ``now``; infinity: there is none."""
        heap = self._heap
        while heap and not heap[0][2].is_live:  # cancelled ones wake no task
            heapq.heappop(heap)
        return heap[0][0] if heap else float("inf")

    def run_due(self) -> None:
        """Call the actions whose time has come."""
        now = self._now()
        while self.due <= now:
            heapq.heappop(self._heap)[2]._run()

    async def run(self) -> None:
        """Call each action when its time has come, until cancelled."""
        while True:
            self.run_due()
            earlier = trio.Event()
            self._on_earlier = earlier.set
            with trio.move_on_at(self.due):
                await earlier.wait()
