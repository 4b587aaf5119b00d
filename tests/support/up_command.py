"""``kraftcore up`` as a process, and free ports for it."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from typing import Any, Self

UP = [sys.executable, "-P", "-m", "kraftcore", "up"]


class Up:
    """A process of it that has started."""

    def __init__(self, *options: object, command: Sequence[str] = UP) -> None:
        self.process = subprocess.Popen(
            [*command, "--output", "json", *map(str, options)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            self.started = self.event("started")
        except BaseException:
            self.close()
            raise

    def event(self, name: str) -> dict[str, Any]:
        """The next one of this name."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        for line in self.process.stdout:
            found: dict[str, Any] = json.loads(line)
            if found["event"] == name:
                return found
        raise AssertionError(f"no event {name}: {self.process.stderr.read()}")

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[str | None, int]:
        """Stop it: the error it tells, and its exit status."""
        self.process.send_signal(number)
        stopped = self.event("stopped")
        self.process.communicate(timeout=60)
        return stopped["error"], self.process.returncode

    def close(self) -> None:
        """End it at once, if it runs."""
        self.process.kill()
        self.process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def free_from(count: int) -> int:
    """The first of so many free ports in a row: none that outgoing connections get, nor a ``kafka_lab``'s."""
    for first in Random().sample(range(30_000, 32_000), 100):
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            return first
    raise AssertionError("no free ports")
