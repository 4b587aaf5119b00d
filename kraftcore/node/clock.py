"""The time that a node passes to its replica, and the clock on the wall."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import trio


class Clock:
    """Milliseconds since 1970 that never fall: the wall clock at the start, from there on trio's clock.

    With trio's mock clock the time stands still until a test moves it.
    """

    def __init__(self) -> None:
        self._trio_now = trio.lowlevel.current_clock().current_time
        self._offset = time.time() - self._trio_now()

    def now_ms(self) -> int:
        """The time now."""
        return int((self._trio_now() + self._offset) * 1000)

    def trio_time(self, time_ms: int) -> float:
        """When trio's clock reaches ``time_ms``, and a fraction of a millisecond later, so that ``now_ms`` shows it."""
        return (time_ms + 0.01) / 1000 - self._offset


def wall_clock() -> Callable[[], int]:
    """The clock on the wall, as a function: milliseconds since 1970.

    Whoever keeps it right sets it, forth and back, and it goes on while the machine sleeps. For times that others
    compare with theirs, as those of records, not for how long something takes. With trio's mock clock: `Clock`.
    """
    mocks = sys.modules.get("trio.testing")  # whoever has a mock clock has imported it
    if mocks is not None and isinstance(trio.lowlevel.current_clock(), mocks.MockClock):
        return Clock().now_ms
    return lambda: time.time_ns() // 1_000_000
