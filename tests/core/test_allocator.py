"""Freed memory that the process keeps."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

from kraftcore.core.allocator import written_bytes

BUFFERS = """
import resource, sys
from kraftcore.core.allocator import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
held = [b"x" * 1_000_000 for _ in range(4)]
del held
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(50):
    held = [b"x" * 1_000_000 for _ in range(4)]
    del held
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-P", "-c", BUFFERS, how], capture_output=True, text=True, timeout=60, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif("libasan" in os.environ.get("LD_PRELOAD", ""), reason="another allocator is in glibc's place")
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")
def test_buffers_are_not_fetched_from_the_kernel_again_and_again():
    assert faults("keep") * 2 < faults("leave")


@pytest.mark.parametrize(("size", "written"), [(0, 0), (1, 0), (1, 1), (100, 99), (100, 100), (1 << 20, 70_000)])
def test_bytes_are_what_was_written(size: int, written: int) -> None:
    def write(room: memoryview) -> int:
        assert (len(room), room.readonly) == (size, False)
        room[:written] = b"x" * written
        return written

    found = written_bytes(size, write)
    assert type(found) is bytes
    assert found == b"x" * written


@pytest.mark.parametrize("written", [-1, 11])
def test_more_than_there_is_room_for_cannot_have_been_written(written: int) -> None:
    with pytest.raises(ValueError, match=f"{written} of 10 bytes"):
        written_bytes(10, lambda room: written)


def test_what_writing_raises_comes_up() -> None:
    with pytest.raises(ZeroDivisionError):
        written_bytes(10, lambda room: 1 // 0)
