"""A node of ours that serves over TCP, in a thread: for commands that run as processes."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import trio
from nodes import Values

from kraftcore import Node, NodeConfig, open_node


@dataclass
class Served:
    """A node in a thread of its own."""

    address: str
    cluster_id: str
    node: Node
    token: trio.lowlevel.TrioToken

    def append(self, *values: bytes) -> None:
        async def work() -> None:
            for value in values:
                await self.node.append(value)

        trio.from_thread.run(work, trio_token=self.token)


@contextmanager
def serve(folder: Path, **settings: object) -> Iterator[Served]:
    """A quorum of one, until the block ends."""
    ready: queue.Queue[Served] = queue.Queue()
    stop = trio.Event()

    async def run() -> None:
        config = NodeConfig(
            node_id=1, directory=folder, listeners=["CONTROLLER://127.0.0.1:0"], create="standalone", **settings
        )
        async with open_node(config, Values()) as node:
            await node.wait_leader()
            await node.read_barrier()
            address = f"127.0.0.1:{node.endpoints[0].port}"
            ready.put(Served(address, node.cluster_id, node, trio.lowlevel.current_trio_token()))
            await stop.wait()

    thread = threading.Thread(target=trio.run, args=(run,))
    thread.start()
    served = ready.get(timeout=30)
    try:
        yield served
    finally:
        served.token.run_sync_soon(stop.set)
        thread.join(30)
