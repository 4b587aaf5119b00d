"""Columnar decoding: equal to decoding record by record, on good and on hostile input, and valid Arrow."""

from __future__ import annotations

import mmap
import random
from pathlib import Path
from typing import Any

import batch_twin as twin
import pyarrow as pa
import pytest
from batch_strategies import hostile_buffers, valid_batches
from batch_twin import outcome_of_twin
from golden import GOLDEN, GOLDEN_FILES
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.batch import Compression, build_batch, build_records_batch, iter_batches, stamp_batch
from kraftcore.core.columns import COLUMNS, ColumnReader, DecodedColumns, arrow_schema, decode_columns
from kraftcore.core.columns.record_types import BAD_FRAME, CONTROL_BASE, record_types
from kraftcore.errors import CorruptBatchError, LocalError, MissingDependencyError

Row = dict[str, Any]


def expected_rows(batches: list[twin.TwinBatch], base_position: int = 0) -> list[Row]:
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name.decode(errors="replace"), "value": value} for name, value in record.headers],
            "partition_leader_epoch": batch.header["leader_epoch"],
            "is_control": bool(batch.header["attributes"] & 0x20),
            "position": base_position + batch.position,
        }
        for batch in batches
        for record in batch.records
    ]


def rows_of(decoded: DecodedColumns) -> list[Row]:
    table = decoded.to_arrow()
    table.validate(full=True)
    for chunk in decoded.chunks:
        chunk.to_arrow().validate(full=True)
    if "timestamp" in decoded.columns:
        at = table.schema.get_field_index("timestamp")
        table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    rows: list[Row] = table.to_pylist()
    return rows


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_golden_files(path: Path) -> None:
    data = path.read_bytes()
    expected = expected_rows(twin.read_batches(data))
    assert rows_of(decode_columns(data)) == expected
    if data:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            assert rows_of(decode_columns(mapped, chunk_bytes=2000)) == expected


@given(st.lists(valid_batches(), max_size=5), st.sampled_from([1, 100, 2000, 2**31 - 1]), st.integers(0, 2**50))
def test_equals_the_twin(batches: list[bytes], chunk_bytes: int, base_position: int) -> None:
    data = b"".join(batches)
    expected = expected_rows(twin.read_batches(data), base_position)
    decoded = decode_columns(data, chunk_bytes=chunk_bytes, base_position=base_position)
    assert rows_of(decoded) == expected
    assert len(decoded) == len(expected)
    assert rows_of(decode_columns(batches, chunk_bytes=chunk_bytes, base_position=base_position)) == expected
    if chunk_bytes == 1:
        assert len(decoded.chunks) == sum(1 for batch in twin.read_batches(data) if batch.records)


@given(valid_batches(), st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True))
def test_only_the_wanted_columns(data: bytes, columns: list[str]) -> None:
    decoded = decode_columns(data * 3, columns=columns)
    assert decoded.columns == tuple(columns)
    if decoded.chunks:
        assert list(decoded.chunks[0].to_arrow().schema.names) == columns
    assert rows_of(decoded) == [
        {name: row[name] for name in columns} for row in expected_rows(twin.read_batches(data * 3))
    ]
    assert all(set(chunk.buffers) == set(columns) for chunk in decoded.chunks)


@given(st.lists(valid_batches(), max_size=4), st.integers(-1, 100), st.integers(-1, 2**41))
def test_offset_range(batches: list[bytes], first: int, end: int) -> None:
    data = b"".join(batches)
    expected = [row for row in expected_rows(twin.read_batches(data)) if first <= row["offset"] < end]
    assert rows_of(decode_columns(data, offsets=(first, end))) == expected


