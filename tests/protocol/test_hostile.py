"""Hostile bytes: every decoder takes them or raises a documented error, and allocates no more than they justify."""

from __future__ import annotations

import gc
import os
import struct
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from messages import classes, golden_vectors, versions

from kraftcore.core.wire import decode, encode
from kraftcore.errors import UnsupportedVersionError, WireError
from kraftcore.protocol.control import decode_control_record
from kraftcore.protocol.frames import decode_request, decode_request_header, decode_response, encode_request
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kraftcore.protocol.messages.vote import VoteRequest, VoteResponse
from kraftcore.protocol.metadata import decode_metadata_record, encode_metadata_record
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.registry import record_class

Topic = FetchResponse.FetchableTopicResponse
FILLED = [(classes()[name], version, raw) for name, version, kind, raw in golden_vectors() if kind == "filled"]
EXAMPLES = int(os.environ.get("KRAFTCORE_EXAMPLES", "6")) * 50
# What one input byte may cost: at worst an empty struct of one byte, object and slots.
BYTES_PER_BYTE = 400
FIXED_BYTES = 20_000
BOMBS = [
    b"\xff\xff\xff\xff\x0f",
    b"\x7f\xff\xff\xff",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x00\x00\x00",
]


def probe(cls, raw, version):
    """Decode; what is taken must survive another round trip. Returns the error, if any."""
    try:
        message = decode(cls, raw, version)
    except WireError as raised:
        error = raised
    else:
        error = None
    if error is not None:
        assert (error.message_name, error.version) == (cls.__name__, version)
        assert 0 <= error.position <= len(raw)
        return error
    again = encode(message, version)
    assert encode(decode(cls, again, version), version) == again
    return None


def test_every_truncation_is_refused():
    for cls, version, raw in FILLED:
        for size in range(len(raw)):
            error = probe(cls, raw[:size], version)
            assert error is not None, (cls, version, size)
        assert probe(cls, raw, version) is None


def test_every_flipped_bit():
    taken = refused = 0
    for cls, version, raw in FILLED:
        damaged = bytearray(raw)
        for position in range(len(raw)):
            for bit in range(8):
                damaged[position] ^= 1 << bit
                if probe(cls, bytes(damaged), version) is None:
                    taken += 1
                else:
                    refused += 1
                damaged[position] ^= 1 << bit
    assert taken
    assert refused


def test_bytes_left_over_are_refused():
    for cls, version, raw in FILLED:
        error = probe(cls, raw + b"\0", version)
        assert error is not None
        assert "left over" in str(error)


def peak_of(action) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_length_bombs_allocate_nothing_much():
    for cls, version, raw in FILLED[:: 1 if EXAMPLES > 1000 else 10]:
        for position in range(len(raw)):
            for bomb in BOMBS:
                damaged = raw[:position] + bomb + raw[position + len(bomb) :]
                peak = peak_of(lambda cls=cls, damaged=damaged, version=version: probe(cls, damaged, version))
                assert peak < FIXED_BYTES + BYTES_PER_BYTE * len(damaged), (cls, version, position, bomb)


@pytest.mark.parametrize("count", [0x7FFFFFFF, 1_000_000, 250_001])
def test_array_bombs(count):
    # FetchRequest v4: 4 + 4 + 4 + 4 + 1 bytes, then the topics; each takes at least 2 + 4
    raw = bytes(17) + struct.pack(">i", count) + bytes(1_000_000)
    errors = []
    peak = peak_of(lambda: errors.append(probe(FetchRequest, raw, 4)))
    text = f"field topics: claims {count} elements of at least 6 bytes, 1000000 bytes left (byte 17)"
    assert text in str(errors[0])
    assert peak < FIXED_BYTES


def test_nested_array_bombs():
    # each level claims all that is left, which the level above has already claimed
    topic = bytes(2) + struct.pack(">i", 90_000)
    raw = bytes(17) + struct.pack(">i", 150_000) + topic * 150_000
    peak = peak_of(lambda: probe(FetchRequest, raw, 4))
    assert peak < 2 * BYTES_PER_BYTE * len(raw)
    assert probe(FetchRequest, raw, 4) is not None


