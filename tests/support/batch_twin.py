"""The batch format again, in plain Python: slow, readable, written from the format's description.

The compiled decoders are compared with it, on valid and on hostile input: same results, same refusals at the same byte.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace

from crc32c import crc32c

HEADER = struct.Struct(">qiibIhiqqqhii")
NAMES = (
    *("base_offset", "length", "leader_epoch", "magic", "crc", "attributes", "last_offset_delta"),
    *("base_timestamp", "max_timestamp", "producer_id", "producer_epoch", "base_sequence", "count"),
)
INT64_MAX = 2**63 - 1


class Refused(Exception):
    """Not a batch; ``position`` is the byte that shows it."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at {position}")
        self.position = position


@dataclass(frozen=True)
class TwinRecord:
    offset: int = 0
    timestamp_ms: int = 0
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    sequence: int = -1
    attributes: int = 0
    size: int = 0


@dataclass(frozen=True)
class TwinBatch:
    position: int
    size: int
    header: dict[str, int]
    records: list[TwinRecord] = field(default_factory=list)


def wrap64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


class Reader:
    """Reads fields between ``position`` and ``end`` of ``data``; ``base`` is only added to positions in refusals."""

    def __init__(self, data: bytes, position: int, end: int, base: int | None) -> None:
        self.data, self.position, self.end, self.base = data, position, end, base

    def refuse(self, position: int, reason: str) -> Refused:
        # In decompressed records there is no position in the input: the records' start stands for all of them.
        return Refused(position if self.base is None else self.base, reason)

    def varint(self, bits: int = 32) -> int:
        start, result, shift = self.position, 0, 0
        while True:
            if self.position >= self.end or shift >= bits:
                raise self.refuse(start, "varint without an end")
            byte = self.data[self.position]
            self.position += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if result >= 1 << bits:
                raise self.refuse(start, "varint too large")
            if byte < 0x80:
                return (result >> 1) ^ -(result & 1)

    def sized(self, least: int) -> bytes | None:
        start = self.position
        size = self.varint()
        if size < least or size > self.end - self.position:
            raise self.refuse(start, "length")
        if size < 0:
            return None
        self.position += size
        return self.data[self.position - size : self.position]


def read_record(reader: Reader, header: dict[str, int], previous: int) -> tuple[TwinRecord, int]:
    start = reader.position
    length = reader.varint()
    body = reader.position
    if length < 6 or length > reader.end - body:
        raise reader.refuse(start, "record length")
    inner = Reader(reader.data, body + 1, body + length, reader.base)
    timestamp_delta = inner.varint(64)
    offset_delta = inner.varint()
    key = inner.sized(-1)
    value = inner.sized(-1)
    count = inner.varint()
    if count < 0 or count > (inner.end - inner.position) // 2:
        raise inner.refuse(inner.position, "header count")
    headers = []
    for _ in range(count):
        name = inner.sized(0)
        headers.append((name or b"", inner.sized(-1)))
    if inner.position != inner.end:
        raise inner.refuse(inner.position, "bytes left in the record")
    if not previous < offset_delta <= header["last_offset_delta"]:
        raise reader.refuse(start, "offset delta")
    reader.position = inner.end
    timestamp = wrap64(header["base_timestamp"] + timestamp_delta)
    if header["attributes"] & 0x08:
        timestamp = header["max_timestamp"]
    sequence = -1
    if header["base_sequence"] >= 0:
        sequence = (header["base_sequence"] + offset_delta) % 2**31
    record = TwinRecord(
        header["base_offset"] + offset_delta,
        timestamp,
        key,
        value,
        tuple(headers),
        sequence,
        reader.data[body],
        reader.position - start,
    )
    return record, offset_delta


