"""The offset checkpoints of a log directory, as a start would find them."""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Collection, Mapping

from kraftcore.core.disk.files import Files
from kraftcore.errors import CorruptDataError, StorageError
from kraftcore.plugins.broker.logdirs.checkpoint import (
    CLEANED,
    HIGH_WATERMARKS,
    LOG_STARTS,
    RECOVERY_POINTS,
    decode_offsets,
    encode_offsets,
)
from kraftcore.plugins.broker.partition import TopicPartition

_logger = logging.getLogger("kraftcore.broker")


class StoredOffsets:
    """Reads and writes the four checkpoints, and knows what they hold. Several threads may write at the same time.

    Args:
        files: where the directory is.
        directory: its folder.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._offsets: dict[str, dict[TopicPartition, int]] = {}  # by file
        self._written: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def load(self) -> None:
        """Read all files.

        Raises:
            StorageError: the disk failed.
        """
        self._offsets = {file: self._read(file) for file in (HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS, CLEANED)}

    def _read(self, file: str) -> dict[TopicPartition, int]:
        """A checkpoint's entries; one that cannot be read counts as empty, as in Kafka, which makes each file empty."""
        path = os.path.join(self._directory, file)
        try:
            data = self._files.read_file(path)
            return decode_offsets(data, path) if data else {}
        except CorruptDataError as error:
            _logger.warning("%s: the file counts as empty, and is written anew", error)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
        return {}

    def get(self, file: str, name: TopicPartition) -> int:
        """What is stored of a partition; 0: nothing."""
        return self._offsets.get(file, {}).get(name, 0)

    def of(self, file: str) -> Mapping[TopicPartition, int]:
        """All that is stored in a file."""
        return self._offsets.get(file, {})

    def names(self) -> set[TopicPartition]:
        """Partitions of which anything is stored."""
        return {name for stored in self._offsets.values() for name in stored}

    def knows_any(self, names: Collection[TopicPartition]) -> bool:
        """Whether anything is stored of one of these."""
        return any(name in stored for stored in self._offsets.values() for name in names)

    def write(
        self, file: str, offsets: Callable[[], dict[TopicPartition, int]], kept: Collection[TopicPartition]
    ) -> None:
        """Store these, and nothing else but what is stored of ``kept``.

        Raises:
            StorageError: the disk failed.
        """
        with self._lock:
            before = {name: known for name, known in self._offsets.get(file, {}).items() if name in kept}
            self._store(file, {**before, **offsets()})

    def forget(self, names: Collection[TopicPartition]) -> None:
        """Store nothing of these any more.

        Raises:
            StorageError: the disk failed.
        """
        with self._lock:
            for file, stored in list(self._offsets.items()):
                self._drop(file, stored, names)

    def drop(self, file: str, name: TopicPartition) -> None:
        """Store nothing of a partition in one of the files.

        Raises:
            StorageError: the disk failed.
        """
        with self._lock:
            self._drop(file, self._offsets.get(file, {}), (name,))

    def _drop(self, file: str, stored: dict[TopicPartition, int], names: Collection[TopicPartition]) -> None:
        left = dict(stored)
        for name in names:
            left.pop(name, None)
        if len(left) < len(stored):
            self._store(file, left)

    def _store(self, file: str, offsets: dict[TopicPartition, int]) -> None:
        data = encode_offsets(offsets)
        if self._written.get(file) != data:
            self._files.replace_file(os.path.join(self._directory, file), data)
            self._written[file] = data
        self._offsets[file] = offsets
