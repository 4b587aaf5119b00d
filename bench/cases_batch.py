"""Cases of record batches: encode from values, decode to columns, decode to objects."""

from __future__ import annotations

from functools import partial

from bench import inputs
from bench.harness import OURS, Case
from bench.peers import aiokafka_peer, crc_peer, java_peer, kafka_python_peer, kio_peer, ours_batch

SIZES = ((1, 100), (100, 100), (1000, 100))
"""Records in a batch, bytes in a value."""
PEERS = (
    (aiokafka_peer.NAME, aiokafka_peer),
    (kafka_python_peer.NAME, kafka_python_peer),
    (kio_peer.NAME, kio_peer),
    (java_peer.NAME, java_peer),
)


def cases() -> list[Case]:
    """Encode, decode and decode-objects in all sizes, and the checksum alone."""
    return [
        *map(encode, SIZES),
        *map(decode, SIZES),
        decode(SIZES[1], all_columns=True),
        *map(decode_objects, SIZES),
        checksum(),
    ]


def checksum() -> Case:
    """CRC-32C of 64 KiB."""
    contenders = {OURS: partial(crc_peer.ours, 1 << 16)}
    contenders |= {name: partial(crc_peer.theirs, name, 1 << 16) for name in crc_peer.PACKAGES}
    return Case("crc32c-64k", "us", contenders, about="CRC-32C of 64 KiB, the checksum of every batch")


def encode(shape: tuple[int, int]) -> Case:
    """One batch from a list of values, CRC included."""
    records, size = shape
    contenders = {OURS: partial(ours_batch.encode, records, size)}
    contenders |= {name: partial(peer.encode, records, size) for name, peer in PEERS}
    about = f"build one batch of {records} values of {size} bytes from a list, CRC included"
    return Case(f"encode-{records}x{size}", "M records/s", contenders, records, about=about)


def decode(shape: tuple[int, int], all_columns: bool = False) -> Case:
    """A buffer of many batches: every CRC and record checked, offset and value of each record delivered."""
    records, size = shape
    columns = None if all_columns else ("offset", "value")
    contenders = {OURS: partial(ours_batch.decode, records, size, columns)}
    contenders |= {name: partial(peer.decode, records, size) for name, peer in PEERS}
    wanted = "all eight columns" if all_columns else "offset and value"
    about = (
        f"decode a buffer of {inputs.STREAM_BYTES >> 20} MiB of batches of {records} records, every CRC checked: "
        f"kraftcore to Arrow arrays ({wanted}), peers record by record"
    )
    batches = -(-inputs.STREAM_BYTES // len(inputs.one_batch(records, size)))
    name = f"decode-all-columns-{records}x{size}" if all_columns else f"decode-{records}x{size}"
    return Case(name, "M records/s", contenders, records * batches, about=about)


def decode_objects(shape: tuple[int, int]) -> Case:
    """One batch at a time to objects of the language."""
    records, size = shape
    contenders = {OURS: partial(ours_batch.decode_objects, records, size)}
    contenders |= {name: partial(peer.decode_objects, records, size) for name, peer in PEERS}
    about = f"decode one batch of {records} records, CRC checked, touching each record object's offset and value"
    return Case(f"decode-objects-{records}x{size}", "M records/s", contenders, records, about=about)
