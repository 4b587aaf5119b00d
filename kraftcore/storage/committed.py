"""``kraftcore-committed``: up to where a node's log is known to be committed, so that nobody has it cut below, ever.

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
        files: where it is.
        folder: of the log.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._file = OwnFile(files, os.path.join(folder, COMMITTED))
        self.path = self._file.path

    def read(self) -> OffsetAndEpoch | None:
        """What is known: everything below the offset is committed, and the record before it is of the epoch.

        Returns:
            None without a file: nothing is known.

        Raises:
            CorruptDataError: it is damaged.
            StorageError: it cannot be read.
        """
        text = self._file.read()
        if text is None:
            return None
        words = text.split(" ")
        if len(words) != 2 or not all(word.isdecimal() for word in words):
            raise CorruptDataError(f"{text!r:.60} is no offset and epoch", path=self.path)
        return OffsetAndEpoch(int(words[0]), int(words[1]))

    def write(self, known: OffsetAndEpoch) -> None:
        """Replace it; durable when this returns.

        Raises:
            StorageError: the old or the new value is on disk.
        """
        self._file.write(f"{known.offset} {known.epoch}")

    def remove(self) -> None:
        """Nothing is known any more.

        Raises:
            StorageError: the disk failed.
        """
        self._file.remove()
