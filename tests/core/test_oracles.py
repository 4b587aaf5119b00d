"""Independent implementations read what we write, and we read what they write."""

from __future__ import annotations

import datetime
import io
import random
from typing import Any

import pytest

from kraftcore.core.batch import Compression, RecordBatch, build_batch, build_records_batch, validate_batch

aiokafka = pytest.importorskip("aiokafka.record.default_records")
kafka_python = pytest.importorskip("kafka.record.default_records")
kio_readers = pytest.importorskip("kio.records.readers")
kio_writers = pytest.importorskip("kio.records.writers")
kio_schema = pytest.importorskip("kio.records.schema")

NOW_MS = 1_700_000_000_000
Rows = list[tuple[int, int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


def sample(seed: int) -> Rows:
    rng = random.Random(seed)
    return [
        (
            i,
            NOW_MS + rng.randrange(-1000, 1000),
            rng.choice([None, b"", b"key", rng.randbytes(rng.randrange(200))]),
            rng.choice([None, b"", b"value" * 30, rng.randbytes(rng.randrange(3000))]),
            [(rng.choice(["h", "häder", ""]), rng.choice([None, b"", b"v"])) for _ in range(rng.choice([0, 0, 1, 70]))],
        )
        for i in range(rng.choice([1, 2, 150]))
    ]


def ours(data: Any) -> Rows:
    return [(r.offset, r.timestamp_ms, r.key, r.value, list(r.headers)) for r in validate_batch(data)]


def build(rows: Rows, codec: Compression) -> bytes:
    records = [(key, value, headers, time) for _, time, key, value, headers in rows]
    return bytes(build_records_batch(records, compression=codec))


def read_like_aiokafka(reader: Any, data: bytes) -> Rows:
    batch = reader(data)
    assert batch.validate_crc()
    return [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in batch]


PEERS = {"aiokafka": aiokafka, "kafka-python": kafka_python}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("peer", PEERS.values(), ids=PEERS)
def test_python_clients(peer: Any, codec: Compression, seed: int) -> None:
    rows = sample(seed)
    assert read_like_aiokafka(peer.DefaultRecordBatch, build(rows, codec)) == rows
    builder = peer.DefaultRecordBatchBuilder(2, int(codec), 0, -1, -1, -1, 1 << 24)
    for offset, time, key, value, headers in rows:
        assert builder.append(offset, time, key, value, headers) is not None
    theirs = bytes(builder.build())
    assert ours(theirs) == rows
    if codec is Compression.NONE:
        # Their builders leave the leader epoch at 0 or -1; it lies outside the checksum.
        mine = build(rows, codec)
        assert (mine[:12], mine[16:]) == (theirs[:12], theirs[16:])


@pytest.mark.parametrize("count", [1, 100, 1000])
def test_the_fast_path_equals_aiokafka(count: int) -> None:
    builder = aiokafka.DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 24)
    for i in range(count):
        builder.append(i, NOW_MS, None, b"x" * i, [])
    assert bytes(builder.build())[16:] == build_batch([b"x" * i for i in range(count)], timestamp_ms=NOW_MS)[16:]


@pytest.mark.parametrize("seed", range(4))
def test_kio(seed: int) -> None:
    # kio 0.6 reads times to the second only, and headers as bytes.
    rows = [(row[0], row[1] // 1000 * 1000, row[2], row[3], row[4]) for row in sample(seed)]
    batch, _size = kio_readers.read_batch(build(rows, Compression.NONE), 0)
    assert [
        (
            record.offset,
            round(record.timestamp.timestamp() * 1000),
            record.key,
            record.value,
            [(header.key.decode(), header.value) for header in record.headers],
        )
        for record in batch.records
    ] == rows
    records = tuple(
        kio_schema.Record(
            attributes=0,
            timestamp=datetime.datetime.fromtimestamp(time / 1000, datetime.UTC),
            offset=offset,
            key=key,
            value=value,
            headers=tuple(kio_schema.RecordHeader(key=name.encode(), value=content) for name, content in headers),
        )
        for offset, time, key, value, headers in rows
    )
    target = io.BytesIO()
    kio_writers.write_new_batch(
        target,
        kio_schema.NewRecordBatch(producer_id=-1, producer_epoch=-1, base_sequence=-1, attributes=0, records=records),
    )
    assert ours(target.getvalue()) == rows
    assert RecordBatch(target.getvalue()).rebuild() == target.getvalue()
