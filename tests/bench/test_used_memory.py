"""Free memory is taken up before a load, and no more than there is."""

from __future__ import annotations

import importlib
import sys

import pytest
from project import ROOT

MEBIBYTE = 1 << 20


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])  # behind: what is installed is tested
    return importlib.import_module("bench.peers.broker.memory")


def test_memory_is_taken_up_until_little_is_free(memory, tmp_path, monkeypatch):
    free = [3 << 30, 2 << 30, memory.LEFT_FREE]
    monkeypatch.setattr(memory, "_of", lambda name: 64 * MEBIBYTE if name == "MemTotal" else free.pop(0))
    read = []
    used = memory.UsedMemory(tmp_path)
    monkeypatch.setattr(memory, "_STEP", 8 * MEBIBYTE)
    monkeypatch.setattr(used, "_read", lambda file, buffer: read.append(file.tell()) or len(buffer))
    used.use()
    assert read == [0, 8 * MEBIBYTE]
    free += [3 << 30] * 9
    used.use()  # what is free does not get less: once around
    assert read[2:] == [each * 8 * MEBIBYTE for each in (2, 3, 4, 5, 6, 7, 0, 1)]


def test_the_kernel_says_how_much_there_is(memory):
    assert 0 < memory._of("MemFree") < memory._of("MemTotal")
