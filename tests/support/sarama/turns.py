"""Tests of sarama, each a process of its own, and what one that failed said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sarama.module import Sarama
from sarama.toxiproxy import Toxiproxy

KAFKA_VERSION = "4.3.1"
LIMIT_S = 180
LAST_REASONS = 3  # what a test tells first is how it comes along
PASSED, SKIPPED, FAILED = "passed", "skipped", "FAILED"
# toxiproxy's 10 ms are not there, and that is all that these tests want them for.
_LATENCY = re.compile(r"Expected histogram metric 'request-latency-in-ms[\w-]*' min >= 10, got \d+")
_SAID = re.compile(r"^\s+\w+\.go:\d+: (.*)$", re.MULTILINE)
_PANIC = re.compile(r"^(?:panic|fatal error): .*", re.MULTILINE)
_ERROR = re.compile(r"^\s+Error: +\t?(.*(?:\n\s+\t +\t.*)*)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How a test ended.

    Attributes:
        result: ``PASSED``, ``SKIPPED`` or ``FAILED``.
        seconds: that its process took, with the topics that it makes first.
        reason: what a test that failed said, in one line.
    """

    result: str
    seconds: float
    reason: str = ""


def run_test(sarama: Sarama, proxy: Toxiproxy, name: str, output: Path) -> Outcome:
    """Run a test at the cluster whose turn it is; all that it prints is in a file then."""
    environment = {**os.environ, "TOXIPROXY_ADDR": proxy.url, "KAFKA_VERSION": KAFKA_VERSION}
    command = [sarama.program, "-test.v", f"-test.timeout={LIMIT_S}s", f"-test.run=^{name}$"]
    begun = time.monotonic()
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=sarama.folder, env=environment)
        try:
            status: int | None = process.wait(2 * LIMIT_S)  # it ends itself, but for the topics that it makes first
        except subprocess.TimeoutExpired:
            status = None
        finally:
            process.kill()
            process.wait()
    return judge(name, status, output.read_text(errors="replace"), time.monotonic() - begun)


def judge(name: str, status: int | None, text: str, seconds: float) -> Outcome:
    """Tell from a test's exit status (None: it had to be killed) and from what it printed how it ended."""
    if status == 0:
        result = next((kind for kind in ("PASS", "SKIP") if f"--- {kind}: {name} (" in text), None)
        if result is None:
            return Outcome(FAILED, seconds, "no such test ran")
        return Outcome(PASSED if result == "PASS" else SKIPPED, seconds)
    said, panic = _SAID.findall(text), _PANIC.search(text)
    if status is None:
        return Outcome(FAILED, seconds, f"did not end within {2 * LIMIT_S} s")
    if said and panic is None and all(_LATENCY.fullmatch(line) for line in said):
        return Outcome(PASSED, seconds)
    errors = [re.sub(r"\s+", " ", found) for found in _ERROR.findall(text)]
    reasons = [panic[0]] if panic else errors or [line for line in said if line.strip()] or [f"exit status {status}"]
    return Outcome(FAILED, seconds, "; ".join(list(dict.fromkeys(reasons))[-LAST_REASONS:])[:400])


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that take all the processor time they get."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for _ in range(count):
            # They look whether their parent is still there.
            program = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(1_000_000))"
            processes.append(subprocess.Popen([sys.executable, "-I", "-c", program]))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
