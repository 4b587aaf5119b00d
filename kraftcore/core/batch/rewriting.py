"""What a leader may change in a batch of a client, besides stamping it: its records are not looked at one by one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kraftcore.core.batch.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Compression, compress, decompress
from kraftcore.core.crc32c import crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["mark_create_time", "recompress_batch", "set_max_timestamp"]

_HEADER_BYTES = 61
_OVERHEAD = 12
_CODEC_MASK = 7
_LOG_APPEND_TIME = 8
_LENGTH = struct.Struct(">i")  # at byte 8
_CHECKSUM = struct.Struct(">I")  # at byte 17; covers what follows it
_TIME = struct.Struct(">q")  # the largest timestamp, at byte 35
_ATTRIBUTES = struct.Struct(">h")  # at byte 21


def recompress_batch(
    batch: Buffer,
    codec: Compression,
    level: int | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytearray:
    """A batch with the same records under another codec; length, attributes and checksum are those of the result.

    Args:
        batch: exactly one batch, which was validated.
        codec: of the result.
        level: as ``compress`` takes it.
        max_decompressed_bytes: the most that the records may come to.

    Raises:
        CorruptBatchError: its records cannot be decompressed.
        LocalError: the level is out of range.
        MissingDependencyError: a codec's library is not installed.
    """
    view = memoryview(batch).cast("B")
    (attributes,) = _ATTRIBUTES.unpack_from(view, 21)
    plain = decompress(attributes & _CODEC_MASK, view[_HEADER_BYTES:], max_decompressed_bytes)
    result = bytearray(view[:_HEADER_BYTES])
    result += compress(codec, plain, level)
    _LENGTH.pack_into(result, 8, len(result) - _OVERHEAD)
    _ATTRIBUTES.pack_into(result, 21, (attributes & ~_CODEC_MASK) | codec)
    _sign(result)
    return result


def mark_create_time(batch: bytearray) -> None:
    """Have the records of a batch, which was validated, keep the times that their producer gave them."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, 21)
    _ATTRIBUTES.pack_into(batch, 21, attributes & ~_LOG_APPEND_TIME)
    _sign(batch)


def set_max_timestamp(batch: bytearray, timestamp_ms: int) -> None:
    """Have the header of a batch, which was validated, say that this is the largest time of its records, ms."""
    _TIME.pack_into(batch, 35, timestamp_ms)
    _sign(batch)


def _sign(batch: bytearray) -> None:
    _CHECKSUM.pack_into(batch, 17, crc32c(memoryview(batch)[21:]))
