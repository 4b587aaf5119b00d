from typing import NamedTuple

from typing_extensions import Buffer

__all__ = ["BatchTotals", "validate_batches"]

class BatchTotals(NamedTuple):
    batches: int
    records: int
    size: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    earliest_ms: int
    latest_ms: int
    keyless: int
    decompressed: int

def validate_batches(
    data: Buffer, position: int = 0, *, allow_partial: bool = False, max_decompressed_bytes: int = ...
) -> BatchTotals: ...
