"""How long things took: a histogram since the start, and Kafka's average and maximum of the last minute."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import nan

WINDOW_S = 30.0
"""Kafka keeps two samples of this length (``metrics.sample.window.ms``, ``metrics.num.samples``)."""
_WINDOWS = 2


@dataclass(frozen=True, slots=True)
class LatencyReading:
    """A `Latency` at one moment.

    Attributes:
        buckets: (upper bound in seconds as Prometheus writes it, count up to there), cumulative.
        sum_s: seconds of all together.
        average_ms: of the last minute; NaN without any.
        maximum_ms: likewise.
    """

    buckets: tuple[tuple[str, float], ...]
    sum_s: float
    average_ms: float
    maximum_ms: float


class Latency:
    """Counts durations.

    Args:
        bounds_s: upper bounds of the buckets, ascending.
    """

    def __init__(self, bounds_s: tuple[float, ...]) -> None:
        self._bounds = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum = 0.0
        self._windows: list[list[float]] = []  # [start, count, sum, maximum], oldest first

    def add(self, seconds: float, now: float, count: int = 1) -> None:
        """So many took so long, just now (seconds of any clock that never falls)."""
        self._counts[bisect_left(self._bounds, seconds)] += count
        self._sum += seconds * count
        if not self._windows or now - self._windows[-1][0] >= WINDOW_S:
            self._windows.append([now, 0, 0.0, 0.0])
            del self._windows[:-_WINDOWS]
        window = self._windows[-1]
        window[1] += count
        window[2] += seconds * count
        window[3] = max(window[3], seconds)

    def read(self, now: float) -> LatencyReading:
        """As it is."""
        total = 0
        buckets = []
        for bound, count in zip((*map(str, self._bounds), "+Inf"), self._counts, strict=True):
            total += count
            buckets.append((bound, float(total)))
        recent = [window for window in self._windows if now - window[0] < WINDOW_S * _WINDOWS]
        number = sum(window[1] for window in recent)
        average = 1000 * sum(window[2] for window in recent) / number if number else nan
        maximum = 1000 * max((window[3] for window in recent), default=nan)
        return LatencyReading(tuple(buckets), self._sum, average, maximum)
