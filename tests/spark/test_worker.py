"""What Spark's worker processes are told."""

from __future__ import annotations

import gc
import socket
import subprocess
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from kraftcore.plugins.spark.worker import settle


@pytest.fixture
def calls(monkeypatch):
    """A process whose main program is Spark's daemon; what its worker was called with."""
    seen = []

    def worker(connection, answer):
        seen.append(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    daemon = ModuleType("__main__")
    daemon.__spec__ = ModuleSpec("pyspark.daemon", None)
    daemon.worker = worker
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    settle.cache_clear()
    settle()
    yield seen
    settle.cache_clear()


@pytest.fixture
def connection():
    """What a worker gets its tasks from; a program has sent the next one."""
    mine, programs = socket.socketpair()
    with mine, programs:
        programs.sendall(b"task")
        yield mine


@pytest.fixture
def freezes(monkeypatch):
    """How often objects were frozen."""
    frozen = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(1))
    return frozen


def test_a_worker_answers_as_sparks_own(calls, freezes, connection):
    daemon = sys.modules["__main__"]
    assert [daemon.worker(connection, 0), daemon.worker(connection, 3)] == [0, 3]
    assert calls == [0, 3]
    with pytest.raises(ValueError, match="no pipe"):
        daemon.worker(connection, ValueError("no pipe"))
    assert connection.recv(9) == b"task"


def test_a_worker_whose_program_is_gone_while_it_waits_does_not_answer(calls, freezes):
    mine, programs = socket.socketpair()
    with mine:
        programs.close()
        assert sys.modules["__main__"].worker(mine, 0) != 0
    assert sys.modules["__main__"].worker(mine, 0) != 0
    assert calls == []


def test_objects_that_outlive_a_task_are_frozen_once_and_again_after_imports(calls, freezes, monkeypatch, connection):
    assert freezes == []
    for _ in range(3):
        sys.modules["__main__"].worker(connection, 0)
    assert freezes == [1]
    monkeypatch.setitem(sys.modules, "of_another_task", ModuleType("of_another_task"))
    for _ in range(3):
        sys.modules["__main__"].worker(connection, 0)
    assert freezes == [1, 1]


def test_a_worker_is_told_by_whatever_it_imports_of_ours():
    program = """
import sys
from importlib.machinery import ModuleSpec
daemon = sys.modules["__main__"]
daemon.__spec__ = ModuleSpec("pyspark.daemon", None)
daemon.worker = sparks_own = lambda: 0
import kraftcore.plugins.spark
sys.exit(daemon.worker is sparks_own)
"""
    assert subprocess.run([sys.executable, "-P", "-c", program], check=False).returncode == 0


def test_elsewhere_nothing_happens(monkeypatch, freezes):
    program = ModuleType("__main__")
    program.worker = worker = object()
    monkeypatch.setitem(sys.modules, "__main__", program)
    settle.cache_clear()
    settle()
    assert program.worker is worker
    assert freezes == []
