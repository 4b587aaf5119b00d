"""Controllers of one quorum as processes: Kafka's as its own scripts start it, or ours; and what they use."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from bench import builds
from bench.harness import OURS, Missing
from bench.peers.controller.wire import HOST, Broker, Client, Topic, Unexpected, create, is_active
from bench.peers.nodes.catalog import SOURCES
from bench.peers.nodes.cluster import end_with_the_driver, free_ports
from kraftcore.core.uuid import Uuid

T = TypeVar("T")
TICKS, PAGE = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
MEBIBYTE = 1 << 20
START_S, STOP_S = 180.0, 60.0
BROKERS = (1001, 1002, 1003)
TOPICS_A_REQUEST = 9
"""Of 1,000 partitions: Kafka limits what one request writes to 10,000 records."""
OURS_COMMAND = [sys.executable, "-P", "-m", "kraftcore"]
# What an installed package brings along: without, each of our processes compiles all it imports.
BYTECODE = builds.CACHE / "bytecode"
OURS_MODULES = (
    "kraftcore.cli.storage",
    "kraftcore.cli.node_run",
    "kraftcore.cli.up_run",
    "kraftcore.cli.up_processes",
    "kraftcore.plugins.broker.kraft",
    "kraftcore.plugins.controller.plugin",
)
# What bin/kafka-server-start.sh and bin/kafka-run-class.sh of 4.3.1 pass to the JVM, without JMX and GC logs.
JVM = [
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
]
LOGGING = """\
rootLogger.level=INFO
rootLogger.appenderRef.c.ref=C
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=[%d] %p %m (%c)%n
"""
# Nothing is written unless a case asks for it; scripted brokers keep quiet.
BASE = {
    "metadata.max.idle.interval.ms": 0,
    "broker.session.timeout.ms": 600_000,
    "auto.leader.rebalance.enable": "false",
}
NO_SNAPSHOTS = {
    "metadata.log.max.record.bytes.between.snapshots": 1 << 50,
    "metadata.log.max.snapshot.interval.ms": 0,
}


@dataclass(frozen=True)
class Contender:
    """A controller with its settings.

    Attributes:
        name: as in the table.
        properties: besides the defaults.
        settings: what a reader must know.
    """

    name: str
    properties: Mapping[str, object]
    settings: str

    @property
    def is_ours(self) -> bool:
        return self.name == OURS


CONTENDERS = (
    Contender(OURS, {}, "its defaults"),
    Contender("kafka", {}, "its defaults: the metadata log lingers for 25 ms before it writes; G1, a heap of 1 GiB"),
    Contender("kafka-linger0", {"controller.quorum.append.linger.ms": 0}, "the same without the linger"),
)


@cache
def ours_environment() -> dict[str, str]:
    """Variables of our processes; bytecode is there, as after an installation."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found = {**kept, "PYTHONPYCACHEPREFIX": str(BYTECODE)}
    subprocess.run(
        [sys.executable, "-P", "-c", f"import {', '.join(OURS_MODULES)}"], env=found, timeout=START_S, check=True
    )
    return found


def wait_until(what: str, condition: Callable[[], T | None], timeout_s: float = START_S, every_s: float = 0.02) -> T:
    """Poll until a condition gives something.

    Raises:
        Unexpected: it did not within the time.
    """
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        found = condition()
        if found:
            return found
        time.sleep(every_s)
    raise Unexpected(f"waited {timeout_s:g} s until {what}")


