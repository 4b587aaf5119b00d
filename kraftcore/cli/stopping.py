"""Signals that stop a long-running command."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable

STOPPING = (signal.SIGTERM, signal.SIGINT)


def stopping_for_good() -> tuple[signal.Signals, ...]:
    """The signals that stop a command without a reload: SIGHUP is one of them, unless nohup has it ignored."""
    return STOPPING if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (*STOPPING, signal.SIGHUP)


class Stopping:
    """Handles the signals that stop a command: the first one stops it in order, the second ends the process at once.

    Args:
        stop: called at the first signal, with its name.
        temporary: returns the command's temporary directory, which the second signal removes; None: there is none.

    Attributes:
        is_told: whether the first signal came.
    """

    def __init__(self, stop: Callable[[str], object], temporary: Callable[[], str | None] = lambda: None) -> None:
        self._stop = stop
        self._temporary = temporary
        self.is_told = False

    def take(self, number: int) -> None:
        """Take a signal."""
        if not self.is_told:
            self.is_told = True
            self._stop(signal.Signals(number).name)
        elif number != signal.SIGHUP:  # a terminal that is closed may send SIGHUP several times
            for each in STOPPING:
                signal.signal(each, signal.SIG_DFL)  # a third signal ends the process even if the disk hangs
            folder = self._temporary()
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            os.kill(os.getpid(), number)
