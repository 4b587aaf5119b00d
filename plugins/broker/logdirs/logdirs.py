"""All log directories of a broker."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from kraftcore.core.disk.files import Files
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.errors import CorruptDataError, KraftError, LocalError, StorageError
from kraftcore.plugins.broker.logdirs.directory import Directory, HostedLog, Leaving, NewFuture
from kraftcore.plugins.broker.logdirs.names import future_name
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.plugins.broker.producers.states import EXPIRATION_MS
from kraftcore.plugins.broker.work.disk_steps import DiskSteps, run_here
from kraftcore.storage.lock import lock_folders

_logger = logging.getLogger("kraftcore.broker")


class Wanted(NamedTuple):
    """A log that is to be made.

    Attributes:
        topic_id: of the partition's topic; None: it has none.
        directory: id of the one where it is to be (KIP-858); one that stands for none: where there are the fewest.
        is_new: see `Assignment`.
    """

    topic_id: Uuid | None = None
    directory: Uuid = UNASSIGNED_DIRECTORY
    is_new: bool = False


_Made: TypeAlias = dict[TopicPartition, HostedLog | CorruptDataError]


class LogDirs:
    """The log directories of a broker, by path.

    Args:
        files: where they are.
        paths: ``log.dirs``; made if missing; one that is named twice is one.
        node_id: the broker's.
        config_of: called with a topic's name; the settings of the logs of its partitions. Their ``topic_id`` is None.
        delete_delay_ms: how long a deleted partition's folder stays.
        now_ms: the time, milliseconds since 1970.
        randbytes: draws the bytes of ids.
        producer_expiration_ms: how long a producer may be silent before it is forgotten.
        kraft_cluster_id: of a KRaft cluster, whose node has locked ``held`` and checked all of them; logs are opened by
            ``load`` then. None: the directories say which cluster they belong to.
        held: those of the paths that are locked already.
        believes_lists: whether a directory that failed when it had been listed is known to lack what was not there;
            False: as for Kafka's LogManager, any log may be in it.

    A directory that the disk does not give is not used; the others are.

    Attributes:
        cluster_id: of the cluster that the directories belong to.
        directories: all of them.

    Raises:
        LocalError: a directory is another broker's, or a partition is in two of them.
        LockedError: another process owns one.
        CorruptDataError, StorageError: none can be read, or one does not say whose it is; or none of those that can
            be read says to which cluster they belong.
    """

    def __init__(
        self,
        files: Files,
        paths: Sequence[str],
        node_id: int,
        config_of: Callable[[str], LogConfig],
        delete_delay_ms: int,
        now_ms: int,
        randbytes: Callable[[int], bytes] = os.urandom,
        producer_expiration_ms: int = EXPIRATION_MS,
        *,
        kraft_cluster_id: str | None = None,
        held: Collection[str] = (),
        believes_lists: bool = True,
    ) -> None:
        self._believes_lists = believes_lists
        self._randbytes = randbytes
        self._preferred: dict[TopicPartition, Directory] = {}
        paths = list(dict.fromkeys(map(os.path.normpath, paths)))
        self._locks, failures = _lock(files, paths, held)
        self.directories = [
            Directory(files, path, config_of, delete_delay_ms, producer_expiration_ms) for path in paths
        ]
        for directory in self.directories:
            if directory.path in failures:
                _leave_out(directory, failures[directory.path])
        try:
            if kraft_cluster_id is not None:
                self.cluster_id = kraft_cluster_id
                self._adopt(node_id)
            else:
                self.cluster_id = self._claim(node_id)
                self.load(now_ms)
                self._check_usable()
        except BaseException:
            for directory in self.directories:
                for hosted in (*directory.logs.values(), *directory.futures.values()):
                    hosted.log.close()
            self._locks.close()
            raise

    def holding(self, path: str | None) -> Directory | None:
        """The log directory that a path lies in; None: it lies in none of this broker's."""
        if not path:
            return None
        path = os.path.normpath(path)
        return next((each for each in self.directories if _is_within(path, each.path)), None)

    def load(
        self,
        now_ms: int,
        assigned: Mapping[TopicPartition, Uuid] = MappingProxyType({}),
        held: Mapping[TopicPartition, Uuid] | None = None,
    ) -> None:
        """Open all logs, in a KRaft cluster once it is known how they are configured; recovery may take long.

        Args:
            now_ms: the time, milliseconds since 1970.
            assigned: ids of the directories that replicas are in, as the controller knows them. The end of a move
                between two directories may have left a log in both: that one counts, the other is set aside.
            held: topic id of each partition of which this broker has a replica. Folders of others, and of a topic that
                had a name before, are renamed (KIP-858), before anything is made of a log that is in two directories.
                None: the controller names none.

        Raises:
            LocalError: a partition is in two directories.
        """
        for directory in self.usable:
            try:
                directory.load(now_ms)
            except (CorruptDataError, StorageError) as error:
                _leave_out(directory, error)
        if held is not None:
            self._set_strays_aside(held, now_ms)
        self._set_unfinished_aside()
        self._set_unassigned_aside(assigned)
        self._set_shorter_aside()
        self._forget_broken_elsewhere(assigned)
        self._check_unique()

    def _set_unassigned_aside(self, assigned: Mapping[TopicPartition, Uuid]) -> None:
        for directory in self.usable:
            for name in list(directory.logs):
                places = [each for each in self.usable if each.id == assigned.get(name) and name in each.logs]
                if places and places[0] is not directory:
                    self._guarded(directory, partial(self._set_aside_here, directory, name))

    def _set_shorter_aside(self) -> None:
        """Set aside the shorter of two logs of a partition, which a broker killed at the end of a move leaves."""
        for name, same in self._by_name(self.usable).items():
            if len(same) > 1 and same[0].topic_id is not None and len({each.topic_id for each in same}) == 1:
                same.remove(max(same, key=_progress))
                for hosted in same:
                    self._guarded(hosted.directory, partial(self._set_aside_here, hosted.directory, name))

    def _forget_broken_elsewhere(self, assigned: Mapping[TopicPartition, Uuid]) -> None:
        """Forget unusable logs of partitions that have a log in the directory that the controller names."""
        for directory in self.usable:
            for name in directory.logs:
                if directory.id is None or assigned.get(name) != directory.id:
                    continue
                for other in self.directories:
                    if other is not directory and _forget(other, name):
                        _logger.warning(
                            "%s is in %s; its unusable log in %s is ignored", name, directory.path, other.path
                        )

    @staticmethod
    def _by_name(directories: Sequence[Directory]) -> dict[TopicPartition, list[HostedLog]]:
        found: dict[TopicPartition, list[HostedLog]] = {}
        for directory in directories:
            for hosted in directory.logs.values():
                found.setdefault(hosted.name, []).append(hosted)
        return found

    def _adopt(self, node_id: int) -> None:
        for directory in self.usable:
            try:
                directory.adopt(node_id, self.cluster_id, self._randbytes)
            except (CorruptDataError, StorageError) as error:
                _leave_out(directory, error)
        if not self.usable:
            raise _offline("no log directory can be used", self.directories[0])

    def _claim(self, node_id: int) -> str:
        """Claim all directories for the broker's cluster; return its id, which new directories get from the others."""
        cluster_id: str | None = None
        for is_claimed in (True, False):
            failures = self._failures
            if not is_claimed and cluster_id is None and failures:
                raise failures[0]
            for directory in self.usable:
                try:
                    if directory.is_claimed is is_claimed:
                        cluster_id = directory.claim(node_id, cluster_id, self._randbytes)
                except StorageError as error:
                    _leave_out(directory, error)
        self._check_usable()
        return str(cluster_id)

    @property
    def _failures(self) -> list[KraftError]:
        return [each.failure for each in self.directories if each.failure is not None]

    def _check_usable(self) -> None:
        if not self.usable:
            raise self._failures[0]

    def _set_unfinished_aside(self) -> None:
        """Set aside empty logs whose making failed, if another directory has the partition's log."""
        for name, same in self._by_name(self.directories).items():
            same.remove(max(same, key=lambda each: each.log.log_end_offset))
            for hosted in same:
                if hosted.log.log_end_offset == 0:
                    try:
                        told = run_here(hosted.directory.set_aside(name, self._randbytes))
                    except StorageError as error:
                        _logger.critical("log directory %s failed: %s", hosted.directory.path, error)
                        hosted.directory.failure = error
                    else:
                        _logger.warning("%s is in another log directory, too, and empty here: it is %s now", name, told)

    def _check_unique(self) -> None:
        places: dict[TopicPartition, str] = {}
        for directory in self.usable:
            for name in (*directory.logs, *directory.broken):
                other = places.setdefault(name, directory.path)
                if other != directory.path:
                    raise LocalError(f"{name} is in {other} and in {directory.path}: move one of them away")

    # --- partitions ---------------------------------------------------------------------------------------------------

    @property
    def logs(self) -> list[HostedLog]:
        """All logs."""
        return [hosted for directory in self.directories for hosted in directory.logs.values()]

    def find(self, name: TopicPartition) -> HostedLog | None:
        """A partition's log, or None."""
        for directory in self.directories:
            hosted = directory.logs.get(name)
            if hosted is not None:
                return hosted
        return None

    def directory_of(self, name: TopicPartition) -> Directory | None:
        """Where a partition's log is, be it damaged, or None."""
        return next((each for each in self.directories if name in each.logs or name in each.broken), None)

    def is_broken(self, name: TopicPartition) -> bool:
        """Whether a partition is there and cannot be used."""
        return self.directory_of_broken(name) is not None

    def directory_of_broken(self, name: TopicPartition) -> Directory | None:
        """The directory of a partition whose log is damaged or whose directory failed; None: it can be used."""
        for directory in self.directories:
            if name in directory.broken or (directory.failure is not None and name in directory.logs):
                return directory
        return None

    def create_all(
        self, wanted: Mapping[TopicPartition, Wanted], now_ms: int
    ) -> DiskSteps[dict[TopicPartition, HostedLog | KraftError]]:
        """Make logs of partitions, each in the directory that is wanted, or in one of those that hold the fewest.

        All of a directory are made together, several directories at the same time.

        Args:
            wanted: what is to be made.
            now_ms: the time, milliseconds since 1970.

        Returns:
            Each partition's log; or why there is none: a log is there, and damaged; the disk failed, or every directory
            did before. Or one did where the log may be: there is no directory with the id, or it is not known what a
            directory holds, and the replica is not new (Kafka's LogManager.getOrCreateLog).
        """
        found: dict[TopicPartition, HostedLog | KraftError] = {}
        planned: dict[Directory, dict[TopicPartition, Uuid | None]] = {}
        for name, each in wanted.items():
            try:
                directory = self._place(name, each, planned)
                future = directory.futures.get(name)
                if future is not None and directory.id == each.directory and future.topic_id == each.topic_id:
                    # It was to be moved there, and the controller knew: the log that it left is lost (Kafka's
                    # LogManager.recoverAbandonedFutureLogs).
                    _logger.warning("%s was on its way to %s: what had come there counts", name, directory.path)
                    directory.promote(future)
                    yield directory.sync_names
                    found[name] = future
                else:
                    planned.setdefault(directory, {})[name] = each.topic_id
            except StorageError as error:
                found[name] = error
        makings: list[tuple[Directory, dict[TopicPartition, Uuid | None], _Made]]
        makings = [(directory, some, {}) for directory, some in planned.items()]
        failures = yield [partial(directory.make, some, now_ms, made) for directory, some, made in makings]
        for (directory, some, made), failure in zip(makings, failures or (), strict=True):
            if failure is None:
                found.update(directory.take(made))
            else:
                for each_made in made.values():
                    if isinstance(each_made, HostedLog):
                        each_made.log.abandon()
                found.update(dict.fromkeys(some, failure))
        return found

    def _place(
        self, name: TopicPartition, wanted: Wanted, planned: Mapping[Directory, Collection[TopicPartition]]
    ) -> Directory:
        usable = self.usable
        if not usable:
            raise _offline("all log directories failed", self.directories[0])
        preferred = self._preferred.pop(name, None)
        for directory in usable:
            if directory.id is not None and directory.id == wanted.directory:
                return directory
        failed = [each for each in self.directories if each.failure is not None]
        if failed and not wanted.directory.is_reserved:
            raise _offline(f"{name} is in log directory {wanted.directory}, which is not online", failed[0])
        unseen = [each for each in failed if not (self._believes_lists and each.is_listed)]
        if unseen and not wanted.is_new:
            raise _offline(f"the log of {name} may be in {unseen[0].path}, which is not online", unseen[0])
        if preferred is not None and preferred in usable:
            return preferred
        return min(usable, key=lambda each: len(each.logs) + len(planned.get(each, ())))

    def at(self, path: str) -> Directory | None:
        """The directory with this absolute path."""
        return next((each for each in self.directories if os.path.abspath(each.path) == path), None)

    def prefer(self, name: TopicPartition, directory: Directory) -> None:
        """Choose the directory of a partition's log, if nothing else decides it; forgotten when the broker stops."""
        self._preferred[name] = directory

    def future(self, name: TopicPartition) -> HostedLog | None:
        """The log that a partition moves to; None: it does not move."""
        return next((each.futures[name] for each in self.usable if name in each.futures), None)

    def create_futures(
        self, wanted: Mapping[Directory, Sequence[NewFuture]], now_ms: int
    ) -> DiskSteps[dict[TopicPartition, KraftError]]:
        """Make logs that partitions are to move to, all of a directory together.

        Returns:
            Those that could not be made: the disk failed; or another one did before, where the log may be, too.
        """
        failed = [each for each in self.directories if each.failure is not None]
        names = [each.name for some in wanted.values() for each in some]
        if failed:
            return {
                name: _offline(f"{name} may be in {failed[0].path}, which is not online", failed[0]) for name in names
            }
        makings: list[tuple[Directory, Sequence[NewFuture], dict[TopicPartition, HostedLog]]]
        makings = [(directory, some, {}) for directory, some in wanted.items()]
        failures = yield [partial(directory.make_futures, some, now_ms, made) for directory, some, made in makings]
        found: dict[TopicPartition, KraftError] = {}
        for (directory, some, made), failure in zip(makings, failures or (), strict=True):
            error = failure or directory.failure
            if error is None:
                directory.take_futures(made)
                continue
            for hosted in made.values():
                hosted.log.abandon()
            found.update(dict.fromkeys([each.name for each in some], error))
        return found

    def future_folder(self, name: TopicPartition) -> str | None:
        """See ``names.future_name``."""
        return future_name(name, self._randbytes)

    def delete(self, logs: Sequence[HostedLog], now_ms: Callable[[], int]) -> DiskSteps[dict[Directory, KraftError]]:
        """Delete logs that are no partitions', or that those do not move to any more; returns as ``delete_all``."""
        found: dict[Directory, list[Leaving]] = {}
        for hosted in logs:
            found.setdefault(hosted.directory, []).append(hosted.directory.leaving_log(hosted, self._randbytes))
        return (yield from self._retire(found, now_ms))

    def delete_all(
        self, names: Collection[TopicPartition], now_ms: Callable[[], int]
    ) -> DiskSteps[dict[Directory, KraftError]]:
        """Delete what there is of partitions in directories that did not fail, logs that they moved to included.

        Returns:
            Which directories failed meanwhile, and why.
        """
        found = {each: [one for name in names for one in each.leaving(name, self._randbytes)] for each in self.usable}
        return (yield from self._retire(found, now_ms))

    @staticmethod
    def _retire(
        found: Mapping[Directory, Sequence[Leaving]], now_ms: Callable[[], int]
    ) -> DiskSteps[dict[Directory, KraftError]]:
        """Retire all logs of a directory together, several directories at the same time."""
        retirings = [(directory, leaving) for directory, leaving in found.items() if leaving]
        failures = yield [partial(directory.retire, leaving) for directory, leaving in retirings]
        failed: dict[Directory, KraftError] = {}
        for (directory, leaving), failure in zip(retirings, failures or (), strict=True):
            if failure is None:
                directory.retired(leaving, now_ms())
            else:
                failed[directory] = failure
        return failed

    def forget_failed(self, name: TopicPartition) -> DiskSteps[None]:
        """Pass over what directories that failed have of a partition that is no more, or now another topic's."""
        for directory in self.directories:
            if directory.failure is not None:
                hosted = directory.logs.pop(name, None)
                directory.broken.pop(name, None)
                if hosted is not None:
                    yield hosted.log.abandon

    # --- start and end ------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> list[Directory]:
        """The directories that have not failed."""
        return [directory for directory in self.directories if directory.failure is None]

    @property
    def previous_epoch(self) -> int:
        """Broker epoch of the run before, if that stopped in order in every directory; else -1."""
        found = {directory.previous_epoch for directory in self.directories}
        return found.pop() if len(found) == 1 else -1

    def _set_strays_aside(self, held: Mapping[TopicPartition, Uuid], now_ms: int) -> None:
        for directory in self.usable:
            strays = [name for name, hosted in directory.logs.items() if held.get(name) != hosted.topic_id]
            strays += [name for name in directory.broken if name not in held]
            for name in strays:
                self._guarded(directory, partial(self._set_aside_here, directory, name))
            for future in list(directory.futures.values()):
                if held.get(future.name) != future.topic_id:
                    for failed, error in run_here(self.delete([future], lambda: now_ms)).items():
                        _leave_out(failed, error)

    def _guarded(self, directory: Directory, change: Callable[[], None]) -> None:
        if directory.failure is None:
            try:
                change()
            except StorageError as error:
                _logger.critical("log directory %s failed: %s", directory.path, error)
                directory.failure = error

    def _set_aside_here(self, directory: Directory, name: TopicPartition) -> None:
        run_here(self.set_aside(directory, name))

    def set_aside(self, directory: Directory, name: TopicPartition) -> DiskSteps[None]:
        """See ``Directory.set_aside``.

        Raises:
            StorageError: the disk failed; the directory is to be used no more.
        """
        told = yield from directory.set_aside(name, self._randbytes)
        _logger.warning("%s is none of this broker's partitions: its folder is %s now", name, told)

    def close(self, *, is_clean: bool = True, broker_epoch: int = -1) -> None:
        """Close all logs in order, and give the directories back. Idempotent.

        Args:
            is_clean: it is a stop in order; else the next start finds what a crash leaves.
            broker_epoch: of this run, for the next one.

        Raises:
            StorageError: a directory could not be closed in order; the others were.
        """
        failed: StorageError | None = None
        for directory in self.directories:
            try:
                directory.close(is_clean=is_clean, broker_epoch=broker_epoch)
            except StorageError as error:
                failed = failed or error
        self._locks.close()
        if failed is not None:
            raise failed


