"""Typed columns against the object decoder: same values, same refusals."""

from __future__ import annotations

import subprocess
import sys
import threading
import zlib

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from golden import GOLDEN_FILES
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.batch import build_batch, iter_batches
from kraftcore.core.columns import BufferPool, ColumnReader
from kraftcore.core.columns.headers import batch_headers
from kraftcore.core.columns.partitions import partition_order
from kraftcore.core.columns.record_types import BAD_FRAME, CONTROL_BASE, record_types, rows_of_types
from kraftcore.core.columns.rows import take_rows
from kraftcore.core.columns.typed import RecordColumns
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, RemoteProtocolError
from kraftcore.protocol.control import CONTROL_BODIES, decode_control_record
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.registry import MetadataRecordType, record_class


def plain(value):
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, list):
        return [plain(one) for one in value]
    if hasattr(type(value), "__layout__"):
        return {field.name: plain(getattr(value, field.name)) for field in type(value).__layout__.fields}
    return value


def golden_values() -> dict[int, list[tuple[bytes | None, bytes]]]:
    found: dict[int, list[tuple[bytes | None, bytes]]] = {}
    for path in GOLDEN_FILES:
        for chunk in ColumnReader(path.read_bytes()):
            rows = chunk.to_arrow()
            codes = record_types(rows["key"], rows["value"], rows["is_control"]).code.to_pylist()
            for code, key, value in zip(codes, rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True):
                found.setdefault(code, []).append((key, value))
    return found


GOLDEN_VALUES = golden_values()


def decoder(code: int) -> RecordColumns:
    if code >= CONTROL_BASE:
        return RecordColumns(CONTROL_BODIES[code - CONTROL_BASE], framed=False)
    return RecordColumns(record_class(code))


@pytest.mark.parametrize("code", sorted(GOLDEN_VALUES))
def test_columns_hold_what_objects_hold(code):
    records = GOLDEN_VALUES[code]
    rows, failed = decoder(code).decode(pa.array([value for _, value in records], pa.binary()))
    rows.validate(full=True)
    if code >= CONTROL_BASE:
        wanted = [plain(decode_control_record(key, value).body) for key, value in records]
    else:
        wanted = [plain(decode_metadata_record(value)[0]) for _, value in records]
    assert failed == []
    assert rows.to_pylist() == wanted


@given(st.data())
def test_damaged_values_are_refused_as_objects_are_and_leave_nothing_behind(data):
    code = data.draw(st.sampled_from(sorted(code for code in GOLDEN_VALUES if code < CONTROL_BASE)))
    values = []
    for _ in range(data.draw(st.integers(1, 4))):
        value = bytearray(data.draw(st.sampled_from(GOLDEN_VALUES[code]))[1])
        for _ in range(data.draw(st.integers(0, 3))):
            if len(value) > 3:  # the frame says which class decodes, so it stays
                value[data.draw(st.integers(3, len(value) - 1))] = data.draw(st.integers(0, 255))
        values.append(bytes(value[: data.draw(st.integers(3, len(value)))]))
    wanted, bad = [], []
    for i, value in enumerate(values):
        try:
            wanted.append(plain(decode_metadata_record(value)[0]))
        except RemoteProtocolError:
            bad.append(i)
    rows, failed = decoder(code).decode(pa.array(values, pa.binary()))
    rows.validate(full=True)
    assert failed == bad
    assert repr(rows.to_pylist()) == repr(wanted)  # repr: a damaged quota may be nan


@pytest.mark.parametrize("kind", list(MetadataRecordType), ids=lambda kind: kind.name)
def test_every_type_has_columns_and_an_empty_result(kind):
    columns = RecordColumns(record_class(kind))
    rows, failed = columns.decode(pa.array([b"", None, b"\x01"], pa.binary()))
    assert (rows.num_rows, failed) == (0, [0, 1, 2])
    assert rows.schema.names == columns.schema.names


def test_slices_and_nulls():
    value = GOLDEN_VALUES[int(MetadataRecordType.TOPIC_RECORD)][0][1]
    values = pa.array([b"no", value, None, value], pa.binary())
    rows, failed = RecordColumns(record_class(MetadataRecordType.TOPIC_RECORD)).decode(values[1:])
    assert (rows.num_rows, failed) == (2, [1])
    with pytest.raises(LocalError, match="not binary"):
        RecordColumns(record_class(2)).decode(pa.array(["text"]))


