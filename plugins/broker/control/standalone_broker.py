"""A broker as a process of its own, with its own listeners, which obeys a controller's requests (LeaderAndIsr, ...)."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import trio

from kraftcore import __version__
from kraftcore.config.security import SecurityProtocol
from kraftcore.core.disk.files import Files
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.errors import LocalError, NodeStoppedError
from kraftcore.node.clock import Clock, wall_clock
from kraftcore.node.inbox import Inbox
from kraftcore.node.opening import Gate
from kraftcore.node.outbox import Outbox
from kraftcore.node.registry import Priority, Registry, RequestContext
from kraftcore.node.wrong_library import of_trio
from kraftcore.ownership import Owned
from kraftcore.plugins.broker.broker_parts import BrokerParts, Surroundings, raise_file_limit, topic_settings
from kraftcore.plugins.broker.config import BrokerConfig
from kraftcore.plugins.broker.control.authority import Authority
from kraftcore.plugins.broker.control.leader_and_isr import LeaderAndIsr
from kraftcore.plugins.broker.control.stop_replica import StopReplica
from kraftcore.plugins.broker.control.update_metadata import UpdateMetadata
from kraftcore.plugins.broker.controller_channel import ControllerChannel, through
from kraftcore.plugins.broker.handlers import broker_handler, client_handlers
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.metadata.cache import RequestCache
from kraftcore.plugins.broker.metadata.topic_settings import TopicSettingsTable
from kraftcore.plugins.broker.work.disk_threads import run_in_threads
from kraftcore.ports.nursery import open_nursery
from kraftcore.ports.transport import Address, Transport
from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kraftcore.protocol.messages.stop_replica import StopReplicaRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataRequest
from kraftcore.raft.events import Event
from kraftcore.raft.quorum import Endpoint
from kraftcore.transports.tcp import TcpTransport

_logger = logging.getLogger("kraftcore.broker")


class Broker(Owned):
    """A running broker; made by ``open_broker``.

    Attributes:
        config: as given.
        endpoints: the addresses that its listeners are bound to.
        cluster_id: of the cluster that its directories belong to.
        replicas: its partitions.
        cache: the brokers and partitions that the controller announced.
        groups: coordinates consumer groups.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicSettingsTable,
        dirs: LogDirs,
        transport: Transport,
        nursery: trio.Nursery,
        clock: Clock,
    ) -> None:
        self.config = config
        self.endpoints: tuple[Endpoint, ...] = ()
        self.cluster_id = dirs.cluster_id
        self.cache = RequestCache()
        self._transport = transport
        self._gate = Gate()
        self._control = trio.Lock()
        self._failed = trio.Event()
        self._failure: BaseException | None = None
        # The broker epoch of this run; later runs have greater ones as long as the clock is not set back.
        self._authority = Authority(max(clock.now_ms(), 1))
        outbox = Outbox(transport, f"broker-{config.node_id}", __version__, _logger.warning)
        around = Surroundings(
            cache=self.cache,
            topics=topics,
            broker_epoch=lambda: self._authority.broker_epoch,
            outbox=outbox,
            controllers=ControllerChannel(self._find_controller, through(outbox)),
            nursery=nursery,
            now_ms=clock.now_ms,
            wall_ms=wall_clock(),
            fail=self._fail,
        )
        self._parts = BrokerParts(config, dirs, around)
        self.replicas = self._parts.replicas
        self.groups = self._parts.groups
        names = [endpoint.name for endpoint in config.listeners]
        self._registry = Registry(names)
        self._inbox = Inbox(
            _no_consensus,
            self._registry,
            nursery,
            lambda response: None,
            _logger.warning,
            self._fail,
            clock.now_ms,
            dict.fromkeys(names, SecurityProtocol.PLAINTEXT),
        )
        for handler in client_handlers(self._parts):
            self._registry.register(handler)
        self._obey_controllers()

    def _find_controller(self) -> Address | None:
        controller = self.cache.announcer_id
        return None if controller is None else self.cache.address(controller, self.config.broker_listener)

    # --- requests -----------------------------------------------------------------------------------------------------

    def _obey_controllers(self) -> None:
        parts, authority, replicas, cache = self._parts, self._authority, self.replicas, self.cache
        refresh, now_ms = parts.refresh, parts.now_ms
        leader_and_isr = LeaderAndIsr(self.config.node_id, authority, replicas, cache, now_ms, refresh)
        self._obey(LeaderAndIsrRequest, (0, 7), leader_and_isr)
        self._obey(StopReplicaRequest, (0, 4), StopReplica(authority, replicas, now_ms, refresh))
        self._obey(
            UpdateMetadataRequest, (0, 8), UpdateMetadata(authority, cache, refresh, self.groups.partitions_deleted)
        )

    def _obey(self, kind: Any, versions: tuple[int, int], handler: Any) -> None:
        async def respond(request: Any, context: RequestContext) -> Any:
            # One request at a time, and none while a log is flushed: deleting and truncating must wait for that.
            async with self._control, self._parts.disk:
                found = handler.handle(request, context.version)
                return await run_in_threads(found) if isinstance(found, Generator) else found

        self._registry.register(broker_handler(kind, versions, respond, Priority.CONTROL))

    # --- start and end ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and begin the periodic duties."""
        bound = []
        for each in self.config.listeners:
            address = await self._transport.listen(each.name, Address(each.host, each.port), self._gate.serve)
            bound.append(Endpoint(each.name, each.host, address.port))
        self.endpoints = tuple(bound)
        self._gate.open(self._inbox.serve)
        self._parts.start()

    async def wait_failed(self) -> None:
        """Wait until the broker fails; leaving the block of ``open_broker`` then raises the reason."""
        await self._failed.wait()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the broker; None: it runs."""
        return self._failure

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            _logger.critical("broker %d stops: %s", self.config.node_id, error)
            self._failure = error
            self._failed.set()

    def stop_answering(self) -> None:
        """Answer no more requests: the broker's tasks are about to end, and no new one can be started."""
        self._gate.close()
        self._inbox.close()

    def close(self) -> None:
        """Hand the high watermarks to the log directories, which store them when they are closed."""
        self.replicas.store_high_watermarks()


