"""One log directory: its logs, its checkpoints, and the folders that wait for deletion."""

from __future__ import annotations

import errno
import logging
import os
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from kraftcore.core.disk.files import Files
from kraftcore.core.log import Log
from kraftcore.core.log.config import LogConfig
from kraftcore.core.log.listing import LISTING_NAME
from kraftcore.core.log.recovery import METADATA_NAME, decode_metadata, encode_metadata
from kraftcore.core.uuid import Uuid
from kraftcore.errors import ClosedError, CorruptDataError, KraftError, StorageError
from kraftcore.plugins.broker.logdirs import owner
from kraftcore.plugins.broker.logdirs.checkpoint import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
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
from kraftcore.plugins.broker.logdirs.stored_offsets import StoredOffsets
from kraftcore.plugins.broker.logdirs.topic_ids import TopicIds
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.producers import ProducerStates
from kraftcore.plugins.broker.producers.states import EXPIRATION_MS
from kraftcore.plugins.broker.work.disk_steps import DiskSteps
from kraftcore.storage.meta_properties import read_meta_properties

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


class NewFuture(NamedTuple):
    """A log that a partition is to move to.

    Attributes:
        name: of the partition.
        folder: name of the log's folder, see ``future_name``.
        topic_id: of its topic; None: it has none.
        log_start: where the log is to begin.
    """

    name: TopicPartition
    folder: str
    topic_id: Uuid | None
    log_start: int


class Leaving(NamedTuple):
    """A partition's log whose folder is to be renamed, for its removal later.

    Attributes:
        name: of the partition.
        log: open; None: it cannot be used.
        folder: its path now.
        target: the path then.
    """

    name: TopicPartition
    log: Log | None
    folder: str
    target: str


