"""Record batches: against the pure-Python twin, the golden data, independent readers, and hostile bytes."""

from __future__ import annotations

import pickle
from pathlib import Path

import batch_twin as twin
import pytest
from batch_strategies import damaged_batches, hostile_buffers, twin_records, valid_batches
from batch_twin import outcome_of_twin
from golden import GOLDEN, GOLDEN_FILES
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.batch import (
    Compression,
    Record,
    RecordBatch,
    TimestampType,
    build_batch,
    build_records_batch,
    iter_batches,
    set_max_timestamp,
    stamp_batch,
    validate_batch,
    validate_batches,
)
from kraftcore.errors import CorruptBatchError, CorruptDataError, LocalError, RemoteProtocolError

NOW_MS = 1_700_000_000_000


def as_twin(record: Record) -> twin.TwinRecord:
    headers = tuple((name.encode("utf-8", "surrogateescape"), value) for name, value in record.headers)
    return twin.TwinRecord(
        record.offset,
        record.timestamp_ms,
        record.key,
        record.value,
        headers,
        record.sequence,
        record.attributes & 0xFF,
        record.size,
    )


def header_of(batch: RecordBatch) -> dict[str, int]:
    return {
        "base_offset": batch.base_offset,
        "length": batch.size - 12,
        "leader_epoch": batch.leader_epoch,
        "magic": 2,
        "crc": batch.crc,
        "attributes": batch.attributes,
        "last_offset_delta": batch.last_offset_delta,
        "base_timestamp": batch.base_timestamp_ms,
        "max_timestamp": batch.max_timestamp_ms,
        "producer_id": batch.producer_id,
        "producer_epoch": batch.producer_epoch,
        "base_sequence": batch.base_sequence,
        "count": batch.count,
    }


# ---- golden data ----------------------------------------------------------------------------------------------------


def test_there_is_golden_data() -> None:
    assert sum(len(list(iter_batches(path.read_bytes()))) for path in GOLDEN_FILES) > 1500


@pytest.mark.parametrize("path", GOLDEN_FILES, ids=lambda path: str(path.relative_to(GOLDEN)))
def test_every_golden_batch_encodes_to_the_same_bytes(path: Path) -> None:
    data = path.read_bytes()
    totals = validate_batches(data)
    batches = list(iter_batches(data))
    for batch, expected in zip(batches, twin.read_batches(data), strict=True):
        assert batch.position == expected.position
        assert header_of(batch) == expected.header
        assert [as_twin(record) for record in batch] == expected.records
        assert batch.rebuild() == batch.to_bytes()
    assert totals.batches == len(batches)
    assert totals.records == sum(len(batch) for batch in batches)
    assert totals.size == len(data)
    if batches:
        assert (totals.base_offset, totals.last_offset) == (batches[0].base_offset, batches[-1].last_offset)
        assert totals.max_timestamp_ms == max(batch.max_timestamp_ms for batch in batches)
    records = [record for batch in batches for record in batch]
    assert totals.keyless == sum(record.key is None for record in records)
    if all(batch.timestamp_type is TimestampType.CREATE_TIME for batch in batches):
        times = [record.timestamp_ms for record in records if record.timestamp_ms != -1]
        assert totals.earliest_ms == min(times, default=-1)
        assert totals.latest_ms == max([-1, *times])


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("shift", [0, -20, -901, 2**63 - 1])
@pytest.mark.parametrize("times", [[5], [1000, -1, 7, 2**40, 900], [-1, -1], [900, 950, 0]])
def test_the_times_that_records_say_are_found_whatever_the_header_says(codec, shift, times) -> None:
    headers = [(b"h", b"v")]  # every second record has none: there is a short cut for those
    records = [
        Record(b"v" * 20, b"k" if number else None, headers[: number % 2], timestamp_ms=each)
        for number, each in enumerate(times)
    ]
    batch = build_records_batch(records, compression=codec)
    base = int.from_bytes(batch[27:35], signed=True) + shift
    batch[27:35] = (base % 2**64).to_bytes(8)  # from which they count, and beyond 63 bits from the other end
    set_max_timestamp(batch, 12)
    said = [(each + shift + 2**63) % 2**64 - 2**63 for each in times]
    totals = validate_batches(batch)
    assert totals.earliest_ms == min((each for each in said if each != -1), default=-1)
    assert totals.latest_ms == max(-1, *said)
    assert said == [record.timestamp_ms for record in RecordBatch(batch)]
    assert (totals.max_timestamp_ms, totals.keyless, totals.records) == (12, 1, len(times))


