"""Invariants of a log beyond those of its segments: see ``Log.check_invariants``."""

from __future__ import annotations

from kraftcore.errors import InvariantError


def check_log(
    folder: str,
    problems: list[str],
    segments_end: int,
    offsets: tuple[int, int, int, int],
    tail: tuple[int, int, int],
    epochs: tuple[int, int],
    *,
    allow_gaps: bool,
) -> None:
    """Compare a log's offsets, tail and epochs with its segments.

    Args:
        folder: of the log.
        problems: sentences about the segments themselves.
        segments_end: offset behind the last segment.
        offsets: where the first segment begins; the log's start, flushed and end offset.
        tail: where it ends, its bytes, and their limit.
        epochs: the newest one, and that of the checkpoint; -1: none.
        allow_gaps: see ``LogConfig``.

    Raises:
        InvariantError: an invariant, or one of ``problems``, is broken.
    """
    first, start, flushed, end = offsets
    if segments_end > end or (segments_end < end and not allow_gaps):
        problems.append(f"the segments end at {segments_end}, the log at {end}")
    if not first <= start <= end:
        problems.append(f"log start {start}")
    if flushed > end:
        problems.append(f"flushed up to {flushed}, beyond the end")
    if tail[0] != end or tail[1] > tail[2]:
        problems.append(f"the tail ends at {tail[0]} with {tail[1]} bytes")
    if epochs[0] != epochs[1]:
        problems.append(f"epoch {epochs[0]}, checkpoint {epochs[1]}")
    if problems:
        raise InvariantError(f"{folder}: " + "; ".join(problems))
