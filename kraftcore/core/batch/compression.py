"""The compression codecs of record batches: gzip from the standard library; snappy, LZ4, zstd from cramjam (an extra).

Output is in the form that Kafka's own writers give it: one gzip member, snappy in 32 KiB blocks with the xerial header,
an LZ4 frame of independent 64 KiB blocks (Kafka refuses linked ones) without checksums, one zstd frame. Input may have
any form that Kafka reads, which includes raw snappy without the xerial header, as some clients write it.

Output is bounded before it is allocated: a small batch that decompresses to more than the limit is an error, and does
not fill the memory. A thread releases the GIL while it decompresses.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from enum import IntEnum
from itertools import chain
from itertools import count as count_from
from typing import TYPE_CHECKING

from kraftcore.core.allocator import written_bytes
from kraftcore.errors import CorruptBatchError, LocalError, MissingDependencyError, OversizedBatchError

if TYPE_CHECKING:
    from types import ModuleType

    from typing_extensions import Buffer

DEFAULT_MAX_DECOMPRESSED_BYTES = 128 << 20
"""Default bound on the records of one compressed batch. Kafka's default limit on a batch is 1 MiB compressed."""

PART_BYTES = 512
"""Least bytes on average from each part of a stream (gzip member, snappy block) under a limit below the default:
reading a part takes microseconds, and a caller with a small limit has little time. Kafka's blocks have 32 KiB."""

GZIP_PIECE = 1 << 20
_GZIP_INPUT = 64 << 10
_GZIP_RATIO = 1032  # the most bytes that deflate yields from one
SNAPPY_BLOCK = 32 << 10
LZ4_BLOCK = 64 << 10
ZSTD_LEVEL_MAX = 22
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01" * 2  # version, and the oldest version that can read it
# LZ4 magic, flags 0x60 (version 1, independent blocks), block size code 4 (64 KiB), checksum of these two bytes.
_LZ4_HEADER = bytes.fromhex("04224d18604082")
_LZ4_STORED = 0x80000000  # a block that did not shrink
# The error of a Rust writer when the fixed output is full: the only way to tell "larger" from "damaged".
_OUTPUT_FULL = "failed to write whole buffer"


class Compression(IntEnum):
    """Codec of a batch, by its code in the attributes (bits 0 to 2)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def _library(codec: Compression) -> ModuleType:
    # Loaded for the first batch that needs it: it takes as long as twenty modules.
    try:
        import cramjam
    except ImportError:
        text = f"{codec.name.lower()} batches need cramjam: pip install 'kraftcore[compression]'"
        raise MissingDependencyError(text) from None
    return cramjam


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress the records of one batch.

    Args:
        codec: a ``Compression``; ``NONE`` returns a copy.
        data: the encoded records.
        level: gzip -1 to 9, zstd 1 to 22; None is the library's default. Snappy and LZ4 have no level here.
    Raises:
        LocalError: unknown codec, or a level out of range.
        MissingDependencyError: the codec's library is not installed.
    """
    try:
        codec = Compression(codec)
    except ValueError:
        raise LocalError(f"unknown compression codec {codec!r}: use a Compression") from None
    view = memoryview(data).cast("B")
    if codec is Compression.NONE:
        return bytes(view)
    if codec is Compression.GZIP:
        return _gzip(view, level)
    library = _library(codec)
    if codec is Compression.SNAPPY:
        return _snappy(library, view)
    if codec is Compression.LZ4:
        return _lz4(library, view)
    if level is not None and not 1 <= level <= ZSTD_LEVEL_MAX:
        raise LocalError(f"zstd level {level} is outside 1 to {ZSTD_LEVEL_MAX}")
    return bytes(library.zstd.compress(view, level=level))


def decompress(codec: int, data: Buffer, max_bytes: int = DEFAULT_MAX_DECOMPRESSED_BYTES) -> bytes:
    """Decompress the records of one batch.

    Args:
        codec: a ``Compression``; ``NONE`` returns a copy.
        data: the bytes behind the batch header. Every byte must belong to the stream.
        max_bytes: most bytes of output. Up to this much is allocated.
    Raises:
        CorruptBatchError: not a stream of this codec, damaged, or cut short; position 0.
        OversizedBatchError: the output would exceed ``max_bytes``, or the stream has very many tiny parts, see
            ``PART_BYTES``; position 0.
        MissingDependencyError: the codec's library is not installed.
    """
    view = memoryview(data).cast("B")
    if codec == Compression.NONE:
        return bytes(view)
    if codec == Compression.GZIP:
        return _gunzip(view, max_bytes)
    if codec == Compression.SNAPPY:
        return _unsnappy(_library(Compression.SNAPPY), view, max_bytes)
    if codec == Compression.LZ4:
        return _grow(_library(Compression.LZ4), "lz4", view, max_bytes)
    if codec == Compression.ZSTD:
        return _grow(_library(Compression.ZSTD), "zstd", view, max_bytes)
    raise CorruptBatchError(f"unknown compression codec {codec}", position=0)


def _too_large(max_bytes: int) -> OversizedBatchError:
    return OversizedBatchError(f"decompresses to more than max_decompressed_bytes={max_bytes}", position=0)


def _check_parts(count: int, size: int, max_bytes: int) -> None:
    """Check that a stream of ``count`` parts and ``size`` bytes of output does not have too many parts."""
    if max_bytes < DEFAULT_MAX_DECOMPRESSED_BYTES and (count - 1) * PART_BYTES > size:
        raise OversizedBatchError(f"{count} parts for {size} bytes", position=0)