# ---- the twin -------------------------------------------------------------------------------------------------------


@given(valid_batches())
def test_reads_what_the_twin_reads(data: bytes) -> None:
    batch = validate_batch(data)
    expected = twin.read_batch(data)
    assert header_of(batch) == expected.header
    assert [as_twin(record) for record in batch] == expected.records
    assert batch.values() == [record.value for record in expected.records]
    assert batch.rebuild() == data
    assert bytes(batch.raw) == data == batch.to_bytes()


@given(hostile_buffers)
def test_hostile_buffers_are_refused_where_the_twin_refuses(data: bytes) -> None:
    expected, refused_at = outcome_of_twin(data)
    position = 0
    for want in expected:
        batch = validate_batch(data, position)
        assert header_of(batch) == want.header
        assert [as_twin(record) for record in batch] == want.records
        position += batch.size
    if refused_at is None:
        assert position == len(data)
        assert validate_batches(data).batches == len(expected)
    elif refused_at >= 0:
        with pytest.raises(CorruptBatchError) as one:
            validate_batch(data, position)
        with pytest.raises(CorruptBatchError) as all_of_them:
            validate_batches(data)
        assert one.value.position == all_of_them.value.position == refused_at
        assert str(one.value) == str(all_of_them.value)
        # Iterating meets the same fault, whatever was read before it.
        with pytest.raises(CorruptBatchError) as iterated:
            for batch in iter_batches(data, position):
                list(batch)
        assert iterated.value.position == refused_at
        with pytest.raises(CorruptBatchError) as values:
            for batch in iter_batches(data, position):
                batch.values()
        assert values.value.position == refused_at


@given(damaged_batches(), st.booleans())
def test_unverified_reading_raises_only_the_documented_error(data: bytes, as_bytearray: bool) -> None:
    source = bytearray(data) if as_bytearray else memoryview(data)
    try:
        batch = RecordBatch(source, verify=False)
        batch.is_valid  # noqa: B018
        repr(batch)
        list(batch)
        rebuilt = batch.rebuild()
    except CorruptBatchError:
        return
    assert list(RecordBatch(rebuilt)) == list(batch)


@given(valid_batches())
def test_every_cut_is_refused_and_allow_partial_ends_there(data: bytes) -> None:
    buffer = data + data
    for end in range(len(data), len(buffer)):
        whole = 1 if end < len(buffer) else 2
        assert len(list(iter_batches(buffer[:end], allow_partial=True))) == whole
        assert validate_batches(buffer[:end], allow_partial=True).size == whole * len(data)
        if end > len(data):
            with pytest.raises(CorruptBatchError) as caught:
                validate_batches(buffer[:end])
            assert caught.value.position == len(data)
            with pytest.raises(CorruptBatchError):
                list(iter_batches(buffer[:end]))


RICH = build_records_batch(
    [(b"k", b"value", [("h", b"1"), ("n", None)], 7), (None, None, (), 5), (b"", b"", (), 9)],
    base_offset=40,
    leader_epoch=3,
)


def test_every_single_bit_flip_under_the_checksum_is_noticed() -> None:
    for bit in range(8 * 16, 8 * len(RICH)):
        data = bytearray(RICH)
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatchError):
            RecordBatch(data)


