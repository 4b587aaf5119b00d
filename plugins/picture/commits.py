"""How much a quorum commits, and how fast: what an observer of its log sees, without any node's clock."""

from __future__ import annotations

from collections import deque

WINDOW_S = 10.0
"""The time that rate and latency are of."""


class Commits:
    """Watches log end and high watermark grow.

    A record's latency is the time between its arrival here and the news that it is committed: about what its leader
    waits for the majority, and a round trip more.
    """

    def __init__(self) -> None:
        self._arrived: deque[tuple[float, int]] = deque()
        self._committed: deque[tuple[float, int]] = deque()
        self._latencies: deque[tuple[float, float]] = deque()

    def progress(self, now_s: float, log_end: int, high_watermark: int) -> None:
        """Take in how far the log is; offsets that go back are those of a new log."""
        arrived, committed = self._arrived, self._committed
        if (committed and high_watermark < committed[-1][1]) or (arrived and log_end < arrived[-1][1]):
            arrived.clear()
            committed.clear()
        if log_end > high_watermark and (not arrived or arrived[-1][1] < log_end):
            arrived.append((now_s, log_end))
        while arrived and arrived[0][1] <= high_watermark:
            self._latencies.append((now_s, now_s - arrived.popleft()[0]))
        if not committed or committed[-1][1] < high_watermark:
            committed.append((now_s, high_watermark))
        self._forget(now_s)

    def _forget(self, now_s: float) -> None:
        while len(self._committed) > 1 and self._committed[1][0] <= now_s - WINDOW_S:
            self._committed.popleft()
        while self._latencies and self._latencies[0][0] <= now_s - WINDOW_S:
            self._latencies.popleft()

    def rate(self, now_s: float) -> float:
        """Records committed a second, in the last ten seconds."""
        self._forget(now_s)
        if not self._committed:
            return 0.0
        begun, first = self._committed[0]
        return (self._committed[-1][1] - first) / max(min(now_s - begun, WINDOW_S), 1.0)

    def latency_ms(self, share: float) -> float | None:
        """The latency, milliseconds, that this share of the last ten seconds' commits did not exceed; None: no commit.

        Args:
            share: 0 to 1; 0.5 is the median.
        """
        found = sorted(latency for _, latency in self._latencies)
        return found[min(int(share * len(found)), len(found) - 1)] * 1000 if found else None
