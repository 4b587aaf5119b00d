"""Finds the process that holds a lock, after the lock was refused.

Java's locks belong to a process, and the system names it. Our locks belong to an open file (``F_OFD_SETLK``), so that
closing another descriptor does not drop them; for those Linux does not name the process. But Linux lists the locks of
each open file of each process that this user may inspect (proc(5), ``/proc/PID/fdinfo``). That list is read here, only
after a refusal; the lock file itself stays empty, as Kafka leaves it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

_PROC = "/proc"
_LOCK = re.compile(r"^lock:.* WRITE .*:(\d+) ", re.MULTILINE)  # of the inode with this number


def holder_of(device: int, inode: int, owner: int) -> tuple[int | None, str]:
    """Find the process that holds the lock on a file.

    Args:
        device: of the file.
        inode: of the file.
        owner: the process that ``F_GETLK`` names; below 1: none.

    Returns:
        The process id, None where the system does not tell; and a description of the process for people.
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
                # A process that was refused the lock may have the file open for a moment, but has no such line.
                found = _LOCK.search(_read(f"{_PROC}/{process}/fdinfo/{descriptor}"))
                if found and int(found[1]) == inode and _is(f"{_PROC}/{process}/fd/{descriptor}", device, inode):
                    yield int(process)


def _is(path: str, device: int, inode: int) -> bool:
    try:
        found = os.stat(path)
    except OSError:  # the file was closed meanwhile
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