def test_every_single_bit_flip_with_a_matching_checksum_reads_like_the_twin() -> None:
    refused = 0
    for bit in range(8 * len(RICH)):
        flipped = bytearray(RICH)
        flipped[bit // 8] ^= 1 << bit % 8
        data = twin.sign(flipped)
        try:
            expected = twin.read_batch(data)
        except NotImplementedError:
            with pytest.raises(CorruptBatchError):
                list(RecordBatch(data))
        except twin.Refused as error:
            refused += 1
            with pytest.raises(CorruptBatchError) as caught:
                validate_batch(data)
            assert caught.value.position == error.position
        else:
            assert [as_twin(record) for record in validate_batch(data)] == expected.records
    assert refused > 100


def test_count_bombs_cost_nothing() -> None:
    records = b"".join(twin.write_record(twin.TwinRecord(i), 0, 0) for i in range(3))
    for count in (4, 2**20, 2**31 - 1):
        data = twin.write_batch([], records, count=count, last_offset_delta=2**31 - 1)
        with pytest.raises(CorruptBatchError, match=f"records count {count}, the batch has room for 3") as caught:
            validate_batch(data)
        assert (caught.value.found, caught.value.wanted) == (count, 3)
        with pytest.raises(CorruptBatchError):
            iter(RecordBatch(data))


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"\x80\x80\x80\x80\x80\x80", "varint has no end"),
        (twin.varint(2**31 - 1) + bytes(8), "length 2147483647 with 8 bytes left"),
        (twin.varint(-1) + bytes(8), "length -1"),
        (twin.varint(5) + bytes(8), "length 5"),
        (twin.varint(7) + bytes([0, 0, 0]) + twin.varint(-2) + b"\x01\x00\x00", "key length -2"),
        (twin.varint(7) + bytes([0, 0, 0, 1]) + twin.varint(3) + bytes(2), "value length 3 with 2 bytes left"),
        (twin.varint(7) + bytes([0, 0, 0, 1, 1]) + twin.varint(2**6) + b"", "header count or length 64"),
        (twin.varint(7) + bytes([0, 0, 0, 1, 1, 0, 9]), "1 bytes are left after the last field"),
        (twin.varint(8) + bytes([0, 0, 0, 1, 1, 2, 1, 1]), "header count or length -1"),
        (twin.varint(8) + bytes([0, 0, 0, 1, 1, 2, 0, 4]), "header count or length 2"),
        (twin.varint(6) + bytes([0, 0, 2, 1, 1, 0]), "offset delta 1, wanted at most 0"),
        (twin.varint(6) + bytes([0, 0, 1, 1, 1, 0]), "offset delta -1, wanted at least 0"),
        (twin.varint(6) + bytes([0, 0, 0, 1, 1, 0]) + b"\x00", "1 bytes are left after the last record"),
    ],
)
def test_faults_are_told_apart(payload: bytes, reason: str) -> None:
    padding = bytes(max(0, 7 - len(payload)))
    data = b"before" + twin.write_batch([], payload + padding, count=1)
    with pytest.raises(CorruptBatchError, match=reason) as caught:
        validate_batch(data, 6)
    assert 6 + 61 <= caught.value.position <= len(data)
    with pytest.raises(CorruptBatchError, match=reason):
        list(RecordBatch(data, 6))


def test_header_faults_name_both_values() -> None:
    good = bytes(build_batch([b"v"], timestamp_ms=NOW_MS))

    def broken(position: int, replacement: bytes) -> CorruptBatchError:
        data = bytearray(good)
        data[position : position + len(replacement)] = replacement
        with pytest.raises(CorruptBatchError) as caught:
            RecordBatch(b"xyz" + data, 3)
        return caught.value

    error = broken(17, b"\x00\x00\x00\x01")
    assert "checksum 0x00000001 is stored, 0x" in str(error)
    assert (error.position, error.found) == (20, 1)
    assert error.wanted == RecordBatch(good).crc
    assert broken(16, b"\x01").position == 19
    assert "magic is 1, wanted 2" in str(broken(16, b"\x01"))
    assert "batch length 48 is outside 49 to" in str(broken(8, b"\x00\x00\x00\x30"))
    assert "batch length -1" in str(broken(8, b"\xff\xff\xff\xff"))
    assert "the batch has 1012 bytes, 69 are left" in str(broken(8, b"\x00\x00\x03\xe8"))
    assert "base offset -1" in str(broken(0, b"\xff" * 8))
    assert "records count -1" in str(broken(57, b"\xff" * 4))
    with pytest.raises(CorruptBatchError, match="a batch header needs 61 bytes, 60 are left"):
        RecordBatch(good[:60])
    assert isinstance(error, CorruptDataError) and isinstance(error, RemoteProtocolError)
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.position, again.found) == (str(error), 20, 1)


