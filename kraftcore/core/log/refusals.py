"""Raises the errors of a log's refused appends and reads: called once it is known that they are refused."""

from __future__ import annotations

from typing import Never

from kraftcore.errors import CorruptBatchError, LocalError

_OFFSET_MAX = 2**63 - 1


def refuse_batch(folder: str, size: int, leader_epoch: int, log_epoch: int, limits: tuple[int, int] | None) -> Never:
    """Refuse a batch that its leader may not append.

    Args:
        folder: of the log.
        size: bytes of the batch.
        leader_epoch: the leader's epoch.
        log_epoch: the newest epoch of the log.
        limits: ``max_batch_bytes`` and ``segment_bytes``; None: the bytes are not exactly one batch.

    Raises:
        LocalError: always.
    """
    if 0 <= leader_epoch < log_epoch:
        raise LocalError(f"{folder}: leader epoch {leader_epoch} is over, the log is at {log_epoch}")
    if leader_epoch < 0:
        raise LocalError(f"{folder}: leader epoch {leader_epoch}: it must be at least 0")
    if limits is not None and size > min(limits):
        raise LocalError(
            f"{folder}: the batch has {size} bytes, more than max_batch_bytes {limits[0]} or segment_bytes "
            f"{limits[1]} allow"
        )
    raise LocalError(f"{folder}: {size} bytes that are not exactly one batch of one or more records")


def refuse_from_leader(
    folder: str,
    position: int,
    offsets: tuple[int, int, int],
    count: int,
    leader_epoch: int,
    size: int,
    wanted: tuple[int, int, int],
    *,
    allow_gaps: bool,
) -> Never:
    """Refuse a batch from a leader.

    Args:
        folder: of the log.
        position: of the batch in the leader's answer.
        offsets: of its first and last record, and the last offset delta in its header.
        count: of its records, by its header.
        leader_epoch: in its header.
        size: its bytes.
        wanted: the log's next offset, the newest epoch before it, the most bytes of a segment.
        allow_gaps: see ``LogConfig``.

    Raises:
        CorruptBatchError: always.
    """
    first, last, delta = offsets
    expected, epoch, segment_bytes = wanted
    if first < expected or last == _OFFSET_MAX or (first != expected and not allow_gaps):
        reason = f"the batch starts at offset {first}, the log continues at {expected}"
    elif leader_epoch < epoch or leader_epoch < 0:
        reason = f"leader epoch {leader_epoch} after epoch {epoch}"
    elif size > segment_bytes:
        reason = f"{size} bytes are more than segment_bytes {segment_bytes} allow: raise it"
    else:
        reason = f"{count} records, but last offset delta {delta}"
    raise CorruptBatchError(f"{folder}: received batch refused: {reason}", position=position)


def refuse_read(folder: str, offset: int, max_bytes: int, held: tuple[int, int]) -> Never:
    """Refuse a read.

    Args:
        folder: of the log.
        offset: from which to read.
        max_bytes: most bytes to read.
        held: the first and the last offset in the log.

    Raises:
        LocalError: always.
    """
    if max_bytes < 0:
        raise LocalError(f"{folder}: max_bytes is {max_bytes}: it must be at least 0")
    raise LocalError(f"{folder}: offset {offset} is out of range, the log holds {held[0]} to {held[1]}")
