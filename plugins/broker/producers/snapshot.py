"""The file ``<offset>.snapshot``: all producers of a partition as they were when its log ended at that offset.

    version int16 (1) | CRC-32C of what follows uint32 | count int32 | entries of 42 bytes

Of each producer only the last batch is kept. Source: Kafka 4.3.1, ProducerSnapshot.json, ProducerStateManager.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kraftcore.core.crc32c import crc32c
from kraftcore.errors import CorruptDataError
from kraftcore.plugins.broker.producers.state import NO_SEQUENCE, ProducerState, StoredBatch

SUFFIX = ".snapshot"
_VERSION = 1
_HEADER = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, start of transaction
_ENTRY = struct.Struct(">qhiqiqiq")


def encode_snapshot(producers: Iterable[ProducerState]) -> bytes:
    """The file's content."""
    entries = []
    for each in producers:
        last = each.batches[-1] if each.batches else StoredBatch(NO_SEQUENCE, -1, 0, -1)
        entries.append(
            _ENTRY.pack(
                each.producer_id,
                each.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                each.last_timestamp,
                each.coordinator_epoch,
                each.transaction_start,
            )
        )
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEADER.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, path: str | None = None) -> list[ProducerState]:
    """Read a file's content.

    Raises:
        CorruptDataError: the file is no snapshot of producers, or damaged.
    """
    start = _HEADER.size + _COUNT.size
    if len(data) < start:
        raise CorruptDataError(f"{len(data)} bytes are no producer snapshot", path=path)
    version, crc = _HEADER.unpack_from(data)
    (count,) = _COUNT.unpack_from(data, _HEADER.size)
    if version != _VERSION:
        raise CorruptDataError(f"producer snapshot of version {version}, expected {_VERSION}", path=path)
    if crc != crc32c(data[_HEADER.size :]):
        raise CorruptDataError("the checksum of a producer snapshot does not match", path=path)
    if len(data) != start + count * _ENTRY.size:
        raise CorruptDataError(f"{count} producers announced in {len(data)} bytes", path=path)
    found = []
    for producer_id, epoch, sequence, offset, delta, timestamp, coordinator, transaction in _ENTRY.iter_unpack(
        memoryview(data)[start:]
    ):
        state = ProducerState(producer_id, epoch, coordinator, timestamp, transaction)
        if offset >= 0:
            state.batches.append(StoredBatch(sequence, offset, delta, timestamp))
        found.append(state)
    return found
