"""Forks processes from this one, which has imported all modules that they need."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from typing import NamedTuple, NoReturn

from kraftcore.errors import InvariantError, LocalError

_STANDARD = 3  # descriptors: input, output, errors


class Forked(NamedTuple):
    """A process that was forked.

    Attributes:
        pid: its id.
        output: the reading end of a pipe, non-blocking, with the output of the process; ends when the process ends.
    """

    pid: int
    output: int


class Forker:
    """Forks processes that end when this one ends, even if it is killed.

    Each is a session of its own: signals that a terminal sends to this process do not reach it. Signal handlers,
    standard input and output are as in a process that was just started, standard error is shared.

    Args:
        handled: signals that have handlers in this process.
        let_go: called in a forked process: closes inherited files that it must not hold.
    """

    def __init__(self, handled: Iterable[signal.Signals], let_go: Callable[[], None]) -> None:
        self._handled = tuple(handled)
        self._let_go = let_go
        while (free := os.open(os.devnull, os.O_RDWR)) < _STANDARD:  # a shell may have closed some of them
            pass
        os.close(free)
        # Nothing is written to this pipe: its end tells the end of this process.
        self._life, self._held = os.pipe()

    def close(self) -> None:
        """End all forked processes that still run."""
        os.close(self._life)
        os.close(self._held)

    def fork(self, run: Callable[[], int]) -> Forked:
        """Fork a process.

        Args:
            run: the work of the process; returns its exit status.

        Raises:
            InvariantError: this process has threads, whose locks would stay taken in the forked one.
            LocalError: the system allows no more processes.
        """
        if threading.active_count() > 1:
            raise InvariantError(f"this process has threads, so it cannot be forked: {threading.enumerate()}")
        output, printed = os.pipe()
        # Until the forked process has handlers of its own, a signal to it would reach this process.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self._handled)
        try:
            pid = os.fork()
            if pid == 0:
                self._be(run, output, printed, before)
        except OSError as error:
            os.close(output)
            raise LocalError(f"the system allows no more processes (ulimit -u): {error}") from error
        finally:
            os.close(printed)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.set_blocking(output, False)
        return Forked(pid, output)

    def _be(self, run: Callable[[], int], output: int, printed: int, mask: Iterable[int]) -> NoReturn:
        """Run ``run`` in the forked process, and end it."""
        status = 1
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in self._handled:
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
            os.close(output)
            os.close(self._held)
            self._let_go()
            for descriptor, place in ((os.open(os.devnull, os.O_RDONLY), 0), (printed, 1)):
                os.dup2(descriptor, place)
                os.close(descriptor)
            sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            threading.Thread(target=_end_after, args=(self._life,), name="life", daemon=True).start()
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            status = run()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)


def _end_after(life: int) -> None:
    os.read(life, 1)
    os.kill(os.getpid(), signal.SIGKILL)