def test_types_of_damaged_frames():
    keys = pa.array([None, b"\0\0\0\x02", b"\0", None], pa.binary())
    values = pa.array([b"\x02\x02\0", b"\0\x01rest", b"\0\0", b"\x01\x63\x07"], pa.binary())
    found = record_types(keys, values, pa.array([False, True, True, False]))
    assert found.code.to_pylist() == [BAD_FRAME, CONTROL_BASE + 2, BAD_FRAME, 0x63]
    assert found.version.to_pylist() == [-1, 1, -1, 7]


def test_types_are_told_of_binary_columns_only():
    wide, bits = pa.array([b"\x01\x63\x07"], pa.large_binary()), pa.array([False])
    with pytest.raises(LocalError, match="large_binary"):
        record_types(wide, wide, bits)


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: f"{path.parts[-3]}-{path.name}")
def test_headers_are_those_of_the_batches(path):
    data = path.read_bytes()
    found = batch_headers(data, base_position=1000)
    batches = list(iter_batches(data))
    assert found.end == 1000 + len(data)
    assert found.damage == []
    assert found.batches["position"].to_pylist() == [1000 + batch.position for batch in batches]
    assert found.batches["crc"].to_pylist() == [batch.crc for batch in batches]
    assert found.batches["last_offset"].to_pylist() == [batch.last_offset for batch in batches]
    assert found.batches["count"].to_pylist() == [batch.count for batch in batches]


def test_headers_of_a_torn_and_a_damaged_file():
    data = bytearray(max((path.read_bytes() for path in GOLDEN_FILES), key=len))
    whole = batch_headers(bytes(data))
    torn = batch_headers(bytes(data[:-1]))
    assert (torn.batches.num_rows, torn.damage) == (whole.batches.num_rows - 1, [])
    second = whole.batches["position"][1].as_py()
    data[second - 1] ^= 1
    found = batch_headers(bytes(data))
    assert pc.sum(found.batches["is_valid"]).as_py() == whole.batches.num_rows - 1
    assert [(one.position, one.size) for one in found.damage] == [(0, second)]
    data[16] = 1  # the magic: nothing behind it can be trusted
    assert batch_headers(bytes(data)).batches.num_rows == 0


def test_only_the_rows_that_are_named_are_decoded():
    values = [value for _, value in golden_values()[int(MetadataRecordType.PARTITION_RECORD)]]
    decoder = RecordColumns(record_class(int(MetadataRecordType.PARTITION_RECORD)))
    column = pa.array([*values, b"damaged", None], pa.binary())
    rows = pa.array([len(values) + 1, 1, 0, 1, len(values)], pa.uint64())
    found, failed = decoder.decode(column, rows)
    wanted, _ = decoder.decode(column.take(rows))
    assert found.equals(wanted)
    assert failed == [0, 4]
    assert found.num_rows == 3
    found, failed = decoder.decode(column, rows[:0])
    assert (found.num_rows, failed) == (0, [])
    with pytest.raises(LocalError, match="row 99999 is not in"):
        decoder.decode(column, pa.array([99999], pa.uint64()))
    with pytest.raises(LocalError, match="uint64"):
        decoder.decode(column, pa.array([0], pa.int64()))


def test_columns_that_records_leave_out_catch_up():
    change = record_class(int(MetadataRecordType.PARTITION_CHANGE_RECORD))
    decoder = RecordColumns(change)
    bare = encode_metadata_record(change(partition_id=1), 2)
    full = encode_metadata_record(
        change(partition_id=2, isr=[1, 2], leader=5, replicas=[1], directories=[Uuid(bytes(16))], last_known_elr=[]), 2
    )
    # A damaged record in between takes back what it had put into some columns and not into others.
    values = [bare] * 9 + [full, full[:-1], bare] + [bare] * 70 + [full]
    found, failed = decoder.decode(pa.array(values, pa.binary()))
    assert failed == [10]
    found.validate(full=True)
    del values[10]
    expected = [plain(decode_metadata_record(value)[0]) for value in values]
    assert [{name: row[name] for name in expected[0]} for row in found.to_pylist()] == expected