def check_types(data: bytes, types: list[int], **arguments: Any) -> None:
    rows = decode_columns(data, columns=["key", "value", "is_control"]).to_arrow().combine_chunks()
    columns = [pa.concat_arrays(rows[name].chunks or [rows[name].combine_chunks()]) for name in rows.column_names]
    codes = record_types(*columns).code.to_pylist()
    expected = [row for row, code in zip(expected_rows(twin.read_batches(data)), codes, strict=True) if code in types]
    decoded = decode_columns(data, types=types, **arguments)
    assert rows_of(decoded) == expected
    assert all(len(chunk) for chunk in decoded.chunks)


@given(st.lists(valid_batches(), max_size=4), st.sampled_from([1, 100, 2**20]), st.data())
def test_record_types(batches: list[bytes], chunk_bytes: int, data: st.DataObject) -> None:
    joined = b"".join(batches)
    codes = set()
    for chunk in decode_columns(joined, columns=["key", "value", "is_control"]).chunks:
        rows = chunk.to_arrow()
        codes |= set(record_types(rows["key"], rows["value"], rows["is_control"]).code.to_pylist())
    types = data.draw(st.lists(st.sampled_from(sorted(codes | {2, CONTROL_BASE + 2})), max_size=3, unique=True))
    check_types(joined, types, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: str(path.relative_to(GOLDEN)))
@pytest.mark.parametrize("types", [[2], [5, CONTROL_BASE + 2], [CONTROL_BASE + 3, CONTROL_BASE + 4, BAD_FRAME]])
def test_record_types_of_golden_files(path: Path, types: list[int]) -> None:
    check_types(path.read_bytes(), types, chunk_bytes=2000)


def test_batches_without_a_wanted_record_are_checked_all_the_same() -> None:
    damaged = bytearray(build_batch([b"\x01\x02\x00"] * 3, timestamp_ms=1))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        decode_columns(bytes(damaged), types=[5])
    damaged = bytearray(build_batch([b"\x01\x02\x00"] * 3, timestamp_ms=1))
    damaged[61] ^= 1  # a record's length
    with pytest.raises(CorruptBatchError):
        decode_columns(bytes(damaged), types=[5], verify=False)


@given(hostile_buffers, st.sampled_from([1, 2**20]))
def test_hostile_buffers(data: bytes, chunk_bytes: int) -> None:
    good, refused_at = outcome_of_twin(data)
    stopped = decode_columns(data, errors="stop", chunk_bytes=chunk_bytes)
    if refused_at == -1:
        return
    assert rows_of(stopped) == expected_rows(good)
    if refused_at is None:
        assert stopped.damage == ()
        return
    resume = good[-1].position + good[-1].size if good else 0
    assert [(item.position, item.size) for item in stopped.damage] == [(resume, len(data) - resume)]
    with pytest.raises(CorruptBatchError) as caught:
        decode_columns(data, chunk_bytes=chunk_bytes)
    assert caught.value.position == refused_at
    assert stopped.damage[0].reason == caught.value.reason
    # A reader hands out what came before the damage, then raises, then is done.
    reader = ColumnReader(data, chunk_bytes=chunk_bytes)
    rows = 0
    with pytest.raises(CorruptBatchError):
        for chunk in reader:
            rows += len(chunk)
    assert rows == len(expected_rows(good))
    assert list(reader) == []


@given(hostile_buffers)
def test_skipping_never_loses_a_good_batch_behind_a_sound_length(data: bytes) -> None:
    decoded = decode_columns(data, errors="skip")
    rows = rows_of(decoded)
    covered = sorted(
        [(item.position, item.size) for item in decoded.damage]
        + [(batch.position, batch.size) for batch in iter_good(data, decoded)]
    )
    position = 0
    for start, size in covered:
        assert start == position
        position += size
    assert position == len(data)
    assert {row["position"] for row in rows}.isdisjoint(item.position for item in decoded.damage)


def iter_good(data: bytes, decoded: DecodedColumns) -> list[Any]:
    damaged = {item.position: item.size for item in decoded.damage}
    position, good = 0, []
    while position < len(data):
        if position in damaged:
            position += damaged[position]
            continue
        batch = next(iter_batches(data, position))
        good.append(batch)
        position += batch.size
    return good


