"""A Kafka for tests: brokers and controllers of kraftcore in this process, for unmodified clients over TCP."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

import trio

from kraftcore.config import NodeConfig
from kraftcore.config.properties import load_properties
from kraftcore.core.disk.files import OsFiles
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, NodeStoppedError, TransportError
from kraftcore.metadata import Image, MetadataMachine, Partition
from kraftcore.node import Node, open_node
from kraftcore.node.opening import tcp_transport
from kraftcore.node.outside import cancelled_part
from kraftcore.node.plugin import Plugin
from kraftcore.plugins.broker import BrokerConfig, KRaftBroker
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.controller import Controller
from kraftcore.storage.format import InitialVoter, format_directory, plan_format
from kraftcore.storage.meta_properties import load_folders
from kraftcore.storage.properties import format_properties
from kraftcore.testing.client_access import ClientAccess
from kraftcore.testing.ending import first_of, raise_end
from kraftcore.testing.kafka_transport import ClientsByTcp
from kraftcore.testing.network import cut_apart
from kraftcore.transports.memory import MemoryNetwork, MemoryTransport

if TYPE_CHECKING:
    from kraftcore.admin import AdminClient

CLIENTS = "CLIENT"
"""The listener that clients are served on."""
QUICK = {
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    "kraftcore.fast.fencing.ms": "100",
    "offsets.topic.num.partitions": "5",
    "replica.fetch.backoff.ms": "50",
    "replica.fetch.wait.max.ms": "200",
}
"""Properties in which nodes differ from Kafka's defaults: what tests wait for is shorter."""
_BETWEEN, _CONTROLLERS = "BROKER", "CONTROLLER"
_HOST = "127.0.0.1"
_BROKER_PORT, _CONTROLLER_PORT = 9092, 9093
_FIRST_CONTROLLER = 101
_POLL_S = 0.005
_TIMEOUT_S = 30.0
_ADMIN = "admin"


@dataclass(eq=False, slots=True)
class _Member:
    """A place for a node, kept while the node itself is killed and started anew."""

    node_id: int
    name: str
    is_broker: bool
    file: str = ""
    node: Node | None = None
    broker: KRaftBroker | None = None
    ended: trio.Event | None = None
    was_killed: bool = False


