"""A node of kraftcore with default settings; three of these processes form a cluster of static voters."""

from __future__ import annotations

import argparse
import gc
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import trio

from bench.paths import measure_the_installed_package

measure_the_installed_package()

import kraftcore  # noqa: E402  (now it is the installed one)
from bench.peers.nodes import control  # noqa: E402
from kraftcore.core.batch import RecordBatch  # noqa: E402
from kraftcore.errors import KraftError  # noqa: E402
from kraftcore.state_machine import SnapshotSink  # noqa: E402

CLUSTER_ID = "kraftcore-bench-000000"


class Counter(kraftcore.StateMachine):
    """The state machine counts, as everybody's does."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, batch: RecordBatch) -> range:
        begin = self.count + 1
        self.count += batch.count
        return range(begin, self.count + 1)

    def snapshot(self, sink: SnapshotSink) -> None:
        sink.append([self.count.to_bytes(8, "big")])

    def restore(self, values: Iterable[bytes]) -> None:
        (value,) = values
        self.count = int.from_bytes(value, "big")


class Load:
    """A closed loop of tasks; each awaits its own call."""

    def __init__(self, call: Callable[[], Awaitable[object]]) -> None:
        self.call = call
        self.latencies_s: list[float] = []
        self.errors = 0
        self.measuring = False
        self.stopped = False

    async def caller(self) -> None:
        call, clock = self.call, time.perf_counter
        while not self.stopped:
            begin = clock()
            try:
                await call()
            except KraftError:
                self.errors += 1
                await trio.sleep(0.001)
                continue
            if self.measuring:
                self.latencies_s.append(clock() - begin)

    async def run(self, in_flight: int, warm_s: float, measure_s: float) -> control.Answer:
        async with trio.open_nursery() as nursery:
            for _ in range(in_flight):
                nursery.start_soon(self.caller)
            await trio.sleep(warm_s)
            begin = time.perf_counter()
            self.measuring = True
            await trio.sleep(measure_s)
            self.measuring, self.stopped = False, True
            seconds = time.perf_counter() - begin
        return control.summary(self.latencies_s, self.errors, seconds)


async def try_once(node: kraftcore.Node, timeout_s: float) -> bool:
    """Propose one value and wait for it."""
    with trio.move_on_after(timeout_s) as scope:
        try:
            await node.append(b"try")
        except KraftError:
            return False
    return not scope.cancelled_caught


async def read(node: kraftcore.Node[Counter]) -> int:
    """Read, linearizably."""
    await node.read_barrier()
    return node.state_machine.count


async def answer(node: kraftcore.Node[Counter], node_id: int, request: dict[str, Any]) -> control.Answer:
    """Do what the driver asks."""
    if request["op"] == "status":
        return {"leader": node.status().leader_id == node_id}
    if request["op"] == "try":
        return {"ok": await try_once(node, request["timeout_ms"] / 1000)}
    value = control.value(request["value_bytes"])
    batch = request["batch"]
    if request["read"]:  # under a lease, if the node has the setting
        return await Load(partial(read, node)).run(request["in_flight"], request["warm_s"], request["measure_s"])
    call = partial(node.append, value) if batch == 1 else partial(node.append_many, [value] * batch)
    return await Load(call).run(request["in_flight"], request["warm_s"], request["measure_s"])


async def converse(node: kraftcore.Node[Counter], node_id: int, stream: trio.SocketStream) -> None:
    """Answer one connection of the driver."""
    waiting = b""
    async with stream:
        async for data in stream:
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                result = await answer(node, node_id, json.loads(line))
                await stream.send_all(json.dumps(result).encode() + b"\n")


async def run(index: int, peers: list[str], address: str, folder: Path, lease_ms: int) -> None:
    """Run the node until the process ends."""
    config = kraftcore.NodeConfig(
        node_id=index + 1,
        directory=str(folder),
        cluster_id=CLUSTER_ID,
        listeners=[peers[index]],
        voters=[f"{number}@{peer}" for number, peer in enumerate(peers, 1)],
        create="join",
        preallocate=True,
        leader_lease_ms=lease_ms,
    )
    host, port = control.split(address)
    async with kraftcore.open_node(config, Counter()) as node:
        await trio.serve_tcp(partial(converse, node, config.node_id), port, host=host)


def main() -> None:
    gc.set_threshold(20_000, 50, 100)  # see docs/embedding.md: a thousand callers are a lot to walk over
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--peers", required=True)
    parser.add_argument("--control", required=True)
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--lease", type=int, default=0, help="kraftcore.leader.lease.ms (0)")
    options = parser.parse_args()
    trio.run(run, options.id, options.peers.split(","), options.control, options.dir, options.lease)


if __name__ == "__main__":
    main()
