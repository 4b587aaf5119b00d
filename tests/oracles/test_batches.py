"""aiokafka, kafka-python and kio read our batches and we read theirs; uncompressed, both write the same bytes.

Left to tests/interop, where Kafka itself judges: log append time and base offsets for the writers (their builders are a
producer's, which knows neither), compression for kio (it has none).
"""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from aiokafka.record._crecords import default_records as aiokafka_records
from kafka.record import default_records as kafka_python_records
from kio.records.readers import read_batch
from kio.records.schema import NewRecordBatch, Record, RecordHeader
from kio.records.writers import write_new_batch
from sample_batches import Headers, Sample, samples, seen

from kraftcore.core.batch import Compression, RecordBatch, build_batch
from kraftcore.errors import CorruptBatchError

SEED = 20260102
COUNT = 60
MODULES = {"aiokafka": aiokafka_records, "kafka-python": kafka_python_records}
CODECS = pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())
LIBRARIES = pytest.mark.parametrize("module", list(MODULES.values()), ids=list(MODULES))
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _headers(headers: Any) -> Headers:
    return tuple((key, None if value is None else bytes(value)) for key, value in headers)


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


@CODECS
@LIBRARIES
def test_they_read_our_batches(module: Any, codec: Compression):
    for sample in samples(SEED, COUNT, codec):
        batch = module.DefaultRecordBatch(sample.encode())
        assert batch.validate_crc()
        assert batch.compression_type == codec
        assert (batch.base_offset, batch.producer_id, batch.base_sequence, batch.is_transactional) == (
            sample.base_offset,
            sample.producer_id,
            sample.base_sequence,
            sample.transactional,
        )
        records = [(r.offset, r.timestamp, _bytes(r.key), _bytes(r.value), _headers(r.headers)) for r in batch]
        assert records == sample.expected()


def _write(module: Any, sample: Sample) -> bytes:
    builder = module.DefaultRecordBatchBuilder(
        2,
        int(sample.codec),
        int(sample.transactional),
        sample.producer_id,
        sample.producer_epoch,
        sample.base_sequence,
        1 << 30,
    )
    for delta, (timestamp, key, value, headers) in enumerate(sample.records):
        assert builder.append(delta, timestamp, key, value, list(headers))
    return bytes(builder.build())


def _without_epoch(encoded: bytes) -> bytes:
    """The leader epoch is the broker's: producers leave it at 0 or -1."""
    return encoded[:12] + bytes(4) + encoded[16:]


def _as_producers_write(sample: Sample) -> Sample:
    return replace(sample, base_offset=0, leader_epoch=0, log_append_time_ms=-1)


@CODECS
@LIBRARIES
def test_we_read_their_batches(module: Any, codec: Compression):
    used = set()
    for sample in map(_as_producers_write, samples(SEED + 1, COUNT, codec)):
        written = _write(module, sample)
        batch = RecordBatch(written)
        assert seen(batch) == sample.expected()
        # kafka-python leaves a batch alone that compression would make larger: it says itself what it did.
        assert batch.compression == module.DefaultRecordBatch(written).compression_type
        used.add(batch.compression)
        assert batch.is_transactional == sample.transactional
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
            sample.producer_id,
            sample.producer_epoch,
            sample.base_sequence,
        )
    assert codec in used


@LIBRARIES
def test_uncompressed_they_write_what_we_write(module: Any):
    for sample in map(_as_producers_write, samples(SEED + 2, COUNT, Compression.NONE)):
        assert _without_epoch(_write(module, sample)) == _without_epoch(sample.encode())


@LIBRARIES
def test_a_flipped_bit_is_seen_by_both(module: Any):
    whole = bytearray(samples(SEED + 3, 1, Compression.NONE)[0].encode())
    for position in range(21, len(whole)):  # what the checksum covers
        whole[position] ^= 1 << position % 8
        assert not module.DefaultRecordBatch(bytes(whole)).validate_crc()
        with pytest.raises(CorruptBatchError):
            RecordBatch(bytes(whole))
        whole[position] ^= 1 << position % 8
    assert RecordBatch(bytes(whole)).is_valid


def _kio_seen(encoded: bytes) -> list[tuple[Any, ...]]:
    batch, size = read_batch(encoded, 0)  # timestamps in whole seconds: it drops the rest
    assert size == len(encoded)
    return [
        (
            record.offset,
            (record.timestamp - EPOCH) // datetime.timedelta(seconds=1),
            record.key,
            record.value,
            tuple((header.key.decode(), header.value) for header in record.headers),
        )
        for record in batch.records
    ]


def _kio_write(sample: Sample) -> bytes:
    records = tuple(
        Record(
            attributes=0,
            timestamp=EPOCH + datetime.timedelta(milliseconds=timestamp),
            offset=delta,
            key=key,
            value=value,
            headers=tuple(RecordHeader(key=name.encode(), value=content) for name, content in headers),
        )
        for delta, (timestamp, key, value, headers) in enumerate(sample.records)
    )
    out = io.BytesIO()
    batch = NewRecordBatch(
        producer_id=sample.producer_id,
        producer_epoch=sample.producer_epoch,
        base_sequence=sample.base_sequence,
        partition_leader_epoch=sample.leader_epoch,
        records=records,
        attributes=0x10 if sample.transactional else 0,
    )
    write_new_batch(out, batch)
    return out.getvalue()


def test_kio_reads_our_batches():
    for sample in samples(SEED + 4, COUNT, Compression.NONE):
        if sample.log_append_time_ms < 0:  # it takes every timestamp for the producer's
            expected = [(offset, timestamp // 1000, *rest) for offset, timestamp, *rest in sample.expected()]
            assert _kio_seen(sample.encode()) == expected


def test_we_read_kios_batches():
    for sample in map(_as_producers_write, samples(SEED + 5, COUNT, Compression.NONE)):
        batch = RecordBatch(_kio_write(sample))
        assert seen(batch) == sample.expected()
        assert batch.is_transactional == sample.transactional


WRITERS: dict[str, Callable[[Sample], bytes]] = {
    "aiokafka": lambda sample: _write(aiokafka_records, sample),
    "kafka-python": lambda sample: _write(kafka_python_records, sample),
    "kio": _kio_write,
}


@pytest.mark.parametrize("writer", list(WRITERS.values()), ids=list(WRITERS))
def test_values_alone_make_the_same_batch(writer: Callable[[Sample], bytes]):
    values = [None, b"", b"one", b"x" * 100, b"y" * 20_000]
    sample = Sample(tuple((1_700_000_000_000, None, value, ()) for value in values))
    ours = build_batch(values, timestamp_ms=1_700_000_000_000)
    assert _without_epoch(bytes(ours)) == _without_epoch(writer(sample))
