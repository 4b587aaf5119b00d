"""kraftcore's record batches."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

from bench import inputs
from bench.harness import Missing, Operation, loop
from kraftcore.core.batch import RecordBatch, build_batch
from kraftcore.core.columns import decode_columns


def encode(records: int, size: int) -> Operation:
    """Build a batch from a list of values."""
    content = list(inputs.values(records, size))
    timestamp = inputs.TIMESTAMP_MS

    def call() -> bytearray:
        return build_batch(content, timestamp_ms=timestamp)

    return Operation(loop(call), lambda: inputs.digest_of_batch(call()))


def decode_objects(records: int, size: int) -> Operation:
    """Check one batch's CRC and visit its records as Python objects."""
    encoded = inputs.one_batch(records, size)

    def call() -> None:
        for record in RecordBatch(encoded):
            record.offset  # noqa: B018
            record.value  # noqa: B018

    def records_of() -> Iterator[tuple[int, bytes]]:
        for record in RecordBatch(encoded):
            yield record.offset, record.value

    return Operation(loop(call), lambda: inputs.digest_of_records(records_of()))


def decode_values(records: int, size: int) -> Operation:
    """Check one batch's CRC and take the list of its values."""
    encoded = inputs.one_batch(records, size)

    def call() -> list[bytes]:
        return RecordBatch(encoded).values()

    return Operation(loop(call), lambda: inputs.digest_of_records(enumerate(call())))


def decode(records: int, size: int, columns: tuple[str, ...] | None = None) -> Operation:
    """Check every batch of a buffer and decode all records to Arrow arrays: all columns, values copied."""
    if importlib.util.find_spec("pyarrow") is None:
        raise Missing("pip install '.[bench]' brings pyarrow")
    encoded, _ = inputs.stream(records, size)

    def call() -> Any:
        return decode_columns(encoded, columns=columns).to_arrow()

    def digest() -> str:
        table = call()
        return inputs.digest_of_records(
            zip(table.column("offset").to_pylist(), table.column("value").to_pylist(), strict=True)
        )

    return Operation(loop(call), digest)