class Node:
    """One controller: its properties, its folder, its process."""

    def __init__(self, contender: Contender, folder: Path, node_id: int, port: int, heap: str) -> None:
        self.contender, self.node_id, self.port, self.heap = contender, node_id, port, heap
        self.log_dir = folder / f"n{node_id}"
        self.file = folder / f"n{node_id}.properties"
        self.output = folder / f"n{node_id}.out"
        self.logging = folder / "log4j2.properties"
        self.properties: dict[str, object] = {}
        self.process: subprocess.Popen[bytes] | None = None

    def set(self, properties: Mapping[str, object]) -> None:
        """Change settings, from the next start on; None takes one away."""
        self.properties |= properties
        lines = [f"{key}={value}\n" for key, value in self.properties.items() if value is not None]
        self.file.write_text("".join(lines))

    def format(self, cluster_id: str, *options: str) -> None:
        """Format its directory, with options of ``kafka-storage format``."""
        arguments = ["format", "--cluster-id", cluster_id, "--config", str(self.file), *options]
        if self.contender.is_ours:
            command = [*OURS_COMMAND, "storage", *arguments]
        else:
            command = [*java("256m", self.logging), "kafka.tools.StorageTool", *arguments]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=START_S, check=False, env=self._environment()
        )
        if done.returncode:
            raise Missing(f"format failed: {(done.stdout + done.stderr).strip()[-300:]}")

    def start(self) -> None:
        """Start the process; returns at once."""
        if self.contender.is_ours:
            command = [*OURS_COMMAND, "server", "start", str(self.file)]
        else:
            jvm = java(self.heap, self.logging, f"-Xms{self.heap}", *JVM)
            command = [*jvm, "kafka.Kafka", str(self.file)]
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=end_with_the_driver,
                env=self._environment(),
            )

    def _environment(self) -> dict[str, str] | None:
        return ours_environment() if self.contender.is_ours else None

    def check(self) -> None:
        """Raise if it ended by itself."""
        if self.process is None or self.process.poll() is not None:
            raise Unexpected(f"node {self.node_id} ended: {self.output.read_text(errors='replace')[-300:]}")

    def stop(self, how: signal.Signals = signal.SIGTERM, timeout_s: float = STOP_S) -> bool:
        """End the process, at last by SIGKILL; False: it had to be."""
        if self.process is None:
            return True
        process, self.process = self.process, None
        process.send_signal(how)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        return True

    def _stats(self) -> Iterator[list[str]]:
        """/proc/PID/stat behind the name, of every process in the node's session."""
        assert self.process is not None
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                except OSError:
                    continue
                if int(fields[3]) == self.process.pid:
                    yield fields

    def cpu_s(self) -> float:
        """Processor time used so far, user and system."""
        return sum(int(fields[11]) + int(fields[12]) for fields in self._stats()) / TICKS

    def resident_bytes(self) -> int:
        return sum(int(fields[21]) for fields in self._stats()) * PAGE

    def log_bytes(self) -> int:
        """Bytes of whole batches in the log; a preallocated tail does not count."""
        total = 0
        for path in (self.log_dir / "__cluster_metadata-0").glob("*.log"):
            data, place = path.read_bytes(), 0
            while place + 17 <= len(data) and data[place + 16] == 2:
                place += 12 + struct.unpack_from(">i", data, place + 8)[0]
            total += min(place, len(data))
        return total


def java(heap: str, logging: Path, *options: str) -> list[str]:
    """The command that runs a class of Kafka's, up to the class."""
    (program,) = builds.tools(["java"], "install a JDK, 17 or newer")
    pom = SOURCES / "kafka" / "pom.xml"
    jars = builds.make("kafka-raft", [pom], lambda folder: builds.copy_jars(pom, folder))
    return [program, f"-Xmx{heap}", f"-Dlog4j2.configurationFile={logging}", *options, "-cp", f"{jars}/*"]


class Quorum:
    """Controllers that are each other's voters, formatted and started, in a folder of their own; gone at the end.

    Args:
        contender: whose.
        parent: the folder is made there.
        size: how many.
        properties: besides the base and the contender's own.
        heap: of a JVM.
    """

    def __init__(
        self,
        contender: Contender,
        parent: Path,
        size: int = 1,
        properties: Mapping[str, object] | None = None,
        heap: str = "1g",
    ) -> None:
        self.folder = parent / f"{contender.name}-{time.monotonic_ns()}"
        self.folder.mkdir()
        self.cluster_id = str(Uuid.random())
        self.names = 0
        ports = free_ports(size)
        self.nodes = [Node(contender, self.folder, number, port, heap) for number, port in enumerate(ports, 1)]
        common = {
            "process.roles": "controller",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT",
            "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{port}" for port in ports),
            **BASE,
            **contender.properties,
            **(properties or {}),
        }
        voters = ",".join(f"{node.node_id}@{HOST}:{node.port}:{Uuid.random()}" for node in self.nodes)
        self.nodes[0].logging.write_text(LOGGING)
        try:
            for node in self.nodes:
                listener = f"CONTROLLER://{HOST}:{node.port}"
                own = {"node.id": node.node_id, "log.dirs": node.log_dir}
                node.set({**common, **own, "listeners": listener, "advertised.listeners": listener})
                options = ["--standalone"] if size == 1 else ["--initial-controllers", voters]
                node.format(self.cluster_id, *options)
                node.start()
            self.connect()
        except BaseException:
            self.close()
            raise

    def connect(self) -> None:
        """Find the active controller."""

        def find() -> Node | None:
            for node in self.nodes:
                node.check()
            return next((node for node in self.nodes if is_active(node.port)), None)

        self.leader = wait_until("a controller is active", find, every_s=0.05)
        self.client = Client(self.leader.port)

    def brokers(self, ids: Sequence[int] = BROKERS) -> list[Broker]:
        """Register and unfence them."""
        return [Broker(self.client, self.cluster_id, broker_id) for broker_id in ids]

    def name(self) -> str:
        """A topic's name, a new one each time."""
        self.names += 1
        return f"bench-{self.names:08d}"

    def fill(self, partitions: int) -> None:
        """Make so many partitions of three replicas, in topics of 1,000 where there are that many."""
        each = min(partitions, 1000)
        topics = [Topic(name=self.name(), num_partitions=each, replication_factor=3) for _ in range(partitions // each)]
        for first in range(0, len(topics), TOPICS_A_REQUEST):
            create(self.client, topics[first : first + TOPICS_A_REQUEST])

    def close(self) -> None:
        if hasattr(self, "client"):
            self.client.close()
        for node in self.nodes:
            node.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Quorum:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def is_listening(port: int) -> bool:
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex((HOST, port)) == 0
