"""Requests of which a thread checks a batch, and the later requests for the same partitions, kept in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.work.heavy_steps import DoAside, Done

WAITING_MAX, WAITING_BYTES_MAX = 500, 128 * 1024 * 1024
"""The most requests that wait, and the most bytes that they have together."""


class _Waiting:
    """A request that waits until its work is done and until it is first in the line of each of its partitions."""

    __slots__ = ("error", "is_worked", "names", "size", "then")

    def __init__(self, names: Collection[TopicPartition], size: int, then: Done) -> None:
        self.names = names
        self.size = size
        self.then = then
        self.is_worked = False
        self.error: Exception | None = None


class WaitingLine:
    """Keeps requests for a partition in order while one of them waits for heavy work; true while a request waits.

    A request goes on when its work is done and no earlier request waits for one of its partitions. From then on it is
    treated as if it had come at that moment.

    Args:
        do_aside: has a thread do the work.
    """

    def __init__(self, do_aside: DoAside) -> None:
        self._do_aside = do_aside
        self._lines: dict[TopicPartition, deque[_Waiting]] = {}
        self._waiting = self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._lines)

    def is_before(self, names: Collection[TopicPartition]) -> bool:
        """Whether a request waits for one of these partitions."""
        return bool(self._lines) and any(name in self._lines for name in names)

    def has_room(self, size: int) -> bool:
        """Whether one more request of so many bytes may wait."""
        return self._waiting < WAITING_MAX and (not self._waiting or self._bytes + size <= WAITING_BYTES_MAX)

    def wait(self, names: Collection[TopicPartition], size: int, work: Callable[[], object], then: Done) -> None:
        """Have a request wait.

        Args:
            names: the request's partitions, each once.
            size: about how many bytes of memory the request keeps.
            work: see ``DoAside``. It begins at once, also while earlier requests wait.
            then: called when the request may go on, with the error that the work raised; it does not raise.
        """
        waiting = _Waiting(names, size, then)
        self._waiting += 1
        self._bytes += size
        for name in names:
            self._lines.setdefault(name, deque()).append(waiting)

        def worked(error: Exception | None) -> None:
            waiting.is_worked, waiting.error = True, error
            self._go_on(waiting)

        self._do_aside(work, worked)

    def _go_on(self, waiting: _Waiting) -> None:
        """Let a request go on if it may, and then those that it held up."""
        candidates = [waiting]
        while candidates:
            each = candidates.pop()
            if not each.is_worked or any(self._lines[name][0] is not each for name in each.names):
                continue
            for name in each.names:
                line = self._lines[name]
                line.popleft()
                if line:
                    candidates.append(line[0])
                else:
                    del self._lines[name]
            each.is_worked = False  # a request is a candidate once for each of its lines, and goes on once
            self._waiting -= 1
            self._bytes -= each.size
            each.then(each.error)
