"""The group coordinator of a broker, on trio: shards for the partitions of ``__consumer_offsets`` that it leads.

A shard is loaded when the leadership of its partition begins, and is dropped when the leadership ends. The records of a
shard are appended as with acks=all; answers wait until they are committed. Clients are told
COORDINATOR_LOAD_IN_PROGRESS until all records that the log held at the beginning are read and committed, so that no
answer depends on a record that a later leader may lack.

There is no log cleaner, which would keep the last record of each key. Instead, a log that has grown is condensed: the
live records are appended again, and when they are committed the log start is raised to the first of them. Keys that an
open transaction changes wait until the transaction ends, or hold the log start back.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any
from uuid import uuid4

import trio

from kraftcore.core.batch import Record, RecordBatch, build_records_batch, iter_batches
from kraftcore.core.log import Log
from kraftcore.core.uuid import Uuid
from kraftcore.errors import CorruptDataError, KraftError, RefusedError, StorageError
from kraftcore.plugins.broker.api.errors import code_of
from kraftcore.plugins.broker.groups.effects import Entry, ShardEffects, Write
from kraftcore.plugins.broker.groups.loading import Loader
from kraftcore.plugins.broker.groups.records import chunks, entry_bytes
from kraftcore.plugins.broker.groups.settings import GroupSettings
from kraftcore.plugins.broker.groups.shard import Shard
from kraftcore.plugins.broker.groups.topic import GroupsTopic, partition_of
from kraftcore.plugins.broker.log_changes import raise_log_start
from kraftcore.plugins.broker.metadata.cache import MetadataCache
from kraftcore.plugins.broker.partition import Partition, TopicPartition
from kraftcore.plugins.broker.partition.state import Waiter, refused
from kraftcore.plugins.broker.producers import Marker
from kraftcore.plugins.broker.replicas import Replicas
from kraftcore.plugins.broker.work.disk_threads import run_in_thread, run_in_threads
from kraftcore.plugins.broker.work.turns import Turn
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.topics import GROUPS_TOPIC

_READ_BYTES = 1024 * 1024
_KNOWN_WITHIN_S, _POLL_S = 1.0, 0.005
_YIELD_RECORDS = 2000  # loading lets other tasks run after so many
_CONDENSING_S = 60  # how often logs are checked for their size
_PASSES = 3  # in which records are written again: what a transaction held in one may be free in the next
CHUNK_BYTES = 256 * 1024  # bytes of a batch of records that are appended again, or deleted
# What a waiter is told: what is below the high watermark is committed, however few are in sync by now.
_IS_COMMITTED = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_logger = logging.getLogger("kraftcore.broker")


class _Led:
    """A partition of ``__consumer_offsets`` that this broker leads.

    Attributes:
        name: topic and number.
        shard: the groups; None: they are being loaded, or could not be loaded.
        futile_bytes: the log's bytes when condensing last won little; 0: it won much.
        has_failed: whether the groups could not be loaded.
        live_bytes: the bytes of live records when the log was last checked for condensing.
        late: the changes that came while the groups were loaded, to be done then.
        changed: set when the high watermark or the role changed.
    """

    __slots__ = ("changed", "futile_bytes", "has_failed", "late", "live_bytes", "name", "shard")

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.shard: Shard | None = None
        self.futile_bytes = 0
        self.has_failed = False
        self.live_bytes = 0
        self.late: list[Callable[[Shard], ShardEffects]] = []
        self.changed = trio.Event()


class _CommittedWrite:
    """Tells a shard when one of its writes is committed."""

    __slots__ = ("_committed", "_write")
    is_over = False

    def __init__(self, write: Write, committed: Callable[[Write], None]) -> None:
        self._write = write
        self._committed = committed

    def end(self, error: ErrorCode) -> None:
        """Count the wait as over; see ``Waiter``."""
        if error in _IS_COMMITTED:
            self._committed(self._write)


class _CommittedMarker:
    """Calls a function when a marker is committed, and then ends the marker's own waiter."""

    __slots__ = ("_committed", "_waiter")
    is_over = False  # the function is called even if the waiter's time has passed

    def __init__(self, waiter: Waiter, committed: Callable[[], None]) -> None:
        self._waiter = waiter
        self._committed = committed

    def end(self, error: ErrorCode) -> None:
        """Count the wait as over; see ``Waiter``."""
        if error in _IS_COMMITTED:
            self._committed()
        self._waiter.end(error)


