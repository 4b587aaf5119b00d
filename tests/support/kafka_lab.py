"""Real Kafka quorums on loopback: nodes as processes of their own, and Kafka's tools.

with KafkaLab(kafka, tmp_path) as lab:
    lab.start_quorum([1, 2, 3])
    lab.broker(10).format().start()
    print(lab.tool("quorum", "--bootstrap-controller", lab.controllers, "describe", "--status").out)
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import trio
from kafka_tools import TOOLS, KafkaTools

from kraftcore import admin
from kraftcore.errors import KraftError

T = TypeVar("T")
N = TypeVar("N", bound="KafkaNode")
OURS = [sys.executable, "-P", "-m", "kraftcore"]
HOST = "127.0.0.1"
PATIENCE_S = 60
ERROR_LINES, LAST_LINES, LINE_CHARACTERS = 20, 30, 400  # of a node's log, in a failure
NO_METADATA_YET = "Direct-to-controller communication is not supported"
QUICK = admin.Timing(call_timeout_ms=2000)
LOG4J = """\
rootLogger.level=INFO
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=[%d] %p %m (%c)%n
"""


class ToolResult:
    """What a tool printed, and its exit status."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err

    @property
    def error_line(self) -> str:
        """The message, without the stack trace that some tools add."""
        return self.err.split("\n", 1)[0]

    def __repr__(self) -> str:
        return f"exit status {self.status}\n{self.out}\n{self.err}"


class NodeDiedError(AssertionError):
    """A node of an open lab ended by itself."""


def wait_for(what: str, condition: Callable[[], T | None], *, timeout_s: float = PATIENCE_S) -> T:
    """Poll until a condition gives something true, and return that.

    Raises:
        NodeDiedError: a node ended by itself meanwhile.
        TimeoutError: with the ends of all nodes' logs.
    """
    end = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        check_alive(what)
        if time.monotonic() > end:
            raise TimeoutError(f"waited {timeout_s} s for {what}; last: {found!r}\n{last_words(_labs)}")
        time.sleep(0.1)


def check_alive(during: str) -> None:
    """Raise if a node of an open lab ended by itself."""
    for node in (node for lab in _labs for node in lab.nodes.values()):
        if node.process is not None and node.process.poll() is not None:
            raise NodeDiedError(f"waiting for {during}: {node.last_words()}")


def last_words(labs: Iterable[KafkaLab]) -> str:
    """The ends of the logs of all nodes that were started."""
    return "\n".join(node.last_words() for lab in labs for node in lab.nodes.values() if node.output.exists())


