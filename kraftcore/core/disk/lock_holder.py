"""Which process holds a lock that was refused.

Java's locks belong to a process, and the system names it. Ours belong to an open file (``F_OFD_SETLK``), so that
closing another descriptor does not drop them; of such a one Linux tells nobody whose it is. But it lists the locks of
each open file of each process that may be looked into (proc(5), ``/proc/PID/fdinfo``), and that is asked here: only
after a refusal, and nothing is written into the lock file, which Kafka leaves empty.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_PROC = "/proc"
_LOCK = re.compile(r"^lock:.* WRITE .*:(\d+) ", re.MULTILINE)  # of the inode with this number


def holder_of(device: int, inode: int, owner: int) -> tuple[int | None, str]:
    """Find who holds the lock on a file.

    Args:
        device: of the file.
        inode: likewise.
        owner: the process that ``F_GETLK`` names; below 1: none.

    Returns:
        The process, None where the system does not tell; and who that is, for people.
    """
    pid = owner if owner > 0 else next(_holders(device, inode), None)
    if pid is None:
        return None, "another process"
    name = _read(f"{_PROC}/{pid}/comm").strip()
    return pid, f"process {pid} ({name})" if name else f"process {pid}"


def _holders(device: int, inode: int) -> Iterator[int]:
    for process in _list(_PROC):
        if process.isdecimal():
            for descriptor in _list(f"{_PROC}/{process}/fd"):
                # Whoever is refused the lock has the file open for a moment, too, and has no such line.
                found = _LOCK.search(_read(f"{_PROC}/{process}/fdinfo/{descriptor}"))
                if found and int(found[1]) == inode and _is(f"{_PROC}/{process}/fd/{descriptor}", device, inode):
                    yield int(process)


def _is(path: str, device: int, inode: int) -> bool:
    try:
        found = os.stat(path)
    except OSError:  # it was closed meanwhile
        return False
    return (found.st_dev, found.st_ino) == (device, inode)


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:  # another user's process, one that has ended, or no such system
        return []


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