@pytest.mark.parametrize("codec", list(Compression))
def test_compressed_batches(codec: Compression) -> None:
    rng = random.Random(5)
    batches = []
    for i in range(6):
        records = [
            (
                rng.choice([None, b"", b"key"]),
                rng.randbytes(rng.randrange(300)),
                [("h", None), ("i", b"x")][: i % 3],
                50 + j,
            )
            for j in range(20)
        ]
        kind = codec if i % 2 else Compression.NONE
        batches.append(build_records_batch(records, base_offset=i * 20, compression=kind, leader_epoch=i))
    data = b"".join(batches)
    expected: list[Row] = [
        {
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": record.key,
            "value": record.value,
            "headers": [{"key": name, "value": value} for name, value in record.headers],
            "partition_leader_epoch": batch.leader_epoch,
            "is_control": False,
            "position": batch.position,
        }
        for batch in iter_batches(data)
        for record in batch
    ]
    assert len(expected) == 120
    for chunk_bytes in (1, 5000, 2**31 - 1):
        assert rows_of(decode_columns(data, chunk_bytes=chunk_bytes)) == expected
    if codec:
        with pytest.raises(CorruptBatchError, match="max_decompressed_bytes=1000") as caught:
            decode_columns(data, max_decompressed_bytes=1000)
        assert caught.value.position == len(batches[0]) + 61
        skipped = decode_columns(data, max_decompressed_bytes=1000, errors="skip")
        assert rows_of(skipped) == [row for row in expected if row["partition_leader_epoch"] % 2 == 0]
        assert [item.size for item in skipped.damage] == [len(batches[i]) for i in (1, 3, 5)]


def test_large_input_is_split_so_that_offsets_fit() -> None:
    batch = build_batch([b"v" * 1000] * 50, timestamp_ms=1)
    data = bytes(batch) * 40
    chunks = decode_columns(data, chunk_bytes=200_000).chunks
    assert len(chunks) == 14
    assert [len(chunk) for chunk in chunks] == [150] * 13 + [50]
    assert all(len(chunk.buffers["value"][2]) <= 200_000 for chunk in chunks)
    with pytest.raises(LocalError):
        decode_columns(data, chunk_bytes=2**31)


def test_positions_within_a_large_input() -> None:
    batches = [bytearray(build_batch([b"v"] * n, timestamp_ms=n)) for n in (1, 2, 3, 4)]
    starts = [0]
    for i, batch in enumerate(batches):
        stamp_batch(batch, 10 * i, 0)
        starts.append(starts[-1] + len(batch))
    data = b"".join(batches)
    part = decode_columns(data, position=starts[1], end=starts[3] - 1, base_position=1000)
    assert [row["offset"] for row in rows_of(part)] == [10, 11, 20, 21, 22]
    assert {row["position"] for row in rows_of(part)} == {1000 + starts[1], 1000 + starts[2]}
    assert rows_of(decode_columns(data, position=starts[4])) == []
    broken = bytearray(data)
    broken[starts[2] + 67] ^= 1  # in a value
    with pytest.raises(CorruptBatchError) as caught:
        decode_columns(broken, base_position=1000)
    assert caught.value.position == 1000 + starts[2] + 17
    assert len(decode_columns(broken, verify=False)) == 10
    assert [r["offset"] for r in rows_of(decode_columns(broken, errors="skip"))] == [0, 10, 11, 30, 31, 32, 33]
    for position, end in ((-1, None), (len(data) + 1, None), (0, len(data) + 1), (5, 4)):
        with pytest.raises(LocalError):
            decode_columns(data, position=position, end=end)
    with pytest.raises(LocalError):
        decode_columns([data, data], position=1)