class GroupCoordinator:
    """Coordinates the consumer groups whose partition of ``__consumer_offsets`` this broker leads.

    Args:
        replicas: the broker's partitions.
        cache: the partitions and brokers of the cluster.
        settings: see ``GroupSettings``.
        batch_max_bytes: gives the most bytes of a batch: ``max.message.bytes`` of the topic.
        ask_controller: sends a request to the active controller; None: no controller can make topics.
        disk: held while parts of logs are removed.
        now_ms: the time; it never falls.
        wall_ms: the wall clock, which dates commits; None: ``now_ms``.

    Attributes:
        settings: as given.
    """

    def __init__(
        self,
        replicas: Replicas,
        cache: MetadataCache,
        settings: GroupSettings,
        batch_max_bytes: Callable[[], int],
        ask_controller: Callable[[Any], Awaitable[Any]] | None,
        disk: trio.Lock,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        self.settings = settings
        self._replicas = replicas
        self._cache = cache
        self._batch_max_bytes = batch_max_bytes
        self._disk = disk
        self._now_ms = now_ms
        self._wall_ms = now_ms if wall_ms is None else wall_ms
        self._topic = GroupsTopic(settings, ask_controller)
        self._topic_settled = trio.Event()
        self._led: dict[int, _Led] = {}
        self._jobs, self._todo = trio.open_memory_channel[Callable[[], Awaitable[None]]](inf)
        self._count = 0  # partitions of the topic at the last request
        self._wake_ms: float = -inf
        self._earlier = trio.Event()
        replicas.watch(self._partitions_changed)

    def _ahead_ms(self) -> int:
        return self._wall_ms() - self._now_ms()

    def _chunk_bytes(self) -> int:
        return min(self._batch_max_bytes(), CHUNK_BYTES)

    # --- finding ------------------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> TopicPartition:
        """The partition that a group belongs to, also before the topic exists."""
        count = self._count
        if not (count and self._cache.knows(GROUPS_TOPIC, count - 1) and not self._cache.knows(GROUPS_TOPIC, count)):
            self._count = count = self._cache.partition_count(GROUPS_TOPIC)
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
        """All shards of this broker, each with its partition.

        Raises:
            RefusedError: COORDINATOR_LOAD_IN_PROGRESS: a shard is not loaded yet.
        """
        for led in list(self._led.values()):
            if led.shard is not None:
                yield led.name, led.shard
            elif not led.has_failed:
                raise refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{led.name} is being loaded")

    def create_topic(self) -> None:
        """Have ``__consumer_offsets`` made, unless that is under way; see ``wait_topic``."""
        if not self._topic.is_asked_for:
            self._topic.is_asked_for = True
            self._topic_settled = trio.Event()
            self._jobs.send_nowait(self._create_topic)

    @property
    def is_topic_coming(self) -> bool:
        """Whether ``__consumer_offsets`` is being made, and not known here yet."""
        return self._topic.is_asked_for

    async def wait_topic(self, groups: Collection[str]) -> bool:
        """Wait until ``__consumer_offsets`` is made, and this broker coordinates the groups of partitions it leads.

        Returns:
            Whether it is known; False: it could not be made, or not within a second.
        """
        with trio.move_on_after(_KNOWN_WITHIN_S):
            await self._topic_settled.wait()
            turn = Turn()
            for group_id in groups:
                while self._is_opening(group_id):
                    await trio.sleep(_POLL_S)
                if turn.is_over():
                    await trio.lowlevel.checkpoint()
        return GROUPS_TOPIC in self._cache.topics

    def _is_opening(self, group_id: str) -> bool:
        name = self.partition_of(group_id)
        led = self._led.get(name.partition)
        if led is None:
            return self._replicas.is_announced_leader(name) and not self._replicas.is_offline(name)
        return led.shard is None and not led.has_failed

    async def _create_topic(self) -> None:
        try:
            if await self._topic.create():
                with trio.move_on_after(_KNOWN_WITHIN_S):
                    while GROUPS_TOPIC not in self._cache.topics:
                        await trio.sleep(_POLL_S)
        finally:
            self._topic.is_asked_for = False
            self._topic_settled.set()

    # --- leadership ---------------------------------------------------------------------------------------------------

    def _partitions_changed(self, names: Collection[TopicPartition]) -> None:
        for name in names:
            if name.topic == GROUPS_TOPIC:
                self._partition_changed(name)

    def _partition_changed(self, name: TopicPartition) -> None:
        """Load, drop or go on with a partition whose role or high watermark changed."""
        led = self._led.get(name.partition)
        replica = self._replicas.all.get(name)
        is_led = replica is not None and replica.partition.leading is not None
        if led is not None:
            led.changed.set()
            if not is_led:
                del self._led[name.partition]
                if led.shard is not None:
                    _logger.info("%s: its groups are coordinated by another broker now", name)
                    self._answer(led.shard.unload(self._wall_ms()))
        elif is_led:
            self._led[name.partition] = led = _Led(name)
            self._jobs.send_nowait(partial(self._load, led))

    def topics_deleted(self, topics: Mapping[Uuid, str]) -> None:
        """Delete the committed offsets of deleted topics, which are given as names by id."""
        if topics:
            self._have_all(lambda shard: shard.topics_deleted(topics, self._wall_ms()))

    def partitions_deleted(self, parts: Collection[TopicPartition]) -> None:
        """Delete the committed offsets of deleted partitions."""
        if parts:
            self._have_all(lambda shard: shard.partitions_deleted(parts, self._wall_ms()))

    def _have_all(self, change: Callable[[Shard], ShardEffects]) -> None:
        """Apply a change to all shards; to those being loaded, once they are loaded."""
        for led in self._led.values():
            if led.shard is None and not led.has_failed:
                led.late.append(change)
        for name, shard in self._loaded():
            self.carry_out(name, shard, change(shard))

    def _is_current(self, led: _Led) -> bool:
        return self._led.get(led.name.partition) is led

    async def _load(self, led: _Led) -> None:
        replica = self._replicas.all.get(led.name)
        log = None if replica is None else replica.partition.log
        try:
            await self._read(led)
        except KraftError as error:
            if not self._is_current(led):
                return  # the log was cut or closed meanwhile
            if self._replicas.all[led.name].partition.log is not log:  # it moved to another directory meanwhile
                self._jobs.send_nowait(partial(self._load, led))
                return
            _logger.error("%s: its groups cannot be loaded: %s", led.name, error)
            led.has_failed = True
            led.late.clear()
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
        now_ms = self._wall_ms()
        loaded = await trio.to_thread.run_sync(loader.finish, now_ms)
        if not self._is_current(led):
            return
        led.shard = shard = Shard(self.settings, _random, loaded, now_ms, self._chunk_bytes, self._ahead_ms)
        _logger.info("%s: %d groups from %d records", led.name, len(loaded.groups), loader.records)
        self.carry_out(led.name, shard, shard.begin(now_ms))
        late, led.late = led.late, []
        for change in late:
            self.carry_out(led.name, shard, change(shard))

    async def _wait_committed(self, led: _Led, found: Partition, end: int) -> bool:
        """Wait until all records below ``end`` are committed; False: the leadership ended."""
        while found.high_watermark < end:
            led.changed = trio.Event()
            await led.changed.wait()
            if not self._is_current(led):
                return False
        return True

    # --- size -------------------------------------------------------------------------------------------------------

    async def condense_large(self) -> None:
        """Condense each log that is larger than a segment of the topic, and more than half of which is not needed.

        Where that won little it is tried again when the log has doubled.
        """
        for led in list(self._led.values()):
            replica = self._replicas.all.get(led.name)
            if led.shard is None or replica is None:
                continue
            size = replica.partition.log.size_in_bytes
            if size > max(self.settings.topic_segment_bytes, 2 * led.live_bytes, 2 * led.futile_bytes):
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
        led.live_bytes = await trio.to_thread.run_sync(_live_bytes, loader, read)
        size = log.size_in_bytes
        if not self._is_current(led) or 2 * led.live_bytes > size:
            return  # condensing would win little
        if 2 * _bytes_below(log, loader.open_from(log.log_end_offset)) < size:
            led.futile_bytes = size  # an open transaction needs what is behind its beginning
            return
        log.roll(self._now_ms())
        read = end = _catch_up(log, loader, read)
        for _ in range(_PASSES):
            read = await self._write_again(led, found, loader, read, end)
            # What this is decided from has to be committed: a later leader may know nothing that came after.
            start = await trio.to_thread.run_sync(loader.needed_from, end)
            if not self._is_current(led) or not await self._wait_committed(led, found, read):
                return
            if start == end:
                break
        async with self._disk:
            try:
                if self._is_current(led) and log.flushed_offset < read:
                    await run_in_thread(log.flush)  # records that were written again, before the older ones are removed
                if self._is_current(led):
                    await run_in_threads(raise_log_start(found, start, self._now_ms()))
            except CorruptDataError as error:
                self._replicas.damaged(led.name, error)
            if self._is_current(led):
                led.futile_bytes = log.size_in_bytes if 2 * log.size_in_bytes > size else 0
                _logger.info("%s: %d bytes became %d", led.name, size, log.size_in_bytes)

    async def _write_again(self, led: _Led, found: Partition, loader: Loader, read: int, end: int) -> int:
        """Append the live records below ``end`` again; the offset up to which the loader has the log."""
        live = await trio.to_thread.run_sync(loader.live, end)
        for chunk in chunks(live, self._chunk_bytes()):
            if not self._is_current(led):
                return read
            # Other tasks ran, and newer records of a key count: they stand behind the end already.
            read = _catch_up(found.log, loader, read)
            if entries := loader.movable([key for key, _ in chunk], end):
                _, effects = found.append(_batch_of(entries, self._wall_ms()), self._now_ms(), needs_isr=True)
                self._replicas.carry_out(led.name, effects)
            await trio.lowlevel.checkpoint()
        return _catch_up(found.log, loader, read)

    # --- effects ------------------------------------------------------------------------------------------------------

    def carry_out(self, name: TopicPartition, shard: Shard, effects: ShardEffects) -> None:
        """Append a shard's writes, and give its answers."""
        for write in effects.writes:
            self._append(name, shard, write)
        self._answer(effects)
        due_ms = shard.due_ms()
        if due_ms is not None and due_ms < self._wake_ms:
            self._wake_ms = due_ms
            self._earlier.set()

    def _answer(self, effects: ShardEffects) -> None:
        for ticket, response in effects.answers:
            ticket.answer(response)

    def _append(self, name: TopicPartition, shard: Shard, write: Write) -> None:
        now_ms = self._wall_ms()
        if write.refusal is not ErrorCode.NONE:
            self.carry_out(name, shard, shard.failed(write, write.refusal, now_ms))
            return
        waiter = _CommittedWrite(write, partial(self._committed, name, shard))
        try:
            batch = _batch_of(write.entries, now_ms, write.producer)
            if len(batch) > self._batch_max_bytes():
                raise refused(ErrorCode.RECORD_LIST_TOO_LARGE, f"{len(batch)} bytes in one write")
            found: Partition = self._replicas.find(name)
            _, effects = found.append(batch, self._now_ms(), waiter=waiter, needs_isr=True, has_sequence=False)
        except KraftError as error:
            code = code_of(self._replicas, name, error)
            if not isinstance(error, RefusedError):
                _logger.error("%s: a write of its groups failed: %s", name, error)
            self.carry_out(name, shard, shard.failed(write, code, now_ms))
            return
        self.carry_out(name, shard, shard.appended(write, now_ms))
        self._replicas.carry_out(name, effects)

    def _committed(self, name: TopicPartition, shard: Shard, write: Write) -> None:
        self.carry_out(name, shard, shard.committed(write, self._wall_ms()))

    # --- transactions -------------------------------------------------------------------------------------------------

    def end_transaction(self, name: TopicPartition, marker: Marker, waiter: Waiter) -> None:
        """Append what ends a transaction that may have committed offsets; they count when it is committed.

        Raises:
            RefusedError: NOT_LEADER_OR_FOLLOWER while the groups are not loaded; see ``Partition.end_transaction``.
            StorageError: the disk failed.
        """
        led = self._led.get(name.partition)
        if led is None or led.shard is None:
            raise refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} is not loaded")
        found: Partition = self._replicas.find(name)
        ended = partial(self._transaction_ended, led, marker)
        self._replicas.carry_out(name, found.end_transaction(marker, self._now_ms(), _CommittedMarker(waiter, ended)))

    def _transaction_ended(self, led: _Led, marker: Marker) -> None:
        if led.shard is not None and self._is_current(led):
            led.shard.offsets.end_transaction(marker.producer_id, is_commit=marker.is_commit)

    # --- tasks --------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load the groups of partitions that are led, and fire their timers, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._run_timers)
            nursery.start_soon(self._condense_periodically)
            async for job in self._todo:
                nursery.start_soon(job)

    async def _run_timers(self) -> None:
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
                    self.carry_out(name, shard, shard.expire(self._wall_ms()))
            await trio.lowlevel.checkpoint()

    async def _condense_periodically(self) -> None:
        while True:
            await trio.sleep(_CONDENSING_S)
            await self.condense_large()

    def _loaded(self) -> list[tuple[TopicPartition, Shard]]:
        return [(led.name, led.shard) for led in self._led.values() if led.shard is not None]


