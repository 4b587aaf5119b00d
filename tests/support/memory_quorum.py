"""A quorum of static voters in this process, over the memory transport; nodes can be stopped and started again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import trio

from kraftcore import Node, NodeConfig, StateMachine, open_node
from kraftcore.errors import NodeStoppedError, NotLeaderError, OutcomeUnknownError
from kraftcore.node.plugin import Plugin
from kraftcore.raft.roles import Role
from kraftcore.transports.memory import MemoryNetwork

CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class MemoryQuorum:
    def __init__(self, nursery, folder, machine, plugins, size, settings) -> None:
        self.network = MemoryNetwork()
        self.nodes: dict[int, Node] = {}
        self.machines: dict[int, StateMachine] = {}
        self.ids = list(range(1, size + 1))
        self._nursery, self._folder, self._settings = nursery, folder, settings
        self._make_machine, self._make_plugins = machine, plugins
        self._stops: dict[int, trio.Event] = {}
        self._ends: dict[int, trio.Event] = {}

    async def start(self, number: int) -> Node:
        await self._nursery.start(self._run, number)
        return self.nodes[number]

    async def stop(self, number: int) -> None:
        self._stops[number].set()
        await self._ends[number].wait()

    async def leader(self) -> Node:
        """The node that leads with a quorum behind it."""
        while True:
            for node in self.nodes.values():
                if node.status().role is Role.LEADER:
                    with trio.move_on_after(0.5), suppress(NotLeaderError, OutcomeUnknownError):
                        await node.append(b"\x00", forward=False)
                        return node
            await trio.sleep(0.01)

    async def follower(self) -> Node:
        leader = await self.leader()
        return next(node for node in self.nodes.values() if node is not leader)

    def cut_off(self, number: int) -> None:
        others = [f"n{other}" for other in self.ids if other != number]
        self.network.cut(f"n{number}", others)

    async def _run(self, number: int, task_status=trio.TASK_STATUS_IGNORED) -> None:
        voters = ",".join(f"{other}@n{other}:{9000 + other}" for other in self.ids)
        config = NodeConfig(
            node_id=number,
            directory=f"{self._folder}/n{number}",
            cluster_id=CLUSTER_ID,
            listeners=[f"CONTROLLER://n{number}:{9000 + number}"],
            voters=voters,
            create="join",
            **{
                "election_timeout_ms": 100,
                "fetch_timeout_ms": 300,
                "election_backoff_max_ms": 50,
                "request_timeout_ms": 300,
                "fetch_max_wait_ms": 100,
                "shutdown_timeout_ms": 500,
                **self._settings,
            },
        )
        self._stops[number], self._ends[number] = trio.Event(), trio.Event()
        self.machines[number] = machine = self._make_machine()
        try:
            async with (
                self.network.transport(f"n{number}") as transport,
                open_node(config, machine, transport=transport, plugins=self._make_plugins()) as node,
            ):
                self.nodes[number] = node
                task_status.started()
                await self._stops[number].wait()
        except NodeStoppedError:
            if not self._stops[number].is_set():
                raise
        finally:
            self.nodes.pop(number, None)
            self._ends[number].set()


@asynccontextmanager
async def memory_quorum(
    folder,
    machine: Callable[[], StateMachine],
    *,
    plugins: Callable[[], list[Plugin]] = list,
    size: int = 3,
    probe: bool = True,
    **settings,
) -> AsyncIterator[MemoryQuorum]:
    async with trio.open_nursery() as nursery:
        quorum = MemoryQuorum(nursery, folder, machine, plugins, size, settings)
        for number in quorum.ids:
            await quorum.start(number)
        if probe:  # by a record that only machines for any log take
            await quorum.leader()
        try:
            yield quorum
        finally:
            with trio.CancelScope(shield=True):
                quorum.network.heal()
                for number in list(quorum.nodes):
                    await quorum.stop(number)
