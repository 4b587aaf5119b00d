"""What hypothesis draws batches and hostile bytes from."""

from __future__ import annotations

import batch_twin as twin
from hypothesis import strategies as st

blobs = st.one_of(st.binary(max_size=12), st.integers(0, 300).map(lambda size: b"v" * size))
header_lists = st.lists(st.tuples(st.binary(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
timestamps = st.one_of(st.integers(-1, 5), st.integers(0, 2**41), st.just(2**62))


@st.composite
def twin_records(draw: st.DrawFn, max_size: int = 8) -> list[twin.TwinRecord]:
    """Records with rising offsets, with gaps as compaction leaves them."""
    offset = draw(st.sampled_from([0, 1, 70, 2**40]))
    base_sequence = draw(st.sampled_from([-1, 0, 2**31 - 3]))
    first = offset
    records = []
    for _ in range(draw(st.integers(1, max_size))):
        sequence = -1 if base_sequence < 0 else (base_sequence + offset - first) % 2**31
        records.append(
            twin.TwinRecord(
                offset,
                draw(timestamps),
                draw(st.none() | blobs),
                draw(st.none() | blobs),
                draw(st.just(()) | header_lists),
                sequence,
                draw(st.sampled_from([0, 0, 0, 0x7F, 0xFF])),
            )
        )
        offset += draw(st.sampled_from([1, 1, 1, 2, 100, 20000]))
    return records


@st.composite
def valid_batches(draw: st.DrawFn) -> bytes:
    """One uncompressed batch as a Kafka leader, cleaner or transactional producer may leave it."""
    records = draw(twin_records())
    attributes = draw(st.sampled_from([0, 0, 0x08, 0x10, 0x20, 0x40, 0x0480, 0x38]))
    delta = records[-1].offset - records[0].offset + draw(st.sampled_from([0, 0, 5]))
    batch = twin.write_batch(
        records,
        attributes=attributes,
        leader_epoch=draw(st.sampled_from([-1, 0, 7])),
        last_offset_delta=delta,
        base_sequence=records[0].sequence,
        producer_id=-1 if records[0].sequence < 0 else 9,
    )
    if draw(st.integers(0, 9)) == 0:
        return twin.write_batch([], base_offset=records[0].offset, last_offset_delta=delta)
    return batch


bombs = st.sampled_from(
    [
        twin.varint(2**31 - 1),
        twin.varint(-(2**31)),
        twin.varint(-2),
        twin.varint(200),
        b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
        b"\xff\xff\xff\xff\x1f",
        b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x80\x00",
        b"",
        b"\x01",
    ]
)


@st.composite
def damaged_batches(draw: st.DrawFn) -> bytes:
    """A batch with some bytes changed, cut, or replaced by a length bomb; often with a checksum that hides it."""
    batch = bytearray(draw(valid_batches()))
    for _ in range(draw(st.integers(1, 3))):
        if not batch:
            break
        at = draw(st.integers(0, len(batch) - 1))
        action = draw(st.sampled_from(["flip", "bomb", "bomb", "cut", "insert", "field"]))
        if action == "flip":
            batch[at] ^= 1 << draw(st.integers(0, 7))
        elif action == "bomb":
            at = max(at, min(len(batch) - 1, twin.HEADER.size))
            batch[at : at + draw(st.integers(0, 2))] = draw(bombs)
        elif action == "cut":
            del batch[at:]
        elif action == "insert":
            batch[at:at] = draw(st.binary(max_size=4))
        elif len(batch) >= twin.HEADER.size:
            where, size = draw(st.sampled_from([(8, 4), (23, 4), (57, 4), (0, 8), (21, 2)]))
            value = draw(st.sampled_from([-1, 0, 1, 127, 2**15 - 1, -(2**15)]))
            batch[where : where + size] = value.to_bytes(size, "big", signed=True)
    if len(batch) >= twin.HEADER.size and draw(st.integers(0, 4)):
        if draw(st.booleans()):
            batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
        batch[16] = 2
        batch[17:21] = twin.sign(batch)[17:21]
    return bytes(batch)


hostile_buffers = st.lists(st.one_of(valid_batches(), damaged_batches()), min_size=1, max_size=4).map(b"".join)
