"""What ends a command that runs until it is told to stop."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable

STOPPING = (signal.SIGTERM, signal.SIGINT)


def stopping_for_good() -> tuple[signal.Signals, ...]:
    """What stops a command that reads nothing again: the end of its terminal, too, unless nohup has it ignored."""
    return STOPPING if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else (*STOPPING, signal.SIGHUP)


class Stopping:
    """What signals that stop a command do: the first one stops it in order, the second ends the process at once.

    Args:
        stop: called at the first, with the signal's name.
        temporary: where the command keeps what is to go with it, which the second one removes; None: nowhere.

    Attributes:
        is_told: the first one came.
    """

    def __init__(self, stop: Callable[[str], object], temporary: Callable[[], str | None] = lambda: None) -> None:
        self._stop = stop
        self._temporary = temporary
        self.is_told = False

    def take(self, number: int) -> None:
        """A signal came."""
        if not self.is_told:
            self.is_told = True
            self._stop(signal.Signals(number).name)
        elif number != signal.SIGHUP:  # of which a terminal that is closed may send several
            for each in STOPPING:
                signal.signal(each, signal.SIG_DFL)  # a third one waits for nothing, should the disk hang
            folder = self._temporary()
            if folder:
                shutil.rmtree(folder, ignore_errors=True)
            os.kill(os.getpid(), number)
