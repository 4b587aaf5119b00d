"""Changes of a partition's log that wait for a disk, in steps; see ``disk_steps``. No two of them meet in a log."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kraftcore.plugins.broker.logdirs.directory import HostedLog
from kraftcore.plugins.broker.partition import Partition, PartitionEffects
from kraftcore.plugins.broker.work.disk_steps import DiskSteps

_T = TypeVar("_T")


def raise_log_start(partition: Partition, start: int, now_ms: int) -> DiskSteps[None]:
    """Have the log start at an offset, no further than the high watermark; segments below go.

    Others append and read meanwhile, from the new start on.

    Raises:
        StorageError: the disk failed.
        LocalError: the log takes no changes any more.
    """
    log, start = partition.log, min(start, partition.high_watermark)
    if start <= log.log_start_offset:
        return
    if start > log.flushed_offset:
        yield log.flush
    remove = partition.begin_delete_below(start, now_ms)
    if remove is not None:
        yield remove


def cut(partition: Partition, hosted: HostedLog, action: Callable[[], PartitionEffects]) -> DiskSteps[PartitionEffects]:
    """Remove the end of a log, or all of it, while the partition serves no request.

    Args:
        partition: that follows.
        hosted: its log in its directory.
        action: ``Partition.truncate`` or ``restart_at``.

    Raises:
        StorageError: the disk failed.
        LocalError, CorruptDataError: the log takes no changes, or cannot be read.
    """
    partition.is_changing = True
    try:
        return (yield from cut_log(hosted, action))
    finally:
        partition.is_changing = False


def cut_log(hosted: HostedLog, action: Callable[[], _T]) -> DiskSteps[_T]:
    """Remove the end of a log that no request reads meanwhile, or all of it: its recovery point is stored first.

    Raises:
        StorageError: the disk failed.
        LocalError, CorruptDataError: the log takes no changes, or cannot be read.
    """
    found: list[_T] = []

    def work() -> None:
        hosted.directory.begin_cut(hosted)
        found.append(action())
        hosted.directory.end_cut(hosted)

    try:
        yield work
    finally:
        hosted.is_cut = False
    return found[0]
