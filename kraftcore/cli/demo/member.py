"""One replica of the demo, in a process of its own: ``python -P -m kraftcore.cli.demo.member JSON``.

It prints its status as a JSON line whenever its role or leader changes, and ten times a second. It ends in good order
at SIGTERM, and when its standard input ends: it cannot outlive the demo.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import trio

from kraftcore.config import NodeConfig
from kraftcore.core.batch import RecordBatch
from kraftcore.node import Node, open_node
from kraftcore.node.events import LeaderChanged, RoleChanged, VotersChanged
from kraftcore.state_machine import SnapshotSink, StateMachine

_PERIOD_S = 0.1


class Digest(StateMachine):
    """Counts the records, and hashes them in order: equal digests mean equal histories."""

    def __init__(self) -> None:
        self.records = 0
        self.digest = b""

    def apply(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Chain the batch's records to the digest."""
        values = [value or b"" for value in batch.values()]
        self.records += len(values)
        sizes = b"".join(len(value).to_bytes(4, "big") for value in values)
        self.digest = hashlib.blake2b(self.digest + sizes + b"".join(values), digest_size=16).digest()
        return None

    def snapshot(self, sink: SnapshotSink) -> None:
        """Write count and digest as two records."""
        sink.append([b"%d" % self.records, b"x" + self.digest])

    def restore(self, values: Iterable[bytes]) -> None:
        """Read count and digest from the two records."""
        records, digest = values
        self.records, self.digest = int(records), digest[1:]


def status_of(node: Node, machine: Digest) -> dict[str, Any]:
    """The node's status as the demo shows it."""
    status = node.status()
    return {
        "role": status.role.value,
        "epoch": status.epoch,
        "leader": status.leader_id,
        "log_end": status.log_end_offset,
        "high_watermark": status.high_watermark,
        "applied": status.applied_offset,
        "voters": sorted(status.voters.ids),
        "records": machine.records,
        "digest": machine.digest.hex(),
    }


async def run(settings: dict[str, Any]) -> None:
    """Run the replica until it is told to end."""
    machine = Digest()
    async with open_node(NodeConfig(**settings), machine) as node, trio.open_nursery() as nursery:

        def report() -> None:
            line = json.dumps(status_of(node, machine)) + "\n"
            # Short enough to be written as a whole or not at all; a slow demo must not hold the node up.
            with suppress(BlockingIOError, BrokenPipeError):
                os.write(1, line.encode())

        async def report_changes() -> None:
            async for _ in node.events(RoleChanged, LeaderChanged, VotersChanged):
                report()

        async def report_often() -> None:
            while True:
                report()
                await trio.sleep(_PERIOD_S)

        async def wait_end_of_input() -> None:
            async with trio.lowlevel.FdStream(os.dup(0)) as stream:
                while await stream.receive_some():
                    pass
            nursery.cancel_scope.cancel()

        async def wait_signal() -> None:
            with trio.open_signal_receiver(signal.SIGTERM) as signals:
                async for _ in signals:
                    nursery.cancel_scope.cancel()

        for task in (report_changes, report_often, wait_end_of_input, wait_signal):
            nursery.start_soon(task)


if __name__ == "__main__":
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.set_blocking(1, False)
    trio.run(run, json.loads(sys.argv[1]))
