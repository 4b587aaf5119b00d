"""Memory as on a machine that has run for a while: in use, if only by the page cache.

A virtual machine's host gives it memory when it is first touched, and takes back what is free. Writing to such memory
takes ten times as long (2.5 and 0.28 us a KiB were measured): without this, loads that write much measure the host.
"""

from __future__ import annotations

import io
import re
from pathlib import Path

LEFT_FREE = 1 << 30
_STEP = 8 << 20
_MEMINFO = Path("/proc/meminfo")


class UsedMemory:
    """See the module text. Where there is no /proc/meminfo nothing is done.

    Args:
        folder: for a file without contents, as long as all memory, whose pages take it up; they go when it is removed.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "nothing"
        self._at = 0

    def use(self) -> None:
        """Take up what is free but for `LEFT_FREE` bytes; whoever needs it gets it at once."""
        if not _MEMINFO.exists():
            return
        size, buffer = _of("MemTotal"), bytearray(_STEP)
        with self._path.open("ab") as file:
            file.truncate(size)
        with self._path.open("rb", buffering=0) as file:
            for _ in range(size // _STEP):  # once around at most: more is not to be had
                if _of("MemFree") <= LEFT_FREE:
                    break
                file.seek(self._at)
                self._at = (self._at + self._read(file, buffer)) % (size // _STEP * _STEP)

    def _read(self, file: io.FileIO, buffer: bytearray) -> int:
        return file.readinto(buffer) or 0


def _of(name: str) -> int:
    """Bytes, by /proc/meminfo."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", _MEMINFO.read_text(), re.MULTILINE)
    if found is None:
        raise LookupError(f"{_MEMINFO} does not tell {name}")
    return int(found[1]) << 10
