"""What `kraftcore spark` costs where there is little to do: whole commands, beside the least that Spark costs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from bench.harness import Missing, Timing
from bench.metadata_log import MetadataLog
from bench.peers.spark import processes
from bench.peers.spark.session import CORES

START = "Spark's start and SELECT 1"
COLD = "the same, with a session of its own"
_SQL = "SELECT epoch, leader_id, reason FROM gold_leadership ORDER BY epoch"
_START = f"""
from kraftcore.plugins import spark
session = spark.session("local[{CORES}]")
session.sql("SELECT 1").collect()
session.stop()
"""
_TIMEOUT_S = 600.0
_QUERIES = 5


class Small:
    """Commands on one small log, each in a process of its own.

    Args:
        log: the log.
        folder: for tables and a socket.
    """

    def __init__(self, log: MetadataLog, folder: Path) -> None:
        self._log = log
        self._tables = folder / "small-tables"
        self._socket = folder / "s"

    def run(self) -> Timing:
        """From the directory to all tables of gold."""
        return self._timed(f"{self._log.records} records", *self._run())

    def again(self) -> Timing:
        """The same with nothing new."""
        _ = self._made
        return self._timed("nothing new", *self._run())

    def start(self) -> Timing:
        """What Spark needs to answer anything."""
        cost = processes.run([sys.executable, "-c", _START], _TIMEOUT_S)
        return _timing([cost.seconds], cost.cpu_s, "")

    def cold(self) -> Timing:
        """A query that starts Spark."""
        _ = self._made
        return self._timed(
            "one query", "query", "--cold", "--tables", self._tables, "--master", f"local[{CORES}]", _SQL
        )

    def warm(self) -> Timing:
        """Queries that ask a session which stays; the first one is not counted.

        Raises:
            Missing: nobody answers.
        """
        _ = self._made
        serving = _command("serve", "--quiet", "--socket", self._socket, "--master", f"local[{CORES}]")
        with subprocess.Popen(serving, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
            try:
                limit = time.monotonic() + _TIMEOUT_S
                while not self._socket.exists() or time.monotonic() > limit:
                    if server.poll() is not None or time.monotonic() > limit:
                        raise Missing("nobody answers queries")
                    time.sleep(0.1)
                ask = _command("query", "--tables", self._tables, "--socket", self._socket, _SQL)
                costs = [processes.run(ask, _TIMEOUT_S) for _ in range(_QUERIES + 1)][1:]
            finally:
                server.send_signal(signal.SIGTERM)
                server.wait()
        return _timing([cost.seconds for cost in costs], 0.0, "the command's own start included")

    def report(self) -> Timing:
        """The report's page."""
        _ = self._made
        target = self._tables.with_name("report.html")
        return self._timed("one cluster", "report", "--tables", self._tables, "--to", target)

    @cached_property
    def _made(self) -> bool:
        # The tables are there.
        if not self._tables.exists():
            processes.run(_command(*self._run()), _TIMEOUT_S)
        return True

    def _run(self) -> tuple[object, ...]:
        return "run", "--quiet", "--input", self._log.folder, "--tables", self._tables

    def _timed(self, note: str, *arguments: object) -> Timing:
        cost = processes.run(_command(*arguments), _TIMEOUT_S)
        return _timing([cost.seconds], cost.cpu_s, note)


def _timing(seconds: Sequence[float], cpu_s: float, note: str) -> Timing:
    spent = f"{cpu_s:.1f} s of processor time" if cpu_s else ""
    return Timing(list(seconds), 1, "; ".join(part for part in (note, spent) if part))


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-P", "-m", "kraftcore", "spark", *map(str, arguments)]
