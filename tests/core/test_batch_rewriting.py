"""What a leader changes in a client's batch: another codec, whose time counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.batch import (
    Compression,
    RecordBatch,
    TimestampType,
    build_batch,
    mark_create_time,
    recompress_batch,
    stamp_batch,
    validate_batch,
)
from kraftcore.errors import CorruptBatchError


@given(
    st.lists(st.binary(max_size=200), min_size=1, max_size=20),
    st.sampled_from(Compression),
    st.sampled_from(Compression),
)
def test_another_codec_keeps_everything_else(values, before, after):
    batch = build_batch(
        values, timestamp_ms=7, compression=before, producer_id=5, producer_epoch=1, base_sequence=9, base_offset=3
    )
    found = validate_batch(recompress_batch(batch, after))
    whole = RecordBatch(batch)
    assert found.compression is after
    assert found.values() == values
    for name in ("base_offset", "count", "producer_id", "base_sequence", "last_offset_delta", "max_timestamp_ms"):
        assert getattr(found, name) == getattr(whole, name)


def test_records_that_cannot_be_decompressed_are_refused():
    batch = build_batch([b"x" * 1000], timestamp_ms=1, compression=Compression.GZIP)
    batch[-3] ^= 255
    with pytest.raises(CorruptBatchError):
        recompress_batch(batch, Compression.NONE)
    with pytest.raises(CorruptBatchError, match="max_decompressed_bytes"):
        recompress_batch(
            build_batch([b"x" * 1000], timestamp_ms=1, compression=Compression.GZIP),
            Compression.NONE,
            max_decompressed_bytes=900,
        )


def test_a_producers_times_come_back():
    batch = build_batch([b"a", b"b"], timestamp_ms=5)
    stamp_batch(batch, 0, 0, 99)
    assert RecordBatch(batch).timestamp_type is TimestampType.LOG_APPEND_TIME
    mark_create_time(batch)
    found = validate_batch(batch)
    assert found.timestamp_type is TimestampType.CREATE_TIME
    assert [record.timestamp_ms for record in found] == [5, 5]
    assert found.max_timestamp_ms == 99
