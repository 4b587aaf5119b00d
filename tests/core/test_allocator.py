"""Freed memory that the process keeps."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

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
