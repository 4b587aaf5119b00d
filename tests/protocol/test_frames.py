"""Requests and responses with their headers, as they were seen on the wire between real nodes."""

from __future__ import annotations

import json

import pytest
from messages import GOLDEN

from kraftcore.core.wire import decode, encode
from kraftcore.errors import LocalError, UnsupportedVersionError, WireError
from kraftcore.protocol.data.headers import RequestHeader, ResponseHeader
from kraftcore.protocol.frames import (
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_request_parts,
    encode_response,
    encode_response_parts,
)
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftcore.protocol.messages.controlled_shutdown import ControlledShutdownRequest
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.vote import VoteRequest, VoteResponse
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.registry import request_class, response_class

Topic = FetchResponse.FetchableTopicResponse


def fetch_response(*records: bytes) -> FetchResponse:
    return FetchResponse(responses=[Topic(partitions=[Topic.PartitionData(records=data) for data in records])])


@pytest.mark.parametrize("path", sorted((GOLDEN / "wire").glob("*.jsonl")), ids=lambda path: path.stem)
def test_golden_frames(path):
    frames = [json.loads(line) for line in path.read_text().splitlines()]
    assert frames
    for seen in frames:
        key, version = seen["api_key"], seen["api_version"]
        raw = bytes.fromhex(seen["request"])
        header, request = decode_request(raw)
        assert type(request) is request_class(key)
        assert (header.request_api_key, header.request_api_version) == (key, version)
        assert header.correlation_id == seen["correlation_id"]
        assert encode_request(request, version, header.correlation_id, header.client_id) == raw
        if "response" in seen:
            raw = bytes.fromhex(seen["response"])
            answer, response = decode_response(raw, key, version)
            assert type(response) is response_class(key)
            assert answer.correlation_id == seen["correlation_id"]
            assert encode_response(response, version, answer.correlation_id) == raw


def test_header_and_body_are_the_separate_encodings():
    request = VoteRequest(cluster_id="c")
    header = RequestHeader(request_api_key=52, request_api_version=2, correlation_id=-5, client_id="me")
    frame = encode_request(request, 2, -5, "me")
    assert frame == encode(header, 2) + encode(request, 2)
    assert decode_request(frame) == (header, request)
    assert encode_response(VoteResponse(), 0, 9) == encode(ResponseHeader(correlation_id=9), 1) + encode(
        VoteResponse(), 0
    )
    sized = encode_request(request, 2, -5, "me", size_prefix=True)
    assert sized == len(frame).to_bytes(4) + frame
    assert encode_request(request, 2, 1)[8:10] == b"\xff\xff"
    assert decode_request(encode_request(request, 2, 1))[0].client_id is None


def test_apiversions_responses_have_header_0():
    frame = encode_response(ApiVersionsResponse(), 4, 7)
    assert frame == (7).to_bytes(4) + encode(ApiVersionsResponse(), 4)
    header, _ = decode_response(frame, 18, 4)
    assert header.correlation_id == 7


def test_controlled_shutdown_0_has_no_client_id():
    frame = encode_request(ControlledShutdownRequest(broker_id=3), 0, 6, "ignored")
    assert frame == bytes.fromhex("0007 0000 00000006 00000003")
    header, request = decode_request(frame)
    assert (header.client_id, request.broker_id) == ("", 3)


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_unknown_apiversions_version_can_be_answered(version):
    frame = bytes.fromhex(f"0012 {version:04x} 0000002a 0002 6869 00 deadbeef")
    header, request = decode_request(frame)
    assert request is None
    assert (header.request_api_version, header.correlation_id, header.client_id) == (version, 42, "hi")


def test_unknown_versions_and_keys():
    body = "0000002a 0000 00"
    with pytest.raises(UnsupportedVersionError, match="VoteRequest version 3 is not supported; known are 0-2"):
        decode_request(bytes.fromhex("0034 0003" + body))
    header, position = decode_request_header(bytes.fromhex("0034 0003" + body))
    assert (header.correlation_id, position) == (42, 11)
    with pytest.raises(UnsupportedVersionError, match="api key 1000 "):
        decode_request(bytes.fromhex("03e8 0000" + body))
    with pytest.raises(UnsupportedVersionError, match="api key -1 "):
        decode_request(bytes.fromhex("ffff 0000" + body))
    with pytest.raises(UnsupportedVersionError, match="FetchResponse version 19"):
        decode_response(bytes(20), 1, 19)
    with pytest.raises(UnsupportedVersionError, match="known are 0-3, 4-18"):
        decode(FetchRequest, b"", -1)
    with pytest.raises(LocalError, match="FetchRequest has no version 19"):
        encode_request(FetchRequest(), 19, 0)


def test_kinds_are_not_mixed_up():
    with pytest.raises(LocalError, match="VoteResponse is no request"):
        encode_request(VoteResponse(), 0, 1)
    with pytest.raises(LocalError, match="VoteRequest is no response"):
        encode_response(VoteRequest(), 0, 1)
    with pytest.raises(LocalError, match="TopicRecord is no request"):
        encode_request(TopicRecord(), 0, 1)
    with pytest.raises(TypeError, match="nested"):
        encode(Topic(), 17)
    with pytest.raises(TypeError):
        encode_request("text", 0, 1)
    with pytest.raises(TypeError):
        decode(int, b"", 0)


