"""Three processes of one peer on loopback: start them, find the leader, load it, kill it, and leave nothing behind."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from bench.harness import Missing
from bench.paths import ROOT
from bench.peers.nodes.control import Answer, Control

T = TypeVar("T")
SIZE = 3
START_TIMEOUT_S = 30.0
LOAD_GRACE_S = 60.0
"""A load ends when its last calls do; a peer that lost its leader may wait for its own timeouts."""
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Load:
    """A closed loop inside the leader's process.

    Attributes:
        in_flight: callers at a time; each awaits its own call.
        batch: values handed over together by a call.
        read: the calls are reads: ``asks``, linearizable by asking a majority, or ``alone``, without asking anybody;
            empty: they are proposals.
    """

    in_flight: int
    batch: int = 1
    value_bytes: int = 100
    read: Literal["", "asks", "alone"] = ""


@dataclass(frozen=True)
class Place:
    """Where a node lives: its number, everybody's raft addresses, its own addresses (``host:port``) and folder."""

    index: int
    peers: tuple[str, ...]
    control: str
    client: str
    folder: Path


Command = Callable[[Place], list[str]]
"""Makes the command line of a node."""


class Cluster:
    """A running cluster, in a folder of its own.

    Args:
        command: makes each node's command line.
        environment: added to the driver's own.
        parent: the cluster's folder is made there.
    Raises:
        Missing: a node ended while starting; with the end of its output.
    """

    def __init__(self, command: Command, environment: Mapping[str, str], parent: Path) -> None:
        self.parent = parent
        self.environment = {**os.environ, **environment}
        self.start(command)

    def start(self, command: Command) -> None:
        """Start three nodes with empty folders."""
        addresses = [f"127.0.0.1:{port}" for port in free_ports(3 * SIZE)]
        self.folder = self.parent / f"cluster-{time.monotonic_ns()}"
        self.folder.mkdir()
        self.command = command
        self.places = [
            Place(i, tuple(addresses[:SIZE]), addresses[SIZE + i], addresses[2 * SIZE + i], self.folder / f"n{i}")
            for i in range(SIZE)
        ]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.controls: list[Control] = []
        self.probes: list[Control] = []
        try:
            for place in self.places:
                self.processes.append(self._spawn(command(place), place))
            self._connect()
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _spawn(self, command: list[str], place: Place) -> subprocess.Popen[bytes]:
        with self._output(place.index).open("wb") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=self.environment,
                preexec_fn=end_with_the_driver,
            )

    def _output(self, index: int) -> Path:
        return self.folder / f"n{index}.log"

    def _connect(self) -> None:
        self.controls = [self.wait_until(lambda place=place: Control(place.control)) for place in self.places]  # type: ignore[misc]

    def wait_until(self, attempt: Callable[[], T | None], timeout_s: float = START_TIMEOUT_S) -> T:
        """Repeat an attempt until it gives something; an OSError counts as nothing.

        Raises:
            Missing: a node ended, or the time is over.
        """
        deadline = time.monotonic() + timeout_s
        reason = "no leader"
        while time.monotonic() < deadline:
            try:
                found = attempt()
            except OSError as error:
                found, reason = None, str(error)
            if found is not None:
                return found
            for index, process in enumerate(self.processes):
                if process.poll() is not None:
                    said = self._output(index).read_text(errors="replace").strip()[-300:]
                    raise Missing(f"node {index} ended with code {process.returncode}: {said or 'it said nothing'}")
            time.sleep(0.02)
        raise Missing(f"not ready after {timeout_s:g} s: {reason}")

    def leader(self) -> int | None:
        """Ask for the leader; None if nobody claims to be it."""
        return next((i for i, control in enumerate(self.controls) if control.ask("status")["leader"]), None)

    def ready(self) -> int:
        """Wait until a leader commits."""

        def attempt() -> int | None:
            leader = self.leader()
            if leader is None or not self.controls[leader].ask("try", timeout_ms=1000)["ok"]:
                return None
            return leader

        return self.wait_until(attempt)

    def load(self, load: Load, warm_s: float, measure_s: float) -> Answer:
        """Load the leader.

        Returns:
            calls, errors, seconds, p50_us, p99_us.
        Raises:
            Missing: the peer has no call for it, or nothing was committed.
        """
        control = self.controls[self.ready()]
        timeout_s = warm_s + measure_s + LOAD_GRACE_S
        answer = control.ask("load", timeout_s, **vars(load), warm_s=warm_s, measure_s=measure_s)
        if "unsupported" in answer:
            raise Missing(answer["unsupported"])
        if not answer["calls"]:
            raise Missing(f"nothing was committed in {measure_s:g} s; {answer['errors']} calls failed")
        return answer

    def prober(self, index: int, timeout_ms: int) -> Callable[[], bool]:
        """Make a function that proposes once to a node and says whether that was committed."""
        control = Control(self.places[index].control)
        self.probes.append(control)
        return lambda: bool(control.ask("try", timeout_ms / 1000 + 5, timeout_ms=timeout_ms)["ok"])

    def kill(self, index: int) -> None:
        """End a node without warning."""
        self.processes[index].send_signal(signal.SIGKILL)

    def cpu_s(self) -> list[float]:
        """Processor time that each node has used."""
        # The kernel's clock of another process, as clock_getcpuclockid makes its id; /proc counts in ticks of 10 ms.
        return [time.clock_gettime(~process.pid << 3 | 2) for process in self.processes]

    def memory_bytes(self) -> list[int]:
        """Resident memory of each node."""
        page = os.sysconf("SC_PAGE_SIZE")
        return [int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * page for process in self.processes]

    def stop(self) -> None:
        """Kill the nodes and remove their files."""
        for control in self.controls + self.probes:
            control.close()
        for process in self.processes:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def free_ports(count: int) -> list[int]:
    """Find ports that nobody listens on; all different."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def neighbouring_ports(count: int) -> list[int]:
    """Find ports that nobody listens on, each one above the one before."""
    while True:
        first, *_ = free_ports(1)
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(("127.0.0.1", port)))
            except (OSError, OverflowError):
                continue
            return list(range(first, first + count))


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_the_driver() -> None:
    """Run in a child before its program: a driver that is killed must not leave busy nodes behind."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
