"""Small files of kraftcore's own beside Kafka's, which Kafka ignores: a line of text with its checksum.

Replaced as a whole and durably, so after a crash the old or the new text is there. A file that does not match its
checksum is damaged.
"""

from __future__ import annotations

import errno
import os

from kraftcore.core.crc32c import crc32c
from kraftcore.core.disk.files import Files
from kraftcore.errors import CorruptDataError, StorageError


class OwnFile:
    """A file of one line with a checksum. Not cached: ``read`` returns what is on disk.

    Args:
        files: where the file is.
        path: of the file; its folder exists when ``write`` is called.
    """

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def read(self) -> str | None:
        """The text; None: there is no file.

        Raises:
            CorruptDataError: the file is damaged.
            StorageError: the file cannot be read.
        """
        try:
            data = self._files.read_file(self.path)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return None
            raise
        text, _, checksum = data.rpartition(b" ")
        if checksum != b"%08x\n" % crc32c(text):
            raise CorruptDataError(f"{len(data)} bytes that do not match their checksum", path=self.path)
        return text.decode("ascii", "replace")

    def write(self, text: str) -> None:
        """Replace the file; durable when this returns.

        Args:
            text: ASCII, one line.

        Raises:
            StorageError: the old or the new text is on disk.
        """
        data = text.encode("ascii")
        self._files.replace_file(self.path, b"%s %08x\n" % (data, crc32c(data)))

    def remove(self) -> None:
        """Remove the file, if there is one; durably.

        Raises:
            StorageError: the disk failed.
        """
        remove_file(self._files, self.path)


def remove_file(files: Files, path: str) -> None:
    """Remove a file, if there is one; durably.

    Raises:
        StorageError: the disk failed.
    """
    if files.exists(path):
        files.unlink(path)
        files.sync_folder(os.path.dirname(path))
