"""The suite's own codec against frames that a Kafka 3.9.1 cluster in ZooKeeper mode sent and answered."""

import json
from pathlib import Path

import pytest
from replica_suite import codec

FRAMES = [json.loads(x) for x in (Path(codec.__file__).parent / "frames-3.9.1.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("frame", FRAMES, ids=[f"{i}-{f['api_key']}v{f['api_version']}" for i, f in enumerate(FRAMES)])
def test_frames_come_back_byte_for_byte(frame):
    request, response = bytes.fromhex(frame["request"]), bytes.fromhex(frame["response"])
    key, version, correlation, client, body = codec.parse_request(request)
    assert (key, version) == (frame["api_key"], frame["api_version"])
    assert codec.request_frame(key, version, correlation, body, client) == request
    got, answer = codec.parse_response(key, version, response)
    assert got == correlation and codec.response_frame(key, version, correlation, answer) == response


def test_every_version_of_the_control_requests_round_trips():
    for key in (codec.LEADER_AND_ISR, codec.STOP_REPLICA, codec.UPDATE_METADATA):
        for kind in ("request", "response"):
            name = codec.BY_KEY[key, kind]
            low, high = codec.DEFS[name]["valid"]
            for v in range(low, high + 1):
                data = codec.encode(name, v, {})
                assert codec.encode(name, v, codec.decode(name, v, data)) == data


def test_unknown_fields_and_versions_are_refused():
    with pytest.raises(KeyError):
        codec.encode("StopReplicaRequest", 2, {"TopicStates": [{"TopicName": "t"}]})
    with pytest.raises(KeyError):
        codec.encode("StopReplicaRequest", 4, {"Topic": []})
    with pytest.raises(ValueError, match="no version 5"):
        codec.encode("StopReplicaRequest", 5, {})
