"""Retention: the segments that are deleted by age and size. Source: Kafka 3.9.1, UnifiedLog.deleteOldSegments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

UNLIMITED = -1


class Retention(NamedTuple):
    """How much of a log is kept.

    Attributes:
        ms: a segment goes when its newest record is older (``log.retention.ms``); -1: never.
        bytes: the oldest segments go as long as the rest has at least so many (``log.retention.bytes``); -1: never.
    """

    ms: int = UNLIMITED
    bytes: int = UNLIMITED


class SegmentFacts(Protocol):
    """The facts about a segment that retention needs: see ``kraftcore.core.log.segment.Segment``."""

    @property
    def base_offset(self) -> int:
        """The segment's base offset."""

    @property
    def next_offset(self) -> int:
        """The offset behind the segment's last record."""

    @property
    def size(self) -> int:
        """Bytes of its batches."""

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the records, milliseconds since 1970; -1: none."""


def retained_start(
    segments: Sequence[SegmentFacts], high_watermark: int, now_ms: int, retention: Retention
) -> int | None:
    """The new log start; None if no segment is to be deleted.

    Whole segments go, oldest first, up to the first that is to stay. What is not committed stays, and what has no
    timestamps stays as long as there is room.

    Args:
        segments: the segments of the log, oldest first.
        high_watermark: the high watermark of the partition.
        now_ms: the time, milliseconds since 1970.
        retention: see there.
    """
    start = None
    spare = sum(segment.size for segment in segments) - retention.bytes if retention.bytes != UNLIMITED else -1
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        # Offsets between segments may be missing: where the log shall start is where the next one begins.
        end = segment.next_offset if is_last else segments[number + 1].base_offset
        is_old = retention.ms != UNLIMITED and 0 <= segment.max_timestamp < now_ms - retention.ms
        is_spare = spare - segment.size >= 0
        if not segment.size:
            if is_last:
                break
            is_old = retention != Retention()  # cleaning left nothing of it
        if end > high_watermark or not (is_old or is_spare):
            break
        spare -= segment.size
        start = end
    return start