def _forget(directory: Directory, name: TopicPartition) -> bool:
    """Forget a directory's unusable log of a partition; return whether there was one."""
    hosted = directory.logs.pop(name, None) if directory.failure is not None else None
    if hosted is not None:
        hosted.log.abandon()
    return directory.broken.pop(name, None) is not None or hosted is not None


def _progress(hosted: HostedLog) -> tuple[int, int]:
    """The key that orders two logs of a partition by their progress."""
    epoch = hosted.log.last_epoch
    return -1 if epoch is None else epoch, hosted.log.log_end_offset


def _lock(files: Files, paths: Sequence[str], held: Collection[str]) -> tuple[ExitStack, dict[str, StorageError]]:
    """Make and lock the folders that are not held; return what unlocks them, and the errors of the failed ones."""
    taken = {os.path.normpath(path) for path in held}
    failures: dict[str, StorageError] = {}
    with ExitStack() as locks:
        for path in paths:
            if path not in taken:
                try:
                    files.make_folder(path)
                    locks.enter_context(lock_folders(files, [path]))
                except StorageError as error:
                    failures[path] = error
        return locks.pop_all(), failures


def _offline(reason: str, directory: Directory) -> StorageError:
    return StorageError(errno.EIO, reason, directory.path)


def _leave_out(directory: Directory, error: KraftError) -> None:
    _logger.error("log directory %s is not used: %s", directory.path, error)
    directory.failure = error


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(os.path.join(folder, ""))
