"""Compression: bounded, refused when damaged, and in Kafka's own framing."""

from __future__ import annotations

import contextlib
import gzip
import random
import subprocess
import sys
import zlib
from pathlib import Path

import batch_twin as twin
import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.batch import RecordBatch, build_batch, build_records_batch, iter_batches, validate_batch
from kraftcore.core.batch import validate_batches as validate_all
from kraftcore.core.batch.compression import Compression, compress, decompress
from kraftcore.errors import CorruptBatchError, LocalError, OversizedBatchError

CODECS = [codec for codec in Compression if codec]
SAMPLES = {
    "empty": b"",
    "one": b"x",
    "zeros": bytes(300_000),
    "noise": random.Random(1).randbytes(200_001),
    "text": b"the quick brown fox " * 9000,
}


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("data", SAMPLES.values(), ids=SAMPLES)
def test_round_trip(codec: Compression, data: bytes) -> None:
    packed = compress(codec, data)
    assert type(packed) is bytes
    assert decompress(codec, packed) == data
    assert decompress(codec, memoryview(packed), max(1, len(data))) == data
    assert compress(codec, bytearray(data)) == packed


@pytest.mark.parametrize("codec", CODECS)
@given(st.binary(max_size=500))
def test_round_trip_of_anything(codec: Compression, data: bytes) -> None:
    assert decompress(codec, compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS)
def test_bombs_hit_the_limit(codec: Compression) -> None:
    bomb = compress(codec, bytes(20 << 20))
    assert len(decompress(codec, bomb, 20 << 20)) == 20 << 20
    for limit in ((20 << 20) - 1, 1 << 16, 100, 1):
        with pytest.raises(OversizedBatchError, match=f"more than max_decompressed_bytes={limit}"):
            decompress(codec, bomb, limit)
    data = build_batch([bytes(20 << 20)], timestamp_ms=1, compression=codec)
    assert validate_all(data).decompressed > 20 << 20
    with pytest.raises(OversizedBatchError):
        validate_all(data, max_decompressed_bytes=1 << 20)


@pytest.mark.parametrize("codec", CODECS)
def test_damage_is_refused_or_harmless(codec: Compression) -> None:
    data = SAMPLES["text"][:2000]
    packed = compress(codec, data)
    for end in range(len(packed)):
        try:
            short = decompress(codec, packed[:end])
        except CorruptBatchError:
            continue
        # Only snappy's framing, which has no end mark, can be cut between blocks: at most less comes out.
        assert codec is Compression.SNAPPY and data.startswith(short) and len(short) < len(data)
    for bit in range(8 * len(packed)):
        flipped = bytearray(packed)
        flipped[bit // 8] ^= 1 << bit % 8
        with contextlib.suppress(CorruptBatchError):
            decompress(codec, flipped, 1 << 20)


@pytest.mark.parametrize("codec", CODECS)
@given(st.binary(max_size=200), st.booleans())
def test_garbage(codec: Compression, garbage: bytes, with_start: bool) -> None:
    start = compress(codec, b"start")[:16] if with_start else b""
    with contextlib.suppress(CorruptBatchError):
        decompress(codec, start + garbage, 1 << 16)


def test_snappy_claims_are_not_believed() -> None:
    claim = twin.uvarint(100 << 20) + b"\x00"
    for stream in (claim, compress(Compression.SNAPPY, b"")[:16] + len(claim).to_bytes(4, "big") + claim):
        with pytest.raises(CorruptBatchError, match="5 bytes cannot hold"):
            decompress(Compression.SNAPPY, stream)
    with pytest.raises(CorruptBatchError, match="block of 4294967295 bytes"):
        decompress(Compression.SNAPPY, compress(Compression.SNAPPY, b"")[:16] + b"\xff\xff\xff\xff")


def test_framing_is_kafkas() -> None:
    data = SAMPLES["noise"]
    snappy = compress(Compression.SNAPPY, data)
    assert snappy.startswith(b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" * 2)
    first = int.from_bytes(snappy[16:20], "big")
    assert len(bytes(cramjam.snappy.decompress_raw(snappy[20 : 20 + first]))) == 32 << 10
    lz4 = compress(Compression.LZ4, data)
    flags, block = lz4[4], lz4[5]
    assert lz4[:4] == bytes.fromhex("04224d18")
    assert flags == 0b0110_0000, "version 1, independent blocks, no checksums: the only frame Kafka reads"
    assert block == 0x40
    assert lz4.endswith(bytes(4))
    assert bytes(cramjam.lz4.decompress(lz4)) == data
    assert gzip.decompress(compress(Compression.GZIP, data)) == data
    assert compress(Compression.ZSTD, data)[:4] == bytes.fromhex("28b52ffd")


def test_other_writers_framing_is_read() -> None:
    data = SAMPLES["text"]
    assert decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data))) == data
    twice = compress(Compression.SNAPPY, data)
    assert decompress(Compression.SNAPPY, twice + twice) == data + data
    members = gzip.compress(data) + gzip.compress(b"more")
    assert decompress(Compression.GZIP, members) == data + b"more"
    with pytest.raises(CorruptBatchError):
        decompress(Compression.GZIP, members, len(data) + 3)
    long = random.Random(1).randbytes(3 << 20)  # in pieces, going in and coming out
    members = gzip.compress(long) + gzip.compress(b"") + gzip.compress(bytes(5 << 20)) + gzip.compress(b"more")
    assert decompress(Compression.GZIP, members) == long + bytes(5 << 20) + b"more"
    for end in (len(members) - 1, len(members) - 30, 1 << 20):
        with pytest.raises(CorruptBatchError, match="cut short"):
            decompress(Compression.GZIP, members[:end])
    assert decompress(Compression.LZ4, bytes(cramjam.lz4.compress(data))) == data
    with pytest.raises(CorruptBatchError):
        decompress(Compression.GZIP, zlib.compress(data))


