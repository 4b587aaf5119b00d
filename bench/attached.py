"""What it costs to share a node: appends and reads of attached processes beside those of the node's own process.

    python -m bench.attached                                   # half a minute; --dir DIRECTORY chooses the disk
    python -m bench.attached --seconds 1 --rounds 1 --json

One node, the only voter, with default settings: an append is durable when it returns. All places take turns in each
round, so that they see the same machine; a figure is the best round's. ``own`` is the node's process, ``attached`` one
process that attached to it, ``attached x4`` four of them, which share the callers. A caller appends 100 bytes, awaits
the result, and begins again; a reader makes one read linearizable after the other.
"""

# ruff: noqa: E402 (only now may anything import kraftcore)
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from bench.paths import measure_the_installed_package

measure_the_installed_package()

import kraftcore
from kraftcore.core.batch import RecordBatch
from kraftcore.state_machine import StateMachine

VALUE = bytes(99) + b"v"
WARM_S = 0.2
PROCESSES = 4
LOADS = (("commit", 1), ("commit", 64), ("commit", 1024), ("read", 1))


class Count(StateMachine[int]):
    """Counts records."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, batch: RecordBatch) -> Sequence[int]:
        """See the base class."""
        begun, self.count = self.count, self.count + batch.count
        return range(begun + 1, self.count + 1)

    def snapshot(self, sink: Any) -> None:
        """See the base class."""
        sink.append([b"%d" % self.count])

    def restore(self, values: Any) -> None:
        """See the base class."""
        self.count = sum(map(int, values))


async def measure(node: kraftcore.Node[Count], kind: str, callers: int, seconds: float) -> list[float]:
    """So many callers for so long, after a moment that does not count; the latencies of what ended, seconds."""

    async def append() -> None:
        await node.append(VALUE, forward=not node.is_leader)

    async def read() -> None:
        await node.read_barrier()

    act: Callable[[], Awaitable[None]] = append if kind == "commit" else read
    begin = trio.current_time() + min(WARM_S, seconds / 2)
    took: list[float] = []

    async def call() -> None:
        while (asked := trio.current_time()) < begin + seconds:
            await act()
            ended = trio.current_time()
            if begin <= ended < begin + seconds:
                took.append(ended - asked)

    async with trio.open_nursery() as nursery:
        for _ in range(callers):
            nursery.start_soon(call)
    return took


class Attached:
    """An attached process; it measures when it is told to."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._waiting = b""

    async def _line(self) -> Any:
        assert self._process.stdout is not None
        while b"\n" not in self._waiting:
            data = await self._process.stdout.receive_some()
            if not data:
                raise RuntimeError("an attached process ended by itself")
            self._waiting += data
        line, _, self._waiting = self._waiting.partition(b"\n")
        return json.loads(line)

    async def measure(self, kind: str, callers: int, seconds: float) -> list[float]:
        """Do as `measure`, there."""
        assert self._process.stdin is not None
        await self._process.stdin.send_all(json.dumps([kind, callers, seconds]).encode() + b"\n")
        found: list[float] = await self._line()
        return found


async def serve(directory: str) -> None:
    """Be an attached process: measure as the lines of standard input say."""
    async with kraftcore.attach(directory, Count()) as node:
        await node.wait_leader()
        for line in iter(sys.stdin.readline, ""):  # nothing else is to run meanwhile
            found = await measure(node, *json.loads(line))
            print(json.dumps([round(each, 6) for each in found]), flush=True)


async def run(directory: str, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """All figures."""
    config = kraftcore.NodeConfig(
        node_id=1, directory=directory, listeners=["127.0.0.1:0"], create="standalone", attachable=True
    )
    best: dict[tuple[str, int, str], dict[str, Any]] = {}
    async with kraftcore.open_node(config, Count()) as node, trio.open_nursery() as nursery:
        await node.wait_leader()
        command = [sys.executable, "-m", "bench.attached", "--serve", directory]
        processes: list[Attached] = []
        begin = partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(PROCESSES):
            processes.append(Attached(await nursery.start(begin)))
        for _ in range(rounds):
            for kind, callers in LOADS:
                places: dict[str, Sequence[Callable[[str, int, float], Awaitable[list[float]]]]] = {
                    "own": [lambda *load: measure(node, *load)],
                    "attached": [processes[0].measure],
                }
                if callers >= PROCESSES:
                    places[f"attached x{PROCESSES}"] = [each.measure for each in processes]
                for place, measures in places.items():
                    row = await measured(measures, kind, callers, seconds)
                    key = kind, callers, place
                    if row["per_second"] > best.get(key, {}).get("per_second", 0):
                        best[key] = {"case": f"{kind}-{callers}", "place": place, **row}
        nursery.cancel_scope.cancel()
    return [best[key] for key in sorted(best, key=lambda key: (key[0], key[1]))]


async def measured(
    measures: Sequence[Callable[[str, int, float], Awaitable[list[float]]]], kind: str, callers: int, seconds: float
) -> dict[str, Any]:
    """One round of one load, at some places at once, which share the callers."""
    found: list[float] = []

    async def gather(one: Callable[[str, int, float], Awaitable[list[float]]]) -> None:
        found.extend(await one(kind, callers // len(measures), seconds))

    async with trio.open_nursery() as nursery:
        for one in measures:
            nursery.start_soon(gather, one)
    found.sort()
    return {
        "per_second": round(len(found) / seconds),
        "p50_ms": round(found[len(found) // 2] * 1000, 3),
        "p99_ms": round(found[len(found) * 99 // 100] * 1000, 3),
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.attached", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--dir", type=Path, help="where the node's directory is made; default: the system's")
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=1.5, help="of a load in a round; default: %(default)s")
    parser.add_argument("--json", action="store_true", help="a JSON object a line")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        trio.run(serve, given.serve)
        return
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        rows = trio.run(run, str(Path(folder) / "node"), given.rounds, given.seconds)
    if not given.json:
        print(f"{'case':<12} {'place':<12} {'a second':>9} {'p50, ms':>9} {'p99, ms':>9}")
    for row in rows:
        if given.json:
            print(json.dumps(row))
        else:
            print(
                f"{row['case']:<12} {row['place']:<12} {row['per_second']:>9,} {row['p50_ms']:>9.2f} "
                f"{row['p99_ms']:>9.2f}"
            )


if __name__ == "__main__":
    main()
