"""Moves of partitions between log directories of this broker (KIP-113), on trio.

A copy of the partition's log in the other directory is filled from the log, while the partition goes on as leader or
follower. When the copy is complete, the controller is told of the other directory (KIP-858). When the metadata has that
directory, the copy becomes the partition's log, and the former log is deleted. A broker that was killed goes on with
its copies. Source: Kafka 4.3.1, ReplicaAlterLogDirsThread, Partition.maybeReplaceCurrentWithFutureReplica.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeAlias

import trio

from kraftcore.core.batch import iter_batches
from kraftcore.core.log import Log
from kraftcore.errors import CorruptDataError, KraftError, LocalError, RefusedError, StorageError
from kraftcore.plugins.broker.log_changes import cut_log
from kraftcore.plugins.broker.logdirs import HostedLog, LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory, NewFuture
from kraftcore.plugins.broker.logdirs.names import is_legal
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.partition.state import refused
from kraftcore.plugins.broker.quotas.rates import LimitedRate
from kraftcore.plugins.broker.replicas import HostedPartition, Replicas, TellDirectory, nobody_to_tell
from kraftcore.plugins.broker.work.disk_threads import failures_in_threads, run_in_thread, run_in_threads
from kraftcore.plugins.broker.work.turns import Turn
from kraftcore.protocol.error_codes import ErrorCode

_CHUNK_BYTES = 256 * 1024
_SYNC_BYTES = 64 * 1024 * 1024  # copied between two syncs: the sync at the end of a move is short then
_PAUSE_S = 0.02
Moving: TypeAlias = tuple[HostedPartition, HostedLog]
"""A partition that moves, and the log that it moves to."""

_logger = logging.getLogger("kraftcore.broker")


class Moves:
    """Moves replicas between log directories of this broker (KIP-113), on trio.

    Args:
        replicas: the partitions of this broker.
        dirs: the log directories.
        disk: a lock, held while a log is flushed, or parts of one are removed.
        now_ms: the time in milliseconds; it never falls.
        quota: how many bytes a second may be copied, of all partitions together.
        chunk_bytes: how many bytes are copied at a time; a larger batch is copied alone.
        wall_ms: milliseconds since 1970, by which producers expire; None: ``now_ms``.
        tell_directory: see `TellDirectory`.
    """

    def __init__(
        self,
        replicas: Replicas,
        dirs: LogDirs,
        disk: trio.Lock,
        now_ms: Callable[[], int],
        quota: LimitedRate,
        chunk_bytes: int = _CHUNK_BYTES,
        wall_ms: Callable[[], int] | None = None,
        tell_directory: TellDirectory = nobody_to_tell,
    ) -> None:
        self._tell_directory = tell_directory
        self._replicas = replicas
        self._dirs = dirs
        self._disk = disk
        self._now_ms = now_ms
        self._wall_ms = now_ms if wall_ms is None else wall_ms
        self._quota = quota
        self._chunk_bytes = chunk_bytes
        self._unsynced: dict[TopicPartition, int] = {}  # bytes that were copied since the last sync
        self._wake = trio.Event()

    # --- requests -----------------------------------------------------------------------------------------------------

    async def begin(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, KraftError]:
        """Move partitions to the directories with these absolute paths.

        Nothing happens to one that is there, or on its way there; a move to another one ends. Where no replica is yet,
        it is made there later, should that be for the broker to choose.

        Returns:
            Those that do not move, and why: RefusedError: INVALID_TOPIC_EXCEPTION: the name is too long for it;
            LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR; REPLICA_NOT_AVAILABLE: others have replicas;
            UNKNOWN_TOPIC_OR_PARTITION. StorageError: a directory failed now, or before.
        """
        failures: dict[TopicPartition, KraftError] = {}
        planned: dict[Directory, list[NewFuture]] = {}
        turn = Turn()
        async with self._disk:
            for name, path in wanted.items():
                try:
                    directory, folder = self._target(name, path)
                    if await self._needs_copy(name, directory):
                        hosted = self._replicas.all[name].hosted
                        new = NewFuture(name, folder, hosted.topic_id, _first_offset(hosted.log))
                        planned.setdefault(directory, []).append(new)
                except KraftError as error:
                    failures[name] = error
                if turn.is_over():
                    await trio.lowlevel.checkpoint()
            failures.update(await self._create(planned))
        self._wake.set()
        return failures

    def _target(self, name: TopicPartition, path: str) -> tuple[Directory, str]:
        """Where a partition is to move to: the directory, and the folder in it."""
        folder = self._dirs.future_folder(name)
        if folder is None:
            raise refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"the name of topic {name.topic} is too long to move")
        directory = self._dirs.at(path)
        if directory is None:
            raise refused(ErrorCode.LOG_DIR_NOT_FOUND, f"{path} is none of log.dirs of this broker")
        if directory.failure is not None or self._dirs.is_broken(name):
            raise refused(ErrorCode.KAFKA_STORAGE_ERROR, f"the log directory {path} is offline, or {name} is")
        return directory, folder

    async def _needs_copy(self, name: TopicPartition, directory: Directory) -> bool:
        """End a move of a partition to another directory; whether one to this directory is to begin."""
        future, replica = self._dirs.future(name), self._replicas.all.get(name)
        if future is not None and future.directory is not directory:
            await self._cancel(future)
            future = None
        if replica is None:
            if is_legal(name):
                self._dirs.prefer(name, directory)
            self._refuse_absent(name)
            return False
        return future is None and replica.hosted.directory is not directory

    def _refuse_absent(self, name: TopicPartition) -> None:
        try:
            self._replicas.find(name)
        except RefusedError as error:
            if error.error == ErrorCode.NOT_LEADER_OR_FOLLOWER.name:  # Kafka keeps the code that this request had
                raise refused(ErrorCode.REPLICA_NOT_AVAILABLE, error.message) from None
            raise

    async def _create(self, planned: Mapping[Directory, Sequence[NewFuture]]) -> dict[TopicPartition, KraftError]:
        """Make the logs that partitions move to; returns the errors of those that cannot be made. The disk is held."""
        failures = await run_in_threads(self._dirs.create_futures(planned, self._now_ms()))
        for error in {id(error): error for error in failures.values()}.values():
            directory = self._dirs.holding(error.filename) if isinstance(error, StorageError) else None
            if directory is not None and directory in planned:
                self._replicas.directory_failed(directory, error)
        return failures

    async def _cancel(self, future: HostedLog) -> None:
        """End a move that is not complete, and delete the copy. The disk is held."""
        self._unsynced.pop(future.name, None)
        for directory, error in (await run_in_threads(self._dirs.delete([future], self._now_ms))).items():
            self._replicas.directory_failed(directory, error)
        self._withdraw_unfinished()

    def _withdraw_unfinished(self) -> None:
        """Tell the controller where partitions are that it was told would move, and that do not move any more.

        So it has other brokers lead the partitions of a directory that failed. Source: Kafka 4.3.1,
        ReplicaAlterLogDirsThread.removePartitions.
        """
        for name in list(self._replicas.moving_to):
            hosted = self._dirs.find(name)
            if self._dirs.future(name) is not None and (hosted is None or hosted.directory.failure is None):
                continue
            del self._replicas.moving_to[name]
            if hosted is not None and hosted.topic_id is not None and hosted.directory.id is not None:
                self._tell_directory(name, hosted.topic_id, hosted.directory.id)

    # --- copying ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Copy logs and switch to the copies, until cancelled."""
        while True:
            with trio.move_on_after(1):  # a partition may be assigned whose move was under way
                await self._wake.wait()
            self._wake = trio.Event()
            self._withdraw_unfinished()
            while found := self.under_way():
                await trio.sleep(0 if await self.step(found) else _PAUSE_S)
                self._withdraw_unfinished()

    def under_way(self) -> list[tuple[HostedPartition, HostedLog]]:
        """The partitions that move, each with the log that it moves to."""
        found = []
        for directory in self._dirs.usable:
            for name, future in directory.futures.items():
                replica = self._replicas.all.get(name)
                if replica is not None and self._is_current(replica, future):
                    found.append((replica, future))
        return found

    def _is_current(self, replica: HostedPartition, future: HostedLog) -> bool:
        """Whether a partition is still copied to this log, and both logs can be used."""
        hosted = replica.hosted
        is_usable = hosted.directory.failure is None and future.directory.failure is None and not hosted.log.closed
        return (
            is_usable
            and not self._dirs.is_broken(future.name)  # its log is damaged
            and self._replicas.all.get(future.name) is replica
            and future.directory.futures.get(future.name) is future
            and hosted.topic_id == future.topic_id
        )

    async def step(self, moving: Sequence[Moving]) -> bool:
        """Copy a part of each of these logs; returns whether there may be more to do at once."""
        may_go_on = False
        ready: list[Moving] = []
        for replica, future in moving:
            try:
                if await self._advance(replica, future):
                    may_go_on = True
                elif self._is_ready(replica, future):
                    ready.append((replica, future))
            except KraftError as error:
                await self._failed(replica, future, error)
        if ready:
            async with self._disk:
                with trio.CancelScope(shield=True):  # else a log may stay in both directories
                    may_go_on |= await self._switch_logs([each for each in ready if self._is_current(*each)])
        return may_go_on

    async def _failed(
        self, replica: HostedPartition, future: HostedLog, error: KraftError, *, is_held: bool = False
    ) -> None:
        """A directory failed, or a move cannot go on; the disk may be held."""
        if isinstance(error, StorageError):
            self._replicas.directory_failed(self._dirs.holding(error.filename) or future.directory, error)
            return
        if not isinstance(error, (CorruptDataError, LocalError)):
            raise error
        if self._is_current(replica, future):
            _logger.error("%s does not move to %s: %s", future.name, future.directory.path, error)
            if is_held:
                await self._cancel(future)
                return
            async with self._disk:
                if self._is_current(replica, future):
                    await self._cancel(future)

    async def _advance(self, replica: HostedPartition, future: HostedLog) -> bool:
        """Copy the next records, or cut the copy where it differs; returns whether anything was done."""
        if not self._is_current(replica, future) or replica.partition.is_changing:
            return False  # a thread cuts its log, which nobody may read then
        log = replica.hosted.log
        if _has_diverged(log, future.log):
            async with self._disk:
                if self._is_current(replica, future):
                    await self._truncate_copy(replica, future)
            return True
        return future.log.log_end_offset < log.log_end_offset and await self._copy(replica, future)

    def _is_ready(self, replica: HostedPartition, future: HostedLog) -> bool:
        """Whether the copy holds what the log does, and the controller knows of the other directory."""
        if not self._is_current(replica, future) or replica.partition.is_changing:
            return False
        hosted, directory_id = replica.hosted, future.directory.id
        if future.log.log_end_offset < hosted.log.log_end_offset or _has_diverged(hosted.log, future.log):
            return False
        if hosted.topic_id is not None and directory_id is not None:
            self._replicas.moving_to[future.name] = directory_id
            return self._tell_directory(future.name, hosted.topic_id, directory_id)
        return True

    async def _copy(self, replica: HostedPartition, future: HostedLog) -> bool:
        quota = self._quota
        if quota.is_exceeded:
            return False
        count = self._copy_some(replica, future, min(self._chunk_bytes, max(quota.limit, 1)))
        quota.record(count)
        self._unsynced[future.name] = self._unsynced.get(future.name, 0) + count
        if self._unsynced[future.name] > _SYNC_BYTES:
            async with self._disk:
                if self._is_current(replica, future):
                    await trio.to_thread.run_sync(future.log.flush)
            self._unsynced.pop(future.name, None)
        return count > 0

    def _copy_some(self, replica: HostedPartition, future: HostedLog, max_bytes: int) -> int:
        """Append the next batches to the copy; returns their bytes, 0 where the log ends in a gap."""
        log, target = replica.hosted.log, future.log
        data = log.read(max(target.log_end_offset, log.log_start_offset), max_bytes)
        if not data:
            return 0
        info = target.append_as_follower(data, self._now_ms())
        future.producers.replicated(memoryview(data)[: info.size])
        return info.size

    async def _truncate_copy(self, replica: HostedPartition, future: HostedLog) -> None:
        """Cut the copy where it differs from the log: at its end, at its start, or all of it."""
        log, target = replica.hosted.log, future.log
        if log.log_start_offset < target.log_start_offset:  # the log was cut below where it began
            await self._cancel(future)
            folder = self._dirs.future_folder(future.name)
            if folder is not None and future.directory.failure is None:
                new = NewFuture(future.name, folder, replica.hosted.topic_id, _first_offset(log))
                for error in (await self._create({future.directory: [new]})).values():
                    raise error
            return
        end = _end_in_common(log, target)
        if end is None or _is_behind(log, target):
            first = _first_offset(log)
            await run_in_threads(cut_log(future, lambda: self._restart_at(future, first)))
            return
        if end < target.log_end_offset:
            shorter = max(end, target.log_start_offset)
            await run_in_threads(cut_log(future, lambda: self._truncate(future, shorter)))
        start = min(log.log_start_offset, target.log_end_offset)
        if start > target.log_start_offset:
            await run_in_thread(target.flush)
            remove = target.begin_delete_below(start, self._now_ms())
            if remove is not None:
                await run_in_thread(remove)

    @staticmethod
    def _restart_at(future: HostedLog, offset: int) -> None:
        future.log.truncate_fully_to(offset)
        future.producers.restarted()

    @staticmethod
    def _truncate(future: HostedLog, offset: int) -> None:
        future.log.truncate_to(offset)
        future.producers.truncated()

    async def _switch_logs(self, ready: Sequence[Moving]) -> bool:
        """Have copies become the logs; between the check that one holds all of it and the switch nothing else runs.

        Copies are made durable before that, the names of their folders behind it, all of a directory together. Nobody
        says in between that what comes to a log is durable: the disk is held.

        Returns:
            Whether any did.
        """
        left: dict[Directory, list[HostedLog]] = {}
        while ready:
            again: list[Moving] = []
            for replica, future in await self._made_durable(ready):
                try:
                    if not self._holds_all(replica, future):
                        continue
                    # Records synced since may have been acknowledged for that; no task syncs while the disk is held.
                    if replica.hosted.log.flushed_offset > future.log.flushed_offset:
                        again.append((replica, future))
                        continue
                    before = self._replicas.switch_to(future.name, future, self._wall_ms())
                    _logger.info("%s moved from %s to %s", future.name, before.directory.path, future.directory.path)
                    left.setdefault(future.directory, []).append(before)
                except KraftError as error:
                    await self._failed(replica, future, error, is_held=True)
            ready = again
        return await self._leave(left)

    async def _leave(self, left: Mapping[Directory, Sequence[HostedLog]]) -> bool:
        """Make the names of new logs durable, by directory, then delete the former logs; return whether any went."""
        failures = await failures_in_threads([directory.sync_names for directory in left])
        deleted: list[HostedLog] = []
        for (directory, logs), failure in zip(left.items(), failures, strict=True):
            if failure is None:
                deleted += logs
                continue
            for before in logs:
                with suppress(KraftError):
                    await run_in_thread(before.log.close)  # it stays where it is
            self._replicas.directory_failed(directory, failure)
        for directory, failure in (await run_in_threads(self._dirs.delete(deleted, self._now_ms))).items():
            self._replicas.directory_failed(directory, failure)
        return bool(deleted)

    async def _made_durable(self, ready: Sequence[Moving]) -> list[Moving]:
        """Sync the copied records, and store where the copies begin; returns the moves that go on."""
        by_directory: dict[Directory, list[Moving]] = {}
        for replica, future in ready:
            by_directory.setdefault(future.directory, []).append((replica, future))
        failed: dict[TopicPartition, KraftError] = {}
        works = [partial(_make_durable, directory, some, failed) for directory, some in by_directory.items()]
        for some, failure in zip(by_directory.values(), await failures_in_threads(works), strict=True):
            if failure is not None:
                failed.update(dict.fromkeys([future.name for _, future in some], failure))
        for replica, future in ready:
            if future.name in failed:
                await self._failed(replica, future, failed[future.name], is_held=True)
        return [each for each in ready if each[1].name not in failed and self._is_current(*each)]

    def _holds_all(self, replica: HostedPartition, future: HostedLog) -> bool:
        """Copy the latest records; return whether the copy equals the log."""
        log = replica.hosted.log
        while not _has_diverged(log, future.log) and future.log.log_end_offset < log.log_end_offset:
            if not self._copy_some(replica, future, self._chunk_bytes):
                return False
        return not _has_diverged(log, future.log)


