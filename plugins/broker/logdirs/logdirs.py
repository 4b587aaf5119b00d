"""All log directories of a broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from kraftcore.core.disk.files import Files
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import UNASSIGNED_DIRECTORY, Uuid
from kraftcore.errors import LocalError, StorageError
from kraftcore.plugins.broker.logdirs.directory import Directory, HostedLog
from kraftcore.plugins.broker.partition import TopicPartition
from kraftcore.storage.lock import lock_folders


class LogDirs:
    """See the module text.

    Args:
        files: where they are.
        paths: ``log.dirs``; made if missing.
        node_id: the broker's.
        config: of all logs; its ``topic_id`` is None.
        delete_delay_ms: how long a deleted partition's folder stays.
        now_ms: the time.
        randbytes: for ids.

    Attributes:
        cluster_id: of the cluster that the directories belong to.
        directories: all of them.

    Raises:
        LocalError: a directory is another broker's, or a partition is in two of them.
        LockedError: another process owns one.
        CorruptDataError, StorageError: one cannot be read.
    """

    def __init__(
        self,
        files: Files,
        paths: Sequence[str],
        node_id: int,
        config: LogConfig,
        delete_delay_ms: int,
        now_ms: int,
        randbytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._randbytes = randbytes
        for path in paths:
            files.make_folder(path)
        self._locks = lock_folders(files, paths)
        self.directories = [Directory(files, path, config, delete_delay_ms) for path in dict.fromkeys(paths)]
        try:
            cluster_id = None
            for directory in self.directories:
                cluster_id = directory.claim(node_id, cluster_id, randbytes)
            self.cluster_id = str(cluster_id)
            for directory in self.directories:
                directory.load(now_ms)
            self._check_unique()
        except BaseException:
            for directory in self.directories:
                for hosted in directory.logs.values():
                    hosted.log.close()
            self._locks.release()
            raise

    def _check_unique(self) -> None:
        places: dict[TopicPartition, str] = {}
        for directory in self.directories:
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

    def is_broken(self, name: TopicPartition) -> bool:
        """Whether a partition is there and cannot be used."""
        return any(
            name in directory.broken or (directory.failure is not None and name in directory.logs)
            for directory in self.directories
        )

    def create(
        self, name: TopicPartition, topic_id: Uuid | None, now_ms: int, directory_id: Uuid = UNASSIGNED_DIRECTORY
    ) -> HostedLog:
        """Make a partition's log, in the directory with this id, or in the one with the fewest if there is none.

        Raises:
            StorageError: the disk failed, or every directory did before; or there is no directory with this id, and one
                failed: the log may be there.
        """
        usable = self.usable
        if not usable:
            raise StorageError(5, "all log directories failed", self.directories[0].path)
        wanted = [each for each in usable if each.id is not None and each.id == directory_id]
        if wanted:
            return wanted[0].create(name, topic_id, now_ms)
        if not directory_id.is_reserved and len(usable) < len(self.directories):
            raise StorageError(5, f"{name} is in log directory {directory_id}, which is not online", usable[0].path)
        return min(usable, key=lambda each: len(each.logs)).create(name, topic_id, now_ms)

    def delete(self, hosted: HostedLog, now_ms: int) -> None:
        """See ``Directory.delete``."""
        hosted.directory.delete(hosted, now_ms, self._randbytes)

    # --- life ---------------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> list[Directory]:
        """The directories that have not failed."""
        return [directory for directory in self.directories if directory.failure is None]

    def close(self) -> None:
        """Close all logs in order, and give the directories back. Idempotent.

        Raises:
            StorageError: a directory could not be closed in order; the others were.
        """
        failed: StorageError | None = None
        for directory in self.directories:
            try:
                directory.close()
            except StorageError as error:
                failed = failed or error
        self._locks.release()
        if failed is not None:
            raise failed