def test_compacted_and_empty_batches_are_read() -> None:
    records = [twin.TwinRecord(10, 1, b"a", b"1"), twin.TwinRecord(17, 2, b"b", None)]
    batch = validate_batch(twin.write_batch(records, base_offset=5, last_offset_delta=20))
    assert [record.offset for record in batch] == [10, 17]
    assert (batch.base_offset, batch.last_offset, batch.next_offset, len(batch)) == (5, 25, 26, 2)
    assert batch.rebuild() == batch.to_bytes()
    kept = validate_batch(batch.rebuild([list(batch)[1]]))
    assert [(record.offset, record.timestamp_ms, record.key) for record in kept] == [(17, 2, b"b")]
    assert (kept.base_offset, kept.last_offset) == (5, 25)
    none = validate_batch(batch.rebuild([]))
    assert (list(none), none.last_offset, none.size, none.values()) == ([], 25, 61, [])
    with pytest.raises(LocalError, match="record 1: offset 10 does not rise"):
        batch.rebuild(list(batch)[::-1])
    with pytest.raises(TypeError):
        batch.rebuild([(b"k", b"v")])  # type: ignore[list-item]


# ---- building -------------------------------------------------------------------------------------------------------


@given(st.lists(st.none() | st.binary(max_size=300), min_size=1, max_size=200), st.integers(-1, 2**45))
def test_values_encode_like_the_twin(values: list[bytes | None], timestamp_ms: int) -> None:
    built = build_batch(values, timestamp_ms=timestamp_ms, base_offset=77, leader_epoch=5)
    records = [twin.TwinRecord(77 + i, timestamp_ms, None, value) for i, value in enumerate(values)]
    assert type(built) is bytearray
    assert built == twin.write_batch(records, leader_epoch=5)
    assert validate_batch(built).values() == values
    assert built == build_records_batch(
        [(None, value) for value in values], timestamp_ms=timestamp_ms, base_offset=77, leader_epoch=5
    )


@given(twin_records(), st.none() | st.integers(0, 2**41))
def test_records_encode_like_the_twin(records: list[twin.TwinRecord], horizon: int | None) -> None:
    given_records = [
        (
            record.key,
            record.value,
            [(n.decode("utf-8", "surrogateescape"), v) for n, v in record.headers],
            record.timestamp_ms,
        )
        for record in records
    ]
    numbered = [
        twin.TwinRecord(i + 3, record.timestamp_ms, record.key, record.value, record.headers)
        for i, record in enumerate(records)
    ]
    fields = {} if horizon is None else {"attributes": 0x40, "base_timestamp": horizon}
    built = build_records_batch(given_records, base_offset=3, delete_horizon_ms=horizon)
    assert built == twin.write_batch(numbered, None, **fields)
    objects = [Record(v, k, h, timestamp_ms=t) for k, v, h, t in given_records]
    assert built == build_records_batch(objects, base_offset=3, delete_horizon_ms=horizon)
    assert validate_batch(built).delete_horizon_ms == horizon