def read_header(data: bytes, position: int, verify: bool = True) -> TwinBatch:
    available = len(data) - position
    if available < HEADER.size:
        raise Refused(position, "short header")
    header = dict(zip(NAMES, HEADER.unpack_from(data, position), strict=True))
    size = header["length"] + 12
    if not HEADER.size <= size <= 2**31 - 1:
        raise Refused(position + 8, "length")
    if header["magic"] != 2:
        raise Refused(position + 16, "magic")
    if size > available:
        raise Refused(position, "short batch")
    if header["base_offset"] < 0 or header["last_offset_delta"] < 0:
        raise Refused(position, "offsets")
    if header["base_offset"] + header["last_offset_delta"] > INT64_MAX:
        raise Refused(position, "offsets")
    if header["count"] < 0:
        raise Refused(position + 57, "count")
    if verify and crc32c(data[position + 21 : position + size]) != header["crc"]:
        raise Refused(position + 17, "checksum")
    return TwinBatch(position, size, header)


def read_records(batch: TwinBatch, records: bytes, base: int | None, start: int = 0) -> list[TwinRecord]:
    header = batch.header
    end = len(records) if base is not None else batch.position + batch.size
    room = min((end - start) // 7, header["last_offset_delta"] + 1)
    if header["count"] > room:
        raise Refused(batch.position + HEADER.size, "count")
    reader = Reader(records, start, end, base)
    result: list[TwinRecord] = []
    previous = -1
    for _ in range(header["count"]):
        record, previous = read_record(reader, header, previous)
        result.append(record)
    if reader.position != end:
        raise reader.refuse(reader.position, "bytes left after the last record")
    return result


def read_batch(data: bytes, position: int = 0, verify: bool = True) -> TwinBatch:
    """One uncompressed batch, checked in full."""
    batch = read_header(data, position, verify)
    codec = batch.header["attributes"] & 7
    if codec:
        raise NotImplementedError("the twin does not decompress")
    return replace(batch, records=read_records(batch, data, None, position + HEADER.size))


def read_batches(data: bytes, verify: bool = True) -> list[TwinBatch]:
    position, batches = 0, []
    while position < len(data):
        batches.append(read_batch(data, position, verify))
        position += batches[-1].size
    return batches


def write_record(record: TwinRecord, base_offset: int, base_timestamp: int) -> bytes:
    def sized(data: bytes | None) -> bytes:
        return varint(-1) if data is None else varint(len(data)) + data

    body = bytes([record.attributes]) + varint(wrap64(record.timestamp_ms - base_timestamp))
    body += varint(record.offset - base_offset) + sized(record.key) + sized(record.value)
    body += varint(len(record.headers)) + b"".join(sized(name) + sized(value) for name, value in record.headers)
    return varint(len(body)) + body


def write_batch(records: list[TwinRecord], payload: bytes | None = None, **fields: int) -> bytes:
    """A batch of these records, or with this payload; ``fields`` override what the header would say."""
    header = dict.fromkeys(NAMES, 0) | {
        "leader_epoch": -1,
        "magic": 2,
        "producer_id": -1,
        "producer_epoch": -1,
        "base_sequence": -1,
        "count": len(records),
    }
    if records:
        header["base_offset"] = records[0].offset
        header["last_offset_delta"] = records[-1].offset - records[0].offset
        header["base_timestamp"] = records[0].timestamp_ms
        header["max_timestamp"] = max(record.timestamp_ms for record in records)
    header |= fields
    if payload is None:
        payload = b"".join(write_record(r, header["base_offset"], header["base_timestamp"]) for r in records)
    if "length" not in fields:
        header["length"] = HEADER.size - 12 + len(payload)
    return sign(bytearray(HEADER.pack(*(header[name] for name in NAMES)) + payload))


def sign(batch: bytearray) -> bytes:
    """The same bytes with the checksum that belongs to them."""
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


def outcome_of_twin(data: bytes) -> tuple[list[TwinBatch], int | None]:
    """Every batch up to the first refused one, and where that is: None if none is, -1 if it is compressed."""
    position = 0
    batches: list[TwinBatch] = []
    while position < len(data):
        try:
            batch = read_header(data, position)
            if batch.header["attributes"] & 7:
                return batches, -1  # compressed: test_compression covers it
            batch = read_batch(data, position)
        except Refused as refused:
            return batches, refused.position
        batches.append(batch)
        position += batch.size
    return batches, None