def tiny_parts(codec: Compression, count: int) -> bytes:
    """A stream that has a byte in each of its parts."""
    if codec is Compression.GZIP:
        return gzip.compress(b"v") * count
    header, block = compress(codec, b"")[:16], bytes(cramjam.snappy.compress_raw(b"v"))
    return header + (len(block).to_bytes(4, "big") + block) * count


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY])
def test_very_many_tiny_parts_need_more_than_little_room(codec: Compression) -> None:
    """Some take a second for a megabyte, out of which next to nothing comes."""
    assert decompress(codec, tiny_parts(codec, 1000)) == b"v" * 1000
    with pytest.raises(OversizedBatchError, match="2 parts for 1 bytes"):
        decompress(codec, tiny_parts(codec, 1000), 1 << 20)
    whole = compress(codec, bytes(2000))
    both = whole + tiny_parts(codec, 1)
    assert decompress(codec, both, 1 << 20) == bytes(2000) + b"v"


def test_headers_that_are_repeated_are_parts_as_well() -> None:
    headers = compress(Compression.SNAPPY, b"")[:16] * 1000
    assert decompress(Compression.SNAPPY, headers) == b""
    with pytest.raises(OversizedBatchError):
        decompress(Compression.SNAPPY, headers, 1 << 20)


def test_levels() -> None:
    data = SAMPLES["text"]
    assert decompress(Compression.GZIP, compress(Compression.GZIP, data, 9)) == data
    assert decompress(Compression.ZSTD, compress(Compression.ZSTD, data, 19)) == data
    for codec, level in ((Compression.GZIP, 10), (Compression.ZSTD, 0), (Compression.ZSTD, 23)):
        with pytest.raises(LocalError, match="level"):
            compress(codec, data, level)
    with pytest.raises(LocalError):
        compress(7, data)
    with pytest.raises(CorruptBatchError):
        decompress(7, data)


def test_what_kafka_compressed() -> None:
    # Made with kafka-clients 4.3.1's MemoryRecordsBuilder: two batches for each codec; see tests/data/README.md.
    data = (Path(__file__).parents[1] / "data" / "java-codecs.log").read_bytes()
    batches = list(iter_batches(data))
    assert [batch.compression for batch in batches] == [codec for codec in Compression for _ in range(2)]
    assert validate_all(data).records == 5 * 41
    for batch, codec in zip(batches, [codec for codec in Compression for _ in range(2)], strict=True):
        log_append = batch.count == 40
        for i, record in enumerate(batch):
            assert record.offset == batch.base_offset + i
            assert record.timestamp_ms == (1_700_000_000_999 if log_append else 1_700_000_000_000 + i * 37 % 11)
            assert record.key == (None if i % 3 == 0 else b"key%d" % i)
            assert record.value == (None if i % 5 == 0 else b"value %d" % i * (1 + i))
            assert record.headers == ((("h\u00e4", b"\x01"), ("n", None)) if i % 4 == 0 else ())
            assert record.sequence == 5 + i
        assert (batch.producer_id, batch.producer_epoch, batch.leader_epoch) == (7, 1, 3)
        assert batch.is_transactional
        if codec is Compression.NONE:
            assert batch.rebuild() == batch.to_bytes()
        again = validate_batch(batch.rebuild())
        assert list(again) == list(batch)


