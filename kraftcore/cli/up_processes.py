"""Runs ``kraftcore up --processes``: a process for each node, forked from this one, which watches them."""

from __future__ import annotations

import encodings.idna  # noqa: F401  (for trio, when nodes bind)
import gc
import json
import os
import selectors
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

# Modules that nodes import when they run are imported once, before the fork.
import kraftcore.plugins.controller.plugin  # noqa: F401
from kraftcore.cli.forking import Forked, Forker
from kraftcore.cli.node_run import Reporter
from kraftcore.cli.server_roles import RunsServer, load_server
from kraftcore.cli.stopping import stopping_for_good
from kraftcore.errors import KraftError, LocalError
from kraftcore.testing.client_access import ClientAccess
from kraftcore.testing.kafka_files import CLIENTS, KafkaFiles, Place

RESTART = signal.SIGUSR1
"""The signal that starts the nodes that have ended."""
START_TIMEOUT_S = 30.0
"""How long nodes may take until all are ready, seconds."""
_READ_BYTES = 1 << 16


def run_up_processes(
    *,
    brokers: int,
    controllers: int,
    first_port: int,
    directory: str | None,
    properties: Mapping[str, str],
    users: Mapping[str, str],
    tls: bool,
    as_json: bool,
) -> str | None:
    """Run a cluster until a signal, or the end of all nodes, ends it; arguments are `KafkaFiles`'s.

    Returns:
        Why the cluster could not start or had to stop; None if it was told to stop.
    """
    reporter = Reporter(as_json=as_json)
    error = None
    ended_by: int | None = None
    try:
        access = ClientAccess(CLIENTS, users, has_tls=tls)
    except KraftError as refused:
        return str(refused)
    try:
        with KafkaFiles(
            brokers,
            controllers,
            directory=directory,
            properties=properties,
            node_properties={},
            first_port=first_port,
            access=access,
            by_tcp=True,
        ) as files:
            try:
                files.prepare()
                with files.naming_properties():
                    servers = {node_id: load_server(files.file(node_id), {}) for node_id in files.places}
            except LocalError as refused:
                return str(refused)
            nodes = _Nodes(files, servers, access, reporter, directory)
            error = nodes.run()
            ended_by = nodes.ended_by
    except KraftError as found:
        error = str(found)
    if ended_by is not None:
        signal.signal(ended_by, signal.SIG_DFL)
        os.kill(os.getpid(), ended_by)
    reporter.event("stopped", error=error)
    return error


@dataclass(eq=False, slots=True)
class _Process:
    """The process of a node.

    Attributes:
        is_ready: whether a controller serves, or a broker is unfenced.
        error: why it stops, by its own output.
        is_told: whether it was told to stop.
        rest: the beginning of a line of its output.
    """

    place: Place
    forked: Forked
    is_ready: bool = False
    error: str | None = None
    is_told: bool = False
    rest: bytes = b""


