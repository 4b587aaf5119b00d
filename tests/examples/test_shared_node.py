"""Servers with several worker processes that share one node (`examples/shared/`), as a reader would start them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from kraftcore.errors import UnreachableError
from kraftcore.node.attaching import connect_to_owner

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "shared"
PATIENCE_S = 120
T = TypeVar("T")


def until(ask: Callable[[], T | None], process: subprocess.Popen[str] | None = None) -> T:
    due = time.monotonic() + PATIENCE_S
    while time.monotonic() < due:
        if found := ask():
            return found
        assert process is None or process.poll() is None, "it ended by itself"
        time.sleep(0.02)
    pytest.fail("it never came")


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def owner(folder: Path) -> int:
    """The process that has the node open."""

    async def ask() -> int | None:
        with suppress(UnreachableError):
            control = await connect_to_owner(str(folder / "values"))
            control.close()
            return control.told.pid
        return None

    return until(lambda: trio.run(ask))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[Sequence[str]], subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def started(command: Sequence[str]) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(FOLDER)}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", *command],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        running.append(process)
        return process

    yield started
    for process in running:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its workers, too
        process.communicate()


def ended_well(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert "Traceback" not in said, said


def http(method: str, url: str, body: bytes | None = None, **headers: str) -> tuple[str, dict[str, str]]:
    request = urllib.request.Request(url, body, headers, method=method)
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
        return response.read().decode(), dict(response.headers)


def survives(folder: Path, put: Callable[[str, str], None], get: Callable[[str], tuple[str, int]]) -> None:
    """Several workers answer, all the same; the one that has the node is killed, and nothing is lost."""

    def safely(act: Callable[[], object]) -> bool:
        with suppress(OSError):  # refused, or the worker was killed with the request
            act()
            return True
        return False

    until(lambda: safely(lambda: put("colour", "blue")))
    seen: set[int] = set()
    until(lambda: seen.add(get("colour")[1]) or len(seen) > 1)
    assert get("colour")[0] == "blue"
    first = owner(folder)
    os.kill(first, signal.SIGKILL)
    until(lambda: safely(lambda: put("colour", "red")))
    assert until(lambda: owner(folder) != first)
    until(lambda: safely(lambda: put("shape", "round")))
    seen.clear()
    until(lambda: seen.add(get("colour")[1]) or len(seen) > 1)
    assert (get("colour")[0], get("shape")[0]) == ("red", "round")


def test_fastapi_under_uvicorn(tmp_path, start):
    port = free_port()
    server = start(["uvicorn", "web:app", "--workers", "3", "--port", str(port), "--log-level", "warning"])
    root = f"http://127.0.0.1:{port}/values"

    def put(key: str, value: str) -> None:
        http("PUT", f"{root}/{key}", json.dumps(value).encode(), **{"Content-Type": "application/json"})

    def get(key: str) -> tuple[str, int]:
        found = json.loads(http("GET", f"{root}/{key}")[0])
        return found["value"], found["worker"]

    survives(tmp_path, put, get)
    ended_well(server)


def test_wsgi_under_gunicorn(tmp_path, start):
    port = free_port()
    arguments = ["-c", str(FOLDER / "gunicorn.conf.py"), "-b", f"127.0.0.1:{port}", "--log-level", "warning"]
    server = start(["gunicorn", *arguments])
    root = f"http://127.0.0.1:{port}"

    def get(key: str) -> tuple[str, int]:
        text, headers = http("GET", f"{root}/{key}")
        return text, int(headers["X-Worker"])

    survives(tmp_path, lambda key, value: http("PUT", f"{root}/{key}", value.encode()), get)
    ended_well(server)


def test_tasks_of_celery(tmp_path, start):
    start(["celery", "-A", "tasks", "worker", "--concurrency", "3", "--loglevel", "warning"])
    program = """
import tasks
words = ["word" + "s" * number for number in range(6)]
found = [asked.get(timeout=100, interval=0.05) for asked in [tasks.count.delay(word) for word in words]]
print(max(found) == sum(map(len, words)), len(set(found)))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.stdout == "True 6\n", done.stderr


def test_a_pool(tmp_path):
    done = subprocess.run(
        [sys.executable, "-P", str(FOLDER / "pool.py")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("12 words, the last one made it 228\n", 0), done.stderr
