"""Kafka's MemoryRecords reads the batches we write, and we read and rebuild those it writes."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from kafka_tools import KafkaTools
from sample_batches import Sample, samples, seen

from kraftcore.core.batch import Compression, iter_batches

SEED = 20260101
COUNT = 60


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


def specification(batches: Iterable[Sample]) -> str:
    """The batches in the words of java/Batches.java."""
    lines = []
    for sample in batches:
        fields = [
            "batch",
            int(sample.codec),
            sample.base_offset,
            sample.leader_epoch,
            sample.producer_id,
            sample.producer_epoch,
            sample.base_sequence,
            str(sample.transactional).lower(),
            sample.log_append_time_ms,
        ]
        lines.append("\t".join(map(str, fields)))
        for timestamp, key, value, headers in sample.records:
            pairs = [part for name, content in headers for part in (name.encode().hex(), _hex(content))]
            lines.append("\t".join(["record", str(timestamp), _hex(key), _hex(value), *pairs]))
    return "\n".join(lines) + "\n"


def records_seen_by_kafka(lines: list[list[str]]) -> list[list[tuple[object, ...]]]:
    """Records of each batch as Kafka printed them, in the shape of ``Sample.expected``."""

    def unhex(field: str) -> bytes | None:
        return None if field == "-" else bytes.fromhex(field)

    result: list[list[tuple[object, ...]]] = []
    for fields in lines:
        if fields[0] == "batch":
            result.append([])
            continue
        assert fields[0] == "record", fields
        _, timestamp, key, value, *pairs, offset = fields
        headers = tuple(
            (bytes.fromhex(name).decode(), unhex(content))
            for name, content in zip(pairs[::2], pairs[1::2], strict=True)
        )
        result[-1].append((int(offset[1:]), int(timestamp), unhex(key), unhex(value), headers))
    return result


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())
def test_kafka_reads_our_batches(kafka: KafkaTools, codec: Compression, tmp_path: Path):
    batches = samples(SEED, COUNT, codec)
    (tmp_path / "ours").write_bytes(b"".join(sample.encode() for sample in batches))
    lines = kafka.interop("read-batches", tmp_path / "ours")
    assert records_seen_by_kafka(lines) == [sample.expected() for sample in batches]
    heads = [fields for fields in lines if fields[0] == "batch"]
    for head, sample, batch in zip(heads, batches, iter_batches((tmp_path / "ours").read_bytes()), strict=True):
        assert head[1:9] == specification([sample]).split("\n")[0].split("\t")[1:]
        assert head[9:] == [
            str(batch.last_offset),
            str(batch.is_control).lower(),
            str(batch.max_timestamp_ms),
            str(batch.count),
            str(batch.size),
            str(batch.crc),
        ]


@pytest.mark.parametrize("codec", list(Compression), ids=lambda codec: codec.name.lower())
def test_we_read_kafkas_batches(kafka: KafkaTools, codec: Compression, tmp_path: Path):
    batches = samples(SEED + 1, COUNT, codec)
    (tmp_path / "specification").write_text(specification(batches))
    kafka.interop("write-batches", tmp_path / "specification", tmp_path / "theirs")
    theirs = (tmp_path / "theirs").read_bytes()
    read = list(iter_batches(theirs))
    assert [seen(batch) for batch in read] == [sample.expected() for sample in batches]
    for batch, sample in zip(read, batches, strict=True):
        assert batch.compression == codec
        assert (batch.base_offset, batch.leader_epoch) == (sample.base_offset, sample.leader_epoch)
        assert (batch.producer_id, batch.producer_epoch) == (sample.producer_id, sample.producer_epoch)
        assert (batch.base_sequence, batch.is_transactional) == (sample.base_sequence, sample.transactional)


def test_uncompressed_batches_are_kafkas_to_the_byte(kafka: KafkaTools, tmp_path: Path):
    batches = samples(SEED + 2, 3 * COUNT, Compression.NONE)
    (tmp_path / "specification").write_text(specification(batches))
    kafka.interop("write-batches", tmp_path / "specification", tmp_path / "theirs")
    theirs = (tmp_path / "theirs").read_bytes()
    position = 0
    for sample in batches:
        ours = sample.encode()
        assert ours == theirs[position : position + len(ours)], sample
        position += len(ours)
    assert position == len(theirs)
