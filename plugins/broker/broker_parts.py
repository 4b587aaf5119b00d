"""The parts of a broker put together on trio, with their periodic duties, for either kind of controller.

Two packages bring the listeners and the controller's decisions: ``control`` obeys control requests, ``kraft`` follows
the metadata log.
"""

from __future__ import annotations

import errno
import logging
import resource
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import trio

from kraftcore.core.log.config import INDEX_BYTES_MIN, LogConfig
from kraftcore.errors import CorruptDataError, LocalError, StorageError
from kraftcore.metadata import Image
from kraftcore.node.authorization import Authorization
from kraftcore.node.outbox import OTHERS, Outbox
from kraftcore.plugins.broker.api.fetch import Fetch
from kraftcore.plugins.broker.api.leaders import Leaders
from kraftcore.plugins.broker.api.leadership_wait import LeadershipWait
from kraftcore.plugins.broker.api.permits import Permits
from kraftcore.plugins.broker.api.record_rules import RecordRules
from kraftcore.plugins.broker.api.transaction_gate import TransactionGate
from kraftcore.plugins.broker.config import BrokerConfig
from kraftcore.plugins.broker.controller_channel import ControllerChannel
from kraftcore.plugins.broker.groups.coordinator import GroupCoordinator
from kraftcore.plugins.broker.log_changes import raise_log_start
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory, HostedLog
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.metadata.topic_settings import TopicSettingsTable
from kraftcore.plugins.broker.moves import Moves
from kraftcore.plugins.broker.partition import IsrProposal, TopicPartition
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.quotas.clients import ClientQuotas
from kraftcore.plugins.broker.quotas.rates import QuotaWindow
from kraftcore.plugins.broker.quotas.replication import ReplicationQuotas
from kraftcore.plugins.broker.replicas import Replicas, TellDirectory, nobody_to_tell
from kraftcore.plugins.broker.replication.fetch_tasks import Fetchers
from kraftcore.plugins.broker.replication.follower_fetch import FetchSettings
from kraftcore.plugins.broker.replication.isr_changes import IsrChanges
from kraftcore.plugins.broker.syncing import Syncing
from kraftcore.plugins.broker.transactions_topic import TransactionsTopic
from kraftcore.plugins.broker.unsupported import Refusals
from kraftcore.plugins.broker.work.deadlines import REQUEST_TIMEOUT_MS, Deadlines
from kraftcore.plugins.broker.work.disk_threads import run_in_threads
from kraftcore.plugins.broker.work.heavy_threads import HeavyThreads
from kraftcore.plugins.broker.work.keyed_queue import KeyedQueue
from kraftcore.plugins.broker.work.tasks import Background
from kraftcore.ports.transport import Address
from kraftcore.protocol.schema import Request
from kraftcore.protocol.topics import GROUPS_TOPIC, INTERNAL_TOPICS

# The last batches of a log that followers and consumers who keep up read from memory.
_TAIL_BYTES = 256 * 1024
_EXPIRING_MS = 600_000  # how often producers are forgotten (producer.id.expiration.check.interval.ms)
_DELETING_MS = 500  # how often folders of deleted partitions are looked for that are to be removed
_HANDING_OVER_MS = 1000  # how often leaderships of ``__transaction_state`` are looked for, and handed over