def test_header_keys_that_are_not_utf8_are_replaced() -> None:
    record = twin.TwinRecord(headers=((b"\xff", b"1"), ("grün".encode(), None), (b"a\xed\xa0\x80", b""), (b"", None)))
    (row,) = rows_of(decode_columns(twin.write_batch([record])))
    assert row["headers"] == [
        {"key": "\ufffd", "value": b"1"},
        {"key": "grün", "value": None},
        {"key": b"a\xed\xa0\x80".decode(errors="replace"), "value": b""},
        {"key": "", "value": None},
    ]


def test_a_batch_damaged_behind_its_headers_leaves_no_trace() -> None:
    records = [twin.TwinRecord(i, headers=((b"name", b"x" * 9), (b"n2", None))) for i in range(3)]
    good = twin.write_batch(records)
    bad = bytearray(good)
    bad[-1] = 30  # the last header's value now reaches beyond the record
    data = good + twin.sign(bad) + good
    decoded = decode_columns(data, errors="skip")
    assert rows_of(decoded) == expected_rows(twin.read_batches(good)) + [
        row | {"position": 2 * len(good)} for row in expected_rows(twin.read_batches(good))
    ]
    assert [(item.position, item.size) for item in decoded.damage] == [(len(good), len(good))]
    assert "record 2: header count or length 15" in decoded.damage[0].reason


def test_timestamp_units() -> None:
    times = [-1, 0, 1_700_000_000_123, 2**62, 2**63 - 1]
    data = build_records_batch([(None, None, (), time) for time in times])
    assert [row["timestamp"] for row in rows_of(decode_columns(data))] == times
    decoded = decode_columns(data, timestamp_unit="us", columns=["timestamp"])
    assert decoded.to_arrow().schema == arrow_schema(["timestamp"], timestamp_unit="us")
    assert [row["timestamp"] for row in rows_of(decoded)] == [-1000, 0, 1_700_000_000_123_000, 2**63 - 1, 2**63 - 1]


def test_count_bombs_allocate_nothing() -> None:
    bomb = twin.write_batch([], bytes(7), count=2**31 - 1, last_offset_delta=2**31 - 1)
    with pytest.raises(CorruptBatchError, match="has room for 1"):
        decode_columns(bomb)


def test_nothing_in_nothing_out() -> None:
    nothings: list[Any] = [b"", [], [b"", bytearray()]]
    for nothing in nothings:
        decoded = decode_columns(nothing)
        assert (len(decoded), decoded.chunks, decoded.damage) == (0, (), ())
        assert decoded.to_arrow().schema == arrow_schema()
    assert rows_of(decode_columns(twin.write_batch([]))) == []
    assert len(decode_columns(build_batch([b"v"] * 3, timestamp_ms=1), columns=[])) == 3


def test_buffers_outlive_the_decoder() -> None:
    reader = ColumnReader(bytes(build_batch([b"abc", None, b"de"], timestamp_ms=3)), chunk_bytes=10)
    (chunk,) = reader
    values = chunk.buffers["value"]
    del reader, chunk
    assert bytes(values[0])[0] & 7 == 0b101
    assert memoryview(values[1]).cast("i").tolist() == [0, 3, 3, 5]
    assert bytes(values[2]) == b"abcde"
    assert len(values[2]) == 5
    with pytest.raises(TypeError):
        memoryview(values[2])[0] = 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"columns": ["offset", "nonsense"]},
        {"columns": ["offset", "offset"]},
        {"columns": "offset"},
        {"timestamp_unit": "ns"},
        {"errors": "ignore"},
        {"chunk_bytes": 0},
        {"types": ["topic"]},
        {"types": [1 << 63]},
    ],
)
def test_misuse(arguments: dict[str, Any]) -> None:
    with pytest.raises(LocalError):
        decode_columns(b"", **arguments)


def test_without_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    decoded = decode_columns(bytes(build_batch([b"v"], timestamp_ms=1)))
    assert bytes(decoded.chunks[0].buffers["value"][2]) == b"v"
    for convert in (decoded.to_arrow, decoded.chunks[0].to_arrow, arrow_schema):
        with pytest.raises(MissingDependencyError, match=r"kraftcore\[arrow\]"):
            convert()
