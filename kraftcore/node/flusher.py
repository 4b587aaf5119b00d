"""Makes the log durable, in the node's own task while that is quick, else in a thread.

A thread costs two switches (about 0.1 ms), an inline sync blocks the task for as long as the disk takes. So small
flushes go inline as long as the disk has been quick lately; large ones, and all while the disk is slow, go to the
thread. The size of a flush comes with each call, for a leader's own records and a follower's fetched ones alike.
Measured with `python -m bench nodes`; the figures are in bench/figures.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter

import trio

from kraftcore.core.log import Log

SLOW_S = 0.004  # seconds; while the mean sync takes longer, a thread waits for it
_WEIGHT = 0.2  # of the newest sync in the running mean


class Flusher:
    """Flushes the log: in the node's own task while flushes are quick, else in a thread.

    Args:
        log: the log to flush.
        inline_bytes: larger flushes go to the thread; 0: all go there.
        done: called in the node's task with the flushed offset.
        failed: called in the node's task with the error.
    """

    def __init__(
        self,
        log: Log,
        inline_bytes: int,
        done: Callable[[int], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._log = log
        self._inline_bytes = inline_bytes
        self._done = done
        self._failed = failed
        self._mean_s = 0.0
        self._again = 0  # bytes appended since the running flush began
        self._jobs: SimpleQueue[bool] | None = None
        self._token = trio.lowlevel.current_trio_token()
        self._waiting: list[Callable[[], None]] = []
        self.is_running = False

    def begin(self) -> None:
        """Start writing to the disk, for ``flush`` follows soon."""
        if not self.is_running:
            self._log.write_out()

    def flush(self, size: int) -> None:
        """Make everything appended so far durable, now or in the thread, then call ``done``.

        Args:
            size: bytes appended since the flush before was asked for.
        """
        if self.is_running:
            self._again += size
        elif 0 < self._inline_bytes >= size and self._mean_s < SLOW_S:
            start = perf_counter()
            offset = self._log.flush()
            self._took(perf_counter() - start)
            self._done(offset)
        else:
            self.is_running = True
            if self._jobs is None:
                self._jobs = SimpleQueue()
                threading.Thread(target=self._work, args=(self._jobs,), name="kraftcore flush", daemon=True).start()
            self._jobs.put(True)

    def when_idle(self, action: Callable[[], None]) -> None:
        """Call ``action`` when no flush runs: now, or after the last flush that runs or waits has succeeded."""
        if self.is_running:
            self._waiting.append(action)
        else:
            action()

    def close(self) -> None:
        """End the thread; not while a flush runs."""
        if self._jobs is not None:
            self._jobs.put(False)
            self._jobs = None

    def _took(self, seconds: float) -> None:
        self._mean_s += (seconds - self._mean_s) * _WEIGHT

    def _work(self, jobs: SimpleQueue[bool]) -> None:
        while jobs.get():
            start = perf_counter()
            error: BaseException | None = None
            offset = -1
            try:
                offset = self._log.flush()
            except BaseException as raised:
                error = raised
            try:
                self._token.run_sync_soon(self._finished, offset, error, perf_counter() - start)
            except trio.RunFinishedError:
                return

    def _finished(self, offset: int, error: BaseException | None, seconds: float) -> None:
        self.is_running = False
        self._took(seconds)
        if error is not None:
            self._failed(error)
            return
        self._done(offset)
        if self._again:
            size, self._again = self._again, 0
            self.flush(size)
        elif self._waiting and not self.is_running:
            waiting, self._waiting = self._waiting, []
            for action in waiting:
                action()
