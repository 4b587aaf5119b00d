"""The messages of Kafka 3.9.1, the control requests that 4.x removed among them, by the codec of tests/conformance."""

import functools
import json
import struct
from pathlib import Path

from conformance import codec as newer
from conformance.codec import CODE, ZERO_UUID, batches, err

__all__ = ["CODE", "ZERO_UUID", "batches", "err"]

DEFS = json.loads((Path(__file__).parent / "schemas.json").read_text())["messages"]
BY_KEY = {(m["apiKey"], m["type"]): n for n, m in DEFS.items() if m["type"] in ("request", "response")}

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
API_VERSIONS, OFFSET_FOR_LEADER_EPOCH, ALTER_PARTITION = 18, 23, 56


class Codec(newer.Codec):
    defs = DEFS


Batch = newer.Batch


@functools.cache
def codec(name, version):
    """The codec of a message at a version."""
    return Codec(name, version)


def encode(name, version, value):
    return codec(name, version).encode(value)


def decode(name, version, data, partial=False):
    return codec(name, version).decode(data, partial)


def header_version(name, version):
    return next(h for low, high, h in DEFS[name]["header"] if low <= version <= high)


def request_frame(key, version, correlation, body, client_id="replica-suite"):
    """Header and body of a request, without the size."""
    name = BY_KEY[key, "request"]
    head = {"RequestApiKey": key, "RequestApiVersion": version, "CorrelationId": correlation, "ClientId": client_id}
    return encode("RequestHeader", header_version(name, version), head) + encode(name, version, body)


def parse_request(frame):
    """-> (key, version, correlation, client id, body)"""
    key, version = struct.unpack(">hh", frame[:4])
    name = BY_KEY[key, "request"]
    head, rest = decode("RequestHeader", header_version(name, version), frame, partial=True)
    return key, version, head["CorrelationId"], head["ClientId"], decode(name, version, rest)


def response_frame(key, version, correlation, body):
    name = BY_KEY[key, "response"]
    head = encode("ResponseHeader", header_version(name, version), {"CorrelationId": correlation})
    return head + encode(name, version, body)


def parse_response(key, version, frame):
    """-> (correlation, body)"""
    name = BY_KEY[key, "response"]
    head, rest = decode("ResponseHeader", header_version(name, version), frame, partial=True)
    return head["CorrelationId"], decode(name, version, rest)


def batch(base, epoch, values, **more):
    """One batch of records without keys; values are bytes."""
    return newer.batch(base, epoch, [(None, value) for value in values], is_control=False, **more)
