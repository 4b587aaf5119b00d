"""The group coordinator of a broker, on trio: shards for the partitions of ``__consumer_offsets`` that it leads.

A shard is loaded when leadership begins, and ends with it. What a shard wants written goes into the broker's own
partition as acks=all would; answers wait until it is committed. While a partition is loaded, clients are told
COORDINATOR_LOAD_IN_PROGRESS: until all that its log held at the beginning is committed, so nothing is told that a later
leader might not know.

There is no log cleaner, which would keep the last record of each key. In its place a log that has grown is condensed:
the live records are written again behind the others, and when they are committed the log begins there.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from math import inf
from typing import Any
from uuid import uuid4

import trio

from kraftcore.core.batch import Record, RecordBatch, build_records_batch, iter_batches
from kraftcore.core.log import Log
from kraftcore.errors import CorruptDataError, KraftError, RefusedError, StorageError
from kraftcore.metadata.internal_topics import GROUPS_TOPIC
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.disk_work import run_in_threads
from kraftcore.plugins.broker.groups.effects import Effects, Entry, Write
from kraftcore.plugins.broker.groups.loading import Loader
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.groups.shard import Shard
from kraftcore.plugins.broker.groups.topic import GroupsTopic, partition_of
from kraftcore.plugins.broker.log_changes import raise_log_start
from kraftcore.plugins.broker.metadata_cache import MetadataCache
from kraftcore.plugins.broker.partition import Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.protocol.error_codes import ErrorCode

_READ_BYTES = 1024 * 1024
_YIELD_RECORDS = 2000  # loading lets others go on after so many
_CONDENSING_S = 60  # how often is looked for logs that have grown
CHUNK_BYTES = 256 * 1024  # of records that are written again in one batch
_RECORD_BYTES = 30  # at most, of a record beside its key and value
_logger = logging.getLogger("kraftcore.broker")


class _Led:
    """A partition that we lead.

    Attributes:
        name: of the partition.
        shard: its groups; None: they are being loaded, or could not be.
        has_failed: they could not be loaded.
        live_bytes: how much of its log was needed when it was condensed last, or was to be.
        deleted: topics that went while it was loaded.
        moved: set when its high watermark or role changed.
    """

    __slots__ = ("deleted", "has_failed", "live_bytes", "moved", "name", "shard")

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.shard: Shard | None = None
        self.has_failed = False
        self.live_bytes = 0
        self.deleted: set[str] = set()
        self.moved = trio.Event()


class _CommittedWrite:
    """Tells a shard when one of its writes is committed."""

    __slots__ = ("_committed", "_write")
    is_over = False

    def __init__(self, write: Write, committed: Callable[[Write], None]) -> None:
        self._write = write
        self._committed = committed

    def end(self, error: ErrorCode) -> None:
        """See ``Waiter``. What is below the high watermark is committed, however few are in sync by now."""
        if error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            self._committed(self._write)


class GroupCoordinator:
    """See the module text.

    Args:
        replicas: the broker's partitions.
        cache: what is known of the cluster.
        settings: see ``GroupSettings``.
        batch_max_bytes: largest batch that may be written.
        ask_controller: sends a request to the active controller; None: none can make topics.
        disk: held by whoever removes parts of logs.
        now_ms: the time.

    Attributes:
        settings: as given.
    """

    def __init__(
        self,
        replicas: Replicas,
        cache: MetadataCache,
        settings: GroupSettings,
        batch_max_bytes: int,
        ask_controller: Callable[[Any], Awaitable[Any]] | None,
        disk: trio.Lock,
        now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self._replicas = replicas
        self._cache = cache
        self._batch_max_bytes = batch_max_bytes
        self._disk = disk
        self._now_ms = now_ms
        self._topic = GroupsTopic(settings, ask_controller)
        self._led: dict[int, _Led] = {}
        self._jobs, self._todo = trio.open_memory_channel[Callable[[], Awaitable[None]]](inf)
        self._count = 0  # partitions of the topic, when somebody asked last
        self._wake_ms: float = -inf
        self._earlier = trio.Event()

    # --- finding ------------------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> TopicPartition:
        """The partition that a group belongs to; of as many as the topic will have, if it is not there yet."""
        count = self._count
        if not (count and self._cache.knows(GROUPS_TOPIC, count - 1) and not self._cache.knows(GROUPS_TOPIC, count)):
            self._count = count = len(self._cache.topics.get(GROUPS_TOPIC, ()))
        return TopicPartition(GROUPS_TOPIC, partition_of(group_id, count or self.settings.topic_partitions))

    def shard_of(self, group_id: str) -> tuple[TopicPartition, Shard]:
        """The shard of a group, and its partition.

        Raises:
            RefusedError: NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS.
        """
        name = self.partition_of(group_id)
        led = self._led.get(name.partition)
        if led is None or led.has_failed:
            raise refused(ErrorCode.NOT_COORDINATOR, f"this broker does not coordinate group {group_id}")
        if led.shard is None:
            raise refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{name} is being loaded")
        return name, led.shard

    def shards(self) -> Iterator[tuple[TopicPartition, Shard]]:
        """All that are loaded.

        Raises:
            RefusedError: COORDINATOR_LOAD_IN_PROGRESS: some are not yet.
        """
        for led in list(self._led.values()):
            if led.shard is not None:
                yield led.name, led.shard
            elif not led.has_failed:
                raise refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{led.name} is being loaded")

    def create_topic(self) -> None:
        """Have ``__consumer_offsets`` made; the caller's client asks again."""
        if not self._topic.is_asked_for:
            self._topic.is_asked_for = True
            self._jobs.send_nowait(self._create_topic)

    async def _create_topic(self) -> None:
        try:
            await self._topic.create()
        finally:
            self._topic.is_asked_for = False

    # --- leadership ---------------------------------------------------------------------------------------------------

    def moved(self, name: TopicPartition) -> None:
        """A partition's role or high watermark changed."""
        if name.topic != GROUPS_TOPIC:
            return
        led = self._led.get(name.partition)
        replica = self._replicas.all.get(name)
        is_led = replica is not None and replica.partition.leading is not None
        if led is not None:
            led.moved.set()
            if not is_led:
                del self._led[name.partition]
                if led.shard is not None:
                    _logger.info("%s: its groups are coordinated by another broker now", name)
                    self._answer(led.shard.unload(self._now_ms()))
        elif is_led:
            self._led[name.partition] = led = _Led(name)
            self._jobs.send_nowait(partial(self._load, led))

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Topics are gone from the cluster: what was committed of them goes, too."""
        if topics:
            for led in self._led.values():
                if led.shard is None:
                    led.deleted.update(topics)
            for name, shard in self._loaded():
                self.carry_out(name, shard, shard.topics_deleted(topics))

    def _is_current(self, led: _Led) -> bool:
        return self._led.get(led.name.partition) is led

    async def _load(self, led: _Led) -> None:
        replica = self._replicas.all.get(led.name)
        log = None if replica is None else replica.partition.log
        try:
            await self._read(led)
        except KraftError as error:
            if not self._is_current(led):
                return  # its log was cut or closed as we read
            if self._replicas.all[led.name].partition.log is not log:  # it moved to another directory as we read
                self._jobs.send_nowait(partial(self._load, led))
                return
            _logger.error("%s: its groups cannot be loaded: %s", led.name, error)
            led.has_failed = True
            if isinstance(error, (StorageError, CorruptDataError)):
                self._replicas.failed(led.name, error)

    async def _read(self, led: _Led) -> None:
        if not self._is_current(led):
            return
        found = self._replicas.all[led.name].partition
        loader, end = Loader(led.name), found.log.log_end_offset
        async for _ in _batches(found.log, loader, found.log.log_start_offset, end):
            if not self._is_current(led):
                return
        if not await self._wait_committed(led, found, end):
            return
        now_ms = self._now_ms()
        loaded = await trio.to_thread.run_sync(loader.finish, now_ms)
        if not self._is_current(led):
            return
        led.shard = shard = Shard(self.settings, _random, loaded, now_ms)
        _logger.info("%s: %d groups from %d records", led.name, len(loaded.groups), loader.records)
        self.carry_out(led.name, shard, shard.begin(now_ms))
        if led.deleted:
            self.carry_out(led.name, shard, shard.topics_deleted(led.deleted))

    async def _wait_committed(self, led: _Led, found: Partition, end: int) -> bool:
        """Wait until all below ``end`` is committed; False: we lead no more."""
        while found.high_watermark < end:
            led.moved = trio.Event()
            await led.moved.wait()
            if not self._is_current(led):
                return False
        return True

    # --- size -------------------------------------------------------------------------------------------------------

    async def condense_large(self) -> None:
        """Condense each log that is larger than a segment of the topic, and more than half of which is not needed."""
        for led in list(self._led.values()):
            replica = self._replicas.all.get(led.name)
            if led.shard is None or replica is None:
                continue
            size = replica.partition.log.size_in_bytes
            if size > max(self.settings.topic_segment_bytes, 2 * led.live_bytes):
                try:
                    await self._condense(led, replica.partition)
                except (StorageError, CorruptDataError) as error:
                    self._replicas.failed(led.name, error)
                except KraftError as error:
                    _logger.warning("%s is not condensed: %s", led.name, error)

    async def _condense(self, led: _Led, found: Partition) -> None:
        log, loader = found.log, Loader(led.name)
        read = log.log_start_offset
        async for offset in _batches(log, loader, read, log.log_end_offset):
            read = offset
            if not self._is_current(led):
                return
        read = _catch_up(log, loader, read)
        led.live_bytes = await trio.to_thread.run_sync(_live_bytes, loader)
        size = log.size_in_bytes
        if not self._is_current(led) or loader.has_open() or 2 * led.live_bytes > size:
            return  # the offsets in a transaction count when it ends; or there is little to win
        log.roll(self._now_ms())
        read = end = _catch_up(log, loader, read)
        if loader.has_open():
            return
        for chunk in _chunks(await trio.to_thread.run_sync(loader.live), min(self._batch_max_bytes, CHUNK_BYTES)):
            if not self._is_current(led):
                return
            # Others were let on, and what they wrote since counts: it stands behind the end already.
            read = _catch_up(log, loader, read)
            if latest := loader.latest([key for key, _ in chunk], end):
                now_ms = self._now_ms()
                _, effects = found.append(_batch_of(latest, now_ms), now_ms, needs_isr=True)
                self._replicas.carry_out(led.name, effects)
            await trio.lowlevel.checkpoint()
        if not await self._wait_committed(led, found, log.log_end_offset):
            return
        async with self._disk:
            if self._is_current(led):
                await run_in_threads(raise_log_start(found, end, self._now_ms()))
                _logger.info("%s: %d bytes became %d", led.name, size, log.size_in_bytes)

    # --- effects ------------------------------------------------------------------------------------------------------

    def carry_out(self, name: TopicPartition, shard: Shard, effects: Effects) -> None:
        """Do what a shard wants done."""
        for write in effects.writes:
            self._append(name, shard, write)
        self._answer(effects)
        due_ms = shard.due_ms()
        if due_ms is not None and due_ms < self._wake_ms:
            self._wake_ms = due_ms
            self._earlier.set()

    def _answer(self, effects: Effects) -> None:
        for ticket, response in effects.answers:
            ticket.answer(response)

    def _append(self, name: TopicPartition, shard: Shard, write: Write) -> None:
        now_ms = self._now_ms()
        waiter = _CommittedWrite(write, partial(self._committed, name, shard))
        try:
            batch = _batch_of(write.entries, now_ms)
            if len(batch) > self._batch_max_bytes:
                raise refused(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(batch)} bytes in one write")
            found: Partition = self._replicas.find(name)
            _, effects = found.append(batch, now_ms, waiter=waiter, needs_isr=True)
        except KraftError as error:
            code = code_of(self._replicas, name, error)
            if not isinstance(error, RefusedError):
                _logger.error("%s: a write of its groups failed: %s", name, error)
            self.carry_out(name, shard, shard.failed(write, code, now_ms))
            return
        self.carry_out(name, shard, shard.appended(write, now_ms))
        self._replicas.carry_out(name, effects)

    def _committed(self, name: TopicPartition, shard: Shard, write: Write) -> None:
        self.carry_out(name, shard, shard.committed(write, self._now_ms()))

    # --- a life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load what is led, and look after timers, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_time)
            nursery.start_soon(self._keep_small)
            async for job in self._todo:
                nursery.start_soon(job)

    async def _keep_time(self) -> None:
        while True:
            self._earlier = trio.Event()
            due = [due_ms for _, shard in self._loaded() if (due_ms := shard.due_ms()) is not None]
            self._wake_ms = min(due, default=inf)
            now_ms = self._now_ms()
            if self._wake_ms > now_ms:
                with trio.move_on_after((self._wake_ms - now_ms + 0.01) / 1000):
                    await self._earlier.wait()
                continue
            for name, shard in self._loaded():
                due_ms = shard.due_ms()
                if due_ms is not None and due_ms <= now_ms:
                    self.carry_out(name, shard, shard.expire(now_ms))
            await trio.lowlevel.checkpoint()

    async def _keep_small(self) -> None:
        while True:
            await trio.sleep(_CONDENSING_S)
            await self.condense_large()

    def _loaded(self) -> list[tuple[TopicPartition, Shard]]:
        return [(led.name, led.shard) for led in self._led.values() if led.shard is not None]


def _random() -> str:
    return str(uuid4())


def _read(log: Log, offset: int, end: int) -> Iterator[RecordBatch]:
    """All batches from an offset on."""
    while offset < end:
        data = log.read(offset, _READ_BYTES, up_to=end, at_least_one=True)
        if not data:
            return
        for batch in iter_batches(data):
            yield batch
            offset = batch.next_offset


def _live_bytes(loader: Loader) -> int:
    """Of the records that are needed, about."""
    return sum(len(key) + len(value or b"") + _RECORD_BYTES for key, value in loader.live())


def _catch_up(log: Log, loader: Loader, offset: int) -> int:
    """Hand a loader what was appended from an offset on; where the log ends."""
    end = log.log_end_offset
    for batch in _read(log, offset, end):
        loader.add(batch)
    return end


async def _batches(log: Log, loader: Loader, offset: int, end: int) -> AsyncIterator[int]:
    """Hand batches to a loader; each time others were let on, the offset up to which it has them, and at the end."""
    pause_at = _YIELD_RECORDS
    for batch in _read(log, offset, end):
        loader.add(batch)
        offset = batch.next_offset
        if loader.records >= pause_at:
            pause_at = loader.records + _YIELD_RECORDS
            await trio.lowlevel.checkpoint()
            yield offset
    yield offset


def _batch_of(entries: Sequence[Entry], now_ms: int) -> bytearray:
    return build_records_batch([Record(value, key, timestamp_ms=now_ms) for key, value in entries], timestamp_ms=now_ms)


def _chunks(entries: list[Entry], bytes_max: int) -> Iterator[list[Entry]]:
    """Entries that make batches of about so many bytes."""
    chunk: list[Entry] = []
    size = 0
    for key, value in entries:
        added = len(key) + len(value or b"") + _RECORD_BYTES
        if chunk and size + added > bytes_max:
            yield chunk
            chunk, size = [], 0
        chunk.append((key, value))
        size += added
    if chunk:
        yield chunk