_logger = logging.getLogger("kraftcore.broker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the parts of a broker get from the process or node that they run in.

    Attributes:
        cache: the brokers and partitions of the cluster.
        topics: the settings of each topic.
        broker_epoch: of this broker's present registration; -1: it has none.
        outbox: sends requests to other brokers.
        controllers: sends requests to the active controller.
        nursery: the broker's tasks run in it.
        now_ms: milliseconds since 1970; it never falls.
        wall_ms: milliseconds since 1970 by the system's clock, which may be set back: record timestamps are compared
            with it.
        fail: called with the error that ends the broker.
        on_directory_failure: called with a log directory that is used no more.
        tell_directory: see `TellDirectory`.
        is_behind: whether changes are committed in the metadata log that did not take effect here yet.
        image: the metadata as far as it is committed; None: there is no metadata log.
        authorization: decides about clients' requests; where it returns None everybody may do everything.
    """

    cache: MetadataCache
    topics: TopicSettingsTable
    broker_epoch: Callable[[], int]
    outbox: Outbox
    controllers: ControllerChannel
    nursery: trio.Nursery
    now_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    fail: Callable[[BaseException], None]
    on_directory_failure: Callable[[Directory], None] = lambda directory: None
    tell_directory: TellDirectory = nobody_to_tell
    is_behind: Callable[[], bool] = lambda: False
    image: Callable[[], Image] | None = None
    authorization: Callable[[], Authorization | None] = lambda: None


class BrokerParts:
    """The parts of a broker put together on trio, with their periodic duties, for either kind of controller.

    Args:
        config: the broker's settings.
        dirs: the log directories, open.
        around: see `Surroundings`.

    Attributes:
        config: as given.
        dirs: as given.
        cluster_id: of the cluster that the directories belong to.
        cache, topics, broker_epoch, controllers, now_ms, wall_ms, image: as in `Surroundings`.
        replicas: the partitions of this broker.
        replication: how many bytes throttled replicas may copy.
        leaders: finds the leader of a partition, for clients that asked another broker.
        deadlines: end the waiting of requests.
        leadership_wait: keeps requests for partitions that this broker is about to lead.
        background: runs coroutines that answer requests.
        do_aside: runs work in threads that would take the event loop for long.
        permits: decides who may do what.
        fetch: answers Fetch.
        gate: asks coordinators of transactions; None: there is no metadata log.
        transactions_topic: has ``__transaction_state`` made, and led by brokers of Kafka; None: as ``gate``.
        groups: coordinates consumer groups.
        refusals: logs, once a kind, what clients ask for that this broker refuses.
        moves: moves partitions between log directories.
        refresh: to be called when assignments or addresses changed: partitions are then fetched from their leaders.
        disk: held while a log is flushed, or parts of one are removed.
    """

    def __init__(self, config: BrokerConfig, dirs: LogDirs, around: Surroundings) -> None:
        self.config = config
        self.dirs = dirs
        self.cluster_id = dirs.cluster_id
        self.cache = cache = around.cache
        self.broker_epoch = around.broker_epoch
        self.controllers = around.controllers
        self.now_ms = now_ms = around.now_ms
        self.wall_ms = around.wall_ms
        self.image = around.image
        self.disk = trio.Lock()
        self._nursery = around.nursery
        self._fail = around.fail
        self.topics = around.topics
        self._proposals: KeyedQueue[TopicPartition, IsrProposal] = KeyedQueue()
        self._unsynced: KeyedQueue[TopicPartition, None] = KeyedQueue()
        self.replicas = replicas = self._make_replicas(around)
        self.replication = self._replication_quotas()
        self.refresh = self._fetchers(around).refresh
        self._isr_changes = self._changes_of_isr(around)
        self._syncing = Syncing(replicas, self._unsynced, self.disk, now_ms)
        self.moves = Moves(
            replicas,
            dirs,
            self.disk,
            now_ms,
            self.replication.moves,
            wall_ms=self.wall_ms,
            tell_directory=around.tell_directory,
        )
        self.deadlines = Deadlines()
        self.leadership_wait = LeadershipWait(replicas, cache, self.deadlines, around.is_behind)
        self.background = Background(around.nursery)
        self.do_aside = HeavyThreads(around.nursery)
        self.permits = Permits(around.authorization)
        self.leaders = Leaders(replicas, cache)
        self.quotas = None
        if around.image is not None:
            window = QuotaWindow(config.quota_samples, 1000 * config.quota_sample_s)
            self.quotas = ClientQuotas(around.image, self.deadlines, now_ms, window)
        self.fetch = Fetch(
            replicas,
            cache,
            self.leaders,
            self.deadlines,
            self.permits,
            max_bytes=config.fetch_max_bytes,
            now_ms=now_ms,
            session_slots=config.fetch_session_slots,
            is_rack_aware=config.is_rack_aware,
            quotas=self.quotas,
            replication=self.replication.leader,
        )
        self.gate, self.transactions_topic = self._transactions(around)
        self.refusals = Refusals(_logger.warning)
        self.groups = GroupCoordinator(
            replicas,
            cache,
            config.groups,
            batch_max_bytes=partial(self.max_message_bytes, GROUPS_TOPIC),
            ask_controller=None if around.image is None else around.controllers.send_to_controller,
            disk=self.disk,
            now_ms=now_ms,
            wall_ms=self.wall_ms,
        )

    def _make_replicas(self, around: Surroundings) -> Replicas:
        return Replicas(
            self.config.node_id,
            self.dirs,
            self.cache,
            self._partition_settings,
            compares_ids=around.image is not None,
            proposals=self._proposals,
            unsynced=self._unsynced,
            on_directory_failure=around.on_directory_failure,
            tell_directory=around.tell_directory,
        )

    def _replication_quotas(self) -> ReplicationQuotas:
        config = self.config
        return ReplicationQuotas(
            config.node_id,
            QuotaWindow(config.replication_quota_samples, 1000 * config.replication_quota_sample_s),
            QuotaWindow(config.moving_quota_samples, 1000 * config.moving_quota_sample_s),
            self.now_ms,
        )

    def _fetchers(self, around: Surroundings) -> Fetchers:
        return Fetchers(
            self.config.node_id,
            around.broker_epoch,
            self.replicas,
            self.cache,
            listener=self.config.broker_listener,
            outbox=around.outbox,
            settings=_fetch_settings(self.config),
            disk=self.disk,
            now_ms=self.now_ms,
            quota=self.replication.follower,
            start=self._start_part,
        )

    def _changes_of_isr(self, around: Surroundings) -> IsrChanges:
        return IsrChanges(
            self.config.node_id,
            around.broker_epoch,
            self.replicas,
            self._proposals,
            around.controllers,
            self.now_ms,
            names_incarnations=around.image is not None,
        )

    def _transactions(self, around: Surroundings) -> tuple[TransactionGate | None, TransactionsTopic | None]:
        if around.image is None:
            return None, None
        config = self.config
        send = partial(_send_beside, around.outbox)
        gate = TransactionGate(
            self.replicas,
            self.cache,
            config.node_id,
            listener=config.broker_listener,
            send=send,
            deadlines=self.deadlines,
        )
        topic = TransactionsTopic(
            config.transaction_log,
            self.cache,
            config.node_id,
            listener=config.broker_listener,
            send=send,
            ask_controller=around.controllers.send_to_controller,
            background=self.background,
        )
        return gate, topic

    def max_message_bytes(self, topic: str) -> int:
        """How many bytes a client's batch for a topic may have (``max.message.bytes``)."""
        return self.topics.of(topic).max_message_bytes

    def record_rules(self, topic: str) -> RecordRules:
        """The rules of a topic for the records that clients send."""
        return self.topics.of(topic).records

    def may_delete(self, topic: str) -> bool:
        """Whether clients may delete records of a topic: its ``cleanup.policy`` is not ``compact`` alone."""
        return self.topics.of(topic).may_delete

    def _partition_settings(self, topic: str) -> PartitionSettings:
        found = self.topics.of(topic)
        return PartitionSettings(
            min_insync_replicas=found.min_insync_replicas,
            lag_time_max_ms=self.config.replica_lag_time_max_ms,
            flush_messages=max(found.flush_messages, 1),
        )

    # --- periodic duties ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin the periodic duties."""
        config, start = self.config, self._start_part
        start(self.deadlines.run)
        start(self._isr_changes.run)
        start(self.groups.run)
        start(self.moves.run)
        start(self._syncing.run)
        for interval_ms, duty in (
            (config.high_watermark_checkpoint_ms, self._store_high_watermarks),
            (config.recovery_checkpoint_ms, self._store_recovery_points),
            (config.log_start_checkpoint_ms, partial(self._in_directories, Directory.write_log_starts)),
            (min(_DELETING_MS, max(config.delete_delay_ms, 1)), self._remove_expired),
            (config.retention_check_ms, self._retain),
            (max(config.replica_lag_time_max_ms // 2, 1), self._check_lag),
            (_EXPIRING_MS, self._expire_producers),
            (config.flush_check_ms, self._flush_old),
        ):
            start(partial(self._periodically, interval_ms, duty))
        if self.transactions_topic is not None:
            start(partial(self._periodically, _HANDING_OVER_MS, self.transactions_topic.hand_over))

    def _start_part(self, part: Callable[[], Awaitable[None]]) -> None:
        self._nursery.start_soon(self.run, part)

    async def run(self, part: Callable[[], Awaitable[None]]) -> None:
        """Run a part of the broker; an error that it raises ends the broker."""
        try:
            await part()
        except Exception as error:
            self._fail(error)

    async def _periodically(self, interval_ms: int, duty: Callable[[], Awaitable[None]]) -> None:
        await trio.sleep(min(self.config.initial_task_delay_ms, interval_ms) / 1000)
        while True:
            await duty()
            if not self.dirs.usable:
                raise StorageError(errno.EIO, "all log directories failed", self.dirs.directories[0].path)
            await trio.sleep(interval_ms / 1000)

    async def _in_directories(self, action: Callable[[Directory], None]) -> None:
        for directory in self.dirs.usable:
            try:
                await trio.to_thread.run_sync(action, directory)
            except StorageError as error:
                self.replicas.directory_failed(directory, error)

    async def _store_high_watermarks(self) -> None:
        self.replicas.store_high_watermarks()
        await self._in_directories(Directory.write_high_watermarks)

    async def _store_recovery_points(self) -> None:
        for hosted in self.dirs.logs:
            segments = hosted.log.segment_list() if not hosted.log.closed else []
            if len(segments) > 1 and not segments[-2].synced:
                await self._flush(hosted)
        await self._in_directories(Directory.write_recovery_points)

    async def _flush(self, hosted: HostedLog) -> None:
        async with self.disk:
            if not hosted.log.closed and not self.replicas.is_broken(hosted.name):
                try:
                    await trio.to_thread.run_sync(hosted.log.flush)
                except (StorageError, CorruptDataError) as error:
                    self.replicas.cannot_write(hosted.name, error)
                except LocalError as error:  # an earlier write failed, which appends reported
                    if isinstance(error.__cause__, CorruptDataError):
                        self.replicas.damaged(hosted.name, error.__cause__)
                    else:
                        _logger.warning("%s is not flushed: %s", hosted.name, error)

    async def _flush_old(self) -> None:
        """Sync logs whose oldest records have waited for a sync as long as their topic allows (``flush.ms``)."""
        now_ms = self.now_ms()
        for hosted in self.dirs.logs:
            log = hosted.log
            if log.closed or log.flushed_offset == log.log_end_offset:
                hosted.flushed_ms = now_ms
            elif now_ms - hosted.flushed_ms >= self.topics.of(hosted.name.topic).flush_ms:
                await self._flush(hosted)
                hosted.flushed_ms = now_ms

    async def _remove_expired(self) -> None:
        now_ms = self.now_ms()
        await self._in_directories(lambda directory: directory.remove_expired(now_ms))

    async def _retain(self) -> None:
        for name, replica in list(self.replicas.all.items()):
            retention = self.topics.of(name.topic).retention
            # Internal topics have cleanup.policy=compact: their records do not age.
            partition = replica.partition
            if name.topic in INTERNAL_TOPICS or partition.retained_start(self.wall_ms(), retention) is None:
                continue
            async with self.disk:
                # It may have been deleted, or cut, meanwhile; what is offline is left as it is.
                is_over = replica.hosted.log.closed or self.replicas.is_broken(name)
                start = None if is_over else partition.retained_start(self.wall_ms(), retention)
                if start is None:
                    continue
                try:
                    await run_in_threads(raise_log_start(partition, start, self.now_ms()))
                except (StorageError, LocalError, CorruptDataError) as error:
                    self.replicas.cannot_write(name, error)
                else:
                    self.replicas.changed([name])

    async def _expire_producers(self) -> None:
        async with self.disk:  # a thread that cuts a log changes its producers
            now_ms = self.wall_ms()
            for hosted in self.dirs.logs:
                hosted.producers.expire(now_ms)

    async def _check_lag(self) -> None:
        now_ms = self.now_ms()
        for name, replica in list(self.replicas.all.items()):
            self.replicas.carry_out(name, replica.partition.check_lag(now_ms))


def _send_beside(
    outbox: Outbox, address: Address, request: Request, min_version: int, done: Callable[[Any], None]
) -> None:
    """Send a request to another broker on a connection on which no Fetch waits for records."""
    outbox.send(address.host, address.port, request, REQUEST_TIMEOUT_MS, done, min_version=min_version, lane=OTHERS)


def _fetch_settings(config: BrokerConfig) -> FetchSettings:
    return FetchSettings(
        wait_max_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_max_bytes,
        response_max_bytes=config.replica_fetch_response_max_bytes,
        backoff_ms=config.replica_fetch_backoff_ms,
    )


def topic_settings(config: BrokerConfig) -> TopicSettingsTable:
    """The settings of a broker's topics, as far as its own configuration says."""
    log = LogConfig(
        segment_bytes=config.segment_bytes,
        segment_ms=config.segment_ms,
        index_interval_bytes=config.index_interval_bytes,
        index_bytes_max=max(config.index_bytes_max, INDEX_BYTES_MIN),
        max_batch_bytes=config.segment_bytes,
        file_delete_delay_ms=config.delete_delay_ms,
        tail_bytes=_TAIL_BYTES,
        topic_id=None,
        producer_snapshots=False,
        allow_gaps=True,
        names_wait=True,
        all_control=False,
    )
    return TopicSettingsTable(config, log)


def raise_file_limit() -> None:
    """Allow this process as many open files as the system lets it: each partition keeps its log and indexes open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
