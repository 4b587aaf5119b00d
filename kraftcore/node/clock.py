"""The time that a node passes to its replica, and the clock on the wall."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

import trio


class Clock:
    """Milliseconds since 1970 that never fall: the wall clock at the start, from there on trio's clock.

    With trio's mock clock the time stands still until a test moves it.

    Args:
        counts_sleep: whether time goes on while the machine is suspended, where the system has such a clock (Linux).
            trio's clock stands still then.
    """

    def __init__(self, *, counts_sleep: bool = False) -> None:
        self._trio_now = self._now = trio.lowlevel.current_clock().current_time
        boot_time: int | None = getattr(time, "CLOCK_BOOTTIME", None)
        if counts_sleep and boot_time is not None and not _is_mocked():
            self._now = partial(time.clock_gettime, boot_time)
        self._offset = time.time() - self._now()

    def now_ms(self) -> int:
        """Milliseconds since 1970."""
        return int((self._now() + self._offset) * 1000)

    def trio_time(self, time_ms: int) -> float:
        """The time of trio's clock at which ``now_ms`` returns ``time_ms``: a fraction of a millisecond later."""
        apart = 0.0 if self._now is self._trio_now else self._now() - self._trio_now()
        return (time_ms + 0.01) / 1000 - self._offset - apart


def _is_mocked() -> bool:
    mocks = sys.modules.get("trio.testing")  # without this module there is no mock clock
    return mocks is not None and isinstance(trio.lowlevel.current_clock(), mocks.MockClock)


def wall_clock() -> Callable[[], int]:
    """The clock on the wall, as a function: milliseconds since 1970.

    It can be set forward and back, and goes on while the machine sleeps. So it is for times that other machines compare
    with theirs, such as records' timestamps, not for measuring durations. With trio's mock clock: `Clock`.
    """
    if _is_mocked():
        return Clock().now_ms
    return lambda: time.time_ns() // 1_000_000
