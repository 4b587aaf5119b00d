"""One log directory: the logs in it, its checkpoints, what waits for deletion."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from kraftcore.core.disk.files import Files
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.listing import LISTING_NAME
from kraftcore.core.log.recovery import METADATA_NAME, decode_metadata, encode_metadata
from kraftcore.core.uuid import Uuid
from kraftcore.errors import ClosedError, CorruptDataError, KraftError, LocalError, StorageError
from kraftcore.plugins.broker.disk_steps import DiskSteps
from kraftcore.plugins.broker.logdirs.checkpoint import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
)
from kraftcore.plugins.broker.logdirs.clean_shutdown import (
    CLEAN_SHUTDOWN,
    NO_EPOCH,
    decode_clean_shutdown,
    encode_clean_shutdown,
)
from kraftcore.plugins.broker.logdirs.names import (
    deleted_name,
    future_of,
    is_deleted,
    is_legal,
    partition_of,
    stray_name,
)
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.producers import ProducerStates
from kraftcore.plugins.broker.producers.states import EXPIRATION_MS
from kraftcore.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties

_logger = logging.getLogger("kraftcore.broker")


@dataclass(slots=True)
class HostedLog:
    """A partition's log in its directory.

    Attributes:
        name: of the partition.
        directory: where it is.
        log: open.
        topic_id: as its ``partition.metadata`` says; None: there is none.
        high_watermark: as last known; stored by checkpoints.
        producers: those of the log that number their batches.
        flushed_ms: when it was last seen to hold nothing that was not synced.
        is_cut: its end is being removed.
    """

    name: TopicPartition
    directory: Directory
    log: Log
    topic_id: Uuid | None
    high_watermark: int
    producers: ProducerStates
    flushed_ms: int = 0
    is_cut: bool = False


class Directory:
    """See the module text. The caller holds the directory's lock.

    Args:
        files: where it is.
        path: its folder.
        config: of all logs in it, until ``configure``.
        delete_delay_ms: how long a deleted partition's folder stays.
        producer_expiration_ms: how long a producer may be silent before it is forgotten.

    Attributes:
        path: as given.
        logs: the partitions' logs.
        futures: logs that partitions move to from other directories (KIP-113).
        broken: partitions whose log cannot be opened, or was not because the directory failed before, or is used no
            more, with the reason: nothing of them is touched.
        failure: why the directory is not used any more, or None.
        is_listed: whether all that it holds is known, in ``logs`` and ``broken``.
        id: its ``directory.id``; None: it has none.
        previous_epoch: broker epoch of the run before if that stopped in order; else -1.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        config: LogConfig,
        delete_delay_ms: int,
        producer_expiration_ms: int = EXPIRATION_MS,
    ) -> None:
        self.path = path
        self.logs: dict[TopicPartition, HostedLog] = {}
        self.futures: dict[TopicPartition, HostedLog] = {}
        self.broken: dict[TopicPartition, KraftError] = {}
        self.failure: KraftError | None = None
        self.is_listed = False
        self.id: Uuid | None = None
        self.previous_epoch = NO_EPOCH
        self._files = files
        self._config_of: Callable[[str], LogConfig] = lambda topic: config
        self._delete_delay_ms = delete_delay_ms
        self._producer_expiration_ms = producer_expiration_ms
        self._expiring: list[tuple[int, str]] = []
        self._written: dict[str, bytes] = {}
        self._writing = threading.Lock()
        self._is_loaded = False
        self._stored: dict[str, dict[TopicPartition, int]] = {}  # the checkpoints' offsets, by file
        self._gone: set[TopicPartition] = set()  # partitions whose logs went, and whose offsets may still be stored

    def _path(self, *names: str) -> str:
        return os.path.join(self.path, *names)

    def configure(self, config_of: Callable[[str], LogConfig]) -> None:
        """How logs are opened from now on, by the topic's name."""
        self._config_of = config_of

    def reconfigure(self, hosted: HostedLog) -> None:
        """Have an open log follow what is set for its topic by now."""
        if not hosted.log.closed:
            hosted.log.configure(self._config_of(hosted.name.topic))

    # --- life ---------------------------------------------------------------------------------------------------------

    def load(self, now_ms: int) -> None:
        """Open everything in it.

        A log that is damaged is left as it is, and noted in ``broken``.

        Raises:
            StorageError: the directory cannot be read or changed, or a log in it: as in Kafka (LogManager.loadLogs) the
                whole directory fails then. What was not opened is noted in ``broken``.
        """
        self._stored = {file: self._read(file) for file in (HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, CLEANED)}
        high_watermarks, log_starts = self._stored[HIGH_WATERMARKS], self._stored[LOG_STARTS]
        was_clean = self._files.exists(self._path(CLEAN_SHUTDOWN))
        if was_clean:
            self._files.unlink(self._path(CLEAN_SHUTDOWN))
            self._files.sync_folder(self.path)
        names = []
        futures: dict[TopicPartition, str] = {}
        for folder in self._files.list_folder(self.path):
            name, future = partition_of(folder), future_of(folder)
            is_folder = False
            with _if_there():
                is_folder = self._files.stat(self._path(folder)).is_folder
            if not is_folder:
                continue
            if is_deleted(folder):
                self._expiring.append((now_ms + self._delete_delay_ms, self._path(folder)))
            elif name is not None and is_legal(name):
                names.append(name)
            elif future is not None and is_legal(future):
                futures[future] = folder
        self.is_listed = True
        for position, name in enumerate(names):
            try:
                high_watermark, log_start = high_watermarks.get(name, 0), log_starts.get(name, 0)
                self.logs[name] = self._open(name, now_ms, high_watermark, log_start, was_clean=was_clean)
            except StorageError as error:
                self.broken.update(dict.fromkeys(names[position:], error))
                raise
            except KraftError as error:
                self._note_broken(name, error)
        for name, folder in futures.items():
            if name in self.logs or name in self.broken:
                continue  # it was moved here before, or came here otherwise
            try:
                high_watermark, log_start = high_watermarks.get(name, 0), log_starts.get(name, 0)
                found = self._open(name, now_ms, high_watermark, log_start, was_clean=was_clean, folder=folder)
                self.futures[name] = found
            except StorageError:
                raise
            except KraftError as error:
                _logger.error("%s does not go on to move to %s: %s: %s", name, self.path, folder, error)
        self._gone.update(*self._stored.values())
        self._gone.difference_update(self.logs, self.futures, self.broken)
        self._is_loaded = True

    def _note_broken(self, name: TopicPartition, error: KraftError) -> None:
        _logger.error("%s is offline, its log in %s cannot be opened: %s", name, self.path, error)
        self.broken[name] = error

    def take_offline(self, name: TopicPartition, error: KraftError) -> None:
        """The log of a partition is used no more until the next start."""
        _logger.error("%s is offline, its log in %s is damaged: %s", name, self.path, error)
        self.broken[name] = error

    def broken_topic_id(self, name: TopicPartition) -> Uuid | None:
        """The topic id of a partition whose log cannot be opened; None: it has none, or that cannot be read either."""
        try:
            return self._read_topic_id(self._path(str(name)))
        except KraftError:
            return None

    def _read(self, file: str) -> dict[TopicPartition, int]:
        """A checkpoint's entries; one that cannot be read counts as empty, as in Kafka, which makes each file empty."""
        path = self._path(file)
        try:
            data = self._files.read_file(path)
            return decode_offsets(data, path) if data else {}
        except CorruptDataError as error:
            _logger.warning("%s: it is written anew", error)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        return {}

    def _open(
        self,
        name: TopicPartition,
        now_ms: int,
        high_watermark: int,
        log_start: int,
        *,
        was_clean: bool = False,
        folder: str = "",
    ) -> HostedLog:
        folder = self._path(folder or str(name))
        topic_id = self._read_topic_id(folder)
        log = Log.open(
            self._files,
            folder,
            self._config_of(name.topic),
            now_ms=now_ms,
            was_clean=was_clean,
            recovery_point=self._known_durable(name, folder),
        )
        for action in log.recovery_actions:
            _logger.warning("%s: %s", name, action)
        if log.log_start_offset < log_start <= log.log_end_offset:
            log.flush()
            log.delete_below(log_start, now_ms)
        elif log_start > log.log_end_offset:  # it died as its log was cut below that: what comes there now stays
            with self._writing:
                self._drop(LOG_STARTS, name)
        producers = ProducerStates(log, self._files, self._producer_expiration_ms)
        try:
            producers.load(now_ms, high_watermark)
        except BaseException:
            log.close()
            raise
        return HostedLog(name, self, log, topic_id, high_watermark, producers, now_ms)

    def _known_durable(self, name: TopicPartition, folder: str) -> int:
        """Up to where a log was durable by the checkpoints: Kafka's cleaner puts nothing in place that is not.

        What the cleaner says counts if it came after our own listing: else the log may have been written anew since.
        """
        stored = self._stored.get(RECOVERY_POINTS, {}).get(name, 0)
        cleaned = self._stored.get(CLEANED, {}).get(name, 0)
        if cleaned > stored:
            try:
                listed = self._files.stat(os.path.join(folder, LISTING_NAME)).mtime_ns
                if listed < self._files.stat(self._path(CLEANED)).mtime_ns:
                    return cleaned
            except StorageError as error:
                if error.errno != errno.ENOENT:
                    raise
        return stored

    def _read_topic_id(self, folder: str) -> Uuid | None:
        path = os.path.join(folder, METADATA_NAME)
        try:
            return decode_metadata(self._files.read_file(path), path)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return None
            raise

    def close(self, *, is_clean: bool = True, broker_epoch: int = NO_EPOCH) -> None:
        """Flush and close all logs; remember that the stop was clean if all of them could be.

        Of a directory that failed nothing is touched.

        Args:
            is_clean: it is a stop in order.
            broker_epoch: of this run.

        Raises:
            StorageError: a checkpoint could not be written.
        """
        is_clean = is_clean and self.failure is None and self._is_loaded
        if self.failure is not None:
            for hosted in self._hosted():
                hosted.log.abandon()
            return
        for hosted in self._hosted():
            is_clean &= hosted.name not in self.broken  # what was appended to a damaged log may not be in it any more
            try:
                hosted.log.close()
                hosted.producers.snapshot(durable=True)
            except KraftError as error:
                _logger.error("%s could not be closed in order: %s", hosted.name, error)
                is_clean = False
        if is_clean:
            self.write_checkpoints()
            self._files.replace_file(self._path(CLEAN_SHUTDOWN), encode_clean_shutdown(broker_epoch))

    # --- partitions ---------------------------------------------------------------------------------------------------

    def create(self, name: TopicPartition, topic_id: Uuid | None, now_ms: int) -> DiskSteps[HostedLog]:
        """Make the folder of a partition, with an empty log; its topic's id is written before the first record can be.

        Raises:
            CorruptDataError: a log is there, and damaged; it is noted in ``broken``.
            StorageError: the disk failed.
        """
        made: list[HostedLog] = []
        try:
            yield lambda: made.append(self._make(name, topic_id, now_ms))
        except CorruptDataError as error:
            self._note_broken(name, error)
            raise
        if self.failure is not None:
            with suppress(KraftError):
                yield made[0].log.close
            raise StorageError(errno.EIO, "the log directory failed while a log was made in it", self._path(str(name)))
        hosted = self.logs[name] = made[0]
        return hosted

    def create_future(
        self, name: TopicPartition, folder: str, topic_id: Uuid | None, log_start: int, now_ms: int
    ) -> DiskSteps[HostedLog]:
        """Make an empty log that a partition is to move to, which it yields as work.

        Args:
            name: of the partition.
            folder: name of the log's folder, see ``future_name``.
            topic_id: of its topic; None: it has none.
            log_start: where the log is to begin.
            now_ms: the time.

        Raises:
            StorageError: the disk failed.
        """
        made: list[HostedLog] = []
        yield lambda: made.append(self._make_future(name, folder, topic_id, log_start, now_ms))
        hosted = self.futures[name] = made[0]
        return hosted

    def _make_future(
        self, name: TopicPartition, folder: str, topic_id: Uuid | None, log_start: int, now_ms: int
    ) -> HostedLog:
        self._forget_offsets(name)
        self._make_folder(folder, topic_id)
        found = self._open(name, now_ms, log_start, 0, folder=folder)
        if log_start:
            found.log.truncate_fully_to(log_start)
            found.producers.restarted()
        return found

    def promote(self, future: HostedLog) -> None:
        """A log that a partition moved to becomes its log: the folder is renamed. Next ``sync_names``.

        Raises:
            StorageError: the disk failed.
        """
        future.log.move_folder(self._path(str(future.name)))
        self.logs[future.name] = self.futures.pop(future.name)

    def sync_names(self) -> None:
        """Make the names of its folders durable.

        Raises:
            StorageError: the disk failed.
        """
        self._files.sync_folder(self.path)

    def drop_future(
        self, future: HostedLog, now_ms: Callable[[], int], randbytes: Callable[[int], bytes]
    ) -> DiskSteps[None]:
        """A partition does not move here any more: its log goes as a deleted one (``delete``).

        Raises:
            StorageError: the disk failed.
        """
        del self.futures[future.name]
        target = self._path(deleted_name(future.name, randbytes))
        yield partial(self._retire, future, target)
        self._expiring.append((now_ms() + self._delete_delay_ms, target))

    def _hosted(self) -> list[HostedLog]:
        """All logs, those that partitions move to included."""
        return [*self.logs.values(), *self.futures.values()]

    def _make(self, name: TopicPartition, topic_id: Uuid | None, now_ms: int) -> HostedLog:
        self._forget_offsets(name)  # of an earlier partition of this name
        self._make_folder(str(name), topic_id)
        return self._open(name, now_ms, 0, 0)

    def _make_folder(self, folder: str, topic_id: Uuid | None) -> None:
        """The folder of a log that is opened next: that syncs what is new in it (``recover_log``)."""
        path = self._path(folder)
        is_new = not self._files.exists(path)
        self._files.make_folder(path)
        if topic_id is not None:
            self._files.replace_file(os.path.join(path, METADATA_NAME), encode_metadata(topic_id), name_waits=is_new)

    def assign_topic_id(self, hosted: HostedLog, topic_id: Uuid) -> DiskSteps[None]:
        """Write the id of a topic that had none."""
        path = self._path(str(hosted.name), METADATA_NAME)
        yield partial(self._files.replace_file, path, encode_metadata(topic_id))
        hosted.topic_id = topic_id

    def delete(
        self, hosted: HostedLog, now_ms: Callable[[], int], randbytes: Callable[[int], bytes]
    ) -> DiskSteps[None]:
        """Rename a log's folder, durably, and close it, which it yields as work; ``remove_expired`` removes it later.

        Raises:
            StorageError: the disk failed.
        """
        target = self._path(deleted_name(hosted.name, randbytes))
        yield partial(self._retire, hosted, target)
        self._expiring.append((now_ms() + self._delete_delay_ms, target))
        if self.logs.get(hosted.name) is hosted:
            del self.logs[hosted.name]
            self.broken.pop(hosted.name, None)

    def delete_broken(
        self, name: TopicPartition, now_ms: Callable[[], int], randbytes: Callable[[int], bytes]
    ) -> DiskSteps[None]:
        """``delete`` a log that is not open, as it cannot be used.

        Raises:
            StorageError: the disk failed.
        """
        target = self._path(deleted_name(name, randbytes))
        yield partial(self._put_aside, None, name, target)
        self._expiring.append((now_ms() + self._delete_delay_ms, target))
        self.broken.pop(name, None)

    def _retire(self, hosted: HostedLog, target: str) -> None:
        """Rename, then close, as Kafka (LogManager.asyncDelete): it is gone at once, however much is not synced."""
        try:
            hosted.log.move_folder(target)
            self.sync_names()
        except LocalError:  # it takes no changes: it was closed, or failed, before
            self._move(hosted.log.folder, target)
        self._gone.add(hosted.name)
        try:
            hosted.log.close()
        except KraftError as error:
            _logger.warning("%s, which is deleted, could not be closed in order: %s", hosted.name, error)

    def set_aside(self, name: TopicPartition, randbytes: Callable[[int], bytes]) -> DiskSteps[str]:
        """Close a log, if it is open, and rename its folder, durably, which it yields as work.

        It stays for whoever wants it (KIP-858).

        Returns:
            The folder's new name.

        Raises:
            StorageError: the disk failed.
        """
        target = stray_name(name, randbytes)
        yield partial(self._put_aside, self.logs.get(name), name, self._path(target))
        self.logs.pop(name, None)
        self.broken.pop(name, None)
        return target

    def _put_aside(self, hosted: HostedLog | None, name: TopicPartition, target: str) -> None:
        if hosted is not None:
            try:
                hosted.log.close()
            except KraftError as error:
                _logger.warning("%s, which is set aside, could not be closed in order: %s", name, error)
        self._move(self._path(str(name)), target)
        self._gone.add(name)

    def _move(self, folder: str, target: str) -> None:
        self._files.rename(folder, target)
        self.sync_names()

    def remove_expired(self, now_ms: int) -> None:
        """Remove what was deleted, once its delay is over.

        Raises:
            StorageError: the disk failed; the folder is tried again next time.
        """
        while self._expiring and self._expiring[0][0] <= now_ms:
            with _if_there():
                self._remove(self._expiring[0][1])
            self._expiring.pop(0)
        for hosted in self._hosted():
            if not hosted.log.closed:
                with suppress(ClosedError):  # its topic was deleted this moment
                    hosted.log.delete_expired(now_ms)

    def _remove(self, folder: str) -> None:
        """What somebody else removes meanwhile, to have room, is passed over."""
        for name in self._files.list_folder(folder):
            path = os.path.join(folder, name)
            with _if_there():
                if self._files.stat(path).is_folder:
                    self._remove(path)
                else:
                    self._files.unlink(path)
        self._files.remove_folder(folder)

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def write_high_watermarks(self) -> None:
        """Store the high watermarks; nothing is written while they stay."""
        self._write(HIGH_WATERMARKS, lambda: {each.name: each.high_watermark for each in self._hosted()})

    def write_recovery_points(self) -> None:
        """Store up to where logs are durable; of one that is being cut, nothing."""
        self._write(
            RECOVERY_POINTS, lambda: {each.name: each.log.flushed_offset for each in self._hosted() if not each.is_cut}
        )

    @property
    def stores_gone(self) -> bool:
        """Whether ``forget_gone`` may have something to do."""
        return bool(self._gone)

    def forget_gone(self) -> None:
        """Store nothing more of partitions that were deleted or set aside: once for all of them, as it costs a file.

        Source: Kafka 4.3.1, LogManager.asyncDelete; it keeps the high watermark until the next checkpoint.

        Raises:
            StorageError: the disk failed.
        """
        with self._writing:
            self._forget(self._take_gone())

    def _forget_offsets(self, name: TopicPartition) -> None:
        """A partition of this name begins anew: nothing that is stored counts for it."""
        with self._writing:
            if any(name in stored for stored in self._stored.values()):
                self._forget({name, *self._take_gone()})

    def _take_gone(self) -> set[TopicPartition]:
        gone = self._gone.difference(self.logs, self.futures, self.broken)
        self._gone = set()
        return gone

    def _forget(self, names: Collection[TopicPartition]) -> None:
        for file, stored in list(self._stored.items()):
            left = {name: offset for name, offset in stored.items() if name not in names}
            if len(left) < len(stored):
                self._store(file, left)

    def begin_cut(self, hosted: HostedLog) -> None:
        """The end of a log is about to be removed: what is stored of it as durable or clean may be written anew.

        Until ``end_cut`` nothing is stored of that, and where it starts stays as stored.

        Raises:
            StorageError: the disk failed.
        """
        hosted.is_cut = True
        with self._writing:
            for file in (RECOVERY_POINTS, CLEANED):
                self._drop(file, hosted.name)

    def end_cut(self, hosted: HostedLog) -> None:
        """It is removed, and nothing was written behind it: store where the log starts, which may be below that.

        Raises:
            StorageError: the disk failed.
        """
        hosted.is_cut = False
        self.write_log_starts()

    def _drop(self, file: str, name: TopicPartition) -> None:
        """Store nothing of a partition any more; the caller is writing."""
        left = dict(self._stored.get(file, {}))
        if left.pop(name, None) is not None:
            self._store(file, left)

    def write_log_starts(self) -> None:
        """Store where logs start that do not start at their first segment; of one that is being cut what is stored."""
        self._write(LOG_STARTS, self._log_starts)

    def _log_starts(self) -> dict[TopicPartition, int]:
        stored, found = self._stored.get(LOG_STARTS, {}), {}
        for each in self._hosted():
            if each.is_cut:
                if each.name in stored:
                    found[each.name] = stored[each.name]
            elif each.log.log_start_offset > each.log.segment_list()[0].base_offset:
                found[each.name] = each.log.log_start_offset
        return found

    def write_checkpoints(self) -> None:
        """Store everything that is known to have changed."""
        self.write_high_watermarks()
        self.write_recovery_points()
        self.write_log_starts()

    def _write(self, file: str, offsets: Callable[[], dict[TopicPartition, int]]) -> None:
        """Store these; of logs that could not be opened what is stored stays: it says what the next start must find."""
        with self._writing:  # duties of several threads
            broken = {name: known for name, known in self._stored.get(file, {}).items() if name in self.broken}
            self._store(file, {**broken, **offsets()})

    def _store(self, file: str, offsets: dict[TopicPartition, int]) -> None:
        data = encode_offsets(offsets)
        if self._written.get(file) != data:
            self._files.replace_file(self._path(file), data)
            self._written[file] = data
        self._stored[file] = offsets

    # --- whose it is --------------------------------------------------------------------------------------------------

    def adopt(self, node_id: int, cluster_id: str, randbytes: Callable[[int], bytes]) -> None:
        """Learn its id and how it was left, under a KRaft controller; the node has seen that it is ours.

        An empty directory becomes ours.

        Raises:
            LocalError: it is formatted without a directory id.
            CorruptDataError, StorageError: its file cannot be read.
        """
        self._files.make_folder(self.path)
        found = read_meta_properties(self._files, self.path)
        if found is None:
            found = MetaProperties(cluster_id, node_id, Uuid.random(randbytes))
            write_meta_properties(self._files, self.path, found, datetime.now(UTC))
        if found.directory_id is None:
            raise LocalError(f"{self.path}: meta.properties names no directory id: format it again")
        self.id = found.directory_id
        if self._files.exists(self._path(CLEAN_SHUTDOWN)):
            self.previous_epoch = decode_clean_shutdown(self._files.read_file(self._path(CLEAN_SHUTDOWN)))

    @property
    def is_claimed(self) -> bool:
        """Whether it says which cluster it belongs to.

        Raises:
            CorruptDataError, StorageError: its file cannot be read.
        """
        return read_meta_properties(self._files, self.path) is not None

    def claim(self, node_id: int, cluster_id: str | None, randbytes: Callable[[int], bytes]) -> str:
        """See that it belongs to this broker; an empty directory becomes its own.

        Args:
            node_id: ours.
            cluster_id: what other directories say; None: nothing yet, a new one is made up.
            randbytes: for ids.

        Returns:
            The cluster's id.

        Raises:
            LocalError: it is another broker's, or of another cluster.
            CorruptDataError, StorageError: its file cannot be read.
        """
        found = read_meta_properties(self._files, self.path)
        if found is None:
            cluster_id = cluster_id or str(Uuid.random(randbytes))
            made = MetaProperties(cluster_id, node_id, Uuid.random(randbytes), version=0)
            write_meta_properties(self._files, self.path, made, datetime.now(UTC))
            self.id = made.directory_id
            return cluster_id
        if found.node_id not in (None, node_id):
            raise LocalError(
                f"{self.path} belongs to broker {found.node_id}, not {node_id}: set node.id to that, or log.dirs to "
                f"another directory"
            )
        if cluster_id is not None and found.cluster_id not in (None, cluster_id):
            raise LocalError(
                f"{self.path} belongs to cluster {found.cluster_id}, another of log.dirs to {cluster_id}: name only "
                f"directories of one cluster"
            )
        self.id = found.directory_id
        return found.cluster_id or cluster_id or str(Uuid.random(randbytes))


@contextmanager
def _if_there() -> Iterator[None]:
    """What is done to a file or folder that may have gone meanwhile."""
    try:
        yield
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise
