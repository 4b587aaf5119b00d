"""Makes the log durable, in the node's own task while that is quick, else in a thread.

A thread costs two switches (about 0.1 ms), an inline sync blocks the task for as long as the disk takes. So small
flushes go inline as long as the disk has been quick lately; large ones, and all while it is slow, go to the thread. How
much there is to flush, the log itself tells by its size: a leader's own records and what a follower fetched alike.
Measured with `python -m bench nodes`; the figures are in bench/README.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter

import trio

from kraftcore.core.log import Log

SLOW_S = 0.004  # a sync longer than this is better waited for elsewhere
_WEIGHT = 0.2  # of the newest sync in the running mean


class Flusher:
    """See the module text.

    Args:
        log: what to flush.
        inline_bytes: more than this goes to the thread; 0: everything.
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
        self._again = False
        self._jobs: SimpleQueue[bool] | None = None
        self._token = trio.lowlevel.current_trio_token()
        self._size = log.size_in_bytes  # when the last flush began
        self.is_running = False

    def begin(self) -> None:
        """``flush`` follows: the disk may begin."""
        if not self.is_running:
            self._log.write_out()

    def flush(self) -> None:
        """Make everything appended so far durable, then report it; at once or soon."""
        if self.is_running:
            self._again = True
        elif self._is_small() and self._mean_s < SLOW_S:
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

    def _is_small(self) -> bool:
        size = self._log.size_in_bytes
        grown, self._size = size - self._size, size
        if grown < 0:  # something was truncated or deleted meanwhile: all that is known is that it is not more
            grown = size
        return 0 < self._inline_bytes >= grown

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
            self._again = False
            self.flush()
