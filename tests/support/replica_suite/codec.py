"""The messages of Kafka 3.9.1, the control requests that 4.x removed among them, by the codec of tests/conformance."""

import json
from pathlib import Path

from conformance import codec as newer
from conformance.codec import CODE, ZERO_UUID, Batch, Release, batches, err

__all__ = ["CODE", "ZERO_UUID", "Batch", "batches", "err"]

DEFS = json.loads((Path(__file__).parent / "schemas.json").read_text())["messages"]

PRODUCE, FETCH, LIST_OFFSETS, METADATA = 0, 1, 2, 3
LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA = 4, 5, 6
API_VERSIONS, OFFSET_FOR_LEADER_EPOCH, ALTER_PARTITION = 18, 23, 56

THIS = Release(DEFS)
BY_KEY, encode, decode = THIS.by_key, THIS.encode, THIS.decode
request_frame, parse_request = THIS.request_frame, THIS.parse_request
response_frame, parse_response = THIS.response_frame, THIS.parse_response


def batch(base, epoch, values, **more):
    """One batch of records without keys; values are bytes."""
    return newer.batch(base, epoch, [(None, value) for value in values], is_control=False, **more)
