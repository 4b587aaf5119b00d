"""Free memory is taken up before a load, and no more than there is."""

from __future__ import annotations

import importlib
import sys

import pytest
from project import ROOT


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])  # behind: what is installed is tested
    return importlib.import_module("bench.peers.broker.memory")


def test_memory_is_taken_up_until_little_is_free(memory, tmp_path):
    total, free = 5 * memory.STEP + 4096, []

    def meminfo():
        found = free.pop(0) if len(free) > 1 else free[0]
        return f"MemTotal:  {total >> 10} kB\nMemFree: {found >> 10} kB\n"

    used = memory.UsedMemory(tmp_path, meminfo)
    free[:] = [memory.LEFT_FREE]
    used.use()
    assert used.at == 0
    free[:] = [0, 3 << 30, 2 << 30, memory.LEFT_FREE]  # the first one when it asks how much there is
    used.use()
    assert used.at == 2 * memory.STEP
    free[:] = [3 << 30]
    used.use()  # what is free does not get less: once around
    assert used.at == 2 * memory.STEP
    assert [each.stat().st_size for each in tmp_path.iterdir()] == [5 * memory.STEP]


def test_what_the_kernel_says_is_understood(memory):
    text = memory.MEMINFO.read_text()
    assert 0 < memory.bytes_of("MemFree", text) < memory.bytes_of("MemTotal", text)
    with pytest.raises(LookupError, match="does not tell MemLost"):
        memory.bytes_of("MemLost", text)
