"""A process that opens a node or attaches to it, and appends all the time; and what its acknowledgements must show.

``python attached_member.py JSON``: the node's settings, and a name for this start. It prints a JSON line for each
record that was acknowledged, see `Ack`. SIGTERM ends it in good order, the end of standard input at once.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import trio

import kraftcore
import kraftcore.blocking


class Ack(NamedTuple):
    """An append: its value, when it began and ended (seconds of the host's monotonic clock), and what it returned."""

    value: str
    began: float
    ended: float
    offset: int
    result: int


class Values(kraftcore.StateMachine):
    """Keeps every value; a record's result is how many there are with it."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def apply(self, batch):
        results = []
        for value in batch.values():
            self.values.append(bytes(value))
            results.append(len(self.values))
        return results

    def snapshot(self, sink) -> None:
        sink.append(self.values)

    def restore(self, values) -> None:
        self.values = list(values)


def check(values: Sequence[bytes], acks: Iterable[Ack]) -> None:
    """Nothing acknowledged is lost, nothing is there twice, and the log's order is that of the calls."""
    assert len(set(values)) == len(values), "a record was applied twice"
    ordered = sorted(acks, key=lambda ack: ack.result)
    latest = float("-inf")
    last: dict[str, int] = {}
    for ack in ordered:
        assert ack.result <= len(values), f"{ack} is lost"
        assert values[ack.result - 1].decode() == ack.value, f"{ack} is lost: {values[ack.result - 1]!r} is there"
        assert ack.ended >= latest, f"{ack} ended before a record in front of it was appended"
        latest = max(latest, ack.began)
        name, _, number = ack.value.rpartition("-")
        last[name] = int(number)
    assert [ack.offset for ack in ordered] == sorted(ack.offset for ack in ordered)
    for value in values:
        name, _, number = value.decode().rpartition("-")
        assert int(number) <= last.get(name, -1) + 1, f"{value!r} was appended before the one in front was acknowledged"


class Member:
    """Such a process.

    Attributes:
        acks: so far.
    """

    def __init__(self, settings: dict, name: str) -> None:
        self.settings = settings
        self.acks: list[Ack] = []
        given = json.dumps({"settings": settings, "name": name})
        self.process = subprocess.Popen(
            [sys.executable, "-P", __file__, given], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):  # the last one of a killed process may be half a line
                self.acks.append(Ack(*json.loads(line)))

    def wait_acks(self, count: int) -> None:
        """Wait until so many are there."""
        deadline = time.monotonic() + 60
        while len(self.acks) < count:
            assert self.process.poll() is None, f"{self.process.args} ended by itself"
            assert time.monotonic() < deadline, f"no {count} acknowledgements: {len(self.acks)}"
            time.sleep(0.005)

    def end(self, number: int) -> None:
        """Send a signal, and wait for the end of the process and of what it printed."""
        self.process.send_signal(number)
        self.process.wait(60)
        self._reader.join(60)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()


def attach_for_good(directory: str) -> None:
    """Append a record, and leave the block open."""
    left.append(kraftcore.blocking.attach(directory, Values()))
    left[-1].__enter__().append(b"a")


left: list = []


def die_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)


async def run(settings: dict, name: str) -> None:
    config = kraftcore.NodeConfig(**settings)
    async with kraftcore.open_or_attach(config, Values) as node, trio.open_nursery() as nursery:
        nursery.start_soon(append, node, name)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                nursery.cancel_scope.cancel()


async def append(node: kraftcore.Node[Values], name: str) -> None:
    number = 0
    while True:
        value, began = f"{name}-{number}", time.monotonic()
        found = await node.append(value.encode(), forward=True)
        print(json.dumps([value, began, time.monotonic(), found.offset, found.result]), flush=True)
        number += 1


if __name__ == "__main__":
    threading.Thread(target=die_with_parent, daemon=True).start()
    arguments = json.loads(sys.argv[1])
    trio.run(run, arguments["settings"], arguments["name"])