def test_long_input_of_smallest_elements_costs_a_bounded_multiple():
    count = 100_000
    raw = bytes(17) + struct.pack(">i", count) + bytes(6) * count
    held = []
    peak = peak_of(lambda: held.append(decode(FetchRequest, raw, 4)))
    assert len(held[0].topics) == count
    assert peak < BYTES_PER_BYTE * len(raw)


ITEMS = 1_000_000
ASKED = FetchRequest.FetchTopic


@pytest.mark.parametrize(
    ("topics", "is_taken"),
    [
        ([ASKED()] * ITEMS, True),
        ([ASKED()] * (ITEMS + 1), False),
        ([ASKED(partitions=[ASKED.FetchPartition()] * 999)] * (ITEMS // 1000), True),
        ([ASKED(partitions=[ASKED.FetchPartition()] * 1000)] * (ITEMS // 1000), False),
    ],
)
def test_a_request_has_no_more_than_a_million_items(topics, is_taken):
    frame = encode_request(FetchRequest(topics=topics), 12, 1)
    if is_taken:
        assert len(decode_request(frame)[1].topics) == len(topics)
    else:
        with pytest.raises(WireError, match="more are taken"):
            decode_request(frame)
        assert decode(FetchRequest, encode(FetchRequest(topics=topics), 12), 12)  # it is no damage


@pytest.mark.parametrize(("count", "is_taken"), [(ITEMS, True), (ITEMS + 1, False)])
def test_a_request_has_no_more_than_a_million_tagged_fields(count, is_taken):
    frame = encode_request(FetchRequest(), 12, 1)
    section = b"".join(uvarint(tag) + b"\0" for tag in range(100, 100 + count))
    frame = frame[:-1] + uvarint(count) + section
    if is_taken:
        assert decode_request(frame)
    else:
        with pytest.raises(WireError, match="more items than are taken"):
            decode_request(frame)


def uvarint(number):
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def test_tag_count_bomb():
    body = encode(VoteRequest(), 0)
    assert body[-1] == 0
    error = probe(VoteRequest, body[:-1] + b"\xff\xff\xff\xff\x0f" + b"\x05\x00", 0)
    assert "tagged fields end too early" in str(error)


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("02 05 00 05 00", "tag 5 after tag 5: tags must ascend"),
        ("02 05 00 04 00", "tag 4 after tag 5: tags must ascend"),
        ("01 05 03 00", "tag 5 claims 3 bytes, 1 left"),
        ("01 00 05 01 ff ff ff ff", "field node_endpoints: uses 4 bytes less than the size of tag 0 says"),
        ("01 00 02 02 00", "field node_endpoints: claims 1 elements of at least 8 bytes, 1 bytes left"),
        ("01 80 80 80 80 10 00", "bad varint"),
        ("80", "varint does not end"),
        ("", "needs 1 bytes, 0 left"),
    ],
)
def test_bad_tag_sections(section, text):
    body = encode(VoteResponse(), 1)
    error = probe(VoteResponse, body[:-1] + bytes.fromhex(section), 1)
    assert text in str(error)


def test_errors_name_message_version_field_and_position():
    partitions = [Topic.PartitionData(records=b"r" * 10) for _ in range(3)]
    response = FetchResponse(responses=[Topic(partitions=partitions) for _ in range(2)])
    raw = encode(response, 4)
    with pytest.raises(WireError) as caught:
        decode(FetchResponse, raw[:-4], 4)
    error = caught.value
    assert (error.message_name, error.version) == ("FetchResponse", 4)
    assert error.field == "responses[1].partitions[2].records"
    assert error.position == len(raw) - 14
    assert error.reason == "claims 10 bytes, 6 left"
    assert str(error) == (
        f"FetchResponse v4, field responses[1].partitions[2].records: claims 10 bytes, 6 left (byte {len(raw) - 14})"
    )


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("03 61", "field cluster_id: claims 2 bytes, 1 left"),
        ("02 ff", "field cluster_id: string of 1 bytes is not UTF-8"),
        ("04 ed a0 80 00", "field cluster_id: string of 3 bytes is not UTF-8"),  # a lone surrogate
        ("ff ff ff ff 0f", "field cluster_id: claims 4294967294 bytes, 0 left"),
        ("ff ff ff ff 1f", "field cluster_id: the varint does not end within 5 bytes"),
        ("00 00 00 00 01 00", "field topics: null, but the field is not nullable"),
    ],
)
def test_bad_strings_and_nulls(raw, text):
    assert text in str(probe(VoteRequest, bytes.fromhex(raw), 1))


