"""Batches of every kind as plain data, for comparing independent readers and writers with ours."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from kraftcore.core.batch import Compression, RecordBatch, build_records_batch

Headers = tuple[tuple[str, bytes | None], ...]
Entry = tuple[int, bytes | None, bytes | None, Headers]
"""Timestamp in ms, key, value, headers."""


@dataclass(frozen=True)
class Sample:
    """One batch, before anybody encoded it. ``log_append_time_ms`` is -1 for create time."""

    records: tuple[Entry, ...]
    codec: Compression = Compression.NONE
    base_offset: int = 0
    leader_epoch: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    log_append_time_ms: int = -1

    def encode(self) -> bytes:
        """Encode with kraftcore."""
        appended = self.log_append_time_ms >= 0
        return bytes(
            build_records_batch(
                [(key, value, headers, timestamp) for timestamp, key, value, headers in self.records],
                timestamp_ms=self.log_append_time_ms if appended else -1,
                timestamp_type=1 if appended else 0,
                base_offset=self.base_offset,
                leader_epoch=self.leader_epoch,
                compression=self.codec,
                producer_id=self.producer_id,
                producer_epoch=self.producer_epoch,
                base_sequence=self.base_sequence,
                transactional=self.transactional,
            )
        )

    def expected(self) -> list[tuple[int, int, bytes | None, bytes | None, Headers]]:
        """Offset, timestamp, key, value and headers of each record, as every reader must see them."""
        return [
            (
                self.base_offset + delta,
                self.log_append_time_ms if self.log_append_time_ms >= 0 else timestamp,
                key,
                value,
                headers,
            )
            for delta, (timestamp, key, value, headers) in enumerate(self.records)
        ]

    def without_producer(self) -> Sample:
        """The same records from a producer that is not idempotent, for writers that know no other."""
        return replace(self, producer_id=-1, producer_epoch=-1, base_sequence=-1, transactional=False)


def seen(batch: RecordBatch) -> list[tuple[int, int, bytes | None, bytes | None, Headers]]:
    """What kraftcore reads, in the shape of ``Sample.expected``."""
    return [(r.offset, r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in batch]


def _bytes(source: random.Random) -> bytes | None:
    # Lengths around the varint's steps and empty ones; text that compresses and noise that does not.
    size = source.choice((0, 0, 1, 5, 62, 63, 64, 100, 130, 8200))
    if source.random() < 0.15:
        return None
    return source.randbytes(size) if source.random() < 0.5 else (b"kraft " * (size // 6 + 1))[:size]


def _headers(source: random.Random) -> Headers:
    if source.random() < 0.6:
        return ()
    keys = ("", "trace", "schlüssel", "鍵", "trace")
    return tuple((source.choice(keys), _bytes(source)) for _ in range(source.randrange(1, 4)))


def _entry(source: random.Random, now: int) -> Entry:
    # Producers' clocks go backwards, and may be far away.
    timestamp = max(0, now + source.choice((0, 0, 1, 40, -3, -4_000, 1 << 33)))
    return timestamp, _bytes(source), _bytes(source), _headers(source)


def samples(seed: int, count: int, codec: Compression) -> list[Sample]:
    """Make ``count`` batches with running offsets and epochs that never fall."""
    source = random.Random(f"{seed} {codec}")
    result = []
    offset, epoch = source.choice((0, 7, 1 << 40)), source.randrange(4)
    for _ in range(count):
        size = source.choice((1, 1, 2, 3, 10, 200))
        entries = tuple(_entry(source, 1_700_000_000_000) for _ in range(size))
        idempotent = source.random() < 0.4
        result.append(
            Sample(
                entries,
                codec,
                offset,
                epoch,
                producer_id=source.choice((0, 4001, 1 << 50)) if idempotent else -1,
                producer_epoch=source.choice((0, 3, 32767)) if idempotent else -1,
                base_sequence=source.choice((0, 99, 0x7FFFFFFF)) if idempotent else -1,
                transactional=idempotent and source.random() < 0.5,
                log_append_time_ms=1_700_000_123_456 if source.random() < 0.3 else -1,
            )
        )
        offset += size + source.choice((0, 0, 5))
        epoch += source.choice((0, 0, 1, 3))
    return result