class KafkaCluster:
    """Brokers and their controllers, all in this process: ``async with KafkaCluster(3) as kafka``.

    Nodes, logs and frames are the real ones. Clients, of whatever language, connect to ``bootstrap_servers``; nodes
    talk over a network in memory that can be cut. Broker ids are 1 to N, controllers' ids begin at 101. For threads
    and for tests without trio there is ``in_thread``.

    When the block ends, the nodes end as if they were killed. A node that stopped by itself, and was not started again,
    makes the block raise its `NodeStoppedError`, or is the cause of what the block raises itself.

    Args:
        brokers: how many, >= 1.
        controllers: how many, >= 1; the quorum of the metadata log.
        directory: keep the nodes' files, and the properties each is started with, below this one, which may hold those
            of an earlier cluster of the same size; None: in a temporary folder that goes with the cluster.
        properties: further settings of all nodes, by Kafka's names, as ``{"min.insync.replicas": 2}``.
        node_properties: further settings of single nodes, by id, as ``{2: {"broker.rack": "b"}}``; they win.
        first_port: where broker 1 listens for clients, the others on those above; 0: any that are free.
        users: who may connect, with their passwords; they log in with PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. None:
            anybody, as ``User:ANONYMOUS``.
        tls: whether clients connect by TLS, to certificates for 127.0.0.1 and localhost that are made in ``directory``.

    Attributes:
        directory: where the files are; empty before the block begins, if they are temporary.
        security_protocol: how clients connect: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        network: between the nodes; its delays can be set at any time.
        failures: why nodes stopped by themselves, by id; delete what the test expected.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        controllers: int = 1,
        directory: str | os.PathLike[str] | None = None,
        properties: Mapping[str, object] | None = None,
        node_properties: Mapping[int, Mapping[str, object]] | None = None,
        first_port: int = 0,
        users: Mapping[str, str] | None = None,
        tls: bool = False,
    ) -> None:
        if brokers < 1 or controllers < 1:
            raise LocalError(f"a cluster of {brokers} brokers and {controllers} controllers: use at least 1 of each")
        if brokers >= _FIRST_CONTROLLER:
            raise LocalError(f"a cluster of {brokers} brokers: use at most {_FIRST_CONTROLLER - 1}")
        if first_port and not 0 < first_port <= 65536 - brokers:
            raise LocalError(f"first_port {first_port} leaves no room for {brokers} brokers up to port 65535")
        self._access = ClientAccess(CLIENTS, users or {}, has_tls=tls)
        self.security_protocol = self._access.protocol.name
        self.network = MemoryNetwork()
        self.failures: dict[int, NodeStoppedError] = {}
        self._given = _texts(properties or {})
        self._is_temporary = directory is None
        self.directory = "" if directory is None else os.fspath(directory)
        self._first_port = first_port
        self._ports: dict[int, socket.socket] = {}
        self._members = {
            **{each: _Member(each, f"broker-{each}", True) for each in range(1, brokers + 1)},
            **{
                each: _Member(each, f"controller-{each}", False)
                for each in range(_FIRST_CONTROLLER, _FIRST_CONTROLLER + controllers)
            },
        }
        self._given_to = {node_id: _texts(told) for node_id, told in (node_properties or {}).items()}
        for node_id in self._given_to:
            self._member(node_id)
        self._block: AbstractAsyncContextManager[Self] | None = None
        self._fault: BaseException | None = None
        self._failed = trio.Event()

    # --- files --------------------------------------------------------------------------------------------------------

    @property
    def _controllers(self) -> list[_Member]:
        return [member for member in self._members.values() if not member.is_broker]

    @property
    def bootstrap_controllers(self) -> tuple[str, ...]:
        """Where controllers listen, in the network in memory."""
        return tuple(f"{member.name}:{_CONTROLLER_PORT}" for member in self._controllers)

    def _prepare(self) -> None:
        """Write the properties, and format what is not formatted."""
        if self._is_temporary:
            self.directory = tempfile.mkdtemp(prefix="kraftcore-kafka-")
        self._access.prepare(self.directory)
        files = OsFiles()
        for member in self._members.values():
            folder = os.path.join(self.directory, member.name)
            os.makedirs(folder, exist_ok=True)
            member.file = f"{folder}.properties"
            with open(member.file, "wb", opener=partial(os.open, mode=0o600)) as target:  # it may hold passwords
                target.write(format_properties(self._properties(member, folder)))
        folders = load_folders(files, [os.path.join(self.directory, member.name) for member in self._members.values()])
        found = {each.cluster_id for each in folders.properties.values() if each.cluster_id is not None}
        cluster_id = next(iter(found), None) or str(Uuid.random())
        voters = [
            InitialVoter(member.node_id, member.name, _CONTROLLER_PORT, Uuid.random()) for member in self._controllers
        ]
        for member in self._members.values():
            folder = os.path.join(self.directory, member.name)
            if folder in folders.unformatted:
                first = None if member.is_broker else voters
                format_directory(
                    files, folder, plan_format(node_id=member.node_id, cluster_id=cluster_id, voters=first)
                )

    def _properties(self, member: _Member, folder: str) -> dict[str, str]:
        size = sum(each.is_broker for each in self._members.values())
        found = {
            "node.id": str(member.node_id),
            "process.roles": "broker" if member.is_broker else "controller",
            "controller.quorum.bootstrap.servers": ",".join(self.bootstrap_controllers),
            "controller.listener.names": _CONTROLLERS,
            "listener.security.protocol.map": (
                f"{_CONTROLLERS}:PLAINTEXT,{_BETWEEN}:PLAINTEXT,{CLIENTS}:{self.security_protocol}"
            ),
            "log.dirs": folder,
            "listeners": f"{_CONTROLLERS}://{member.name}:{_CONTROLLER_PORT}",
            "default.replication.factor": str(min(3, size)),
            "offsets.topic.replication.factor": str(min(3, size)),
            **QUICK,
        }
        if member.is_broker:
            port = self._port(member.node_id)
            found["listeners"] = f"{_BETWEEN}://{member.name}:{_BROKER_PORT},{CLIENTS}://{_HOST}:{port}"
            found["inter.broker.listener.name"] = _BETWEEN
            found.update(self._access.properties)
        return {**found, **self._given, **self._given_to.get(member.node_id, {})}

    def _port(self, node_id: int) -> int:
        """A broker's port for clients, the same as long as the cluster lives."""
        if node_id not in self._ports:
            # Bound and not listened on: nobody else gets the port, and the broker can bind it as well.
            holder = self._ports[node_id] = socket.socket()
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            wanted = self._first_port + node_id - 1 if self._first_port else 0
            try:
                holder.bind((_HOST, wanted))
            except OSError as error:
                raise TransportError(f"cannot listen on {_HOST}:{wanted}: {error}") from error
        port: int = self._ports[node_id].getsockname()[1]
        return port

    # --- running ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self._block is not None:
            raise LocalError("a cluster is used once: make another one")
        self._block = self._run()
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._block is None:
            return None
        return await self._block.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[Self]:
        raised: BaseException | None = None
        try:
            self._prepare()
            async with trio.open_nursery() as self._nursery, self.network.transport(_ADMIN) as self._admin_transport:
                try:
                    for node_id in reversed(self._members):  # controllers first
                        await self.start(node_id)
                    await self.wait_ready()
                    await self._let_users_in()
                    yield self
                except BaseException as error:
                    raised = error  # raised again outside the nursery, which would wrap it in a group
                with trio.CancelScope(shield=True):
                    for node_id, member in self._members.items():
                        if member.node is not None:
                            await self.kill(node_id)
                self._nursery.cancel_scope.cancel()
        finally:
            for holder in self._ports.values():
                holder.close()
            if self._is_temporary and self.directory:
                shutil.rmtree(self.directory, ignore_errors=True)
        raise_end(raised, self._fault, self.failures)

    async def _let_users_in(self) -> None:
        """Write the users into the metadata log, and wait until each broker knows them."""
        wanted = self._access.credentials
        if not wanted:
            return
        async with self.admin() as client:
            for each in wanted:  # a user may be altered once in a request
                await client.alter_scram_credentials([each])
        written = max(self._offset(each) for each in self.controllers)
        await self._until(
            lambda: all(self._offset(each) >= written for each in self.brokers), _TIMEOUT_S, "all brokers to know users"
        )

    def _offset(self, node_id: int) -> int:
        """Up to where a node that runs has applied the metadata log."""
        machine = self.nodes[node_id].state_machine
        return machine.offset if isinstance(machine, MetadataMachine) else -1

    async def start(self, node_id: int) -> None:
        """Start a node that does not run, with what its directory holds. A broker need not be unfenced yet.

        Raises:
            LocalError: it runs.
            KraftError: it cannot start.
        """
        member = self._member(node_id)
        if member.node is not None:
            raise LocalError(f"node {node_id} runs")
        self.failures.pop(node_id, None)
        if not self.failures and self._failed.is_set():
            self._failed = trio.Event()
        member.was_killed = False
        await self._nursery.start(self._run_node, member)

    async def _run_node(self, member: _Member, *, task_status: trio.TaskStatus[None]) -> None:
        properties = load_properties(member.file, {}).all
        config = NodeConfig.from_properties(member.file, with_broker=True, busy_poll_us=0)
        plugins: list[Plugin] = []
        if member.is_broker:
            member.broker = KRaftBroker(BrokerConfig.from_properties(member.file), properties)
            plugins.append(member.broker)
        else:
            plugins.append(Controller(properties))
        member.ended = trio.Event()
        began = False
        try:
            async with (
                self._transport(member, config) as transport,
                open_node(config, MetadataMachine(), transport=transport, plugins=plugins) as node,
            ):
                began = True
                member.node = node
                task_status.started()
                await trio.sleep_forever()
        except NodeStoppedError as error:
            if not member.was_killed:
                self.failures[member.node_id] = error
                self._failed.set()
        except BaseException as error:
            own = cancelled_part(error)[1]
            if own is None or not began:
                raise
            if not (member.was_killed and isinstance(own, Exception)):
                self._fault = first_of(own)
                self._nursery.cancel_scope.cancel()
        finally:
            member.node = member.broker = None
            member.ended.set()

    def _transport(
        self, member: _Member, config: NodeConfig
    ) -> AbstractAsyncContextManager[ClientsByTcp | MemoryTransport]:
        memory = self.network.transport(member.name)
        return ClientsByTcp(CLIENTS, memory, tcp_transport(config)) if member.is_broker else memory

    async def stop(self, node_id: int) -> None:
        """Stop a node in good order: a broker hands its leaderships over, as at SIGTERM."""
        member = self._running(node_id)
        member.node.stop()  # type: ignore[union-attr]
        await member.ended.wait()  # type: ignore[union-attr]

    async def stop_all(self) -> None:
        """Stop all nodes in good order, the brokers first."""
        for group in (self.brokers, self.controllers):
            async with trio.open_nursery() as nursery:
                for node_id in group:
                    nursery.start_soon(self.stop, node_id)

    async def kill(self, node_id: int) -> None:
        """End a node as SIGKILL would: connections break, nothing is told or written any more."""
        member = self._running(node_id)
        member.was_killed = True
        self.network.refuse(member.name)
        try:
            member.node.abort()  # type: ignore[union-attr]
            await member.ended.wait()  # type: ignore[union-attr]
        finally:
            self.network.accept(member.name)

    async def restart(self, node_id: int) -> None:
        """``kill`` a node if it runs, and ``start`` it."""
        if self._member(node_id).node is not None:
            await self.kill(node_id)
        await self.start(node_id)

    # --- the network --------------------------------------------------------------------------------------------------

    def partition(self, *groups: int | Iterable[int]) -> None:
        """Let nothing pass between these groups of nodes any more; who is in none of them is in a group of the others.

        ``kafka.partition(2)`` cuts broker 2 off. Nobody is told: connections stay, and are silent. Clients reach every
        broker as before. Undo it with ``heal``.
        """
        lists = [[group] if isinstance(group, int) else list(group) for group in groups]
        names = [[self._member(each).name for each in group] for group in lists]
        cut_apart(self.network, [member.name for member in self._members.values()], names)

    def heal(self) -> None:
        """Undo every ``partition``."""
        self.network.heal()

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: ``host:port`` of all brokers, whether they run or not."""
        return ",".join(self.address(each.node_id) for each in self._members.values() if each.is_broker)

    @property
    def ca_file(self) -> str | None:
        """The certificate that clients have to trust, as a PEM file; None: clients do not connect by TLS."""
        return self._access.ca_file

    def address(self, broker_id: int) -> str:
        """``host:port`` of one broker."""
        if not self._member(broker_id).is_broker:
            raise LocalError(f"node {broker_id} is a controller: clients connect to brokers")
        return f"{_HOST}:{self._port(broker_id)}"

    @property
    def nodes(self) -> dict[int, Node]:
        """The running nodes, by id."""
        return {node_id: member.node for node_id, member in self._members.items() if member.node is not None}

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of the brokers that run."""
        return tuple(node_id for node_id in self.nodes if self._members[node_id].is_broker)

    @property
    def controllers(self) -> tuple[int, ...]:
        """Ids of the controllers that run."""
        return tuple(node_id for node_id in self.nodes if not self._members[node_id].is_broker)

    def admin(self) -> AbstractAsyncContextManager[AdminClient]:
        """A client of kraftcore's that administers the cluster: ``async with kafka.admin() as client``."""
        from kraftcore.admin import connect

        return connect(
            bootstrap_controllers=self.bootstrap_controllers, transport=self._admin_transport, client_id="kafka-cluster"
        )

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Id of the broker that leads a partition, as the active controller has it; None: nobody, or there is none."""
        found = self._registered(topic, partition)
        return None if found is None or found.leader < 0 else found.leader

    def isr(self, topic: str, partition: int = 0) -> frozenset[int]:
        """Ids of the brokers that are in sync; empty if there is no such partition."""
        found = self._registered(topic, partition)
        return frozenset() if found is None else frozenset(found.isr)

    def _registered(self, topic: str, partition: int) -> Partition | None:
        image = self._image()
        known = None if image is None else image.topics.by_name(topic)
        return None if image is None or known is None else image.partitions.get(known.id, partition)

    def _image(self) -> Image | None:
        """The active controller's metadata."""
        active = [self.nodes[each] for each in self.controllers if self.nodes[each].is_leader]
        if not active:
            return None
        machine = max(active, key=lambda node: node.status().epoch).state_machine
        return machine.image if isinstance(machine, MetadataMachine) else None

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def wait_ready(self, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until all brokers that run are unfenced: topics can be made on them.

        Raises:
            AssertionError: they are not in time.
            NodeStoppedError: a node has stopped by itself, and was not started again.
        """

        def is_ready() -> bool:
            if self.failures:
                raise next(iter(self.failures.values()))
            image = self._image()
            return image is not None and all(
                broker in image.brokers and image.brokers[broker].is_active for broker in self.brokers
            )

        await self._until(is_ready, timeout_s, f"brokers {self.brokers} to be unfenced")

    async def wait_failed(self) -> None:
        """Wait until a node has stopped by itself and was not started again; ``failures`` says why."""
        await self._failed.wait()

    async def wait_leader(self, topic: str, partition: int = 0, timeout_s: float = _TIMEOUT_S) -> int:
        """Wait until a partition has a leader that runs, and knows that it leads; its id.

        Raises:
            AssertionError: there is none in time.
        """
        found: list[int] = []

        def has_leader() -> bool:
            leader = self.leader(topic, partition)
            if leader is not None and self._leads(leader, topic, partition):
                found.append(leader)
            return bool(found)

        await self._until(has_leader, timeout_s, f"a leader of {topic}-{partition}")
        return found[0]

    def _leads(self, broker_id: int, topic: str, partition: int) -> bool:
        broker = self._members[broker_id].broker
        known = None if broker is None else broker.core.cache.partition(topic, partition)
        if broker is None or known is None or known.leader != broker_id:
            return False
        replica = broker.core.replicas.all.get(TopicPartition(topic, partition))
        return replica is not None and replica.partition.leading is not None

    async def wait_isr(self, topic: str, size: int | None = None, timeout_s: float = _TIMEOUT_S) -> None:
        """Wait until so many replicas of each partition of a topic are in sync; None: all.

        Raises:
            AssertionError: they are not in time, or there is no such topic.
        """

        def are_in_sync() -> bool:
            image = self._image()
            known = None if image is None else image.topics.by_name(topic)
            if image is None or known is None:
                return False
            found = list(image.partitions.of_topic(known.id))
            return bool(found) and all(
                len(each.isr) == (len(each.replicas) if size is None else size) for _, each in found
            )

        await self._until(are_in_sync, timeout_s, f"the replicas of {topic} to be in sync")

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Make a topic, and wait until each broker knows it and each partition is led.

        Args:
            name: its name.
            partitions: how many.
            replication_factor: of each; None: three, or as many as there are brokers.
            configs: of the topic, by Kafka's names.

        Raises:
            PartlyRefusedError: it exists, or cannot be like this.
            AssertionError: the brokers do not know it in time.
        """
        from kraftcore.admin import NewTopic

        wanted = NewTopic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or {}),
        )
        async with self.admin() as client:
            await client.create_topics([wanted])
        await self._until(lambda: self._is_known(name, partitions), _TIMEOUT_S, f"all brokers to know {name}")

    def _is_known(self, topic: str, partitions: int) -> bool:
        for broker_id in self.brokers:
            broker = self._members[broker_id].broker
            found = {} if broker is None else broker.core.cache.topics.get(topic, {})
            if len(found) < partitions:
                return False
            led = [number for number, state in found.items() if state.leader == broker_id]
            if not all(self._leads(broker_id, topic, number) for number in led):
                return False
        return True

    async def _until(self, condition: Callable[[], bool], timeout_s: float, what: str) -> None:
        with trio.move_on_after(timeout_s):
            while not condition():
                await trio.sleep(_POLL_S)
            return
        raise AssertionError(f"waited {timeout_s:g} s for {what}; {self.failures or 'no node stopped by itself'}")

    def _member(self, node_id: int) -> _Member:
        try:
            return self._members[node_id]
        except KeyError:
            raise LocalError(f"there is no node {node_id}: there are {', '.join(map(str, self._members))}") from None

    def _running(self, node_id: int) -> _Member:
        member = self._member(node_id)
        if member.node is None:
            raise LocalError(f"node {node_id} does not run")
        return member


def _texts(properties: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in properties.items()}
