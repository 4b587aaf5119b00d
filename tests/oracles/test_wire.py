"""kio reads our messages and writes the same bytes; aiokafka knows the oldest versions, which Kafka itself has dropped.

UpdateMetadata, LeaderAndIsr and StopReplica have no independent Python codec: for those, tests/golden/wire holds frames
that a ZooKeeper-mode Kafka 3.9.1 sent.
"""

from __future__ import annotations

import importlib
import io
import random
from typing import Any

import pytest
from aiokafka.protocol import fetch as aiokafka_fetch
from aiokafka.protocol import offset as aiokafka_offset
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer
from messages import classes, versions, within

from kraftcore.core.uuid import Uuid
from kraftcore.core.wire import decode, encode
from kraftcore.core.wire.struct import Field
from kraftcore.protocol.data.headers import RequestHeader, ResponseHeader
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.lazy import module_of
from kraftcore.protocol.messages.begin_quorum_epoch import LEASE_TAG
from kraftcore.protocol.messages.fetch import FetchRequest, FetchResponse
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse

SEED = 20260103
ROUNDS = 5
_BITS = {"int8": 7, "int16": 15, "uint16": 16, "int32": 31, "uint32": 32, "int64": 63}


def kio_class(cls: type, version: int) -> Any:
    """kio's class for one of ours, or None: it has no metadata records, and no versions newer than its release."""
    name = cls.__name__
    kind = next((kind for kind in ("Request", "Response") if name.endswith(kind)), None)
    if cls in (RequestHeader, ResponseHeader):
        module = f"{'request' if cls is RequestHeader else 'response'}_header.v{version}.header"
    elif kind:
        module = f"{module_of(name)}.v{version}.{kind.lower()}"
    else:
        module = f"{module_of(name).replace('kraft', 'k_raft')}.v{version}.data"
    try:
        return getattr(importlib.import_module(f"kio.schema.{module}"), name)
    except ModuleNotFoundError:
        return None


def sample(cls: type, version: int, rng: random.Random) -> Any:
    """A message with every field of the version set, in the ranges that kio's richer types allow."""
    values = {}
    for field in cls.__layout__.fields:
        if within(field.versions, version) and field.tag != LEASE_TAG:  # which only we know
            values[field.name] = (
                [_one(field, version, rng) for _ in range(rng.randrange(3))]
                if field.is_array
                else _one(field, version, rng)
            )
            if within(field.nullable, version) and rng.random() < 0.3:
                values[field.name] = None
    return cls(**values)


def _one(field: Field, version: int, rng: random.Random) -> Any:
    if field.struct_class is not None:
        return sample(field.struct_class, version, rng)
    if field.name.endswith("error_code"):
        return rng.choice([code.value for code in KioErrorCode])
    if field.name.endswith("_ms") or "timestamp" in field.name:  # timedelta and datetime there
        return rng.randrange(2**31)
    kind = field.type_name
    if kind in _BITS:
        return rng.getrandbits(_BITS[kind]) - (rng.getrandbits(1) if not kind.startswith("u") else 0)
    if kind == "uuid":
        return Uuid(rng.randbytes(16))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.random() * 1e9
    if kind == "string":
        return "".join(rng.choices("abc-\u00e9\u4e2d\U0001f600", k=rng.randrange(1, 200)))
    return rng.randbytes(rng.randrange(1, 300))


@pytest.mark.parametrize("name", sorted(classes()))
def test_kio_reads_and_writes_the_same_bytes(name):
    cls = classes()[name]
    rng = random.Random(f"{SEED} {name}")
    compared = 0
    for version in versions(cls):
        theirs = kio_class(cls, version)
        if theirs is None:
            continue
        read, write = entity_reader(theirs), entity_writer(theirs)
        for _ in range(ROUNDS):
            raw = encode(sample(cls, version, rng), version)
            entity, end = read(raw, 0)
            assert end == len(raw)
            written = io.BytesIO()
            write(written, entity)
            assert written.getvalue() == raw, version
            compared += 1
    if name in ("FetchRequest", "FetchResponse", "VoteRequest", "VoteResponse", "ApiVersionsRequest", "RequestHeader"):
        assert compared


def test_kio_agrees_on_error_codes():
    shared = [ErrorCode(theirs.value) for theirs in KioErrorCode if theirs.value <= max(ErrorCode)]
    assert len(shared) > 125
    for ours in shared:
        theirs = KioErrorCode(int(ours))
        assert (ours.name.lower(), ours.retriable) == (theirs.name, theirs.retriable)


@pytest.mark.parametrize("version", range(12))
def test_aiokafka_agrees_on_old_fetches(version):
    request = getattr(aiokafka_fetch, f"FetchRequest_v{version}").SCHEMA
    topic = ("t\u00e9", [_fetch_partition(version, 3, 70, 900)])
    values = [-1, 500, 1, *([4096] if version >= 3 else []), *([1] if version >= 4 else [])]
    values += [7, 8] if version >= 7 else []
    values += [[topic]] + ([[("gone", [5])]] if version >= 7 else []) + (["rack"] if version >= 11 else [])
    raw = request.encode(values)
    ours = decode(FetchRequest, raw, version)
    assert encode(ours, version) == raw
    assert (ours.replica_id, ours.max_wait_ms, ours.min_bytes) == (-1, 500, 1)
    (partition,) = ours.topics[0].partitions
    assert (ours.topics[0].topic, partition.partition, partition.fetch_offset) == ("t\u00e9", 3, 70)
    assert partition.partition_max_bytes == 900


def _fetch_partition(version: int, index: int, offset: int, max_bytes: int) -> tuple[int, ...]:
    epoch = (4,) if version >= 9 else ()
    start = (0,) if version >= 5 else ()
    return (index, *epoch, offset, *start, max_bytes)


@pytest.mark.parametrize("version", range(4))
def test_aiokafka_agrees_on_old_fetch_responses(version):
    schema = getattr(aiokafka_fetch, f"FetchResponse_v{version}").SCHEMA
    raw = schema.encode([*([250] if version >= 1 else []), [("topic", [(1, 3, 99, b"records")])]])
    ours = decode(FetchResponse, raw, version)
    assert encode(ours, version) == raw
    assert ours.throttle_time_ms == (250 if version else 0)
    (partition,) = ours.responses[0].partitions
    assert (partition.partition_index, partition.error_code, partition.high_watermark) == (1, 3, 99)
    assert partition.records == b"records"


def test_aiokafka_agrees_on_the_oldest_list_offsets():
    raw = aiokafka_offset.OffsetRequest_v0.SCHEMA.encode([-1, [("topic", [(2, -1, 5)])]])
    ours = decode(ListOffsetsRequest, raw, 0)
    assert encode(ours, 0) == raw
    assert ours.topics[0].partitions[0].max_num_offsets == 5
    raw = aiokafka_offset.OffsetResponse_v0.SCHEMA.encode([[("topic", [(2, 0, [10, 5, 0])])]])
    answer = decode(ListOffsetsResponse, raw, 0)
    assert encode(answer, 0) == raw
    assert answer.topics[0].partitions[0].old_style_offsets == [10, 5, 0]
