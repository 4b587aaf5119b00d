"""When to write a snapshot, and which snapshots and segments to delete after it.

Without snapshots the log would grow for ever, and a start would apply all of it.

A replica writes a snapshot when ``snapshot_bytes`` were applied since the last one, or ``snapshot_interval_ms`` have
passed and anything was applied. While log and snapshots are larger than ``retention_bytes``, or the oldest snapshot is
older than ``retention_ms``, the oldest snapshot and the log below the next one are deleted; the newest snapshot stays.

Source: KIP-630; Kafka 4.3.1 SnapshotGenerator and KafkaRaftLog.maybeClean, with their defaults.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftcore.errors import CorruptDataError
from kraftcore.protocol.control import decode_control_record
from kraftcore.protocol.data.snapshot_header_record import SnapshotHeaderRecord
from kraftcore.raft.control_records import first_batch
from kraftcore.raft.ports import LogPort, SnapshotPort


@dataclass(frozen=True, slots=True)
class CleaningConfig:
    """Thresholds, with Kafka's names and defaults.

    Attributes:
        snapshot_bytes: ``metadata.log.max.record.bytes.between.snapshots``, >= 1.
        snapshot_interval_ms: ``metadata.log.max.snapshot.interval.ms``; 0: no snapshot because of time.
        retention_bytes: ``metadata.max.retention.bytes`` of log and snapshots; negative: no limit.
        retention_ms: ``metadata.max.retention.ms`` of a snapshot's contents; negative: no limit.
        period_ms: how often to clean.
    """

    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3_600_000
    retention_bytes: int = 100 * 1024 * 1024
    retention_ms: int = 7 * 24 * 3_600_000
    period_ms: int = 60_000


class SnapshotSchedule:
    """When the next snapshot is due.

    Args:
        config: thresholds.
        now_ms: start of the first interval.
    """

    def __init__(self, config: CleaningConfig, now_ms: int) -> None:
        self._config = config
        self._bytes = 0
        self._since_ms = now_ms

    def applied(self, size: int) -> None:
        """Count ``size`` bytes of committed batches that were applied."""
        self._bytes += size

    def is_due(self, now_ms: int) -> bool:
        """Whether to write a snapshot at the end of the batch just applied."""
        if self._bytes == 0:
            return False
        interval = self._config.snapshot_interval_ms
        return self._bytes >= self._config.snapshot_bytes or (interval > 0 and now_ms - self._since_ms >= interval)

    def due_at(self) -> int | None:
        """When the interval makes a snapshot due, ms; None if it does not."""
        interval = self._config.snapshot_interval_ms
        return self._since_ms + interval if interval > 0 and self._bytes else None

    def begun(self, now_ms: int) -> None:
        """Count anew, because a snapshot was begun or loaded."""
        self._bytes = 0
        self._since_ms = now_ms


class Cleaner:
    """Deletes old snapshots, and the log that a newer snapshot holds.

    Args:
        config: thresholds.
        log: the log.
        snapshots: its snapshots.
    """

    def __init__(self, config: CleaningConfig, log: LogPort, snapshots: SnapshotPort) -> None:
        self._config = config
        self._log = log
        self._snapshots = snapshots

    def clean(self, now_ms: int) -> int:
        """Delete by the thresholds; call this once a period, never while a flush runs.

        Args:
            now_ms: milliseconds since 1970, like the records' timestamps.

        Returns:
            How many snapshots were deleted.

        Raises:
            StorageError: the disk failed.
        """
        count = 0
        while len(self._snapshots.ids) > 1 and (self._too_large() or self._too_old(now_ms)):
            keep = self._snapshots.ids[1][0]
            if keep > self._log.flushed_offset:
                break
            self._log.delete_below(keep, now_ms)
            count += len(self._snapshots.delete_before(keep, now_ms))
        self._log.delete_expired(now_ms)
        self._snapshots.unlink_due(now_ms)
        return count

    def _too_large(self) -> bool:
        limit = self._config.retention_bytes
        if limit < 0:
            return False
        return self._log.size_in_bytes + sum(map(self._snapshots.size, self._snapshots.ids)) > limit

    def _too_old(self, now_ms: int) -> bool:
        limit = self._config.retention_ms
        if limit < 0:
            return False
        return now_ms - _last_contained_ms(self._snapshots) > limit


def _last_contained_ms(snapshots: SnapshotPort) -> int:
    record = next(iter(first_batch(snapshots, snapshots.ids[0])), None)
    body = None if record is None else decode_control_record(record.key, record.value).body
    if not isinstance(body, SnapshotHeaderRecord):
        raise CorruptDataError(f"snapshot {snapshots.ids[0]} does not begin with a SnapshotHeader", position=0)
    return body.last_contained_log_timestamp
