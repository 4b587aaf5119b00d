"""A broker on trio: the parts put together, and their periodic duties."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import trio

from kraftcore import __version__
from kraftcore.config.security import SecurityProtocol
from kraftcore.core.disk.files import Files, OsFiles
from kraftcore.core.log.config import LogConfig
from kraftcore.errors import KraftError, LocalError, NodeStoppedError, StorageError
from kraftcore.node.clock import Clock
from kraftcore.node.inbox import Inbox
from kraftcore.node.outbox import Outbox
from kraftcore.node.registry import Priority, Registry, RequestContext, RequestHandler
from kraftcore.node.worlds import of_trio
from kraftcore.plugins.broker.api.fetch import Fetch
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.list_offsets import ListOffsets
from kraftcore.plugins.broker.api.metadata import Metadata
from kraftcore.plugins.broker.api.offset_for_leader_epoch import OffsetForLeaderEpoch
from kraftcore.plugins.broker.api.produce import BatchLimits, Produce
from kraftcore.plugins.broker.config import BrokerConfig
from kraftcore.plugins.broker.control.authority import Authority
from kraftcore.plugins.broker.control.leader_and_isr import LeaderAndIsr
from kraftcore.plugins.broker.control.stop_replica import StopReplica
from kraftcore.plugins.broker.control.update_metadata import UpdateMetadata
from kraftcore.plugins.broker.deadlines import Deadlines
from kraftcore.plugins.broker.fetchers import Fetchers, FetchSettings
from kraftcore.plugins.broker.isr_changes import IsrChanges
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.partition.partition import PartitionSettings
from kraftcore.plugins.broker.partition.retention import Retention
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.ports.transport import Address, Transport
from kraftcore.protocol.messages.fetch import FetchRequest
from kraftcore.protocol.messages.leader_and_isr import LeaderAndIsrRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest
from kraftcore.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.messages.stop_replica import StopReplicaRequest
from kraftcore.protocol.messages.update_metadata import UpdateMetadataRequest
from kraftcore.raft.events import Event
from kraftcore.raft.quorum import Endpoint
from kraftcore.transports.tcp import TcpTransport

# The last batches of a log that followers and consumers who keep up read from memory.
_TAIL_BYTES = 256 * 1024
_EXPIRING_MS = 600_000  # how often producers are forgotten (producer.id.expiration.check.interval.ms)
_DELETING_MS = 500  # how often is looked whose deletion is due

_logger = logging.getLogger("kraftcore.broker")


class Broker:
    """A running broker; made by ``open_broker``.

    Attributes:
        config: as given.
        endpoints: where its listeners are bound.
        cluster_id: of the cluster that its directories belong to.
        replicas: its partitions.
        cache: what the controller announced.
    """

    def __init__(
        self, config: BrokerConfig, dirs: LogDirs, transport: Transport, nursery: trio.Nursery, clock: Clock
    ) -> None:
        self.config = config
        self.endpoints: tuple[Endpoint, ...] = ()
        self.cluster_id = dirs.cluster_id
        self.cache = cache = MetadataCache()
        self._dirs = dirs
        self._transport = transport
        self._nursery = nursery
        self._now_ms = now_ms = clock.now_ms
        self._disk = trio.Lock()
        self._control = trio.Lock()
        self._failed = trio.Event()
        self._failure: BaseException | None = None
        settings = PartitionSettings(config.min_insync_replicas, config.replica_lag_time_max_ms)
        self.replicas = replicas = Replicas(config.node_id, dirs, cache, settings)
        # Of one run; those of later runs are greater as long as the clock is not set back.
        authority = Authority(max(now_ms(), 1))
        outbox = Outbox(transport, f"broker-{config.node_id}", __version__, _logger.warning)
        common = (config.node_id, authority.broker_epoch, replicas, cache, config.broker_listener, outbox)
        fetch_settings = FetchSettings(
            config.replica_fetch_wait_max_ms,
            config.replica_fetch_min_bytes,
            config.replica_fetch_max_bytes,
            config.replica_fetch_response_max_bytes,
            config.replica_fetch_backoff_ms,
        )
        self._fetchers = Fetchers(*common, fetch_settings, self._disk, now_ms, nursery)
        self._isr_changes = IsrChanges(*common, now_ms)
        self._deadlines = Deadlines()
        leaders = Leaders(replicas, cache)
        fetch = Fetch(replicas, cache, leaders, self._deadlines, config.fetch_max_bytes, now_ms)
        replicas.on_moved = fetch.moved
        replicas.on_proposal = self._isr_changes.propose
        self._registry = Registry()
        self._inbox = Inbox(
            _no_consensus,
            self._registry,
            nursery,
            lambda response: None,
            _logger.warning,
            self._fail,
            now_ms,
            {endpoint.name: SecurityProtocol.PLAINTEXT for endpoint in config.listeners},
        )
        refresh = self._fetchers.refresh
        self._serve_clients(fetch, leaders)
        self._obey(
            LeaderAndIsrRequest, (0, 7), LeaderAndIsr(config.node_id, authority, replicas, cache, now_ms, refresh)
        )
        self._obey(StopReplicaRequest, (0, 4), StopReplica(authority, replicas, now_ms, refresh))
        self._obey(UpdateMetadataRequest, (0, 8), UpdateMetadata(authority, cache, refresh))

    # --- requests -----------------------------------------------------------------------------------------------------

    def _serve_clients(self, fetch: Fetch, leaders: Leaders) -> None:
        config, replicas = self.config, self.replicas
        limits = BatchLimits(config.message_max_bytes, config.segment_bytes)
        produce = Produce(replicas, leaders, self._deadlines, limits, self._now_ms)
        # The versions of Kafka 3.9.1, but for those that Kafka 4 dropped.
        handlers: tuple[tuple[Any, tuple[int, int], Any], ...] = (
            (ProduceRequest, (3, 11), produce),
            (FetchRequest, (4, 17), fetch),
            (ListOffsetsRequest, (1, 9), ListOffsets(replicas)),
            (MetadataRequest, (0, 12), Metadata(self.cache, self.cluster_id)),
            (OffsetForLeaderEpochRequest, (2, 4), OffsetForLeaderEpoch(replicas)),
        )
        for kind, versions, handler in handlers:
            self._register(kind, versions, handler.respond, Priority.DATA)

    def _obey(self, kind: Any, versions: tuple[int, int], handler: Any) -> None:
        async def respond(request: Any, context: RequestContext) -> Any:
            # One at a time; and none while a log is flushed, as deleting and truncating must wait for that.
            async with self._control, self._disk:
                return handler.handle(request, context.version)

        self._register(kind, versions, respond, Priority.CONTROL)

    def _register(self, kind: Any, versions: tuple[int, int], respond: Any, priority: Priority) -> None:
        self._registry.register(
            RequestHandler(kind, respond, priority=priority, versions=versions, owner="broker", is_vital=False)
        )

    # --- a life -------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Listen, and begin the periodic duties."""
        config, start = self.config, self._nursery.start_soon
        bound = []
        for each in config.listeners:
            address = await self._transport.listen(each.name, Address(each.host, each.port), self._inbox.serve)
            bound.append(Endpoint(each.name, each.host, address.port))
        self.endpoints = tuple(bound)
        start(self._run, self._deadlines.run)
        start(self._run, self._isr_changes.run)
        for interval_ms, duty in (
            (config.high_watermark_checkpoint_ms, self._store_high_watermarks),
            (config.recovery_checkpoint_ms, self._store_recovery_points),
            (config.log_start_checkpoint_ms, partial(self._in_directories, Directory.write_log_starts)),
            (min(_DELETING_MS, max(config.delete_delay_ms, 1)), self._remove_expired),
            (config.retention_check_ms, self._retain),
            (max(config.replica_lag_time_max_ms // 2, 1), self._check_lag),
            (_EXPIRING_MS, self._expire_producers),
        ):
            start(self._run, partial(self._periodically, interval_ms, duty))

    async def wait_failed(self) -> None:
        """Return when it cannot go on; leaving ``open_broker`` says why."""
        await self._failed.wait()

    @property
    def failure(self) -> BaseException | None:
        """Why it cannot go on, or None."""
        return self._failure

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            _logger.critical("broker %d stops: %s", self.config.node_id, error)
            self._failure = error
            self._failed.set()

    async def _run(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
        except Exception as error:
            self._fail(error)

    async def _periodically(self, interval_ms: int, duty: Callable[[], Awaitable[None]]) -> None:
        await trio.sleep(min(self.config.initial_task_delay_ms, interval_ms) / 1000)
        while True:
            await duty()
            if not self._dirs.usable:
                raise StorageError(5, "all log directories failed", self._dirs.directories[0].path)
            await trio.sleep(interval_ms / 1000)

    async def _in_directories(self, action: Callable[[Directory], None]) -> None:
        for directory in self._dirs.usable:
            try:
                await trio.to_thread.run_sync(action, directory)
            except StorageError as error:
                self._lose(directory, error)

    def _lose(self, directory: Directory, error: KraftError) -> None:
        directory.failure = error
        for name in list(directory.logs):
            self.replicas.failed(name, error)

    async def _store_high_watermarks(self) -> None:
        self.replicas.store_high_watermarks()
        await self._in_directories(Directory.write_high_watermarks)

    async def _store_recovery_points(self) -> None:
        for hosted in self._dirs.logs:
            segments = hosted.log.segment_list() if not hosted.log.closed else []
            if len(segments) > 1 and not segments[-2].synced:
                async with self._disk:
                    if not hosted.log.closed:
                        try:
                            await trio.to_thread.run_sync(hosted.log.flush)
                        except StorageError as error:
                            self._lose(hosted.directory, error)
                        except LocalError as error:  # it failed before: appends have told
                            _logger.warning("%s is not flushed: %s", hosted.name, error)
        await self._in_directories(Directory.write_recovery_points)

    async def _remove_expired(self) -> None:
        now_ms = self._now_ms()
        await self._in_directories(lambda directory: directory.remove_expired(now_ms))

    async def _retain(self) -> None:
        retention = Retention(self.config.retention_ms, self.config.retention_bytes)
        for name, replica in list(self.replicas.all.items()):
            if replica.partition.expired(self._now_ms(), retention) is None:
                continue
            async with self._disk:
                # It may have been deleted, or cut, meanwhile.
                start = None if replica.hosted.log.closed else replica.partition.expired(self._now_ms(), retention)
                if start is None:
                    continue
                try:
                    replica.partition.delete_below(start, self._now_ms())
                except (StorageError, LocalError) as error:
                    self.replicas.failed(name, error)

    async def _expire_producers(self) -> None:
        now_ms = self._now_ms()
        for hosted in self._dirs.logs:
            hosted.producers.expire(now_ms)

    async def _check_lag(self) -> None:
        now_ms = self._now_ms()
        for name, replica in list(self.replicas.all.items()):
            self.replicas.carry_out(name, replica.partition.check_lag(now_ms))

    def close(self) -> None:
        """Answer nobody any more."""
        self._inbox.close()
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
    _raise_file_limit()
    log_config = LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
        index_bytes_max=config.index_bytes_max,
        max_batch_bytes=config.segment_bytes,
        file_delete_delay_ms=config.delete_delay_ms,
        tail_bytes=_TAIL_BYTES,
        topic_id=None,
        producer_snapshots=False,
    )
    now_ms = int(time.time() * 1000)
    make = partial(
        LogDirs,
        disk,
        config.directories,
        config.node_id,
        log_config,
        config.delete_delay_ms,
        now_ms,
        producer_expiration_ms=config.producer_expiration_ms,
    )
    dirs = await trio.to_thread.run_sync(make)
    broker: Broker | None = None
    raised: BaseException | None = None
    try:
        async with _transport(config, transport) as carrier, trio.open_nursery() as nursery:
            try:
                broker = Broker(config, dirs, carrier, nursery, Clock())
                await broker.start()
                yield broker
            except BaseException as error:
                raised = error  # outside the nursery, which would wrap it in a group
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
        max_connections_per_peer=config.max_connections,
    ) as transport:
        yield transport


def _raise_file_limit() -> None:
    """Every partition keeps three files open: allow as many as the system lets us."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _no_consensus(event: Event) -> None:
    raise LocalError(f"a broker has no consensus to hand {type(event).__name__} to")