@of_trio
@asynccontextmanager
async def open_broker(
    config: BrokerConfig, *, transport: Transport | None = None, files: Files | None = None
) -> AsyncIterator[Broker]:
    """Run a broker for as long as the block runs.

    Args:
        config: see ``BrokerConfig``.
        transport: carries the frames; None: TCP. It stays open after the block if it was given.
        files: where the directories are; None: the operating system's.

    Yields:
        The broker; it listens. It has no partitions until a controller says so.

    Raises:
        LocalError: this is not trio; a directory belongs to another broker or cluster.
        LockedError: another process owns a directory.
        CorruptDataError, StorageError: a directory cannot be read.
        TransportError: a listener cannot be opened.
        NodeStoppedError: the broker failed while the block ran; ``__cause__`` says why.
    """
    disk = OsFiles() if files is None else files
    raise_file_limit()
    topics = topic_settings(config)
    now_ms = int(time.time() * 1000)
    make = partial(
        LogDirs,
        disk,
        config.directories,
        config.node_id,
        topics.log_config,
        config.delete_delay_ms,
        now_ms,
        producer_expiration_ms=config.producer_expiration_ms,
        believes_lists=False,
    )
    dirs = await trio.to_thread.run_sync(make)
    broker: Broker | None = None
    raised: BaseException | None = None
    try:
        async with _transport(config, transport) as carrier, open_nursery() as nursery:
            try:
                broker = Broker(config, topics, dirs, carrier, nursery, Clock())
                await broker.start()
                yield broker
            except BaseException as error:
                raised = error
            if broker is not None:
                broker.stop_answering()
            nursery.cancel_scope.cancel()
    finally:
        if broker is not None:
            broker.close()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(dirs.close)
    if broker is not None and broker.failure is not None:
        raise NodeStoppedError(f"broker {config.node_id} stopped: {broker.failure}") from broker.failure
    if raised is not None:
        raise raised


@asynccontextmanager
async def _transport(config: BrokerConfig, given: Transport | None) -> AsyncIterator[Transport]:
    if given is not None:
        yield given
        return
    async with TcpTransport(
        max_frame_bytes=config.request_max_bytes,
        max_connections=config.max_connections,
        max_connections_per_peer=max(config.max_connections, 1),
        vital_listeners=[config.broker_listener],
    ) as transport:
        yield transport


def _no_consensus(event: Event) -> None:
    raise LocalError(f"a broker has no consensus to hand {type(event).__name__} to")