def test_short_headers():
    for size in range(4):
        with pytest.raises(WireError, match=r"RequestHeader.*needs 4 bytes"):
            decode_request(bytes(size))
    frame = encode_request(ApiVersionsRequest(), 0, 1, "client")
    for size in range(4, len(frame)):
        with pytest.raises(WireError, match="RequestHeader v1, field"):
            decode_request(frame[:size])
    with pytest.raises(WireError, match=r"ApiVersionsResponse v0: 1 bytes left over after the message .byte 10"):
        decode_response(bytes(11), 18, 0)
    with pytest.raises(WireError, match=r"ResponseHeader v1, field correlation_id: needs 4 bytes, 3 left .byte 0"):
        decode_response(b"abc", 52, 0)


def test_bytes_behind_a_request_are_not_looked_at():
    for version in (0, 4):
        frame = encode_request(
            ApiVersionsRequest(client_software_name="a", client_software_version="1"), version, 7, "c"
        )
        assert decode_request(frame + b"xyz") == decode_request(frame)


@pytest.mark.parametrize("client_id", ["x" * 32768, "\ud800"])
def test_client_ids_that_do_not_fit(client_id):
    with pytest.raises(LocalError, match="client id"):
        encode_request(VoteRequest(), 0, 1, client_id)
    assert decode_request(encode_request(VoteRequest(), 0, 1, "x" * 32767))[0].client_id == "x" * 32767


class TestRecords:
    def test_decoded_records_are_windows_of_the_frame(self):
        frame = encode_response(fetch_response(b"first", b"", b"second"), 17, 1)
        _, response = decode_response(frame, 1, 17)
        first, empty, second = [partition.records for partition in response.responses[0].partitions]
        assert (first, empty, second) == (b"first", b"", b"second")
        assert first.readonly
        assert first.obj is frame
        assert first.nbytes == first.shape[0] == 5
        assert bytes(second[1:3]) == b"ec"
        del response, frame
        assert bytes(first) == b"first"

    def test_input_that_may_change_is_copied(self):
        frame = bytearray(encode_response(fetch_response(b"first"), 17, 1))
        _, response = decode_response(frame, 1, 17)
        expected = bytes(response.responses[0].partitions[0].records)
        frame[:] = bytes(len(frame))
        assert response.responses[0].partitions[0].records == expected == b"first"
        assert decode_response(memoryview(encode_response(fetch_response(b"x"), 17, 1)), 1, 17)[1] == fetch_response(
            b"x"
        )

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, lambda data: memoryview(data)[::1]])
    def test_any_contiguous_buffer_is_taken(self, kind):
        data = bytes(range(200))
        assert encode(fetch_response(kind(data)), 17) == encode(fetch_response(data), 17)

    def test_other_values_are_refused(self):
        for value in ("text", 5, [1], memoryview(bytes(10))[::2]):
            with pytest.raises(LocalError, match=r"FetchResponse v17, field responses\[0\].partitions\[0\].records: "):
                encode(fetch_response(value), 17)

    @pytest.mark.parametrize("size_prefix", [False, True])
    @pytest.mark.parametrize("sizes", [(0,), (10,), (5000,), (4096, 20, 100_000, 4095), (70_000, 70_000)])
    def test_parts_are_the_same_bytes_without_copies(self, sizes, size_prefix):
        payloads = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
        response = fetch_response(*payloads)
        parts = encode_response_parts(response, 17, 3, size_prefix=size_prefix)
        assert b"".join(parts) == encode_response(response, 17, 3, size_prefix=size_prefix)
        for payload in payloads:
            assert any(part is payload for part in parts) == (len(payload) >= 4096)
        assert b"".join(encode_request_parts(FetchRequest(), 17, 1, size_prefix=size_prefix)) == encode_request(
            FetchRequest(), 17, 1, size_prefix=size_prefix
        )

    def test_parts_of_other_buffers_are_views(self):
        data = bytearray(b"z" * 5000)
        parts = encode_response_parts(fetch_response(data), 17, 3)
        assert any(isinstance(part, memoryview) and part.obj is data for part in parts)


def test_numbers_of_any_size():
    for number in (2**31, -(2**31) - 1, 2**70):
        with pytest.raises(LocalError, match=f"correlation id {number} does not fit an int32"):
            encode_request(VoteRequest(), 0, number)
        with pytest.raises(LocalError, match="VoteRequest has no version"):
            encode(VoteRequest(), number)
        with pytest.raises(UnsupportedVersionError, match="VoteRequest version"):
            decode(VoteRequest, b"", number)
        with pytest.raises(LocalError, match=r"api key .* does not fit an int16"):
            decode_response(b"", number, 0)
    for number in (2**31 - 1, -(2**31), -1):
        assert decode_request(encode_request(VoteRequest(), 0, number))[0].correlation_id == number