class _Nodes:
    """Starts, watches and stops the nodes' processes."""

    def __init__(
        self,
        files: KafkaFiles,
        servers: Mapping[int, RunsServer],
        access: ClientAccess,
        reporter: Reporter,
        directory: str | None,
    ) -> None:
        self.ended_by: int | None = None
        self._access = access
        self._files = files
        self._servers = servers
        self._reporter = reporter
        self._directory = directory
        self._running: dict[int, _Process] = {}
        self._is_started = False
        self._is_stopping = False
        self._error: str | None = None
        self._selector = selectors.PollSelector()  # has no descriptor that a forked process would inherit
        self._signals, self._wakeup = os.pipe()
        for end in (self._signals, self._wakeup):
            os.set_blocking(end, False)
        self._obeyed = (*stopping_for_good(), RESTART)
        self._forker = Forker(self._obeyed, self._let_go)

    def run(self) -> str | None:
        """Run until all processes have ended; returns why they ended, None if they were told to."""
        before = [(number, signal.signal(number, _be_woken)) for number in self._obeyed]
        previous = signal.set_wakeup_fd(self._wakeup)
        try:
            self._selector.register(self._signals, selectors.EVENT_READ, self._obey)
            self._start(place.node_id for place in self._files.places.values() if not place.is_broker)
            import kraftcore.plugins.broker.kraft  # noqa: F401  (controllers need it not, and begin meanwhile)

            gc.enable()
            self._look_after()
        finally:
            self._kill_all()
            signal.set_wakeup_fd(previous)
            for number, handler in before:
                signal.signal(number, handler)
            self._selector.close()
            self._forker.close()
            os.close(self._signals)
            os.close(self._wakeup)
        return self._error

    def _look_after(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._running:
            left = None if self._is_started or self._is_stopping else deadline - time.monotonic()
            if left is not None and left <= 0:
                waits = [process.place.node_id for process in self._running.values() if not process.is_ready]
                self._error = f"waited {START_TIMEOUT_S:g} s for nodes {', '.join(map(str, waits))} to be ready"
                self._stop()
            for key, _ in self._selector.select(left):
                key.data()
        if not self._is_stopping:
            self._error = "all nodes have ended"

    def _start(self, node_ids: Iterable[int]) -> None:
        gc.freeze()  # memory that the collector does not touch stays shared
        for node_id in node_ids:
            forked = self._forker.fork(partial(_serve, self._servers[node_id]))
            self._running[node_id] = process = _Process(self._files.places[node_id], forked)
            self._selector.register(forked.output, selectors.EVENT_READ, partial(self._hear, process))

    def _let_go(self) -> None:
        """Close the inherited files in a forked process."""
        for process in self._running.values():
            os.close(process.forked.output)
        os.close(self._signals)
        os.close(self._wakeup)

    # --- output of the processes --------------------------------------------------------------------------------------

    def _hear(self, process: _Process) -> None:
        if self._running.get(process.place.node_id) is not process:
            return  # the process ended meanwhile
        data = os.read(process.forked.output, _READ_BYTES)
        *lines, process.rest = (process.rest + data).split(b"\n")
        for line in lines:
            self._heard(process, _read_event(line))
        if not data:
            self._ended(process)

    def _heard(self, process: _Process, told: dict[str, Any]) -> None:
        match told["event"]:
            case "started" if not process.place.is_broker:
                self._ready(process)
            case "broker" if told["stage"] == "Running":
                self._ready(process)
            case "log":
                fields = {name: told[name] for name in ("level", "logger", "text")}
                self._reporter.event("log", node=process.place.node_id, **fields)
            case "stopped":
                process.error = told["error"]

    def _ready(self, process: _Process) -> None:
        if process.is_ready:
            return
        process.is_ready = True
        if self._is_started:
            self._reporter.event("running", node=process.place.node_id, pid=process.forked.pid)
        elif not self._is_stopping and all(each.is_ready for each in self._running.values()):
            self._go_on()

    def _go_on(self) -> None:
        """Start the brokers once all controllers serve, so that no broker is refused; then report the start."""
        places = self._files.places.values()
        if len(self._running) < len(places):
            self._start(place.node_id for place in places if place.is_broker)
            return
        self._is_started = True
        self._reporter.event(
            "started",
            bootstrapServers=self._files.bootstrap_servers,
            brokers=[place.node_id for place in places if place.is_broker],
            controllers=[place.node_id for place in places if not place.is_broker],
            directory=self._directory,
            securityProtocol=self._access.protocol.name,
            caFile=self._access.ca_file,
            controlUrl=None,
            pids={place.node_id: self._running[place.node_id].forked.pid for place in places},
        )

    def _ended(self, process: _Process) -> None:
        node_id, pid = process.place.node_id, process.forked.pid
        code = self._reap(process)
        number = _name(-code) if code < 0 else None
        if not self._is_stopping or code > 0:
            status = None if code < 0 else code
            self._reporter.event("ended", node=node_id, pid=pid, signal=number, status=status, error=process.error)
            why = f"node {node_id} ended: {process.error or number or f'exit status {code}'}"
            if self._is_stopping or not self._is_started:
                self._error = self._error or why
        if self._is_stopping or not self._is_started:
            self._stop()

    def _reap(self, process: _Process) -> int:
        self._selector.unregister(process.forked.output)
        os.close(process.forked.output)
        del self._running[process.place.node_id]
        return os.waitstatus_to_exitcode(os.waitpid(process.forked.pid, 0)[1])

    # --- signals ------------------------------------------------------------------------------------------------------

    def _obey(self) -> None:
        for number in os.read(self._signals, _READ_BYTES):
            if number == RESTART:
                self._restart()
                continue
            if self._is_stopping:
                if number == signal.SIGHUP:  # a terminal that is closed may send several
                    continue
                self.ended_by = number
                self._kill_all()
                return
            self._reporter.event("stopping", signal=_name(number))
            self._stop()

    def _restart(self) -> None:
        if self._is_started and not self._is_stopping:
            self._start([node_id for node_id in reversed(self._files.places) if node_id not in self._running])

    def _stop(self) -> None:
        """Have brokers stop, and controllers when no broker is left; called again whenever a node has ended."""
        self._is_stopping = True
        brokers = [each for each in self._running.values() if each.place.is_broker]
        controllers = [each for each in self._running.values() if not each.place.is_broker]
        size = sum(not place.is_broker for place in self._files.places.values())
        for process in brokers or controllers:
            if brokers and 2 * len(controllers) <= size:
                os.kill(process.forked.pid, signal.SIGKILL)  # no controller is left to let this broker shut down
            elif not process.is_told:
                process.is_told = True
                os.kill(process.forked.pid, signal.SIGTERM)
                os.kill(process.forked.pid, signal.SIGCONT)  # a process that was stopped must get the signal, too

    def _kill_all(self) -> None:
        for process in list(self._running.values()):
            os.kill(process.forked.pid, signal.SIGKILL)
            self._reap(process)


def _serve(server: RunsServer) -> int:
    """Run a server as ``kraftcore server start --output json`` does."""
    return 0 if server(as_json=True) is None else 1


def _read_event(line: bytes) -> dict[str, Any]:
    """Read a node's event; any other line, printed by a plugin, becomes a line of its log."""
    try:
        told = json.loads(line)
    except ValueError:
        told = None
    if isinstance(told, dict) and {"time", "event"} <= told.keys():
        return told
    return {"event": "log", "level": "INFO", "logger": "stdout", "text": line.decode(errors="replace")}


def _be_woken(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal's number is written to the wakeup descriptor."""


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