# ---- in batches -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", CODECS)
def test_batches(codec: Compression) -> None:
    values = [b"value %d" % i * 10 for i in range(500)]
    batch = validate_batch(build_batch(values, timestamp_ms=5, base_offset=9, compression=codec))
    assert batch.compression is codec
    assert batch.values() == values
    assert [record.offset for record in batch] == list(range(9, 509))
    assert batch.size < 50 * 500
    assert batch.rebuild() == batch.to_bytes(), "same library, same level: same bytes"
    # Decompressed once: the records stay with the batch.
    assert batch.values() == values
    small = RecordBatch(batch.to_bytes(), max_decompressed_bytes=100)
    for read in (small.values, lambda: list(small), small.rebuild):
        with pytest.raises(CorruptBatchError, match="max_decompressed_bytes=100") as caught:
            read()
        assert caught.value.position == 61
    with pytest.raises(CorruptBatchError):
        validate_all(batch.raw, max_decompressed_bytes=100)
    with pytest.raises(CorruptBatchError):
        list(next(iter_batches(batch.raw, max_decompressed_bytes=100)))


@pytest.mark.parametrize("codec", CODECS)
def test_faults_inside_compressed_records(codec: Compression) -> None:
    good = twin.write_record(twin.TwinRecord(0, 0, None, b"v"), 0, 0)
    for records, count, reason in (
        (good + b"\x7f" * 8, 2, "record 1: 8 bytes into the decompressed records: "),
        (good + b"\x00", 1, "1 bytes are left after the last record"),
        (good, 2, "records count 2, the batch has room for 1"),
        (good * 2, 2, "record 1: 8 bytes into the decompressed records: offset delta 0, wanted at least 1"),
        (b"", 1, "records count 1"),
    ):
        data = twin.write_batch([], compress(codec, records), attributes=codec, count=count, last_offset_delta=5)
        for read in (
            lambda data=data: validate_batch(b"abc" + data, 3),
            lambda data=data: list(RecordBatch(b"abc" + data, 3)),
            lambda data=data: RecordBatch(b"abc" + data, 3).values(),
            lambda data=data: list(map(list, iter_batches(b"abc" + data, 3))),
            lambda data=data: validate_all(b"abc" + data, 3),
        ):
            with pytest.raises(CorruptBatchError, match=reason) as caught:
                read()
            assert caught.value.position == 3 + 61


@pytest.mark.parametrize("code", [5, 6, 7])
def test_unknown_codecs(code: int) -> None:
    data = twin.write_batch([twin.TwinRecord()], attributes=code)
    batch = RecordBatch(data)
    assert batch.compression == code
    for read in (
        batch.values,
        batch.rebuild,
        lambda: list(batch),
        lambda: validate_batch(data),
        lambda: validate_all(data),
    ):
        with pytest.raises(CorruptBatchError, match=f"compression codec {code} is unknown") as caught:
            read()
        assert caught.value.position == 21


def test_a_compressed_batch_that_compaction_emptied() -> None:
    assert list(validate_batch(twin.write_batch([], b"", attributes=4, last_offset_delta=3))) == []


def test_compressed_size_differs_from_records_size() -> None:
    batch = validate_batch(build_records_batch([(b"k", bytes(5000))] * 3, compression=Compression.ZSTD))
    assert [record.size for record in batch] == [5010, 5010, 5010]


def test_without_the_library() -> None:
    program = """if True:
        import sys
        sys.modules["cramjam"] = None
        from kraftcore.core.batch import Compression, build_batch, validate_batch
        from kraftcore.errors import MissingDependencyError
        build = lambda codec: build_batch([b"v"], timestamp_ms=1, compression=codec)
        assert validate_batch(build(Compression.GZIP)).values() == [b"v"]
        for codec in (Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
            try:
                build(codec)
            except MissingDependencyError as error:
                assert "kraftcore[compression]" in str(error), error
            else:
                raise SystemExit(f"{codec} worked without its library")
    """
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
