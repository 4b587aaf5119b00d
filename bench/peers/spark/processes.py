"""What a command and everything it starts needs: time, memory, bytes."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.harness import Missing

_POLL_S = 0.1
_POLLS_PER_MEMORY = 10
"""To add up the pages of a JVM costs its own share of a core if done too often."""


@dataclass(frozen=True)
class Cost:
    """Of one command.

    Attributes:
        seconds: wall time.
        cpu_s: user and system time of all processes, as they were last seen.
        memory_bytes: the most that they had resident together.
    """

    seconds: float
    cpu_s: float
    memory_bytes: int


def run(command: Sequence[str | Path], timeout_s: float) -> Cost:
    """Run a command to its end.

    Raises:
        Missing: it failed; with the end of what it said.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    peak = [0]
    spent: dict[int, float] = {}
    done = threading.Event()

    def watch() -> None:
        polls = 0
        while not done.wait(_POLL_S):
            alive = family(process.pid)
            if polls % _POLLS_PER_MEMORY == 0:
                peak[0] = max(peak[0], sum(map(resident_bytes, alive)))
            polls += 1
            spent.update({pid: cpu_s(pid) for pid in alive})

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except BaseException as error:  # whoever interrupts us wants no JVM left behind
        for pid in reversed(family(process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            raise Missing(f"not done after {timeout_s:.0f} s") from None
        raise
    finally:
        done.set()
        watcher.join()
    if process.returncode:
        raise Missing(" | ".join(output.splitlines()[-3:])[:300])
    return Cost(time.perf_counter() - begin, sum(spent.values()), peak[0])


def family(pid: int) -> list[int]:
    """A process and all below it."""
    found = [pid]
    for one in found:
        try:
            for task in Path(f"/proc/{one}/task").iterdir():
                found += map(int, (task / "children").read_text().split())
        except OSError:
            continue
    return found


def cpu_s(pid: int) -> float:
    """Processor time of a process; 0 for one that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory of a process; what it shares with others counts in part. 0 for one that is gone."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return 0


def read_bytes(pid: int) -> int:
    """What a process, and those below it that ended, have read from files. Sockets do not count."""
    try:
        text = Path(f"/proc/{pid}/io").read_text()
    except OSError:
        return 0
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("rchar"))


def folder_bytes(folder: Path) -> int:
    """Size of all files below."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
