"""``kraftcore-topic-ids``: which topic the folders are for that this broker made, in one file of a log directory.

A folder gets its ``partition.metadata`` with everything else, and nothing of that is synced; what a power cut leaves of
it may be empty. One sync of this file says for all folders of a batch what is in theirs, and that nobody but kraftcore
had written there when they were made. It is read at a start, for what a folder does not say itself: Kafka, which may
have used the directory since, does not know this file, and syncs its own.

    kraftcore-topic-ids 1
    <topic> <partition> <topic id, or -> <CRC-32C of the line up to here, 8 hex digits>

Of two lines for a partition the later one counts. Lines are added at the end; of one that is damaged, and of all behind
it, nothing is known. Lines of partitions that are gone stay until the file is written anew.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping

from kraftcore.core.crc32c import crc32c
from kraftcore.core.disk.files import Files
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, StorageError
from kraftcore.plugins.broker.partition import TopicPartition

FILE_NAME = "kraftcore-topic-ids"
_TITLE = b"kraftcore-topic-ids 1\n"
_NO_ID = "-"
_SPARE_LINES = 1000  # of partitions that are gone, besides as many as there are


class TopicIds:
    """Reads the file, adds lines to it, and writes it anew when most of its lines are old. One thread at a time.

    Args:
        files: where the directory is.
        directory: its folder.

    Attributes:
        written_ns: when the file was written last before ``load``, nanoseconds since 1970; 0: there was none.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self.written_ns = 0
        self._files = files
        self._path = os.path.join(directory, FILE_NAME)
        self._known: dict[TopicPartition, Uuid | None] = {}
        self._lines = 0
        self._end = 0  # of the file; 0: it is to be written anew

    def load(self) -> None:
        """Read the file.

        Raises:
            StorageError: the disk failed.
        """
        try:
            self.written_ns = self._files.stat(self._path).mtime_ns
            data = self._files.read_file(self._path)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            data = b""
        self._known.clear()
        self._lines, self._end = 0, 0
        if data.startswith(_TITLE):
            self._end = len(_TITLE)
            for line in data[self._end :].splitlines(keepends=True):
                if not self._take(line):
                    break
                self._lines += 1
                self._end += len(line)
        if self._end < len(data):
            self._end = 0  # what is left of a damaged line could follow the next one

    def _take(self, line: bytes) -> bool:
        body, mark, crc = line[:-10], line[-10:-9], line[-9:]
        if mark != b" " or crc != f"{crc32c(body):08x}\n".encode():
            return False
        try:
            topic, partition, topic_id = body.decode("ascii").split(" ")
            self._known[TopicPartition(topic, int(partition))] = (
                None if topic_id == _NO_ID else Uuid.from_string(topic_id)
            )
        except (ValueError, LocalError):
            return False
        return True

    def __contains__(self, name: object) -> bool:
        return name in self._known

    def get(self, name: TopicPartition) -> Uuid | None:
        """The topic that a partition's folder was made for; None: without an id, or it was not made here."""
        return self._known.get(name)

    def keep(self, names: Collection[TopicPartition]) -> None:
        """These are all that there are: lines of others go when the file is written anew."""
        self._known = {name: topic_id for name, topic_id in self._known.items() if name in names}

    def forget(self, names: Collection[TopicPartition]) -> None:
        """The folders of these are gone, for good (``Files.sync_folder``): likewise."""
        for name in names:
            self._known.pop(name, None)

    def add(self, made: Mapping[TopicPartition, Uuid | None]) -> None:
        """Remember durably for which topics folders were made: before anything in one of them counts.

        Whatever had the name of one before is gone for good. The file's own name is durable with the next sync of the
        directory.

        Raises:
            StorageError: the disk failed.
        """
        new = {name: topic_id for name, topic_id in made.items() if self._known.get(name, self) != topic_id}
        if not new:
            return
        self._known.update(new)
        if not self._end or self._lines + len(new) > 2 * len(self._known) + _SPARE_LINES:
            self._rewrite()
            return
        data = b"".join(_line(*entry) for entry in new.items())
        with self._files.open(self._path) as file:
            file.write_at(self._end, data)
            file.sync()
        self._end += len(data)
        self._lines += len(new)

    def _rewrite(self) -> None:
        data = _TITLE + b"".join(_line(*entry) for entry in self._known.items())
        self._files.replace_file(self._path, data, name_waits=True)
        self._lines, self._end = len(self._known), len(data)


def _line(name: TopicPartition, topic_id: Uuid | None) -> bytes:
    body = f"{name.topic} {name.partition} {_NO_ID if topic_id is None else topic_id}".encode()
    return body + f" {crc32c(body):08x}\n".encode()