STARVED = """
import resource
import pyarrow as pa
from kraftcore.core.columns.rows import take_rows
from kraftcore.core.columns.typed import RecordColumns
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.partition_record import PartitionRecord

decoder = RecordColumns(PartitionRecord)
values = pa.array([encode_metadata_record(PartitionRecord(directories=[Uuid(bytes(16))] * 1_500_000), 1)] * 4)
rows, failed = decoder.decode(values[:1])
print(rows.num_rows, failed)
del rows
pa.default_memory_pool().release_unused()
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (16 << 20), resource.RLIM_INFINITY))
try:
    print(decoder.decode(values)[1])
except MemoryError as error:
    print(error)
"""


def test_no_memory_is_no_damage_of_the_record():
    done = subprocess.run([sys.executable, "-P", "-c", STARVED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["1 []", "no room for the columns of PartitionRecord records"]


def test_rows_of_types_are_each_types_in_order():
    many = [5, BAD_FRAME, 300, 5, CONTROL_BASE + 2, *range(600), 5, 1 << 31]
    codes = pa.array([7, *many], pa.int64())[1:]
    found = rows_of_types(codes)
    assert [code for code, _ in found] == pc.unique(codes).to_pylist()
    assert {code: rows.to_pylist() for code, rows in found} == {
        code: pc.indices_nonzero(pc.equal(codes, code)).to_pylist() for code in set(many)
    }
    assert rows_of_types(codes[:0]) == []
    for bad in (pa.array([1], pa.int32()), pa.array([1, None])):
        with pytest.raises(LocalError, match="not int64 without nulls"):
            rows_of_types(bad)


@given(st.data())
def test_columns_out_of_used_memory_hold_the_same(data):
    code = data.draw(st.sampled_from(sorted(GOLDEN_VALUES)))
    pool = BufferPool()
    kind = CONTROL_BODIES[code - CONTROL_BASE] if code >= CONTROL_BASE else record_class(code)
    pooled = RecordColumns(kind, framed=code < CONTROL_BASE, pool=pool)
    for _ in range(3):
        chosen = data.draw(st.lists(st.sampled_from(GOLDEN_VALUES[code]), max_size=5))
        values = pa.array([value for _, value in chosen] * data.draw(st.sampled_from([1, 1000])), pa.binary())
        found, _ = pooled.decode(values)
        found.validate(full=True)
        assert found.equals(decoder(code).decode(values)[0])
        del found
        scribble(pool)


def scribble(pool):
    # What the pool has is written over: a column that leaned on what was there before would show it.
    borrowed = [take_rows([pa.array([-1], pa.int64())], pa.array([0] * size, pa.uint64()), pool)
                for size in (10_000, 20_000, 40_000) for _ in range(4)]  # fmt: skip
    del borrowed


def test_a_reader_that_is_done_borrows_no_more():
    data = build_batch([b"value"] * 50_000, timestamp_ms=1, base_offset=0, leader_epoch=1)
    pool = BufferPool()
    reader = ColumnReader(data, columns=("offset", "value"), pool=pool)
    chunk = next(reader)
    assert pool.kept == 0
    del chunk
    kept = pool.kept
    assert kept > 0
    with pytest.raises(StopIteration):
        next(reader)
    assert pool.kept == kept


def test_a_pool_keeps_no_more_than_its_limit_and_lends_it_again():
    pool = BufferPool(1 << 20)
    many = pa.array([0] * 50_000, pa.uint64())
    numbers = pa.array(range(7), pa.int64())
    (first,) = take_rows([numbers], many, pool)
    address = first.buffers()[1].address
    assert pool.kept == 0
    del first
    assert 400_000 <= pool.kept <= 1 << 20
    (again,) = take_rows([numbers], many, pool)
    assert again.buffers()[1].address == address
    assert pool.kept == 0
    held = [again, *take_rows([numbers] * 5, many, pool)]
    del again, held
    assert 400_000 <= pool.kept <= 1 << 20
    (small,) = take_rows([numbers], many[:10], pool)
    kept = pool.kept
    del small
    assert pool.kept == kept
    (alive,) = take_rows([numbers], many, pool)
    del pool
    assert alive.to_pylist() == [0] * 50_000  # the pool lives as long as what it lent
    with pytest.raises(LocalError, match="negative"):
        BufferPool(-1)


def test_rows_are_taken_of_columns_of_numbers():
    columns = [
        pa.array(range(20), pa.int64())[3:],
        pa.array(range(17), pa.int32()),
        pa.array(range(17), pa.timestamp("us")),
    ]
    rows = pa.array([0, 16, 5, 5, 0], pa.uint64())[1:]
    found = take_rows(columns, rows)
    assert [one.to_pylist() for one in found] == [column.take(rows).to_pylist() for column in columns]
    assert [one.type for one in found] == [column.type for column in columns]
    assert [len(one) for one in take_rows(columns, rows[:0])] == [0, 0, 0]


@pytest.mark.parametrize(("columns", "rows"), [
    ([pa.array([1, 2])], pa.array([2], pa.uint64())), ([pa.array([1, 2]), pa.array([1])], pa.array([1], pa.uint64())),
    ([pa.array([1, 2])], pa.array([0])), ([pa.array([1, 2])], pa.array([0, None], pa.uint64())),
    ([pa.array([1, None])], pa.array([0], pa.uint64())), ([pa.array(["text"])], pa.array([0], pa.uint64())),
    ([pa.array([True])], pa.array([0], pa.uint64())), ([pa.array([1], pa.int16())], pa.array([0], pa.uint64())),
])  # fmt: skip
def test_rows_that_cannot_be_taken_are_refused(columns, rows):
    with pytest.raises(LocalError):
        take_rows(columns, rows)


def test_two_threads_do_not_decode_with_one_decoder():
    values = pa.array([GOLDEN_VALUES[int(MetadataRecordType.TOPIC_RECORD)][0][1]] * 200_000, pa.binary())
    shared = decoder(int(MetadataRecordType.TOPIC_RECORD))
    wanted, _ = decoder(int(MetadataRecordType.TOPIC_RECORD)).decode(values)
    results = []

    def decode():
        for _ in range(5):
            try:
                results.append(shared.decode(values)[0].equals(wanted))
            except LocalError as error:
                results.append("another thread" in str(error))

    threads = [threading.Thread(target=decode) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 15


@pytest.mark.parametrize("kind", [MetadataRecordType.PARTITION_RECORD, MetadataRecordType.PARTITION_CHANGE_RECORD])
@given(st.data())
def test_partitions_are_put_in_the_order_of_their_buckets(kind, data):
    ids = st.one_of(st.sampled_from([Uuid(bytes([n] * 16)) for n in range(1, 4)]), st.binary(min_size=16, max_size=16))
    wanted = data.draw(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), ids), min_size=1, max_size=40))
    buckets, step = data.draw(st.integers(1, 256)), data.draw(st.integers(0, 100))
    cls = record_class(kind)
    version = data.draw(st.integers(0, 2))
    records = [cls(partition_id=number, topic_id=Uuid(bytes(topic)) if isinstance(topic, bytes) else topic)
               for number, topic in wanted]  # fmt: skip
    values = [encode_metadata_record(record, version) for record in records]
    places = data.draw(st.permutations(range(1, len(values) + 1)))
    rows, found = partition_order(
        pa.array([b"before", *values], pa.binary()), pa.array([0, *places], pa.uint64())[1:], buckets, step
    )
    of_row = {
        place: (zlib.crc32(str(records[place - 1].topic_id).encode()) + step * records[place - 1].partition_id)
        % buckets
        for place in places
    }
    assert rows.to_pylist() == sorted(places, key=lambda place: of_row[place])
    assert found.to_pylist() == [of_row[place] for place in rows.to_pylist()]


def test_records_too_short_for_a_partition_are_in_the_first_bucket():
    value = encode_metadata_record(record_class(3)(partition_id=1, topic_id=Uuid(bytes(range(16)))), 0)
    short = [value[:size] for size in range(23)]
    values = pa.array([*short, value, None], pa.binary())
    rows, buckets = partition_order(values, pa.array(range(25), pa.uint64()), 97, 1)
    assert rows.to_pylist() == [*range(23), 24, 23]
    assert [bucket > 0 for bucket in buckets.to_pylist()] == [False] * 24 + [True]


@pytest.mark.parametrize("arguments", [
    (pa.array(["text"]), pa.array([0], pa.uint64()), 4, 1), (pa.array([b""]), pa.array([0]), 4, 1),
    (pa.array([b""]), pa.array([1], pa.uint64()), 4, 1), (pa.array([b""]), pa.array([0], pa.uint64()), 0, 1),
    (pa.array([b""]), pa.array([0], pa.uint64()), 257, 1), (pa.array([b""]), pa.array([0], pa.uint64()), 4, -1),
])  # fmt: skip
def test_what_cannot_be_ordered_by_partition_is_refused(arguments):
    with pytest.raises(LocalError):
        partition_order(*arguments)