def _make_durable(directory: Directory, moving: Sequence[Moving], failed: dict[TopicPartition, KraftError]) -> None:
    for _, future in moving:
        try:
            future.log.flush()
            future.producers.snapshot(durable=True)
        except StorageError:
            raise
        except KraftError as error:
            failed[future.name] = error
    directory.write_checkpoints()


def _first_offset(log: Log) -> int:
    """The first offset of a log's copy: a log may start within a batch, or in a gap that Kafka's cleaner left."""
    start = log.log_start_offset
    try:
        data = log.read(start, 1)
    except CorruptDataError:  # copying from there raises the error
        return start
    return min([start, *(batch.base_offset for batch in iter_batches(data, verify=False))])


def _has_diverged(log: Log, copy: Log) -> bool:
    """Whether the copy holds records that the log does not, or begins elsewhere."""
    end = _end_in_common(log, copy)
    return (
        end is None
        or end < copy.log_end_offset
        or _is_behind(log, copy)
        or log.log_start_offset < copy.log_start_offset
        or copy.log_start_offset < min(log.log_start_offset, copy.log_end_offset)
    )


def _is_behind(log: Log, copy: Log) -> bool:
    return copy.log_end_offset < log.log_start_offset and copy.log_end_offset < _first_offset(log)


def _end_in_common(log: Log, copy: Log) -> int | None:
    """Up to where a copy is a part of a log, by their leader epochs (KIP-101); None: it has to begin anew."""
    end, last = copy.log_end_offset, copy.last_epoch
    if last is None or end == copy.log_start_offset:
        return end if end <= log.log_end_offset else None
    found = log.end_offset_for_epoch(last)
    if found.epoch == last:
        return min(found.offset, end)
    own = copy.end_offset_for_epoch(found.epoch)
    return min(own.offset, found.offset if own.epoch == found.epoch else own.offset, end)