def new_uuid() -> str:
    """A random uuid as Kafka writes it; not with a dash in front, which command lines take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


_labs: list[KafkaLab] = []  # that are open
# Below the ports that outgoing connections get: a node that is restarted finds its port free.
_ports = itertools.islice(itertools.cycle(range(20_000, 30_000)), 100 * (os.getpid() % 100), None)
_ports_file = os.open(f"{tempfile.gettempdir()}/kraftcore-test-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)


def free_port() -> int:
    """A port that nobody listens on and no other test process was given: record locks on a common file, one a port."""
    for port in _ports:
        try:
            fcntl.lockf(_ports_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            continue
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                listener.bind((HOST, port))
            except OSError:
                continue
            return port
    raise AssertionError("unreachable")


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex((HOST, port)) == 0


class KafkaNode:
    """One controller or broker: its properties file, its directory, its process."""

    stdin = subprocess.DEVNULL

    def __init__(self, lab: KafkaLab, name: str, port: int, properties: dict[str, object]) -> None:
        self.lab = lab
        self.name = name
        self.port = port
        self.folder = lab.folder / name
        self.config = lab.folder / f"{name}.properties"
        self.output = lab.folder / f"{name}.out"
        self.properties = {**properties, "log.dirs": self.folder}
        self.process: subprocess.Popen[bytes] | None = None
        self.cluster_id = lab.cluster_id
        self.write()

    def write(self, **changes: object) -> KafkaNode:
        """Change properties (``_`` for ``.``; None takes one away) and write the file."""
        self.properties |= {key.replace("_", "."): value for key, value in changes.items()}
        lines = [f"{key}={value}\n" for key, value in self.properties.items() if value is not None]
        self.config.write_text("".join(lines))
        return self

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def directory_id(self) -> str:
        found = re.search(r"directory\.id=(\S+)", (self.folder / "meta.properties").read_text())
        assert found is not None
        return found[1]

    def format(self, *arguments: object) -> KafkaNode:
        done = self.lab.tool("storage", "format", "-t", self.cluster_id, "-c", self.config, *arguments)
        assert done.status == 0, done
        return self

    def command(self) -> list[str]:
        """What runs it."""
        return [*self.lab.java(), "kafka.Kafka", str(self.config)]

    def start(self) -> KafkaNode:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdout=output,
                stderr=output,
                stdin=self.stdin,
                start_new_session=True,
            )
        return self

    def wait_listening(self) -> KafkaNode:
        wait_for(f"{self.name} to listen", lambda: is_listening(self.port))
        return self

    def last_words(self) -> str:
        """How it is, with the errors in its log and the log's end."""
        status = None if self.process is None else self.process.poll()
        state = "was stopped" if self.process is None else "runs" if status is None else f"ended with status {status}"
        lines = [line[:LINE_CHARACTERS] for line in self.output.read_text(errors="replace").splitlines()]
        errors = [line for line in lines[:-LAST_LINES] if re.search(r"] (ERROR|FATAL) |^\S*(Error|Exception): ", line)]
        return "\n".join([f"--- {self.name} {state}:", *errors[-ERROR_LINES:], "...", *lines[-LAST_LINES:]])

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it.

        Raises:
            TimeoutError: it did not end; then it is killed.
        """
        if self.process is None:
            return
        self.process.send_signal(how)
        late = None
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            late = TimeoutError(f"{how.name} did not end within {PATIENCE_S} s: {self.last_words()}")
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process = None
        if late is not None:
            raise late

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, and go on."""
        assert self.process is not None
        self.process.send_signal(number)


class KraftcoreNode(KafkaNode):
    """The same file, directory and port, run by ``kraftcore server start``."""

    def command(self) -> list[str]:
        return [*OURS, "server", "start", str(self.config), "--output", "json"]

    def format(self, *arguments: object) -> KafkaNode:
        command = [*OURS, "storage", "format", "-t", self.cluster_id, "-c", str(self.config), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done
        return self

    def events(self, name: str) -> list[dict[str, Any]]:
        """What it told so far under a name."""
        lines = (json.loads(line) for line in self.output.read_text().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == name]


class KafkaLab:
    """Kafka nodes of one cluster; all are killed at the end. What fails meanwhile says how the nodes were."""

    def __init__(self, kafka: KafkaTools, folder: Path) -> None:
        self.folder = folder
        self.class_path = kafka.class_path
        self.jvm = [*kafka.jvm, "-Xss512k"]
        self.cluster_id = new_uuid()
        self.nodes: dict[int, KafkaNode] = {}
        self.bootstrap: list[str] = []
        self.connection: dict[str, Any] = {}  # what ``describe`` needs to reach the controllers: ``tls``, ``sasl``
        self.log4j = folder / "log4j2.properties"
        self.log4j.write_text(LOG4J)
        self._tools: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> KafkaLab:
        _labs.append(self)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        _labs.remove(self)
        if isinstance(error, Exception) and not isinstance(error, NodeDiedError | TimeoutError):
            error.add_note(last_words([self]))
        self.close()

    def close(self) -> None:
        """Kill everything that was started."""
        for node in self.nodes.values():
            node.kill()
        self._end_tools()

    def _end_tools(self) -> None:
        if self._tools is not None:
            self._tools.kill()
            self._tools.communicate()
            self._tools = None

    def java(self, heap: str = "256m") -> list[str]:
        """What runs a class of Kafka's that stays, up to the class."""
        return [*self.jvm, f"-Xmx{heap}", f"-Dlog4j2.configurationFile={self.log4j}", "-cp", self.class_path]

    def run_class(self, *arguments: object, timeout_s: float = 240) -> str:
        """Run a class of Kafka's that ends by itself; what it printed to stderr."""
        command = [*self.java(), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
        assert done.returncode == 0, done
        return done.stderr

    @property
    def controllers(self) -> str:
        """What --bootstrap-controller takes."""
        return ",".join(self.bootstrap)

    def controller(self, node_id: int, **properties: Any) -> KafkaNode:
        """A controller, not yet formatted or started; ``_`` in names of properties stands for ``.``."""
        return self.add(KafkaNode, node_id, **properties)

    def kraftcore(self, node_id: int, **properties: Any) -> KraftcoreNode:
        """A kraftcore node with the controller role that takes appends, too; not yet formatted or started."""
        return self.add(KraftcoreNode, node_id, **{"kraftcore_offers_log": "true", **properties})

    def broker(self, node_id: int, **properties: Any) -> KafkaNode:
        """A broker, not yet formatted or started."""
        known = {"offsets_topic_replication_factor": 1, **properties}
        return self.add(KafkaNode, node_id, "broker", "PLAINTEXT", **known)

    def add(
        self, kind: type[N], node_id: int, role: str = "controller", listener: str = "CONTROLLER", **properties: Any
    ) -> N:
        """A node of any kind, not yet formatted or started."""
        port = free_port()
        known = {
            "process.roles": role,
            "node.id": node_id,
            "listeners": f"{listener}://{HOST}:{port}",
            "advertised.listeners": f"{listener}://{HOST}:{port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        }
        given = {key.replace("_", "."): value for key, value in properties.items()}
        if "controller.quorum.voters" not in given:
            known["controller.quorum.bootstrap.servers"] = self.controllers or f"{HOST}:{port}"
        node = kind(self, f"{role}-{node_id}", port, {**known, **given})
        self.nodes[node_id] = node
        return node

    def start_quorum(
        self,
        ids: Sequence[int],
        *,
        make: Callable[..., KafkaNode] | None = None,
        arguments: Sequence[object] = (),
        **properties: object,
    ) -> list[KafkaNode]:
        """Format and start controllers that are each other's voters (kraft.version 1).

        Args:
            ids: of the nodes.
            make: ``self.kraftcore`` for nodes of ours.
            arguments: more of formatting.
            properties: of all of them.
        """
        nodes = [(make or self.controller)(node_id, **properties) for node_id in ids]
        self.bootstrap = [node.address for node in nodes]
        voters = ",".join(f"{node_id}@{node.address}:{new_uuid()}" for node_id, node in zip(ids, nodes, strict=True))
        for node in nodes:
            node.write(controller_quorum_bootstrap_servers=self.controllers)
            node.format("--initial-controllers", voters, *arguments).start()
        for node in nodes:
            node.wait_listening()
        return nodes

    def describe(self) -> admin.QuorumDescription | None:
        """What the leader says now; None while there is none."""

        async def ask() -> admin.QuorumDescription:
            async with admin.connect(bootstrap_controllers=self.bootstrap, timing=QUICK, **self.connection) as client:
                return await client.describe_quorum()

        try:
            return trio.run(ask)
        except KraftError:
            return None

    def tool(self, name: str, *arguments: object) -> ToolResult:
        """Run one of Kafka's tools; again while it meets a controller that has just begun and knows no metadata yet."""

        def ask() -> ToolResult | None:
            done = self._tool(name, *arguments)
            return None if NO_METADATA_YET in done.out + done.err else done

        return wait_for(f"controllers to know their metadata version, for {name} {arguments}", ask)

    def _tool(self, name: str, *arguments: object) -> ToolResult:
        # All of them share a JVM, but for calls that end it: those get one of their own.
        if self._tools is None:
            command = [*self.jvm, "-Xmx256m", "-Dlog4j2.level=OFF", "-cp", self.class_path, "ToolServer"]
            self._tools = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        process = self._tools
        assert process.stdin is not None
        assert process.stdout is not None
        watchdog = threading.Timer(2 * PATIENCE_S, os.kill, (process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            process.stdin.write("\t".join([TOOLS[name], *map(str, arguments)]).encode() + b"\n")
            process.stdin.flush()
            head = process.stdout.readline().split()
            if len(head) != 3:
                self._end_tools()
                command = [*self.jvm, "-Dlog4j2.level=OFF", "-cp", self.class_path, TOOLS[name], *map(str, arguments)]
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S)
                return ToolResult(done.returncode, done.stdout, done.stderr)
            out, err = (process.stdout.read(int(size)).decode() for size in head[1:])
        finally:
            watchdog.cancel()
        return ToolResult(int(head[0]), out, err)
