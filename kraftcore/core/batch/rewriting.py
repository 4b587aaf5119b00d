"""Changes that a leader makes to a client's batch besides stamping it, without reading its records one by one."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kraftcore.core.batch.compression import DEFAULT_MAX_DECOMPRESSED_BYTES, Compression, compress, decompress
from kraftcore.core.batch.layout import (
    ATTRIBUTES_POSITION,
    CHECKSUM_POSITION,
    CODEC_MASK,
    HEADER_BYTES,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    MAX_TIMESTAMP_POSITION,
    OVERHEAD_BYTES,
)
from kraftcore.core.crc32c import crc32c

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["mark_create_time", "recompress_batch", "set_max_timestamp"]

_LENGTH = struct.Struct(">i")
_CHECKSUM = struct.Struct(">I")
_TIME = struct.Struct(">q")
_ATTRIBUTES = struct.Struct(">h")


def recompress_batch(
    batch: Buffer,
    codec: Compression,
    level: int | None = None,
    *,
    max_decompressed_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES,
) -> bytearray:
    """Make a batch with the same records under another codec, with its own length, attributes and checksum.

    Args:
        batch: exactly one batch, which was validated.
        codec: of the result.
        level: see ``compress``.
        max_decompressed_bytes: most bytes that the records may decompress to.

    Raises:
        CorruptBatchError: its records cannot be decompressed.
        LocalError: the level is out of range.
        MissingDependencyError: a codec's library is not installed.
    """
    view = memoryview(batch).cast("B")
    (attributes,) = _ATTRIBUTES.unpack_from(view, ATTRIBUTES_POSITION)
    plain = decompress(attributes & CODEC_MASK, view[HEADER_BYTES:], max_decompressed_bytes)
    result = bytearray(view[:HEADER_BYTES])
    result += compress(codec, plain, level)
    _LENGTH.pack_into(result, LENGTH_POSITION, len(result) - OVERHEAD_BYTES)
    _ATTRIBUTES.pack_into(result, ATTRIBUTES_POSITION, (attributes & ~CODEC_MASK) | codec)
    _sign(result)
    return result


def mark_create_time(batch: bytearray) -> None:
    """Set the timestamp type of a validated batch to create time, so that its records keep their producer's times."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, ATTRIBUTES_POSITION)
    _ATTRIBUTES.pack_into(batch, ATTRIBUTES_POSITION, attributes & ~LOG_APPEND_TIME)
    _sign(batch)


def set_max_timestamp(batch: bytearray, timestamp_ms: int) -> None:
    """Set the largest timestamp, ms, in the header of a validated batch."""
    _TIME.pack_into(batch, MAX_TIMESTAMP_POSITION, timestamp_ms)
    _sign(batch)


def _sign(batch: bytearray) -> None:
    _CHECKSUM.pack_into(batch, CHECKSUM_POSITION, crc32c(memoryview(batch)[ATTRIBUTES_POSITION:]))
