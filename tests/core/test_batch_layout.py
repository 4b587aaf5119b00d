"""The positions that callers in Python use are those of the compiled header."""

from __future__ import annotations

from kraftcore.core.batch import Compression, RecordBatch, TimestampType, build_batch, layout


def number(data, position, size):
    return int.from_bytes(data[position : position + size], signed=True)


def test_fields_stand_where_compiled_code_reads_them():
    data = build_batch(
        [b"v"],
        timestamp_ms=1234,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        compression=Compression.GZIP,
        producer_id=7,
        producer_epoch=1,
        base_sequence=0,
        transactional=True,
    )
    batch = RecordBatch(data)
    assert number(data, layout.LENGTH_POSITION, 4) + layout.OVERHEAD_BYTES == batch.size == len(data)
    assert data[layout.MAGIC_POSITION] == layout.MAGIC
    assert number(data, layout.CHECKSUM_POSITION, 4) % 2**32 == batch.crc
    attributes = number(data, layout.ATTRIBUTES_POSITION, 2)
    assert attributes & layout.CODEC_MASK == batch.compression == Compression.GZIP
    assert attributes & layout.LOG_APPEND_TIME and batch.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert attributes & layout.TRANSACTIONAL and batch.is_transactional
    assert number(data, layout.MAX_TIMESTAMP_POSITION, 8) == batch.max_timestamp_ms == 1234
    assert number(data, layout.PRODUCER_ID_POSITION, 8) == batch.producer_id == 7
    assert data[layout.HEADER_BYTES :].startswith(b"\x1f\x8b")  # as gzip begins
