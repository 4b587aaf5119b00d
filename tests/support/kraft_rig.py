"""Whole clusters of ours in one process, on a network in memory: controllers, brokers, nodes that are both."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import asking
import trio
from broker_rig import QUICK, until

from kraftcore.config import NodeConfig
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import MetadataMachine
from kraftcore.node import Node, open_node
from kraftcore.node.plugin_node import plugin_node
from kraftcore.plugins.broker import BrokerConfig, KRaftBroker
from kraftcore.plugins.broker.kraft.lifecycle import Stage
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.controller import Controller
from kraftcore.ports.transport import Address
from kraftcore.protocol.messages.create_topics import CreateTopicsRequest
from kraftcore.protocol.messages.delete_topics import DeleteTopicsRequest
from kraftcore.raft.quorum import Endpoint
from kraftcore.transports.memory import MemoryNetwork

CONTROLLER_ID = 900
CONTROLLER_PORT, BROKER_PORT = 9093, 9092
LIVELY = {**QUICK, "heartbeat_ms": 100, "session_ms": 2000, "retention_ms": -1}


class KRaftRig:
    """The network and the nodes on it.

    Attributes:
        nodes: those that run, by id.
        brokers: their brokers, by id.
        controller_properties: of every controller, Kafka's names.
        broker_properties: of every broker, likewise.
    """

    def __init__(self, folder: Path, nursery: trio.Nursery) -> None:
        self.folder = folder
        self.network = MemoryNetwork()
        self.nodes: dict[int, Node] = {}
        self.brokers: dict[int, KRaftBroker] = {}
        self.cluster_id = str(Uuid.random())
        self.controller_properties = {"broker.session.timeout.ms": "2000"}
        self.broker_properties: dict[str, str] = {}
        self._nursery = nursery
        self._gone: dict[int, trio.Event] = {}
        self._numbers = count(1)

    # --- nodes --------------------------------------------------------------------------------------------------------

    async def controller(self, node_id: int = CONTROLLER_ID, **settings: Any) -> Node:
        """Start the controller."""
        return await self.start(node_id, is_controller=True, is_broker=False, **settings)

    async def broker(self, node_id: int, **settings: Any) -> KRaftBroker:
        """Start a broker, and wait until it is unfenced."""
        await self.start(node_id, is_controller=False, **settings)
        with trio.fail_after(60):
            await self.brokers[node_id].wait_running()
        return self.brokers[node_id]

    async def begin(self, *node_ids: int, replicas: Sequence[int] = (), **configs: str) -> None:
        """Start the controller and brokers, and make topic ``t``: its replicas on all of them, led by the first.

        Args:
            node_ids: the brokers.
            replicas: of the partition, where it is not all of them.
            configs: of the topic.
        """
        await self.controller()
        for node_id in node_ids:
            await self.broker(node_id)
        placed = list(replicas or node_ids)
        await self.create(placed, **configs)
        await self.led_by(placed[0])

    async def led_by(self, node_id: int, topic: str = "t") -> None:
        """Wait until a broker leads partition 0 of a topic."""

        def leads() -> bool:
            found = self.partition(node_id, topic)
            return found is not None and found.leading is not None

        await until(leads)

    async def start(
        self,
        node_id: int,
        *,
        is_controller: bool,
        is_broker: bool = True,
        directories: Sequence[str] = (),
        **settings: Any,
    ) -> Node:
        """Start a node."""
        names = directories or (f"n{node_id}",)
        paths = tuple(str(self.folder / name) for name in names)
        config = NodeConfig(
            node_id=node_id,
            directory=paths[0],
            log_directories=paths[1:],
            cluster_id=self.cluster_id,
            listeners=[f"CONTROLLER://n{node_id}:{CONTROLLER_PORT}"] if is_controller else [],
            broker_listeners=[f"BROKER://n{node_id}:{BROKER_PORT}"] if is_broker else [],
            can_become_voter=is_controller,
            create="standalone" if is_controller else "join",
            bootstrap_servers=[] if is_controller else [f"n{CONTROLLER_ID}:{CONTROLLER_PORT}"],
            busy_poll_us=0,
        )
        plugins: list[Any] = [Controller(self.controller_properties)] if is_controller else []
        if is_broker:
            broker_config = BrokerConfig(
                node_id=node_id,
                listeners=(Endpoint("BROKER", f"n{node_id}", BROKER_PORT),),
                directories=paths,
                **{**LIVELY, **settings},
            )
            self.brokers[node_id] = KRaftBroker(broker_config, self.broker_properties)
            plugins.append(self.brokers[node_id])
        ready, self._gone[node_id] = trio.Event(), trio.Event()
        self._nursery.start_soon(self._run, config, plugins, ready)
        with trio.fail_after(60):
            await ready.wait()
        return self.nodes[node_id]

    async def _run(self, config: NodeConfig, plugins: list[Any], ready: trio.Event) -> None:
        node_id = config.node_id
        try:
            async with (
                self.network.transport(f"n{node_id}") as transport,
                open_node(config, MetadataMachine(), transport=transport, plugins=plugins) as node,
            ):
                self.nodes[node_id] = node
                ready.set()
                await trio.sleep_forever()
        finally:
            self.nodes.pop(node_id, None)
            self.brokers.pop(node_id, None)
            self._gone[node_id].set()

    async def stop(self, node_id: int) -> None:
        """Stop a node in order."""
        self.nodes[node_id].stop()
        with trio.fail_after(60):
            await self._gone[node_id].wait()

    async def kill(self, node_id: int) -> None:
        """End a node without a word to anybody."""
        plugin_node(self.nodes[node_id]).abort()
        with trio.fail_after(60):
            await self._gone[node_id].wait()

    def log_bytes(self, node_id: int, name: str = "t-0", folder: str | None = None) -> bytes:
        files = sorted((self.folder / (folder or f"n{node_id}") / name).glob("*.log"))
        return b"".join(file.read_bytes() for file in files)

    def image(self, node_id: int | None = None) -> Any:
        """The metadata as a node has it."""
        return self.nodes[CONTROLLER_ID if node_id is None else node_id].state_machine.image

    def row(self, topic: str = "t", partition: int = 0) -> Any:
        """A partition as the controller has it; None: there is none."""
        found = self.image().topics.by_name(topic)
        return None if found is None else self.image().partitions.get(found.id, partition)

    def partition(self, node_id: int, topic: str = "t", partition: int = 0) -> Any:
        """A replica of a broker; None: it has none."""
        broker = self.brokers[node_id]
        if broker.stage is Stage.STARTING:
            return None
        found = broker.parts.replicas.all.get(TopicPartition(topic, partition))
        return None if found is None else found.partition

    # --- clients ------------------------------------------------------------------------------------------------------

    async def ask(
        self, node_id: int, request: Any, version: int, port: int = BROKER_PORT, *, client_id: str = "test"
    ) -> Any:
        """Send a request; the answer, or a `Failure`."""
        number = next(self._numbers)
        address = Address(f"n{node_id}", port, number)
        return await asking.ask(self.transport, address, request, version, number, client_id)

    async def ask_controller(self, request: Any, version: int) -> Any:
        """The same of the controller."""
        return await self.ask(CONTROLLER_ID, request, version, CONTROLLER_PORT)

    async def create(self, *replicas: Sequence[int], topic: str = "t", **configs: str) -> None:
        """Make a topic; its partitions' replicas are given."""
        kind = CreateTopicsRequest.CreatableTopic
        told = kind(
            name=topic,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                kind.CreatableReplicaAssignment(partition_index=number, broker_ids=list(each))
                for number, each in enumerate(replicas)
            ],
            configs=[
                kind.CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in configs.items()
            ],
        )
        answer = await self.ask_controller(CreateTopicsRequest(topics=[told], timeout_ms=30_000), 7)
        assert answer.topics[0].error_code == 0, answer

    async def delete(self, topic: str = "t") -> None:
        """Delete a topic."""
        state = DeleteTopicsRequest.DeleteTopicState(name=topic)
        answer = await self.ask_controller(DeleteTopicsRequest(topics=[state], timeout_ms=30_000), 6)
        assert answer.responses[0].error_code == 0, answer

    async def produce(self, node_id: int, *values: bytes, **more: Any) -> Any:
        """The answer for partition 0; see `asking.produce_request`."""
        request = asking.produce_request(*values, **more)
        return asking.produced(await self.ask(node_id, request, asking.PRODUCE_VERSION))

    async def values(self, node_id: int, offset: int = 0, **more: Any) -> list[bytes | None]:
        """What a consumer reads at once."""
        answer = await self.ask(node_id, asking.fetch_request(offset, **more), asking.FETCH_VERSION)
        return asking.values_in(asking.fetched(answer))


@asynccontextmanager
async def open_kraft_rig(folder: Path) -> AsyncIterator[KRaftRig]:
    """A rig; its nodes end with the block, without a word."""
    async with AsyncExitStack() as stack:
        nursery = await stack.enter_async_context(trio.open_nursery())
        stack.callback(nursery.cancel_scope.cancel)
        rig = KRaftRig(folder, nursery)
        rig.transport = await stack.enter_async_context(rig.network.transport("test"))
        yield rig
        for node in list(rig.nodes.values()):
            plugin_node(node).abort()
        await until(lambda: not rig.nodes)
