"""A Kafka for tests: brokers and controllers of kraftcore in this process, for unmodified clients over TCP."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Literal, NoReturn, Self, TypeAlias

import trio

from kraftcore.config import NodeConfig
from kraftcore.config.properties import load_properties
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, NodeStoppedError, UnreachableError
from kraftcore.metadata import Image, MetadataMachine, Partition
from kraftcore.node import Node, open_node
from kraftcore.node.opening import tcp_transport
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import plugin_node
from kraftcore.ownership import Owned, belongs_here
from kraftcore.plugins.broker import BrokerConfig, KRaftBroker
from kraftcore.plugins.broker.api.fetch_sessions import FetchSession
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.controller import Controller
from kraftcore.plugins.controller.fast_fencing import Presence
from kraftcore.ports.async_library import check_trio
from kraftcore.ports.nursery import cancelled_part, first_of, open_nursery
from kraftcore.testing.client_access import ClientAccess
from kraftcore.testing.clock import TIMEOUT_S
from kraftcore.testing.ending import raise_end
from kraftcore.testing.faults import Faults, Gate
from kraftcore.testing.kafka_files import CLIENTS, KafkaFiles, Place
from kraftcore.testing.kafka_transport import ClientsByTcp
from kraftcore.testing.network import cut_apart
from kraftcore.transports.memory import MemoryNetwork, MemoryTransport

if TYPE_CHECKING:
    from kraftcore.admin import AdminClient

NodeState: TypeAlias = Literal["running", "paused", "stopped"]
_POLL_S = 0.005
REACHED_S = 1.0
"""How long the end of a broker waits until controllers that fence fast will notice it."""
_ADMIN = "admin"


@dataclass(eq=False, slots=True)
class _Member:
    """What is at a place, kept while the node itself is killed and started anew."""

    place: Place
    node: Node[MetadataMachine] | None = None
    broker: KRaftBroker | None = None
    controller: Controller | None = None
    ended: trio.Event | None = None
    was_killed: bool = False
    is_starting: bool = False


class KafkaCluster(Owned):
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
            of an earlier cluster of as many brokers and controllers; None: in a temporary folder that goes with the
            cluster.
        properties: further settings of all nodes, by Kafka's names, as ``{"min.insync.replicas": 2}``; which nodes
            there are, their directories and their listeners are not among them.
        node_properties: further settings of single nodes, by id, as ``{2: {"broker.rack": "b"}}``; they win.
        first_port: where broker 1 listens for clients, the others on those above; 0: any that are free.
        users: who may connect, with their passwords; they log in with PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. None:
            anybody, as ``User:ANONYMOUS``. A directory goes on with the users that it was made with.
        tls: whether clients connect by TLS, to certificates for 127.0.0.1 and localhost that are made in ``directory``.

    Attributes:
        security_protocol: how clients connect: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
        network: between the nodes; its delays can be set at any time.
        faults: of requests, see `Faults`.
        failures: why nodes stopped by themselves, by id; delete what the test expected.

    Raises:
        LocalError: there cannot be such a cluster; when the block begins, also: ``directory`` holds another one.
        ConfigError: when the block begins: a property is unknown, or cannot be like this.
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
        self._access = ClientAccess(CLIENTS, users or {}, has_tls=tls)
        self._files = KafkaFiles(
            brokers,
            controllers,
            directory=directory,
            properties=properties or {},
            node_properties=node_properties or {},
            first_port=first_port,
            access=self._access,
            by_tcp=False,
        )
        self.security_protocol = self._access.protocol.name
        self.network = MemoryNetwork()
        self.failures: dict[int, NodeStoppedError] = {}
        self.faults = Faults(
            tuple(each for each, place in self._files.places.items() if place.is_broker), self._topic_name
        )
        self._members = {node_id: _Member(place) for node_id, place in self._files.places.items()}
        self._block: AbstractAsyncContextManager[Self] | None = None
        self._fault: BaseException | None = None
        self._failed = trio.Event()

    def __repr__(self) -> str:
        if not self.nodes:
            return "<kraftcore.testing.KafkaCluster of no running node>"
        brokers, controllers = (", ".join(map(str, each)) or "none" for each in (self.brokers, self.controllers))
        running = f"brokers {brokers}, controllers {controllers}"
        return f"<kraftcore.testing.KafkaCluster at {self.bootstrap_servers}: {running}>"

    @property
    def directory(self) -> str:
        """Where the files are, an absolute path; empty before the block begins, if they are temporary."""
        return self._files.directory

    @property
    def bootstrap_controllers(self) -> tuple[str, ...]:
        """Where controllers listen, in the network in memory."""
        return self._files.bootstrap_controllers

    # --- running ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        check_trio("kraftcore.testing.KafkaCluster", "write `with in_thread(KafkaCluster(...)) as kafka`")
        if self._block is not None:
            raise LocalError("a cluster is used once: make another one")
        self._block = self._run()
        return await self._block.__aenter__()

    if not TYPE_CHECKING:  # type checkers find the plain `with` by themselves

        def __enter__(self) -> NoReturn:
            raise LocalError("write `async with` for this cluster on trio, elsewhere `with in_thread(KafkaCluster())`")

        def __exit__(self, *_: object) -> None: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if not belongs_here(self) or self._block is None:
            return None
        return await self._block.__aexit__(kind, error, trace)

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[Self]:
        raised: BaseException | None = None
        with self._files:
            self._files.prepare()
            with self._files.naming_properties():
                for node_id in self._files.given_nodes:
                    self._load(node_id)
            async with open_nursery() as self._nursery, self.network.transport(_ADMIN) as self._admin_transport:
                try:
                    for node_id in reversed(self._members):  # controllers first
                        await self.start(node_id)
                    await self.wait_ready()
                    yield self
                except BaseException as error:
                    raised = error  # what it comes of is known at the end
                with trio.CancelScope(shield=True):
                    for member in self._members.values():
                        if member.node is not None:
                            await self._end(member)
                self._nursery.cancel_scope.cancel()
        raise_end(raised, self._fault, self.failures)

    async def start(self, node_id: int) -> None:
        """Start a node that does not run, with what its directory holds. A broker need not be unfenced yet.

        Where controllers fence fast, a broker begins when the session of its last life is over: a tenth of a second
        after that. They would take who listens at its address for the one that died, and refuse the new one until its
        session ends by itself.

        Raises:
            LocalError: it runs, or somebody else is starting it.
            KraftError: it cannot start.
        """
        member = self._member(node_id)
        if member.node is not None:
            raise LocalError(f"node {node_id} runs")
        if member.is_starting:
            raise LocalError(f"node {node_id} is being started")
        self.failures.pop(node_id, None)
        if not self.failures and self._failed.is_set():
            self._failed = trio.Event()
        member.was_killed = False
        member.is_starting = True
        try:
            if member.place.is_broker:
                with trio.move_on_after(TIMEOUT_S):
                    while any(each.has_reached(node_id) for each in self._presences):
                        await trio.sleep(_POLL_S)
            await self._nursery.start(self._run_node, member)
        finally:
            member.is_starting = False

    async def _run_node(self, member: _Member, *, task_status: trio.TaskStatus[None]) -> None:
        config, settings, properties = self._load(member.place.node_id)
        plugins: list[Plugin] = []
        if settings is not None:
            member.broker = KRaftBroker(settings, properties)
            plugins.append(member.broker)
        else:
            member.controller = Controller(properties)
            plugins.append(member.controller)
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
                self.failures[member.place.node_id] = error
                self._failed.set()
        except BaseException as error:
            own = cancelled_part(error)[1]
            if own is None or not began:
                raise
            if not (member.was_killed and isinstance(own, Exception)):
                self._fault = first_of(own)
                self._nursery.cancel_scope.cancel()
        finally:
            self.network.resume(member.place.name)
            member.node = member.broker = member.controller = None
            member.ended.set()

    def _load(self, node_id: int) -> tuple[NodeConfig, BrokerConfig | None, dict[str, str]]:
        """What a node's file says: of the node, of its broker, and all of it."""
        file = self._files.file(node_id)
        config = NodeConfig.from_properties(file, with_broker=True, busy_poll_us=0)
        settings = BrokerConfig.from_properties(file) if self._files.places[node_id].is_broker else None
        return config, settings, load_properties(file, {}).all

    def _transport(
        self, member: _Member, config: NodeConfig
    ) -> AbstractAsyncContextManager[ClientsByTcp | MemoryTransport]:
        memory = self.network.transport(member.place.name)
        if not member.place.is_broker:
            return memory

        def sessions() -> Iterable[FetchSession]:
            return () if member.broker is None else member.broker.parts.fetch.sessions

        gate = partial(Gate, member.place.node_id, self.faults, sessions, memory)
        return ClientsByTcp(CLIENTS, memory, tcp_transport(config), gate)

    async def stop(self, node_id: int) -> None:
        """Stop a node in good order: a broker hands its leaderships over, as at SIGTERM. One that is paused goes on.

        As ``kill`` it waits a second at most until a controller that fences fast has reached a broker that is new.
        """
        member = self._running(node_id)
        self.network.resume(member.place.name)
        await self._wait_reached(member)
        if member.node is not None and member.ended is not None:  # it may have stopped by itself meanwhile
            member.node.stop()
            await member.ended.wait()

    async def stop_all(self) -> None:
        """Stop all nodes in good order, the brokers first; nodes that were paused or cut off, too.

        Brokers that no majority of controllers could let go are killed: they would wait for a minute.
        """
        self.network.heal()
        for node_id in self.nodes:
            self.resume(node_id)
        controllers = sum(not member.place.is_broker for member in self._members.values())
        end_broker = self.stop if 2 * len(self.controllers) > controllers else self.kill
        for group, end in ((self.brokers, end_broker), (self.controllers, self.stop)):
            async with open_nursery() as nursery:
                for node_id in group:
                    nursery.start_soon(end, node_id)

    async def kill(self, node_id: int) -> None:
        """End a node as SIGKILL would: connections break, nothing is told or written any more."""
        member = self._running(node_id)
        await self._wait_reached(member)
        await self._end(member)

    async def _end(self, member: _Member) -> None:
        if member.node is None or member.ended is None:
            return  # it stopped by itself meanwhile
        member.was_killed = True
        self.network.refuse(member.place.name)
        try:
            plugin_node(member.node).abort()
            await member.ended.wait()
        finally:
            self.network.accept(member.place.name)

    async def restart(self, node_id: int) -> None:
        """``kill`` a node if it runs, and ``start`` it."""
        if self._member(node_id).node is not None:
            await self.kill(node_id)
        await self.start(node_id)

    def pause(self, node_id: int) -> None:
        """Freeze a node as SIGSTOP would: it takes nothing and sends nothing until ``resume``, and connections stay.

        Clients and other nodes wait for it in vain. Requests of clients that it had taken before may still be answered.
        What differs from SIGSTOP: the node's own timers go on, so it may know when it goes on that it was late.
        """
        self.network.pause(self._running(node_id).place.name)

    def resume(self, node_id: int) -> None:
        """Undo ``pause``: what waited for the node is taken now, in order."""
        self.network.resume(self._running(node_id).place.name)

    # --- the network --------------------------------------------------------------------------------------------------

    def partition(self, *groups: int | Iterable[int]) -> None:
        """Let nothing pass between these groups of nodes any more; who is in none of them is in a group of the others.

        ``kafka.partition(2)`` cuts broker 2 off. Nobody is told: connections stay, and are silent. Clients reach every
        broker as before. Undo it with ``heal``.

        Raises:
            LocalError: a node is in two groups, or there is no such node.
        """
        lists = [[group] if isinstance(group, int) else list(group) for group in groups]
        names = [[self._member(each).place.name for each in group] for group in lists]
        cut_apart(self.network, [member.place.name for member in self._members.values()], names)

    def heal(self) -> None:
        """Undo every ``partition``."""
        self.network.heal()

    # --- looking ------------------------------------------------------------------------------------------------------

    @property
    def bootstrap_servers(self) -> str:
        """What clients are given: ``host:port`` of all brokers, whether they run or not."""
        return self._files.bootstrap_servers

    @property
    def ca_file(self) -> str | None:
        """The certificate that clients have to trust, as a PEM file; None: clients do not connect by TLS."""
        return self._access.ca_file

    def address(self, broker_id: int) -> str:
        """``host:port`` of one broker."""
        return self._files.client_address(broker_id)

    @property
    def nodes(self) -> dict[int, Node[MetadataMachine]]:
        """The running nodes, by id."""
        return {node_id: member.node for node_id, member in self._members.items() if member.node is not None}

    @property
    def states(self) -> dict[int, NodeState]:
        """Whether each node runs, is paused or is stopped, by id, brokers first."""
        return {
            node_id: "stopped"
            if member.node is None
            else "paused"
            if self.network.is_paused(member.place.name)
            else "running"
            for node_id, member in self._members.items()
        }

    @property
    def brokers(self) -> tuple[int, ...]:
        """Ids of the brokers that run."""
        return tuple(node_id for node_id in self.nodes if self._members[node_id].place.is_broker)

    @property
    def controllers(self) -> tuple[int, ...]:
        """Ids of the controllers that run."""
        return tuple(node_id for node_id in self.nodes if not self._members[node_id].place.is_broker)

    @property
    def _presences(self) -> list[Presence]:
        """Of the controllers that run and fence fast."""
        controllers = (member.controller for member in self._members.values())
        found = (None if each is None else each.presence for each in controllers)
        return [each for each in found if each is not None]

    async def _wait_reached(self, member: _Member) -> None:
        """A broker is about to end: wait, not for long, until controllers that fence fast will notice it."""
        if member.place.is_broker and self._presences:
            with trio.move_on_after(REACHED_S):
                # It may stop by itself meanwhile.
                while member.node and not any(each.has_reached(member.place.node_id) for each in self._presences):
                    await trio.sleep(_POLL_S)

    def admin(self) -> AbstractAsyncContextManager[AdminClient]:
        """A client of kraftcore's that administers the cluster: ``async with kafka.admin() as client``."""
        return self._admin(None)

    def _admin(self, timeout_s: float | None) -> AbstractAsyncContextManager[AdminClient]:
        """``timeout_s``: of a call; None: the client's own."""
        from kraftcore.admin import Timing, connect

        return connect(
            bootstrap_controllers=self.bootstrap_controllers,
            transport=self._admin_transport,
            timing=None if timeout_s is None else Timing(call_timeout_ms=max(1, round(timeout_s * 1000))),
            client_id="kafka-cluster",
        )

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """Id of the broker that leads a partition, as the active controller has it; None: nobody, or none is active.

        Raises:
            LocalError: there is no such topic or partition.
        """
        found = self._registered(topic, partition)
        return None if found is None or found.leader < 0 else found.leader

    def isr(self, topic: str, partition: int = 0) -> frozenset[int]:
        """Ids of the brokers that are in sync, as the active controller has it; empty: none is active.

        Raises:
            LocalError: there is no such topic or partition.
        """
        found = self._registered(topic, partition)
        return frozenset() if found is None else frozenset(found.isr)

    def _registered(self, topic: str, partition: int) -> Partition | None:
        image = self._image()
        if image is None:
            return None
        known = image.topics.by_name(topic)
        found = None if known is None else image.partitions.get(known.id, partition)
        missing = self._missing(topic, partition) if found is None else None
        if missing is not None:
            raise LocalError(missing)
        return found

    def _missing(self, topic: str, partition: int = 0) -> str | None:
        """What no node knows of, the topic or this partition of it; None: it is there."""
        # All are asked: a controller that has just become the active one may not have applied the whole log.
        images = [node.state_machine.image for node in self.nodes.values()]
        known = [(image, found.id) for image in images if (found := image.topics.by_name(topic)) is not None]
        if not known:
            return f"there is no topic {topic}"
        if all(image.partitions.get(topic_id, partition) is None for image, topic_id in known):
            return f"topic {topic} has no partition {partition}"
        return None

    def _topic_name(self, topic_id: Uuid) -> str | None:
        found = (node.state_machine.image.topics.get(topic_id) for node in self.nodes.values())
        return next((topic.name for topic in found if topic is not None), None)

    def _image(self) -> Image | None:
        """The active controller's metadata."""
        active = [self.nodes[each] for each in self.controllers if self.nodes[each].is_leader]
        if not active:
            return None
        return max(active, key=lambda node: node.status().epoch).state_machine.image

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def wait_ready(self, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until all brokers that run are registered and unfenced: topics can be made on them.

        Raises:
            AssertionError: they are not in time.
            NodeStoppedError: a node has stopped by itself, and was not started again.
        """

        def is_ready() -> bool:
            if self.failures:
                raise next(iter(self.failures.values()))
            image = self._image()
            return image is not None and all(self._is_active(broker, image) for broker in self.brokers)

        await self._until(is_ready, timeout_s, f"brokers {self.brokers} to be unfenced")

    def _is_active(self, broker_id: int, image: Image) -> bool:
        """Whether the controller counts on a broker as it runs: not on its life before this one."""
        broker, known = self._members[broker_id].broker, image.brokers.get(broker_id)
        return broker is not None and known is not None and known.is_active and known.epoch == broker.broker_epoch

    async def wait_failed(self) -> None:
        """Wait until a node has stopped by itself and was not started again; ``failures`` says why."""
        await self._failed.wait()

    async def wait_leader(self, topic: str, partition: int = 0, timeout_s: float = TIMEOUT_S) -> int:
        """Wait until a partition has a leader that runs, and knows that it leads; its id. The topic may yet be made.

        Raises:
            AssertionError: there is none in time, or no such partition; it says which.
        """
        found: list[int] = []

        def has_leader() -> bool:
            leader = None if self._missing(topic, partition) else self.leader(topic, partition)
            if leader is not None and self._leads(leader, topic, partition):
                found.append(leader)
            return bool(found)

        missing = partial(self._missing, topic, partition)
        await self._until(has_leader, timeout_s, f"a leader of {topic}-{partition}", missing)
        return found[0]

    def _leads(self, broker_id: int, topic: str, partition: int) -> bool:
        broker = self._members[broker_id].broker
        known = None if broker is None else broker.parts.cache.partition(topic, partition)
        if broker is None or known is None or known.leader != broker_id:
            return False
        replica = broker.parts.replicas.all.get(TopicPartition(topic, partition))
        return replica is not None and replica.partition.leading is not None

    async def move_leader(
        self, topic: str, partition: int = 0, to: int | None = None, timeout_s: float = TIMEOUT_S
    ) -> int:
        """Have another broker lead a partition, which becomes the first of its replicas, and wait until it does.

        Args:
            topic: of the partition.
            partition: its number.
            to: one that is in sync; None: any.
            timeout_s: for the waiting.

        Returns:
            Who leads.

        Raises:
            LocalError: there is no such partition, nobody else is in sync, or ``to`` is not.
            AssertionError: it does not lead in time.
        """
        from kraftcore.admin import ElectionType
        from kraftcore.admin import TopicPartition as Asked

        found = self._registered(topic, partition)
        if found is None:
            raise LocalError(f"no controller is active: nobody can move the leader of {topic}-{partition}")
        in_sync = ", ".join(map(str, found.isr))
        chosen = next((each for each in found.isr if each != found.leader), -1) if to is None else to
        if chosen not in found.isr:
            what = "no other broker is in sync" if to is None else f"broker {to} is not in sync"
            raise LocalError(f"{what}: broker {found.leader} leads {topic}-{partition}, in sync are {in_sync}")
        place = Asked(topic, partition)
        async with self._admin(timeout_s) as client:
            await client.alter_reassignments({place: [chosen, *(each for each in found.replicas if each != chosen)]})
            await client.elect_leaders(ElectionType.PREFERRED, [place])
        await self._until(
            lambda: self.leader(topic, partition) == chosen and self._leads(chosen, topic, partition),
            timeout_s,
            f"broker {chosen} to lead {topic}-{partition}",
        )
        return chosen

    async def wait_isr(self, topic: str, size: int | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until so many replicas of each partition of a topic are in sync, on brokers that run; None: all.

        Raises:
            AssertionError: they are not in time, or there is no such topic; it says which.
        """

        def are_in_sync() -> bool:
            image = self._image()
            known = None if image is None else image.topics.by_name(topic)
            if image is None or known is None:
                return False
            found = list(image.partitions.of_topic(known.id))
            return bool(found) and all(
                len(each.isr) == (len(each.replicas) if size is None else size)
                and all(self._is_active(broker, image) for broker in each.isr)
                for _, each in found
            )

        missing = partial(self._missing, topic)
        await self._until(are_in_sync, timeout_s, f"the replicas of {topic} to be in sync", missing)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        *,
        configs: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """Make a topic, and wait until each broker knows it and each partition is led.

        Args:
            name: its name.
            partitions: how many.
            replication_factor: of each; None: three, or as many as there are brokers.
            configs: of the topic, by Kafka's names.
            timeout_s: how long all of it may take.

        Raises:
            PartlyRefusedError: it exists, or cannot be like this.
            AssertionError: no controller answers, or the brokers do not know it in time.
        """
        from kraftcore.admin import NewTopic

        wanted = NewTopic(
            name,
            partitions=partitions,
            replication_factor=replication_factor,
            configs=dict(configs or {}),
        )
        deadline = trio.current_time() + timeout_s
        try:
            async with self._admin(timeout_s) as client:
                await client.create_topics([wanted])
        except UnreachableError as error:
            raise AssertionError(
                f"waited {timeout_s:g} s for a controller to make {name}: {error.last_failure}"
            ) from error
        left_s = max(0.0, deadline - trio.current_time())
        await self._until(lambda: self._is_known(name, partitions), left_s, f"all brokers to know {name}")

    def _is_known(self, topic: str, partitions: int) -> bool:
        for broker_id in self.brokers:
            broker = self._members[broker_id].broker
            found = {} if broker is None else broker.parts.cache.topics.get(topic, {})
            if len(found) < partitions:
                return False
            led = [number for number, state in found.items() if state.leader == broker_id]
            if not all(self._leads(broker_id, topic, number) for number in led):
                return False
        return True

    async def _until(
        self,
        condition: Callable[[], bool],
        timeout_s: float,
        what: str,
        missing: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``missing`` says at the end what is not even there."""
        with trio.move_on_after(timeout_s):
            while not condition():
                await trio.sleep(_POLL_S)
            return
        idle = ", ".join(f"node {node_id} is {state}" for node_id, state in self.states.items() if state != "running")
        why = [text for text in (missing(), idle, str(self.failures or "no node stopped by itself")) if text]
        raise AssertionError(f"waited {timeout_s:g} s for {what}; {'; '.join(why)}")

    def _member(self, node_id: int) -> _Member:
        return self._members[self._files.place(node_id).node_id]

    def _running(self, node_id: int) -> _Member:
        member = self._member(node_id)
        if member.node is None:
            raise LocalError(f"node {node_id} does not run")
        return member
