"""Record batches, version 2: build, stamp, validate, iterate; compression.

Compiled callers import from the modules: `header` (the 61 bytes), `record`, `check`, `build`.
"""

from kraftcore.core.batch.build import build_batch, build_records_batch
from kraftcore.core.batch.check import BatchTotals, validate_batches
from kraftcore.core.batch.compression import Compression
from kraftcore.core.batch.record import Record
from kraftcore.core.batch.record_batch import (
    RecordBatch,
    TimestampType,
    iter_batches,
    stamp_batch,
    validate_batch,
)
from kraftcore.core.batch.rewriting import mark_create_time, recompress_batch, set_max_timestamp
from kraftcore.namespace import listing

__all__ = [
    "BatchTotals",
    "Compression",
    "Record",
    "RecordBatch",
    "TimestampType",
    "build_batch",
    "build_records_batch",
    "iter_batches",
    "mark_create_time",
    "recompress_batch",
    "set_max_timestamp",
    "stamp_batch",
    "validate_batch",
    "validate_batches",
]
__dir__ = listing(__all__)
