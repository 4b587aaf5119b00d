"""Memory as on a machine that has run for a while: in use, if only by the page cache.

A virtual machine's host gives it memory when it is first touched, and takes back what is free. Writing to such memory
takes ten times as long (2.5 and 0.28 us a KiB were measured): without this, loads that write much measure the host.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

LEFT_FREE = 1 << 30
STEP = 8 << 20
MEMINFO = Path("/proc/meminfo")


class UsedMemory:
    """Keeps all free memory in use by the page cache. Where there is no /proc/meminfo nothing is done.

    Args:
        folder: for a file without contents, as long as all memory, whose pages take it up; they go when it is removed.
        meminfo: gives what the kernel says of memory.

    Attributes:
        at: byte of the file that is read next.
    """

    def __init__(self, folder: Path, meminfo: Callable[[], str] | None = None) -> None:
        self.at = 0
        self._path = folder / "nothing"
        self._meminfo = meminfo or (MEMINFO.read_text if MEMINFO.exists() else None)

    def use(self) -> None:
        """Take up what is free but for `LEFT_FREE` bytes; whoever needs it gets it at once."""
        if self._meminfo is None:
            return
        size, buffer = bytes_of("MemTotal", self._meminfo()) // STEP * STEP, bytearray(STEP)
        with self._path.open("ab") as file:
            file.truncate(size)
        with self._path.open("rb", buffering=0) as file:
            for _ in range(size // STEP):  # once around at most: more is not to be had
                if bytes_of("MemFree", self._meminfo()) <= LEFT_FREE:
                    break
                file.seek(self.at)
                self.at = (self.at + (file.readinto(buffer) or 0)) % size


def bytes_of(name: str, meminfo: str) -> int:
    """A line of /proc/meminfo.

    Raises:
        LookupError: there is none.
    """
    found = re.search(rf"^{name}:\s+(\d+) kB$", meminfo, re.MULTILINE)
    if found is None:
        raise LookupError(f"{MEMINFO} does not tell {name}")
    return int(found[1]) << 10
