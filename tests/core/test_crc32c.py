"""CRC-32C: against two independent libraries, at every length that takes another path."""

from __future__ import annotations

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftcore.core.crc32c import crc32c

NOISE = bytes((i * 2654435761 >> 13) & 0xFF for i in range(20_000))


def test_check_value() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, B.4


@pytest.mark.parametrize("size", [*range(200), 767, 768, 769, 911, 912, 6143, 6144, 6145, 12_289, 20_000])
def test_every_stride(size: int) -> None:
    assert crc32c(NOISE[:size]) == package.crc32c(NOISE[:size])
    assert crc32c(memoryview(NOISE)[1 : size + 1]) == package.crc32c(NOISE[1 : size + 1])


@given(st.binary(max_size=2000), st.integers(0, 2000), st.integers(0, 2**32 - 1))
def test_continues_where_it_stopped(data: bytes, split: int, start: int) -> None:
    assert crc32c(data[split:], crc32c(data[:split], start)) == crc32c(data, start) == package.crc32c(data, start)


def test_only_bytes() -> None:
    for wrong in ("text", None, 5):
        with pytest.raises(TypeError):
            crc32c(wrong)  # type: ignore[arg-type]
