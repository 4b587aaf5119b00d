"""A kraftcore node as a process that puts itself under load while it leads, as Kafka's TestRaftServer does.

``python loaded_node.py FILE.properties`` prints JSON lines: a status every 100 ms, and [offset, value] of every record
that was acknowledged. Lines on standard input: ``transfer ID``, ``pause`` (no more load).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import trio

from kraftcore import NodeConfig, StateMachine, open_node
from kraftcore.core.batch import RecordBatch
from kraftcore.errors import KraftError
from kraftcore.node import Node
from kraftcore.state_machine import SnapshotSink

CALLERS = 4
PAUSE_S = 0.002  # of each caller between two records: far below what a node can take


class Counter(StateMachine):
    """Counts what was committed."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, batch: RecordBatch) -> Sequence[Any] | None:
        self.count += batch.count
        return None

    def snapshot(self, sink: SnapshotSink) -> None:
        sink.append([self.count.to_bytes(8)])

    def restore(self, values: Iterable[bytes]) -> None:
        self.count = sum(int.from_bytes(value) for value in values)


class Worker:
    def __init__(self, node: Node, machine: Counter) -> None:
        self.node = node
        self.machine = machine
        self.paused = False

    async def call(self, number: int) -> None:
        sent = 0
        while True:
            await trio.sleep(PAUSE_S)
            if not self.node.is_leader or self.paused:
                continue
            sent += 1
            value = f"{self.node.key.id}-{self.node.status().epoch}-{number}-{sent}".ljust(100, ".")
            try:
                found = await self.node.append(value.encode())
            except KraftError:
                continue
            say([found.offset, value])

    async def report(self) -> None:
        while True:
            status = self.node.status()
            say(
                {
                    "leader": status.leader_id if status.role.name in ("LEADER", "FOLLOWER") else None,
                    "epoch": status.epoch,
                    "start": status.log_start_offset,
                    "high_watermark": status.high_watermark or 0,
                    "log_end": status.log_end_offset,
                    "applied": status.applied_offset,
                    "count": self.machine.count,
                    "ends": {each.key.id: each.log_end_offset for each in status.replicas},
                    "snapshots": status.snapshots,
                }
            )
            await trio.sleep(0.1)

    async def obey(self) -> None:
        async for line in trio.wrap_file(sys.stdin):
            word, *rest = line.split()
            if word == "pause":
                self.paused = True
            elif word == "transfer" and self.node.is_leader:
                try:
                    await self.node.transfer_leadership(int(rest[0]))
                except KraftError as error:
                    print(error, file=sys.stderr, flush=True)


def say(what: object) -> None:
    print(json.dumps(what), flush=True)


async def run(path: str) -> None:
    machine = Counter()
    async with open_node(NodeConfig.from_properties(path), machine) as node, trio.open_nursery() as nursery:
        worker = Worker(node, machine)
        nursery.start_soon(worker.report)
        nursery.start_soon(worker.obey)
        for number in range(CALLERS):
            nursery.start_soon(worker.call, number)


if __name__ == "__main__":
    trio.run(run, sys.argv[1])
