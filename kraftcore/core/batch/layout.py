"""Where the fields of a record batch stand, for callers that are not compiled; ``header.pxd`` has the whole header."""

from __future__ import annotations

from typing import Final

LENGTH_POSITION: Final = 8
OVERHEAD_BYTES: Final = 12
"""Base offset and length: what comes before the bytes that the length counts."""
MAGIC_POSITION: Final = 16
CHECKSUM_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
"""The checksum covers the batch from here on."""
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
HEADER_BYTES: Final = 61

MAGIC: Final = 2

# Attributes.
CODEC_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