def _gzip(view: memoryview, level: int | None) -> bytes:
    try:
        stream = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
    except ValueError:
        raise LocalError(f"gzip level {level} is outside -1 to 9") from None
    return stream.compress(view) + stream.flush()


def _gunzip(view: memoryview, max_bytes: int) -> bytes:
    pieces = _gunzip_pieces(view, max_bytes)
    first = next(pieces, b"")
    if len(first) > max_bytes:
        raise _too_large(max_bytes)
    second = next(pieces, None)
    if second is None:
        return first

    def write(room: memoryview) -> int:
        size = 0
        for piece in chain((first, second), pieces):
            if len(piece) > len(room) - size:
                raise _too_large(max_bytes)
            room[size : size + len(piece)] = piece
            size += len(piece)
        return size

    return written_bytes(min(max_bytes, _GZIP_RATIO * len(view) + GZIP_PIECE), write)


def _gunzip_pieces(view: memoryview, max_bytes: int) -> Iterator[bytes]:
    """Decompress a stream, in pieces of at most ``GZIP_PIECE`` bytes."""
    size = 0
    for count in count_from(1):  # as for Java's reader, members may follow each other
        _check_parts(count, size, max_bytes)
        stream = zlib.decompressobj(31)
        position = 0
        while not stream.eof:
            rest: Buffer = stream.unconsumed_tail
            if not rest:
                rest = view[position : position + _GZIP_INPUT]
                position += len(rest)
            try:
                piece = stream.decompress(rest, GZIP_PIECE)
            except zlib.error as error:
                raise CorruptBatchError(f"gzip: {error}", position=0) from None
            if piece:
                size += len(piece)
                yield piece
            elif not stream.eof and position == len(view) and not stream.unconsumed_tail:
                raise CorruptBatchError("gzip: stream cut short", position=0)
        view = view[position - len(stream.unused_data) :]
        if not view:
            return


def _snappy(library: ModuleType, view: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), SNAPPY_BLOCK):
        block = bytes(library.snappy.compress_raw(view[start : start + SNAPPY_BLOCK]))
        parts += len(block).to_bytes(4, "big"), block
    return b"".join(parts)


def _unsnappy(library: ModuleType, view: memoryview, max_bytes: int) -> bytes:
    blocks = list(_snappy_blocks(library, view, max_bytes))

    def write(room: memoryview) -> int:
        end = 0
        for block, size in blocks:
            try:
                written = library.snappy.decompress_raw_into(block, room[end : end + size])
            except library.DecompressionError as error:
                raise CorruptBatchError(str(error), position=0) from None
            if written != size:
                raise CorruptBatchError(f"snappy: {written} bytes instead of {size}", position=0)
            end += size
        return end

    return written_bytes(sum(size for _, size in blocks), write)


def _snappy_blocks(library: ModuleType, view: memoryview, max_bytes: int) -> Iterator[tuple[memoryview, int]]:
    """Yield each block and the size that it claims to decompress to, all together at most ``max_bytes``."""
    if bytes(view[:8]) != _XERIAL_MAGIC:
        yield view, _snappy_size(library, view, max_bytes, max_bytes)
        return
    room = max_bytes
    position = len(_XERIAL_HEADER)
    if len(view) < position:
        raise CorruptBatchError("snappy: header cut short", position=0)
    for count in count_from(1):
        if position >= len(view):
            return
        _check_parts(count, max_bytes - room, max_bytes)
        # A concatenation of streams repeats the header between them.
        if bytes(view[position : position + 8]) == _XERIAL_MAGIC and len(view) - position >= len(_XERIAL_HEADER):
            position += len(_XERIAL_HEADER)
            continue
        size = int.from_bytes(view[position : position + 4], "big")
        position += 4
        if size > len(view) - position:
            raise CorruptBatchError(f"snappy: block of {size} bytes, {len(view) - position} are left", position=0)
        block = view[position : position + size]
        found = _snappy_size(library, block, room, max_bytes)
        yield block, found
        room -= found
        position += size


def _snappy_size(library: ModuleType, view: memoryview, room: int, max_bytes: int) -> int:
    try:
        size: int = library.snappy.decompress_raw_len(view)
    except library.DecompressionError as error:
        raise CorruptBatchError(str(error), position=0) from None
    # No snappy element yields more than 64 bytes from 3: a longer claim is false, and is not allocated for.
    if size > room:
        raise _too_large(max_bytes)
    if size > 22 * len(view) + 64:
        raise CorruptBatchError(f"snappy: {len(view)} bytes cannot hold {size}", position=0)
    return size


def _lz4(library: ModuleType, view: memoryview) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), LZ4_BLOCK):
        raw = view[start : start + LZ4_BLOCK]
        block = bytes(library.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            parts += len(block).to_bytes(4, "little"), block
        else:
            parts += (len(raw) | _LZ4_STORED).to_bytes(4, "little"), bytes(raw)
    parts.append(b"\x00\x00\x00\x00")
    return b"".join(parts)


def _grow(library: ModuleType, name: str, view: memoryview, max_bytes: int) -> bytes:
    # The output has a fixed size for the library; it starts small, so that a bomb costs no more than it delivers.
    run = getattr(library, name).decompress_into
    size = min(max_bytes, max(1 << 16, 8 * len(view)))
    while True:
        try:
            return written_bytes(size, lambda output: run(view, output))
        except library.DecompressionError as error:
            if _OUTPUT_FULL not in str(error):
                raise CorruptBatchError(f"{name}: {error}", position=0) from None
            if size == max_bytes:
                raise _too_large(max_bytes) from None
            size = min(max_bytes, 4 * size)
