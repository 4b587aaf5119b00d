"""What every contender works on: the same values, batches and Fetch messages, made from one seed.

The batches are written by the plain encoder below, which is none of the contenders.
"""

from __future__ import annotations

import hashlib
import random
import struct
import uuid
from collections.abc import Iterable, Sequence
from functools import cache

import crc32c

SEED = 20260101
TIMESTAMP_MS = 1_700_000_000_000
LEADER_EPOCH = 7
STREAM_BYTES = 4 << 20
"""Size of the buffers of many batches: what a reader of segments takes at a time."""

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
EPOCH_AT = slice(12, 16)


@cache
def values(records: int, size: int) -> tuple[bytes, ...]:
    """Make ``records`` values of ``size`` random bytes; equal arguments give equal values on every machine."""
    source = random.Random(f"{SEED} {records} {size}")
    return tuple(source.randbytes(size) for _ in range(records))


def varint(number: int) -> bytes:
    """Encode a zigzag varint."""
    left = (number << 1) ^ (number >> 63)
    out = bytearray()
    while left >= 0x80:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def batch(content: Sequence[bytes], base_offset: int = 0) -> bytes:
    """Encode one uncompressed record batch of magic 2: null keys, no headers, timestamp deltas 0."""
    body = bytearray()
    for delta, value in enumerate(content):
        record = b"\x00\x00" + varint(delta) + varint(-1) + varint(len(value)) + value + varint(0)
        body += varint(len(record)) + record
    last = len(content) - 1
    tail = struct.pack(">hiqqqhii", 0, last, TIMESTAMP_MS, TIMESTAMP_MS, -1, -1, -1, len(content)) + body
    head = struct.pack(">qiibI", base_offset, len(tail) + 9, LEADER_EPOCH, 2, crc32c.crc32c(tail))
    return head + tail


@cache
def one_batch(records: int, size: int) -> bytes:
    """One batch at offset 0."""
    return batch(values(records, size))


@cache
def stream(records: int, size: int, at_least: int = STREAM_BYTES) -> tuple[bytes, int]:
    """Batches with running offsets, ``at_least`` bytes of them, and how many batches that is."""
    content = values(records, size)
    pieces: list[bytes] = []
    total = 0
    while total < at_least:
        pieces.append(batch(content, len(pieces) * records))
        total += len(pieces[-1])
    return b"".join(pieces), len(pieces)


def digest_of_batch(encoded: bytes | bytearray | memoryview) -> str:
    """Digest of an encoded batch with its leader epoch zeroed: builders for producers leave it at -1 or 0."""
    plain = bytearray(encoded)
    plain[EPOCH_AT] = bytes(4)
    return hashlib.sha256(plain).hexdigest()[:16]


def digest_of_records(records: Iterable[tuple[int, bytes]]) -> str:
    """Digest of decoded records: count, sum of offsets, and every value's bytes."""
    state = hashlib.sha256()
    count = offsets = 0
    for offset, value in records:
        state.update(value)
        count += 1
        offsets += offset
    return f"{count}/{offsets}/{state.hexdigest()[:16]}"


def digest_of_bytes(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


# --- one Fetch exchange of a follower: version 17, one topic, one partition, one batch of 100 records of 100 bytes

FETCH_VERSION = 17
CORRELATION_ID = 123_456
CLIENT_ID = "raft-client-1"
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
REPLICA_ID = 1
REPLICA_EPOCH = -1
TOPIC_ID = uuid.UUID(int=1)
DIRECTORY_ID = uuid.UUID("2f9e6bd2-6a0b-4a3c-9a53-6a5c8ea1f001")
MAX_WAIT_MS = 500
MAX_BYTES = 1 << 20
FETCH_OFFSET = 12_345
HIGH_WATERMARK = 12_300
FETCH_RECORDS = 100


def uvarint(number: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _compact(text: bytes) -> bytes:
    return uvarint(len(text) + 1) + text


@cache
def fetch_request() -> bytes:
    """Request header v2 and Fetch request v17, without the length frame."""
    client = CLIENT_ID.encode()
    header = struct.pack(">hhih", 1, FETCH_VERSION, CORRELATION_ID, len(client)) + client + b"\x00"
    partition = struct.pack(">iiqiqi", 0, LEADER_EPOCH, FETCH_OFFSET, LEADER_EPOCH, -1, 0)
    partition += b"\x01\x00" + uvarint(16) + DIRECTORY_ID.bytes
    body = struct.pack(">iiibii", MAX_WAIT_MS, 0, MAX_BYTES, 0, 0, -1)
    body += b"\x02" + TOPIC_ID.bytes + b"\x02" + partition + b"\x00"  # one topic, one partition
    body += b"\x01\x01"  # no forgotten topics, empty rack
    cluster = _compact(CLUSTER_ID.encode())
    state = struct.pack(">iq", REPLICA_ID, REPLICA_EPOCH) + b"\x00"
    body += b"\x02" + b"\x00" + uvarint(len(cluster)) + cluster + b"\x01" + uvarint(len(state)) + state
    return header + body


@cache
def fetch_response() -> bytes:
    """Response header v1 and Fetch response v17 with one batch, without the length frame."""
    records = one_batch(FETCH_RECORDS, 100)
    header = struct.pack(">i", CORRELATION_ID) + b"\x00"
    body = struct.pack(">ihi", 0, 0, 0) + b"\x02" + TOPIC_ID.bytes + b"\x02"
    body += struct.pack(">ihqqq", 0, 0, HIGH_WATERMARK, -1, 0)
    body += b"\x00" + struct.pack(">i", -1) + _compact(records)  # no aborted transactions (null)
    return header + body + b"\x00\x00\x00"
