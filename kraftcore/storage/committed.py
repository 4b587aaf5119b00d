"""``kraftcore-committed``: the offset below which a log is known to be committed, and must never be truncated.

It lies beside the log's segments; Kafka ignores it. It is written now and then (``raft.floor``), so it lags behind.
"""

from __future__ import annotations

import os

from kraftcore.core.disk.files import Files
from kraftcore.core.log.epochs import OffsetAndEpoch
from kraftcore.errors import CorruptDataError
from kraftcore.storage.checksummed_file import OwnFile

COMMITTED = "kraftcore-committed"


class CommittedFile:
    """The file of one log.

    Args:
        files: where the file is.
        folder: of the log.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._file = OwnFile(files, os.path.join(folder, COMMITTED))
        self.path = self._file.path

    def read(self) -> OffsetAndEpoch | None:
        """The offset below which everything is committed, and the epoch of the record before it.

        Returns:
            None if there is no file: nothing is known.

        Raises:
            CorruptDataError: the file is damaged.
            StorageError: the file cannot be read.
        """
        text = self._file.read()
        if text is None:
            return None
        words = text.split(" ")
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            raise CorruptDataError(f"{text!r:.60} is no offset and epoch", path=self.path)
        return OffsetAndEpoch(int(words[0]), int(words[1]))

    def write(self, known: OffsetAndEpoch) -> None:
        """Replace the file; durable when this returns.

        Raises:
            StorageError: the old or the new value is on disk.
        """
        self._file.write(f"{known.offset} {known.epoch}")

    def remove(self) -> None:
        """Remove the file: nothing is known any more.

        Raises:
            StorageError: the disk failed.
        """
        self._file.remove()
