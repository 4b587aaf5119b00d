"""Whose turn it is to change a simulated broker's logs: what production's lock of the disk is, in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from kraftcore.simulation.agenda import Agenda

_Change: TypeAlias = Callable[..., None]


class DiskTurns:
    """Changes one after the other, in the order in which they came, none while the disk is busy.

    Args:
        agenda: of the simulation.
        later: calls something after so many milliseconds, unless the broker is gone by then.
    """

    def __init__(self, agenda: Agenda, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._agenda = agenda
        self._later = later
        self._busy_until = 0
        self._waiting: deque[tuple[_Change, tuple[Any, ...]]] = deque()

    def keep_busy(self, busy_ms: float) -> None:
        """A flush begins that takes so long, or logs are being made for so long."""
        self._busy_until = max(self._busy_until, self._agenda.now + int(busy_ms * 1000))

    def take(self, change: _Change, *arguments: Any) -> None:
        """Do something when the disk is not busy, and after all that came before: at once, if that is now."""
        self._waiting.append((change, arguments))
        if len(self._waiting) == 1:
            self._go_on()

    def _go_on(self) -> None:
        while self._waiting:
            wait_ms = (self._busy_until - self._agenda.now) / 1000
            if wait_ms > 0:
                self._later(wait_ms, self._go_on)
                return
            change, arguments = self._waiting[0]
            try:
                change(*arguments)
            finally:
                self._waiting.popleft()
