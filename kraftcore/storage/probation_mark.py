"""``kraftcore-probation``: a static voter that formatted itself may have had, and promised with, another disk.

It lies beside ``meta.properties``; Kafka ignores it. It goes when the node cannot harm any more what it may have
forgotten (``raft.probation``), and when somebody formats the directory, who thereby says that nothing was lost.
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
        """Whether the node may have forgotten something; a damaged mark is one, too.

        Raises:
            StorageError: the disk failed.
        """
        return self._files.exists(self.path)

    def set(self) -> None:
        """Say so; durable when this returns.

        Raises:
            StorageError: the disk failed.
        """
        OwnFile(self._files, self.path).write("may have forgotten votes and records")

    def clear(self) -> None:
        """It is over; durable when this returns.

        Raises:
            StorageError: the disk failed.
        """
        remove_file(self._files, self.path)
