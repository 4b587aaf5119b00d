"""The demo's replicas as processes: started, watched, killed, stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import trio

from kraftcore.config import NodeConfig
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import Uuid
from kraftcore.errors import KraftError
from kraftcore.node.home import format_home
from kraftcore.ports.transport import Address
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.quorum import VersionRange, Voter, VoterSet

HOST = "127.0.0.1"
STOP_S = 8.0
_MODULE = "kraftcore.cli.demo.member"


class DemoError(KraftError):
    """The demo cannot go on: a replica's process failed, or something did not happen in time."""


@dataclass(eq=False, slots=True)
class Member:
    """A replica: its directory and port, and its process while it runs.

    Attributes:
        key: its id and directory id.
        directory: where its files are.
        port: where it listens on the loopback interface.
        state: for people: ``stopped``, ``starting``, ``running``, ``killed``, ``removed``.
        status: the last that the process printed; see ``member``.
        process: while it runs.
    """

    key: ReplicaKey
    directory: str
    port: int
    state: str = "stopped"
    status: dict[str, Any] | None = None
    process: trio.Process | None = None
    expected_end: bool = False

    @property
    def id(self) -> int:
        """Its replica id."""
        return self.key.id

    @property
    def address(self) -> Address:
        """Where it listens."""
        return Address(HOST, self.port)

    @property
    def epoch(self) -> int:
        """The epoch in its last status."""
        return -1 if self.status is None else int(self.status["epoch"])

    @property
    def runs(self) -> bool:
        """Whether it has a process that has printed a status."""
        return self.process is not None and self.status is not None


class Members:
    """All replicas, by id.

    Args:
        directory: gets a folder for each replica.
        count: number of replicas.
        voters: how many of the first replicas are the quorum's first voters.
        changed: called when a replica has a new status.
    """

    def __init__(self, directory: str, count: int, voters: int, changed: Callable[[Member], None]) -> None:
        ports = _free_ports(count)
        self._changed = changed
        self._all: dict[int, Member] = {}
        for node_id, port in enumerate(ports, 1):
            key = ReplicaKey(node_id, Uuid.random(os.urandom))
            self._all[node_id] = Member(key, os.path.join(directory, f"node-{node_id}"), port)
        self._bootstrap = [str(member.address) for member in self][:voters]
        first = VoterSet(
            tuple(
                Voter(member.key, self._config(member).listeners, VersionRange(0, 1)) for member in list(self)[:voters]
            )
        )
        self.cluster_id = str(Uuid.random(os.urandom))
        files = OsFiles()
        for member in self:
            files.make_folder(member.directory)
            theirs = first if member.id in first.ids else VoterSet()
            format_home(files, self._config(member), member.key, self.cluster_id, theirs)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._all.values())

    def __getitem__(self, node_id: int) -> Member:
        return self._all[node_id]

    def _settings(self, member: Member) -> dict[str, Any]:
        return {
            "node_id": member.id,
            "directory": member.directory,
            "listeners": [f"CONTROLLER://{member.address}"],
            "bootstrap_servers": self._bootstrap,
            # Every record stays in the log, to be checked at the end.
            "snapshot_bytes": 1 << 50,
            "snapshot_interval_ms": 0,
        }

    def _config(self, member: Member) -> NodeConfig:
        return NodeConfig(**self._settings(member))

    @property
    def leader(self) -> Member | None:
        """The replica that leads in the highest epoch, by their statuses; or None."""
        leading = [member for member in self if member.runs and (member.status or {})["role"] == "leader"]
        return max(leading, key=lambda member: member.epoch, default=None)

    async def run(self, member: Member) -> None:
        """Start a replica's process, and read its output until it ends.

        Raises:
            DemoError: the process ended without being told to.
        """
        command = [sys.executable, "-P", "-m", _MODULE, json.dumps(self._settings(member))]
        member.state, member.status, member.expected_end = "starting", None, False
        log_path = f"{member.directory}.log"
        with ExitStack() as stack:
            log = stack.enter_context(open(log_path, "ab"))
            process = await trio.lowlevel.open_process(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        member.process = process
        try:
            await self._listen(member, process)
            code = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
                await process.stdin.aclose()  # type: ignore[union-attr]
                await process.stdout.aclose()  # type: ignore[union-attr]
            member.process = None
        if not member.expected_end:
            raise DemoError(f"node {member.id} ended with status {code}: {_last_line(log_path)}")

    async def _listen(self, member: Member, process: trio.Process) -> None:
        buffer = b""
        async for chunk in process.stdout:  # type: ignore[union-attr]
            *lines, buffer = (buffer + chunk).split(b"\n")
            if lines:
                for line in lines:
                    member.status = json.loads(line)
                if member.state == "starting":
                    member.state = "running"
                self._changed(member)

    async def kill(self, member: Member) -> None:
        """SIGKILL a replica's process."""
        member.expected_end, member.state = True, "killed"
        process = member.process
        if process is not None:
            process.send_signal(signal.SIGKILL)
            await process.wait()

    async def stop(self, members: Sequence[Member]) -> None:
        """End processes in order; a process that takes too long is killed."""
        running = [(member, member.process) for member in members if member.process is not None]
        for member, process in running:
            member.expected_end = True
            process.send_signal(signal.SIGTERM)
        for member, process in running:
            with trio.move_on_after(STOP_S):
                await process.wait()
            if process.returncode is None:
                process.kill()
                raise DemoError(f"node {member.id} did not stop within {STOP_S:g} s of SIGTERM")
            if member.state == "running":
                member.state = "stopped"


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def _last_line(path: str) -> str:
    with open(path, errors="replace") as file:
        lines = [line.strip() for line in file if line.strip()]
    return lines[-1] if lines else "it said nothing"
