"""aiokafka's compiled record batches. Its Fetch messages end at version 11, so it does not take part in wire-fetch."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from bench import inputs
from bench.harness import Missing, Operation, loop

try:
    from aiokafka.record._crecords import DefaultRecordBatch, DefaultRecordBatchBuilder, MemoryRecords

    NAME = f"aiokafka {version('aiokafka')}"
except (ImportError, PackageNotFoundError):
    NAME = "aiokafka"
    DefaultRecordBatch = None


def _require() -> None:
    if DefaultRecordBatch is None:
        raise Missing("pip install '.[bench]' brings aiokafka with its compiled modules")


def encode(records: int, size: int) -> Operation:
    """Build a batch from a list of values."""
    _require()
    content = inputs.values(records, size)
    timestamp = inputs.TIMESTAMP_MS

    def call() -> bytearray:
        builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
        append = builder.append
        for delta, value in enumerate(content):
            append(delta, timestamp, None, value, [])
        return builder.build()

    return Operation(loop(call), lambda: inputs.digest_of_batch(call()))


def decode_objects(records: int, size: int) -> Operation:
    """Check one batch's CRC and visit its records as Python objects."""
    _require()
    encoded = inputs.one_batch(records, size)

    def call() -> None:
        batch = DefaultRecordBatch(encoded)
        if not batch.validate_crc():
            raise ValueError("checksum")
        for record in batch:
            record.offset  # noqa: B018
            record.value  # noqa: B018

    return Operation(loop(call), lambda: _digest(encoded))


def decode(records: int, size: int) -> Operation:
    """The same over a buffer of many batches."""
    _require()
    encoded, _ = inputs.stream(records, size)

    def call() -> None:
        batches = MemoryRecords(encoded)
        while batches.has_next():
            batch = batches.next_batch()
            if not batch.validate_crc():
                raise ValueError("checksum")
            for record in batch:
                record.offset  # noqa: B018
                record.value  # noqa: B018

    return Operation(loop(call), lambda: _digest(encoded))


def _records(encoded: bytes) -> Iterator[tuple[int, bytes]]:
    batches = MemoryRecords(encoded)
    while batches.has_next():
        batch = batches.next_batch()
        if not batch.validate_crc():
            raise ValueError("checksum")
        for record in batch:
            yield record.offset, record.value


def _digest(encoded: bytes) -> str:
    return inputs.digest_of_records(_records(encoded))
