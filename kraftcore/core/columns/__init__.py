"""Whole logs as Arrow columns, without a Python object per record.

`table` is the entry; `fill` walks batches and fills columns, `chunks` hands them to Arrow, `headers` has a row a batch,
`record_types` a column of metadata record types, `typed` and `tree` the fields of one type; `partitions` orders records
by the partitions they are about, `rows` takes rows of columns of numbers, `lists` compares columns of lists.
"""

from kraftcore.core.columns.chunks import COLUMNS, BufferPool, ColumnBuffer, ColumnChunk, arrow_schema
from kraftcore.core.columns.table import CHUNK_BYTES_MAX, ColumnReader, Damage, DecodedColumns, decode_columns
from kraftcore.namespace import listing

__all__ = [
    "CHUNK_BYTES_MAX",
    "COLUMNS",
    "BufferPool",
    "ColumnBuffer",
    "ColumnChunk",
    "ColumnReader",
    "Damage",
    "DecodedColumns",
    "arrow_schema",
    "decode_columns",
]
__dir__ = listing(__all__)