def test_header_fields_round_trip() -> None:
    built = build_records_batch(
        [(b"\x00\x00\x00\x01", b"v", None, 30), (b"k", b"w", None, 20)],
        base_offset=2**62,
        leader_epoch=2**31 - 1,
        producer_id=12,
        producer_epoch=2**15 - 1,
        base_sequence=2**31 - 1,
        transactional=True,
        control=True,
    )
    batch = validate_batch(built)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence) == (
        12,
        2**15 - 1,
        2**31 - 1,
        0,
    )
    assert batch.is_control and batch.is_transactional and batch.is_valid
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (30, 30)
    assert [record.timestamp_ms for record in batch] == [30, 20]
    assert [record.sequence for record in batch] == [2**31 - 1, 0]
    assert batch.timestamp_type is TimestampType.CREATE_TIME
    assert batch.compression is Compression.NONE
    assert batch.delete_horizon_ms is None
    assert "offsets=4611686018427387904..4611686018427387905" in repr(batch)
    appended = validate_batch(build_batch([b"v"], timestamp_ms=8, timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert (appended.timestamp_type, next(iter(appended)).timestamp_ms) == (TimestampType.LOG_APPEND_TIME, 8)


def test_any_bytes_like_value_is_taken() -> None:
    values = [bytearray(b"ab"), memoryview(b"xcdx")[1:3], b"ef", None]
    expected = build_batch([b"ab", b"cd", b"ef", None], timestamp_ms=1)
    assert build_batch(values, timestamp_ms=1) == expected
    assert build_batch(tuple(values), timestamp_ms=1) == expected
    assert build_batch(iter(values), timestamp_ms=1) == expected
    assert values[0] == b"ab"
    for wrong in ([1], ["text"], b"bytes", "text"):
        with pytest.raises(TypeError):
            build_batch(wrong, timestamp_ms=1)  # type: ignore[arg-type]
    for wrong_record in ([b"v"], [(b"v",)], [(b"k", "v")], [("k", b"v")], [(1, 2, 3, 4, 5)]):
        with pytest.raises(TypeError):
            build_records_batch(wrong_record)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        {"values": []},
        {"timestamp_ms": -2},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"leader_epoch": -2},
        {"compression": 5},
        {"compression": -1},
        {"timestamp_type": 2},
        {"transactional": True},
        {"producer_id": 1},
        {"producer_id": 1, "producer_epoch": 0},
        {"producer_id": -2},
        {"producer_epoch": 2**15},
        {"base_sequence": -2},
    ],
)
def test_misuse_is_a_local_error(arguments: dict[str, object]) -> None:
    with pytest.raises(LocalError):
        build_batch(**({"values": [b"v"], "timestamp_ms": 1} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "record",
    [
        (b"k", b"v", [("\ud800", b"")]),
        (b"k", b"v", [(None, b"")]),
        (b"k", b"v", [b"abc"]),
        (b"k", b"v", [()]),
        (b"k", b"v", (), -2),
    ],
)
def test_impossible_records_are_a_local_error(record: tuple[object, ...]) -> None:
    with pytest.raises(LocalError):
        build_records_batch([record])  # type: ignore[list-item]


def test_control_records_need_a_key() -> None:
    with pytest.raises(LocalError, match="record 1: a control record needs a key"):
        build_records_batch([(b"\x00\x00\x00\x02", b""), (None, b"v")], control=True)


# ---- stamping -------------------------------------------------------------------------------------------------------


@given(valid_batches(), st.integers(0, 2**40), st.integers(-1, 2**31 - 1))
def test_stamping_changes_offsets_and_epoch_only(data: bytes, base_offset: int, leader_epoch: int) -> None:
    before = validate_batch(data)
    stamped = bytearray(data)
    stamp_batch(stamped, base_offset, leader_epoch)
    after = validate_batch(bytes(stamped))
    assert header_of(after) == header_of(before) | {"base_offset": base_offset, "leader_epoch": leader_epoch}
    shift = base_offset - before.base_offset
    assert [r.offset - shift for r in after] == [r.offset for r in before]
    assert after.values() == before.values()


def test_stamping_a_time_makes_it_log_append_time() -> None:
    batch = build_records_batch([(b"a", b"1", (), 5), (b"b", b"2", (), 3)])
    view = memoryview(bytearray(b"..." + batch))
    stamp_batch(view, 9, 1, NOW_MS, position=3)
    stamped = validate_batch(view, 3)
    assert [record.timestamp_ms for record in stamped] == [NOW_MS, NOW_MS]
    assert (stamped.base_timestamp_ms, stamped.max_timestamp_ms) == (5, NOW_MS)
    assert stamped.timestamp_type is TimestampType.LOG_APPEND_TIME
    again = bytearray(stamped.to_bytes())
    again[17:21] = b"\x00\x00\x00\x00"
    stamp_batch(again, 9, 1, NOW_MS)
    assert again[17:21] == b"\x00\x00\x00\x00", "nothing under the checksum changed, so it must stay"
    assert stamped.rebuild() == stamped.to_bytes()


def test_stamping_refuses_what_it_cannot_stamp() -> None:
    batch = build_batch([b"a", b"b"], timestamp_ms=1)
    before = bytes(batch)
    for arguments in ((-1, 0), (2**63 - 2, 0), (0, -2), (0, 0, -2)):
        with pytest.raises(LocalError):
            stamp_batch(batch, *arguments)
    with pytest.raises(LocalError):
        stamp_batch(batch, 0, 0, position=len(batch) + 1)
    with pytest.raises(CorruptBatchError):
        stamp_batch(batch, 0, 0, position=1)
    with pytest.raises(BufferError):
        stamp_batch(before, 0, 0)
    with pytest.raises(TypeError):
        stamp_batch(None, 0, 0)  # type: ignore[arg-type]
    assert batch == before


# ---- views ----------------------------------------------------------------------------------------------------------


def test_a_batch_keeps_its_bytes_alive_and_in_place() -> None:
    data = build_batch([b"v" * 50] * 3, timestamp_ms=1)
    batch = RecordBatch(data)
    with pytest.raises(BufferError):
        data.clear()
    iterator = iter(batch)
    del batch
    assert [record.value for record in iterator] == [b"v" * 50] * 3
    del iterator
    data.clear()


def test_an_unmade_batch_is_empty() -> None:
    batch = RecordBatch.__new__(RecordBatch)
    assert (list(batch), batch.values(), batch.size, batch.is_valid) == ([], [], 61, True)
    assert RecordBatch(batch.to_bytes()).count == 0


def test_positions_outside_are_misuse() -> None:
    for position in (-1, 2):
        with pytest.raises(LocalError):
            RecordBatch(b"x", position)
        with pytest.raises(LocalError):
            iter_batches(b"x", position)
        with pytest.raises(LocalError):
            validate_batches(b"x", position)
    assert list(iter_batches(b"")) == []
    assert validate_batches(bytearray()) == (0, 0, 0, -1, -1, -1, -1, -1, 0, 0)
    with pytest.raises(TypeError):
        RecordBatch("text")  # type: ignore[arg-type]


def test_iteration_ends_at_the_first_bad_batch() -> None:
    good = bytes(build_batch([b"v"], timestamp_ms=1))
    iterator = iter_batches(good + b"\x00" * 80 + good)
    assert next(iterator).count == 1
    with pytest.raises(CorruptBatchError):
        next(iterator)
    assert list(iterator) == []


@given(valid_batches())
def test_records_are_values(data: bytes) -> None:
    for record in RecordBatch(data):
        assert pickle.loads(pickle.dumps(record)) == record
        assert hash(record) == hash(pickle.loads(pickle.dumps(record)))
        assert record.key_size == (-1 if record.key is None else len(record.key))
        assert record.value_size == (-1 if record.value is None else len(record.value))
        assert record != "something else"
        assert f"offset={record.offset}" in repr(record)


def test_record_headers_survive_any_bytes() -> None:
    record = Record(b"v", headers=[(b"\xff\x80", None), ("ü", bytearray(b"x"))])
    assert record.headers == (("\udcff\udc80", None), ("ü", b"x"))
    batch = validate_batch(build_records_batch([record]))
    assert next(iter(batch)).headers == record.headers
    assert (record.offset, record.sequence, record.size, record.timestamp_ms) == (-1, -1, 0, -1)
    with pytest.raises(TypeError):
        Record(5)  # type: ignore[arg-type]
    with pytest.raises(AttributeError):
        record.value = b"other"  # type: ignore[misc]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
@pytest.mark.parametrize("by_append", [False, True])
def test_a_time_is_found_as_record_by_record(codec: Compression, by_append: bool) -> None:
    times = [5, -1, 7, 7, 3, 9]
    data = build_records_batch([Record(b"v", timestamp_ms=time) for time in times], base_offset=100, compression=codec)
    if by_append:
        stamp_batch(data, 100, 0, 8)
    batch = RecordBatch(data)
    for wanted in range(-2, 11):
        for start in range(98, 108):
            naive = [
                (each.offset, each.timestamp_ms)
                for each in batch
                if each.timestamp_ms >= wanted and each.offset >= start
            ]
            assert batch.find_timestamp(wanted, start) == (naive[0] if naive else None), (wanted, start)


@given(damaged_batches())
def test_a_time_in_damaged_records(data: bytes) -> None:
    try:
        batch = RecordBatch(data, verify=False)
    except CorruptBatchError:
        return
    outcome: object
    try:
        outcome = next(((each.offset, each.timestamp_ms) for each in batch if each.timestamp_ms >= 2), None)
    except CorruptBatchError as error:
        outcome = str(error)
    try:
        found: object = batch.find_timestamp(2, -(2**63))
    except CorruptBatchError as error:
        found = str(error)
    assert found == outcome