def _random() -> str:
    return str(uuid4())


def _read(log: Log, offset: int, end: int) -> Iterator[RecordBatch]:
    while offset < end:
        data = log.read(offset, _READ_BYTES, up_to=end, at_least_one=True)
        if not data:
            return
        for batch in iter_batches(data):
            yield batch
            offset = batch.next_offset


def _live_bytes(loader: Loader, end: int) -> int:
    """About how many bytes the live records below ``end`` have."""
    return sum(map(entry_bytes, loader.live(end)))


def _bytes_below(log: Log, offset: int) -> int:
    """The bytes of the segments that end at ``offset`` or below."""
    return sum(each.size for each in log.segment_list() if each.next_offset <= offset)


def _catch_up(log: Log, loader: Loader, offset: int) -> int:
    """Hand the batches from ``offset`` on to a loader; return the log end offset."""
    end = log.log_end_offset
    for batch in _read(log, offset, end):
        loader.add(batch)
    return end


async def _batches(log: Log, loader: Loader, offset: int, end: int) -> AsyncIterator[int]:
    """Hand batches to a loader; yield the loader's end offset whenever other tasks ran, and at the end."""
    pause_at = _YIELD_RECORDS
    for batch in _read(log, offset, end):
        loader.add(batch)
        offset = batch.next_offset
        if loader.records >= pause_at:
            pause_at = loader.records + _YIELD_RECORDS
            await trio.lowlevel.checkpoint()
            yield offset
    yield offset


def _batch_of(entries: Sequence[Entry], now_ms: int, producer: tuple[int, int] | None = None) -> bytearray:
    records = [Record(value, key, timestamp_ms=now_ms) for key, value in entries]
    if producer is None:
        return build_records_batch(records, timestamp_ms=now_ms)
    producer_id, epoch = producer
    return build_records_batch(
        records,
        timestamp_ms=now_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
    )
