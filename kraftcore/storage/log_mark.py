"""``kraftcore-log``: the directory id for which a directory held a log, so that a deleted log does not pass for new.

It lies beside ``meta.properties``; Kafka ignores it. Formatting removes it, the first start after that writes it.
"""

from __future__ import annotations

import errno
import os

from kraftcore.core.disk.files import Files
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, StorageError
from kraftcore.storage.checksummed_file import remove_file

LOG_MARK = "kraftcore-log"


def read_log_mark(files: Files, directory: str) -> Uuid | None:
    """The directory id for which this directory once held a log; None: kraftcore knows of no log.

    Raises:
        StorageError: the file cannot be read.
    """
    try:
        return Uuid.from_string(files.read_file(os.path.join(directory, LOG_MARK)).decode("ascii", "replace").strip())
    except LocalError:
        return None
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return None
        raise


def write_log_mark(files: Files, directory: str, directory_id: Uuid) -> None:
    """Remember that this directory holds a log.

    Raises:
        StorageError: the disk failed.
    """
    if read_log_mark(files, directory) != directory_id:
        files.replace_file(os.path.join(directory, LOG_MARK), f"{directory_id}\n".encode())


def remove_log_mark(files: Files, directory: str) -> None:
    """Remove the mark, for a directory that is formatted again.

    Raises:
        StorageError: the disk failed.
    """
    remove_file(files, os.path.join(directory, LOG_MARK))