def test_strings_beyond_32767_bytes_are_refused_as_kafka_does():
    raw = b"\x81\x80\x02" + b"x" * 32768
    assert "string of 32768 bytes, the limit is 32767" in str(probe(VoteRequest, raw, 0))


def test_what_kafka_accepts_is_accepted():
    # varints may be longer than needed
    plain = encode(VoteRequest(cluster_id=""), 0)
    assert plain[0] == 1
    assert decode(VoteRequest, b"\x81\x80\x00" + plain[1:], 0) == VoteRequest(cluster_id="")
    # any non-zero byte is true
    raw = bytearray(encode(LeaderAndIsrRequest(is_kraft_controller=True), 7))
    raw[raw.index(1)] = 0x40
    assert decode(LeaderAndIsrRequest, bytes(raw), 7).is_kraft_controller is True
    # any negative length is null
    raw = encode(FetchResponse(responses=[Topic(partitions=[Topic.PartitionData(records=None)])]), 4)
    assert raw.endswith(b"\xff\xff\xff\xff")
    assert decode(FetchResponse, raw[:-4] + b"\x80\x00\x00\x00", 4) == decode(FetchResponse, raw, 4)


@settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(classes())), st.data())
def test_random_bytes(name, data):
    cls = classes()[name]
    version = data.draw(st.sampled_from(versions(cls)))
    probe(cls, data.draw(st.binary(max_size=60)), version)


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(st.binary(max_size=60), st.integers(-1, 95), st.integers(-2, 20))
def test_random_frames(body, key, version):
    frame = struct.pack(">hh", key, version) + body
    for action in (
        lambda: decode_request(frame),
        lambda: decode_request_header(frame),
        lambda: decode_response(body, key, version),
        lambda: decode_request(body),
    ):
        with suppress(WireError, UnsupportedVersionError):
            action()


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(st.binary(max_size=40), st.integers(0, 30), st.integers(0, 5))
def test_random_records(body, record_type, version):
    for value in (body, bytes([1, record_type, version]) + body):
        try:
            record, found = decode_metadata_record(value)
        except (WireError, UnsupportedVersionError):
            continue
        assert type(record) is record_class(value[1])
        assert decode_metadata_record(encode_metadata_record(record, found)) == (record, found)


@settings(max_examples=EXAMPLES, deadline=None, database=None)
@given(st.binary(max_size=8) | st.integers(0, 7).map(lambda n: bytes([0, 0, 0, n])), st.binary(max_size=40))
def test_random_control_records(key, value):
    for body in (value, b"\0\0" + value):
        try:
            record = decode_control_record(key, body)
        except (WireError, UnsupportedVersionError):
            continue
        assert (record.key, record.value) == (key, body)


def test_truncated_frames_and_records():
    frame = encode_request(FetchRequest(cluster_id="c", topics=[FetchRequest.FetchTopic()]), 17, 5, "client")
    for size in range(len(frame)):
        with pytest.raises(WireError):
            decode_request(frame[:size])
    value = encode_metadata_record(TopicRecord(name="t"), 0)
    for size in range(len(value)):
        with pytest.raises(WireError):
            decode_metadata_record(value[:size])


def test_failed_decoding_leaks_nothing():
    raw = encode(FetchResponse(responses=[FetchResponse.FetchableTopicResponse()] * 20), 17)
    damaged = [raw[:size] for size in range(len(raw))]

    def attack():
        for data in damaged:
            assert probe(FetchResponse, data, 17) is not None
        gc.collect()

    attack()
    tracemalloc.start()
    attack()
    before = tracemalloc.get_traced_memory()[0]
    rounds = 5
    for _ in range(rounds):
        attack()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    # Threads that earlier tests left behind allocate a little as well; the smallest object takes 16 bytes.
    assert grown < 16 * rounds * len(damaged)
