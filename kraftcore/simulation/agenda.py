"""Virtual time, and the events that are planned in it."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Agenda:
    """Events in order of their time; those of one time in the order they were planned.

    Attributes:
        now: microseconds since the start.
        count: events that happened.
    """

    def __init__(self) -> None:
        self.now = 0
        self.count = 0
        self._planned = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []

    def at(self, time: int, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event for a time, which must not have passed."""
        self._planned += 1
        heappush(self._heap, (max(time, self.now), self._planned, action, arguments))

    def after_ms(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        """Plan an event in ``delay_ms`` from now."""
        self.at(self.now + int(delay_ms * 1000), action, *arguments)

    def step(self) -> None:
        """Run the next event."""
        self.now, _, action, arguments = heappop(self._heap)
        self.count += 1
        action(*arguments)
