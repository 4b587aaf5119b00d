"""Settings of a log, with Kafka's names; the defaults are those of the metadata log."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.errors import LocalError

_INT32_MAX = 2**31 - 1
INDEX_BYTES_MIN = 36
"""A time index of three entries: one to use, one in reserve for the roll, one to spare."""


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of a log.

    Attributes:
        segment_bytes: a segment takes no batch that would make it larger (Kafka: metadata.log.segment.bytes).
        segment_ms: age of a segment, by the timestamps of its batches, at which the next one begins.
        index_interval_bytes: a batch gets an index entry when more than this was appended since the last one.
        index_bytes_max: size of an index at which the next segment begins.
        max_batch_bytes: largest batch that a leader appends.
        file_delete_delay_ms: how long deleted files stay, renamed to ``.deleted``.
        tail_bytes: how much of the log's end is kept in memory.
        preallocate_bytes: write this many zeros ahead of small appends (up to 1/16 of it), at most 1 MiB; 0: none. A
            sync then need not change the file's size: on ext4 it takes about 0.6 times as long, and syncs of several
            files wait less for each other. The zeros go at a roll and at close; after a crash they are cut off, by
            Kafka too. Meanwhile the file has them behind the last batch, where ``kafka-dump-log`` ends with an error.
            Kafka does the same with log.preallocate.
        topic_id: goes into ``partition.metadata``; a folder of another topic is refused. None: the caller keeps that
            file.
        producer_snapshots: write a ``.snapshot`` without producers at each roll and at close, as Kafka does for a
            log that has none. False: write none, for a log whose producers are not followed; Kafka then reads them from
            the log.
        allow_gaps: offsets may be missing between batches and within them, as compaction leaves them, and batches may
            be empty. False: batches behind a gap are cut off, like those behind damage, for appends leave no gaps.
        names_wait: the names of segments and the leader epochs become durable with the next ``flush``, and not before
            the append that needs them: no append, new epoch or roll waits for a sync, but the first roll after a clean
            stop, and a new log has no files before its first append. A power cut may then leave a later segment
            without the one before it; it is cut like any torn tail. Needs ``allow_gaps``.
        all_control: ``Log.control_offsets`` knows every control batch. False: only the first one of each segment, for a
            log with a transaction's end in every other batch.

    Raises:
        LocalError: a value out of range.
    """

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 * 1024**2
    max_batch_bytes: int = 8 * 1024**2
    file_delete_delay_ms: int = 60_000
    tail_bytes: int = 8 * 1024**2
    topic_id: Uuid | None = METADATA_TOPIC_ID
    preallocate_bytes: int = 0
    producer_snapshots: bool = True
    allow_gaps: bool = False
    names_wait: bool = False
    all_control: bool = True

    def __post_init__(self) -> None:
        for name, low, high in (
            ("segment_bytes", 64, _INT32_MAX),
            ("segment_ms", 1, 2**62),
            ("index_interval_bytes", 0, _INT32_MAX),
            ("index_bytes_max", INDEX_BYTES_MIN, _INT32_MAX),
            ("max_batch_bytes", 64, _INT32_MAX),
            ("file_delete_delay_ms", 0, 2**62),
            ("tail_bytes", 0, 2**40),
            ("preallocate_bytes", 0, 2**20),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise LocalError(f"{name} is {value}: it must be between {low} and {high}")
        if self.names_wait and not self.allow_gaps:
            raise LocalError("names_wait needs allow_gaps: a power cut may leave a gap behind what was flushed")
        if self.topic_id is not None and not isinstance(self.topic_id, Uuid):
            raise LocalError(f"topic_id is {self.topic_id!r}: it must be a kraftcore.core.uuid.Uuid")

    def altered(self, wanted: LogConfig) -> LogConfig:
        """The settings of an open log after a change to ``wanted``: those about its folder stay."""
        return replace(
            wanted,
            topic_id=self.topic_id,
            tail_bytes=self.tail_bytes,
            preallocate_bytes=self.preallocate_bytes,
            producer_snapshots=self.producer_snapshots,
            allow_gaps=self.allow_gaps,
            names_wait=self.names_wait,
            all_control=self.all_control,
        )
