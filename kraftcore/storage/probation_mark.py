"""``kraftcore-probation``: marks a static voter that formatted itself, and may have voted with another disk before.

It lies beside ``meta.properties``; Kafka ignores it. It is removed when forgotten votes and records can do no harm any
more (``raft.probation``), and when an operator formats the directory and so states that nothing was lost.
"""

from __future__ import annotations

import os

from kraftcore.core.disk.files import Files
from kraftcore.storage.checksummed_file import OwnFile, remove_file

PROBATION_MARK = "kraftcore-probation"


class ProbationMark:
    """The mark of one node.

    Args:
        files: where it is.
        directory: of its ``meta.properties``.
    """

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self.path = os.path.join(directory, PROBATION_MARK)

    def is_set(self) -> bool:
        """Whether the node may have forgotten votes or records; a damaged mark counts as set.

        Raises:
            StorageError: the disk failed.
        """
        return self._files.exists(self.path)

    def set(self) -> None:
        """Set the mark; durable when this returns.

        Raises:
            StorageError: the disk failed.
        """
        OwnFile(self._files, self.path).write("may have forgotten votes and records")

    def clear(self) -> None:
        """Remove the mark; durable when this returns.

        Raises:
            StorageError: the disk failed.
        """
        remove_file(self._files, self.path)