class Directory:
    """A log directory: the logs in it, its checkpoints, the logs to be deleted. The caller holds the directory's lock.

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
        config_of: Callable[[str], LogConfig],
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
        self._config_of = config_of
        self._delete_delay_ms = delete_delay_ms
        self._producer_expiration_ms = producer_expiration_ms
        self._expiring: deque[tuple[int, str]] = deque()
        self._is_loaded = False
        self._stored = StoredOffsets(files, path)
        self._topic_ids = TopicIds(files, path)
        self._unsynced_ids: set[TopicPartition] = set()  # whose ``partition.metadata`` nobody synced
        self._gone: set[TopicPartition] = set()  # partitions whose logs went, and whose offsets may still be stored

    def _path(self, *names: str) -> str:
        return os.path.join(self.path, *names)

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
        self._stored.load()
        self._topic_ids.load()
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
                if self._is_unfinished(name):
                    self._remove(self._path(str(name)))
                else:
                    self.logs[name] = self._open(name, now_ms, was_clean=was_clean)
            except StorageError as error:
                self.broken.update(dict.fromkeys(names[position:], error))
                raise
            except KraftError as error:
                self._note_broken(name, error)
        for name, folder in futures.items():
            if name in self.logs or name in self.broken:
                continue  # it was moved here before, or came here otherwise
            try:
                self.futures[name] = self._open(name, now_ms, was_clean=was_clean, folder=folder)
            except StorageError:
                raise
            except KraftError as error:
                _logger.error("%s does not go on to move to %s: %s: %s", name, self.path, folder, error)
        known = {*self.logs, *self.futures, *self.broken}
        self._gone = self._stored.names() - known
        self._topic_ids.keep(known)
        self._topic_ids.add({each.name: each.topic_id for each in self._hosted() if _has_no_files(each.log)})
        self._is_loaded = True

    def _is_unfinished(self, name: TopicPartition) -> bool:
        """Whether a folder was left unfinished by its making, without a topic id and without records."""
        if name in self._topic_ids or not set(self._files.list_folder(self._path(str(name)))) <= {METADATA_NAME}:
            return False
        try:
            return self._read_topic_id(name, self._path(str(name))) is None
        except CorruptDataError:
            return True

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
            return self._read_topic_id(name, self._path(str(name)))
        except KraftError:
            return None

    def _open(self, name: TopicPartition, now_ms: int, *, was_clean: bool = False, folder: str = "") -> HostedLog:
        high_watermark, log_start = self._stored.get(HIGH_WATERMARKS, name), self._stored.get(LOG_STARTS, name)
        folder = self._path(folder or str(name))
        topic_id = self._read_topic_id(name, folder)
        log = Log.open(
            self._files,
            folder,
            self._config_of(name.topic),
            now_ms=now_ms,
            was_clean=was_clean,
            recovery_point=self._known_durable(name, folder),
            is_ours=name in self._topic_ids and self._topic_ids.get(name) == topic_id,
        )
        for action in log.recovery_actions:
            _logger.warning("%s: %s", name, action)
        if log.log_start_offset < log_start <= log.log_end_offset:
            log.flush()
            log.delete_below(log_start, now_ms)
        elif log_start > log.log_end_offset:  # it died as its log was cut below that: what comes there now stays
            self._stored.drop(LOG_STARTS, name)
        producers = ProducerStates(log, self._files, self._producer_expiration_ms)
        try:
            producers.load(now_ms, high_watermark)
        except BaseException:
            log.close()
            raise
        return HostedLog(name, self, log, topic_id, high_watermark, producers, now_ms)

    def _known_durable(self, name: TopicPartition, folder: str) -> int:
        """Up to where a log was durable by the checkpoints: Kafka's cleaner puts nothing in place that is not.

        What the cleaner says counts if it came after the listing here: else the log may have been written anew since.
        """
        stored = self._stored.get(RECOVERY_POINTS, name)
        cleaned = self._stored.get(CLEANED, name)
        if cleaned > stored:
            written_ns = self._topic_ids.written_ns  # a log that was made here may have no listing yet
            with _if_there():
                written_ns = self._files.stat(os.path.join(folder, LISTING_NAME)).mtime_ns
            if 0 < written_ns < self._files.stat(self._path(CLEANED)).mtime_ns:
                return cleaned
        return stored

    def _read_topic_id(self, name: TopicPartition, folder: str) -> Uuid | None:
        """The topic id in ``partition.metadata``, or, after a power cut, the one in ``kraftcore-topic-ids``."""
        path = os.path.join(folder, METADATA_NAME)
        remembered = self._topic_ids.get(name)
        try:
            return decode_metadata(self._files.read_file(path), path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        except CorruptDataError:
            if remembered is None:
                raise
        if remembered is not None:
            _logger.info("%s: it is written anew, as it was not synced when it was made", path)
            self._files.replace_file(path, encode_metadata(remembered))
        return remembered

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
            for hosted in self._hosted():
                if hosted.name in self._unsynced_ids:  # other programs read them, too, and do not know this list
                    with _if_there(), self._files.open(os.path.join(hosted.log.folder, METADATA_NAME)) as file:
                        file.sync()
            self.write_checkpoints()
            self._files.replace_file(self._path(CLEAN_SHUTDOWN), encode_clean_shutdown(broker_epoch))

    # --- partitions ---------------------------------------------------------------------------------------------------

    def make(
        self,
        wanted: Mapping[TopicPartition, Uuid | None],
        now_ms: int,
        made: dict[TopicPartition, HostedLog | CorruptDataError],
    ) -> None:
        """Make the folders of partitions, each with an empty log: by a thread, and then ``take``.

        All that is synced is the list of their topics' ids and the directory, once: before the first record can be in
        one of them a start finds out whose it is, or that it is not there.

        Args:
            wanted: topic id of each partition; None: it has none.
            now_ms: the time, milliseconds since 1970.
            made: gets their logs; an error where a log is there, and damaged.

        Raises:
            StorageError: the disk failed.
        """
        self._forget_offsets(wanted)
        added = self._files.add_folders([self._new_folder(str(name), topic_id) for name, topic_id in wanted.items()])
        for (name, topic_id), is_new in zip(wanted.items(), added, strict=True):
            try:
                made[name] = self._open_new(name, topic_id, now_ms, is_new=is_new)
            except CorruptDataError as error:
                made[name] = error
        self._topic_ids.add(wanted)
        self.sync_names()

    def _new_folder(self, folder: str, topic_id: Uuid | None) -> tuple[str, str, bytes]:
        file, content = ("", b"") if topic_id is None else (METADATA_NAME, encode_metadata(topic_id))
        return self._path(folder), file, content

    def _open_new(self, name: TopicPartition, topic_id: Uuid | None, now_ms: int, *, is_new: bool) -> HostedLog:
        path = self._path(str(name))
        if is_new:
            log = Log.open(self._files, path, self._config_of(name.topic), now_ms=now_ms, is_fresh=True)
            self._unsynced_ids.add(name)
            producers = ProducerStates(log, self._files, self._producer_expiration_ms)
            return HostedLog(name, self, log, topic_id, 0, producers, now_ms)
        if topic_id is not None:  # what is left of one that was not finished
            self._files.replace_file(os.path.join(path, METADATA_NAME), encode_metadata(topic_id))
        return self._open(name, now_ms)

    def take(
        self, made: Mapping[TopicPartition, HostedLog | CorruptDataError]
    ) -> dict[TopicPartition, HostedLog | KraftError]:
        """These were made; returns each log, or why it cannot be used, which ``broken`` notes."""
        found: dict[TopicPartition, HostedLog | KraftError] = {}
        for name, each in made.items():
            if isinstance(each, KraftError):
                self._note_broken(name, each)
                found[name] = each
            elif self.failure is not None:
                each.log.abandon()
                text = "the log directory failed while a log was made in it"
                found[name] = StorageError(errno.EIO, text, self._path(str(name)))
            else:
                found[name] = self.logs[name] = each
        return found

    def make_futures(self, wanted: Sequence[NewFuture], now_ms: int, made: dict[TopicPartition, HostedLog]) -> None:
        """Make empty logs that partitions are to move to, synced as by ``make``: by a thread, then ``take_futures``.

        Raises:
            StorageError: the disk failed.
        """
        names = [each.name for each in wanted]
        self._forget_offsets(names)
        self._files.add_folders([self._new_folder(each.folder, each.topic_id) for each in wanted])
        self._topic_ids.add({each.name: each.topic_id for each in wanted})
        self.sync_names()
        self._unsynced_ids.update(names)
        for each in wanted:
            found = made[each.name] = self._open(each.name, now_ms, folder=each.folder)
            if each.log_start:
                found.log.truncate_fully_to(each.log_start)
                found.producers.restarted()
                found.high_watermark = each.log_start

    def take_futures(self, made: Mapping[TopicPartition, HostedLog]) -> None:
        """These were made."""
        self.futures.update(made)

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

    def _hosted(self) -> list[HostedLog]:
        return [*self.logs.values(), *self.futures.values()]

    def assign_topic_id(self, hosted: HostedLog, topic_id: Uuid) -> DiskSteps[None]:
        """Write the id of a topic that had none."""

        def work() -> None:
            path = self._path(str(hosted.name), METADATA_NAME)
            self._files.replace_file(path, encode_metadata(topic_id))
            self._topic_ids.add({hosted.name: topic_id})

        yield work
        hosted.topic_id = topic_id

    def leaving(self, name: TopicPartition, randbytes: Callable[[int], bytes]) -> list[Leaving]:
        """What there is of a partition that is to be deleted: its log, be it damaged, and one that it moved to."""
        found = [each for each in (self.logs.get(name), self.futures.pop(name, None)) if each is not None]
        if name in self.broken and name not in self.logs:
            return [Leaving(name, None, self._path(str(name)), self._path(deleted_name(name, randbytes)))]
        return [self.leaving_log(each, randbytes) for each in found]

    def leaving_log(self, hosted: HostedLog, randbytes: Callable[[int], bytes]) -> Leaving:
        """A log that is to be deleted; if it is one that a partition moved to, it does not any more."""
        if self.futures.get(hosted.name) is hosted:
            del self.futures[hosted.name]
        return Leaving(hosted.name, hosted.log, hosted.log.folder, self._path(deleted_name(hosted.name, randbytes)))

    def retire(self, leaving: Sequence[Leaving]) -> None:
        """Close logs and rename their folders, durably, with one sync: by a thread, and then ``retired``.

        They are gone at once, however much is not synced, as in Kafka (LogManager.asyncDelete).

        Raises:
            StorageError: the disk failed.
        """
        for each in leaving:
            if each.log is not None:
                each.log.abandon()
        self._files.rename_all([(each.folder, each.target) for each in leaving])
        self.sync_names()

    def retired(self, leaving: Sequence[Leaving], now_ms: int) -> None:
        """These were retired: ``remove_expired`` removes them later."""
        for each in leaving:
            self._expiring.append((now_ms + self._delete_delay_ms, each.target))
            known = self.logs.get(each.name)
            if known is None or known.log is each.log:
                self.logs.pop(each.name, None)
                self.broken.pop(each.name, None)
        self._left([each.name for each in leaving if each.name not in self.logs])

    def _left(self, names: Sequence[TopicPartition]) -> None:
        self._gone.update(names)
        self._topic_ids.forget(names)
        self._unsynced_ids.difference_update(names)

    def set_aside(self, name: TopicPartition, randbytes: Callable[[int], bytes]) -> DiskSteps[str]:
        """Close a log, if it is open, and rename its folder, durably, which it yields as work.

        The renamed folder stays on disk for an administrator (KIP-858).

        Returns:
            The folder's new name.

        Raises:
            StorageError: the disk failed.
        """
        target = stray_name(name, randbytes)
        yield partial(self._put_aside, self.logs.get(name), name, self._path(target))
        self.logs.pop(name, None)
        self.broken.pop(name, None)
        self._left([name])
        return target

    def _put_aside(self, hosted: HostedLog | None, name: TopicPartition, target: str) -> None:
        if hosted is not None:
            try:
                hosted.log.close()
            except KraftError as error:
                _logger.warning("%s, which is set aside, could not be closed in order: %s", name, error)
        self._files.rename(self._path(str(name)), target)
        self.sync_names()

    def remove_expired(self, now_ms: int) -> None:
        """Remove the files of deleted logs whose delay has passed.

        Raises:
            StorageError: the disk failed; the folder is tried again next time.
        """
        while self._expiring and self._expiring[0][0] <= now_ms:
            with _if_there():
                self._remove(self._expiring[0][1])
            self._expiring.popleft()
        for hosted in self._hosted():
            if not hosted.log.closed:
                with suppress(ClosedError):  # its topic was deleted this moment
                    hosted.log.delete_expired(now_ms)

    def _remove(self, folder: str) -> None:
        """Remove a folder; files that another process removes meanwhile are ignored."""
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
        self._stored.forget(self._take_gone())

    def _forget_offsets(self, names: Collection[TopicPartition]) -> None:
        """Remove the stored offsets of partitions whose logs begin anew."""
        if self._stored.knows_any(names):
            self._stored.forget({*names, *self._take_gone()})

    def _take_gone(self) -> set[TopicPartition]:
        gone = self._gone.difference(self.logs, self.futures, self.broken)
        self._gone = set()
        return gone

    def begin_cut(self, hosted: HostedLog) -> None:
        """The end of a log is about to be removed: what is stored of it as durable or clean may be written anew.

        Until ``end_cut`` nothing is stored of that, and where it starts stays as stored.

        Raises:
            StorageError: the disk failed.
        """
        hosted.is_cut = True
        for file in (RECOVERY_POINTS, CLEANED):
            self._stored.drop(file, hosted.name)

    def end_cut(self, hosted: HostedLog) -> None:
        """It is removed, and nothing was written behind it: store where the log starts, which may be below that.

        Raises:
            StorageError: the disk failed.
        """
        hosted.is_cut = False
        self.write_log_starts()

    def write_log_starts(self) -> None:
        """Store where logs start that do not start at their first segment; of one that is being cut what is stored."""
        self._write(LOG_STARTS, self._log_starts)

    def _log_starts(self) -> dict[TopicPartition, int]:
        stored, found = self._stored.of(LOG_STARTS), {}
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
        """Store these offsets; those of logs that could not be opened stay, for the checks of the next start."""
        self._stored.write(file, offsets, self.broken)

    # --- whose it is --------------------------------------------------------------------------------------------------

    def adopt(self, node_id: int, cluster_id: str, randbytes: Callable[[int], bytes]) -> None:
        """Learn its id (``owner.adopt``), and how it was left."""
        self.id = owner.adopt(self._files, self.path, node_id, cluster_id, randbytes)
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
        """Learn the directory's id, and check that it is this broker's: see ``owner.claim``."""
        told, self.id = owner.claim(self._files, self.path, node_id, cluster_id, randbytes)
        return told


@contextmanager
def _if_there() -> Iterator[None]:
    """Suppress the error of a file or folder that has gone meanwhile."""
    try:
        yield
    except StorageError as error:
        if error.errno != errno.ENOENT:
            raise


def _has_no_files(log: Log) -> bool:
    return log.segment_list()[-1].unborn
