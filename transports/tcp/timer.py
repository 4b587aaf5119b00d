"""A transport's timer, and calls that are postponed until the present one has returned."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any

import trio

from kraftcore.ports.nursery import uninterrupted

# A sweep looks at every deadline, so it is made no more often than this.
_GRAIN_S = 0.005


class Timer:
    """Calls ``sweep(now)`` when the earliest deadline is due; it returns the next one.

    Attributes:
        next: when the timer goes off, seconds of trio's clock.
        now: trio's clock.
    """

    def __init__(self, sweep: Callable[[float], float]) -> None:
        self.next = inf
        self.now = trio.lowlevel.current_clock().current_time
        self._sweep = sweep
        self._later: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._wake = trio.Event()

    def by(self, moment: float) -> None:
        """Have ``sweep`` called at ``moment`` at the latest."""
        if moment < self.next:
            self.next = moment
            self._wake.set()

    def later(self, action: Callable[..., object], *arguments: Any) -> None:
        """Call ``action`` soon, but not now."""
        self._later.append((action, arguments))
        self._wake.set()

    def run_later(self) -> None:
        """Make the postponed calls; calls that these postpone wait for the next time."""
        for _ in range(len(self._later)):
            action, arguments = self._later.popleft()
            action(*arguments)

    @uninterrupted
    async def run(self) -> None:
        """Run the timer, until cancelled."""
        while True:
            if not self._later:
                with trio.move_on_at(self.next):
                    await self._wake.wait()
            self._wake = trio.Event()
            await trio.lowlevel.checkpoint()
            self.run_later()
            now = self.now()
            if now >= self.next:
                self.next = inf  # calls inside the sweep may set an earlier time again
                following = max(self._sweep(now), now + _GRAIN_S)
                self.next = min(self.next, following)
