"""Nodes in one process for the tests of kraftcore.node: simulated disks, the memory transport, a list as state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Any

import trio

from kraftcore import admin
from kraftcore.admin import AdminClient, Timing
from kraftcore.config import NodeConfig
from kraftcore.core.batch import iter_batches
from kraftcore.core.disk.simulated import SimulatedDisk
from kraftcore.core.uuid import Uuid
from kraftcore.node import Node, open_node
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.control_records import voter_entries
from kraftcore.raft.quorum import Endpoint, VersionRange, Voter, VoterSet
from kraftcore.state_machine import StateMachine
from kraftcore.storage.bootstrap import write_initial_voters
from kraftcore.storage.meta_properties import MetaProperties, write_meta_properties
from kraftcore.storage.snapshots import SnapshotStore
from kraftcore.transports.memory import MemoryNetwork

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


class Values(StateMachine):
    """Keeps every value; the result of a record is its number."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.batches = 0

    def apply(self, batch):
        self.batches += 1
        results = []
        for value in batch.values():
            if value == b"raise":
                raise ValueError("the machine does not like this")
            self.values.append(bytes(value))
            results.append(len(self.values))
        return results

    def snapshot(self, sink) -> None:
        sink.append(self.values)

    def restore(self, values) -> None:
        self.values = list(values)


class Lab:
    """Disks, state machines and a network that outlive the nodes."""

    def __init__(self, seed: int = 1, delay_ms: float = 0, **settings: Any) -> None:
        self.network = MemoryNetwork(delay_ms=delay_ms)
        self.settings = settings
        self.disks = {number: SimulatedDisk(Random(f"{seed}-{number}")) for number in range(1, 6)}
        self.machines: dict[int, Any] = {}

    def directory(self, number: int) -> str:
        """The node's directory, on its disk."""
        return "/data"

    def config(self, number: int, **settings: Any) -> NodeConfig:
        first = number == 1
        return NodeConfig(
            **{
                "node_id": number,
                "directory": self.directory(number),
                "cluster_id": CLUSTER_ID,
                "listeners": [f"CONTROLLER://n{number}:9093"],
                "create": "standalone" if first else "join",
                "auto_join": not first,
                "bootstrap_servers": () if first else ["n1:9093"],
                **self.settings,
                **settings,
            }
        )

    @asynccontextmanager
    async def node(
        self, number: int, *, machine: Callable[[], StateMachine] = Values, plugins=(), **settings: Any
    ) -> AsyncIterator[Node]:
        self.machines[number] = machine()
        async with (
            self.network.transport(f"n{number}") as transport,
            open_node(
                self.config(number, **settings),
                self.machines[number],
                transport=transport,
                files=self.disks[number],
                plugins=plugins,
            ) as node,
        ):
            yield node

    @asynccontextmanager
    async def quorum(self, size: int = 3, **settings: Any) -> AsyncIterator[list[Node]]:
        """So many voters; the first one leads."""
        self.format(size)
        async with AsyncExitStack() as stack:
            nodes = [await stack.enter_async_context(self.node(n, **settings)) for n in range(1, size + 1)]
            await nodes[0].wait_leader()
            while not any(node.is_leader for node in nodes):
                await trio.sleep(0.01)
            if not nodes[0].is_leader:
                await next(node for node in nodes if node.is_leader).transfer_leadership(1)
                while not nodes[0].is_leader:
                    await trio.sleep(0.01)
            for node in nodes:
                await node.wait_leader()
                await node.read_barrier()
            yield nodes

    def format_static(self, size: int) -> None:
        """Directories for static voters: kraft.version 0."""
        for number in range(1, size + 1):
            directory_id = Uuid.random(Random(number).randbytes)
            properties = MetaProperties(CLUSTER_ID, number, directory_id)
            self.disks[number].make_folder("/data")
            write_meta_properties(self.disks[number], "/data", properties, datetime.now(UTC))

    def format(self, size: int) -> None:
        keys = {number: ReplicaKey(number, Uuid.random(Random(number).randbytes)) for number in range(1, size + 1)}
        voters = VoterSet(
            tuple(
                Voter(key, (Endpoint("CONTROLLER", f"n{number}", 9093),), VersionRange(0, 1))
                for number, key in keys.items()
            )
        )
        for number, key in keys.items():
            disk, directory = self.disks[number], self.directory(number)
            store = SnapshotStore(disk, f"{directory}/__cluster_metadata-0", randbytes=Random(number).randbytes)
            write_initial_voters(store, voter_entries(voters), lambda: 1_700_000_000_000)
            properties = MetaProperties(CLUSTER_ID, number, key.directory_id)
            write_meta_properties(disk, directory, properties, datetime.now(UTC))


@asynccontextmanager
async def outside(lab: Lab) -> AsyncIterator[AdminClient]:
    """A client that is no node."""
    async with (
        lab.network.transport("outside") as transport,
        admin.connect(
            bootstrap_controllers=["n1:9093", "n2:9093", "n3:9093"], transport=transport, timing=Timing(10_000, 1_000)
        ) as client,
    ):
        yield client


def values_in_log(node: Node) -> list[bytes]:
    found = b""
    while data := node.read(0 if not found else last_end(found)):
        found += data
    return [bytes(value) for batch in iter_batches(found) if not batch.is_control for value in batch.values()]


def last_end(data: bytes) -> int:
    return list(iter_batches(data))[-1].next_offset


def run(main, *args: Any, limit_s: float = 20) -> None:
    """Run a test's async function; a hang becomes a failure."""

    async def limited() -> None:
        with trio.fail_after(limit_s):
            await main(*args)

    trio.run(limited)
