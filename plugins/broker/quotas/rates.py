"""Rates of bytes a second over the last samples, without a clock: what quotas are compared with.

Source: Kafka 4.3.1, SampledStat, Rate, SimpleRate, Sensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

UNLIMITED: Final = 2**63 - 1
"""The limit, bytes a second, that stands for no limit."""


class QuotaWindow(NamedTuple):
    """The time over which a rate is taken.

    Attributes:
        samples: the number of samples (``quota.window.num``, and the replication settings with that ending).
        sample_ms: the length of a sample, milliseconds (``quota.window.size.seconds``, likewise).
    """

    samples: int = 11
    sample_ms: int = 1000


class _Sample:
    """The bytes of a part of the window, until the last of them is older than the window."""

    __slots__ = ("began_ms", "last_ms", "size")

    def __init__(self, now_ms: int) -> None:
        self.begin(now_ms)

    def begin(self, now_ms: int) -> None:
        """Begin an empty sample."""
        self.began_ms = self.last_ms = now_ms
        self.size = 0


class Rate:
    """A rate of bytes a second; the time before the first sample counts as one without bytes.

    Args:
        window: over which time.
    """

    __slots__ = ("_latest", "_samples", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        self._samples: list[_Sample] = []  # a ring; one more than the window has, which may overlap its beginning
        self._latest = 0

    def record(self, size: int, now_ms: int) -> None:
        """Count bytes that came or went now."""
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        sample = self._samples[self._latest]
        if now_ms - sample.began_ms >= self._window.sample_ms:
            sample = self._advance(now_ms)
        sample.size += size
        sample.last_ms = now_ms

    def _advance(self, now_ms: int) -> _Sample:
        self._latest = (self._latest + 1) % (self._window.samples + 1)
        if self._latest == len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._latest].begin(now_ms)
        return self._samples[self._latest]

    def per_second(self, now_ms: int) -> float:
        """The present rate, bytes a second."""
        return self._measure(now_ms)[0]

    def excess_ms(self, limit: float, now_ms: int) -> int:
        """How long no bytes may come until the rate is within the limit, milliseconds; 0: the rate is within it.

        Args:
            limit: bytes a second, > 0.
            now_ms: the time, milliseconds since 1970.
        """
        rate, elapsed_ms = self._measure(now_ms)
        if rate <= limit:
            return 0
        # The quotient of a tiny limit may be infinite.
        return round(min((rate - limit) / limit * elapsed_ms, UNLIMITED))

    def is_at_rest(self, now_ms: int) -> bool:
        """Whether no sample counts any more."""
        return all(now_ms - sample.last_ms >= self._span_ms for sample in self._samples)

    @property
    def _span_ms(self) -> int:
        return self._window.samples * self._window.sample_ms

    def _measure(self, now_ms: int) -> tuple[float, int]:
        span_ms = self._span_ms
        for sample in self._samples:
            if now_ms - sample.last_ms >= span_ms:
                sample.begin(now_ms)
        if not self._samples:
            self._samples.append(_Sample(now_ms))
        elapsed_ms = self._elapsed_ms(now_ms - min(sample.began_ms for sample in self._samples))
        return sum(sample.size for sample in self._samples) * 1000 / elapsed_ms, elapsed_ms

    def _elapsed_ms(self, since_oldest_ms: int) -> int:
        sample_ms = self._window.sample_ms
        missing = self._window.samples - 1 - since_oldest_ms // sample_ms
        return max(since_oldest_ms + max(missing, 0) * sample_ms, 1)


class SimpleRate(Rate):
    """Bytes a second since the oldest sample began, which is taken to be a whole one at least."""

    __slots__ = ()

    def _elapsed_ms(self, since_oldest_ms: int) -> int:
        return max(since_oldest_ms, self._window.sample_ms)


class LimitedRate:
    """A `SimpleRate` of bytes that are copied, and its limit.

    Args:
        window: over which time.
        now_ms: the time, milliseconds since 1970.

    Attributes:
        limit: bytes a second, >= 0; it holds at once, also for what was recorded before.
    """

    def __init__(self, window: QuotaWindow, now_ms: Callable[[], int]) -> None:
        self.limit = UNLIMITED
        self._rate = SimpleRate(window)
        self._sample_ms = window.sample_ms
        self._now_ms = now_ms

    def record(self, size: int) -> None:
        """Count bytes that were copied."""
        self._rate.record(size, self._now_ms())

    @property
    def is_exceeded(self) -> bool:
        """Whether the rate exceeds the limit."""
        return self.limit < UNLIMITED and self._rate.per_second(self._now_ms()) > self.limit

    @property
    def wait_ms(self) -> int:
        """How long to wait while the rate exceeds the limit: 1 to ``sample_ms`` milliseconds."""
        if self.limit == 0:
            return self._sample_ms
        return min(max(self._rate.excess_ms(self.limit, self._now_ms()), 1), self._sample_ms)
