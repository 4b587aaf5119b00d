"""Three brokers and a controller on loopback.

A process each, Kafka's or ours, from the same properties; or ours by ``kraftcore up``.
"""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from bench.harness import OURS
from bench.peers.broker.memory import UsedMemory
from bench.peers.controller.nodes import (
    LOGGING,
    MEBIBYTE,
    OURS_COMMAND,
    Contender,
    Node,
    is_listening,
    java,
    ours_environment,
    wait_until,
)
from bench.peers.controller.wire import HOST, Client, Topic, Unexpected, create
from bench.peers.nodes.cluster import end_with_the_driver, free_ports, neighbouring_ports
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.messages.metadata import MetadataRequest

CONTROLLER, BROKERS = 100, (1, 2, 3)
LOAD = Path(__file__).with_name("load.py")
LOAD_S = 600.0
AT_REST = 0.4  # processors; a cluster that still makes partitions takes more
METADATA_VERSION = 12
PROPERTIES = {
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "broker.session.timeout.ms": 6000,
    "auto.create.topics.enable": "false",
}
CONTENDERS = (
    Contender(OURS, {}, "its defaults"),
    Contender("kafka", {}, "4.3.1 with its defaults, as its scripts start it: G1, a heap of 1 GiB a process"),
)
ONE_PROCESS = {"min.insync.replicas": 2}
"""Of ``kraftcore up``, besides its own settings."""
FAST_FENCING = Contender(OURS, {"kraftcore.fast.fencing.ms": 100}, "kraftcore.fast.fencing.ms=100")


class Brokers(ABC):
    """Three brokers, whatever runs them, and the loads on them; gone at the end.

    Attributes:
        ports: where each listens for clients, by id.
        client: whom topics are made by; there once they are started.
        memory: of the machine.
    """

    client: Client

    def __init__(self, contender: Contender, parent: Path, ports: Sequence[int]) -> None:
        self.contender = contender
        self.folder = parent / f"{contender.name}-{time.monotonic_ns()}"
        self.folder.mkdir()
        self.loads: list[Load] = []
        self.memory = UsedMemory(self.folder)
        self.ports = dict(zip(BROKERS, ports, strict=True))

    @abstractmethod
    def start(self) -> None:
        """Start all of it, from nothing, up to where somebody listens who makes topics."""

    @abstractmethod
    def check(self) -> bool:
        """True; or raise if a process ended by itself."""

    @abstractmethod
    def stop(self) -> None:
        """SIGKILL for every process."""

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports.values())

    def topic(self, name: str, partitions: int) -> None:
        """Make a topic of three replicas, as soon as the brokers are there; every broker knows it at the end."""

        def made() -> bool:
            self.check()
            try:
                create(self.client, [Topic(name=name, num_partitions=partitions, replication_factor=3)])
            except Unexpected as error:
                if "INVALID_REPLICATION_FACTOR" in str(error) or "NOT_CONTROLLER" in str(error):
                    return False
                raise
            return True

        wait_until(f"topic {name} can be made", made, every_s=0.01)
        self.wait_isr(name, partitions)

    def wait_isr(self, name: str, partitions: int) -> None:
        """Wait until each broker says that all replicas of a topic are in sync."""

        def is_known(port: int) -> bool:
            self.check()
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            try:
                with Client(port, 10) as client:
                    (topic,) = client.call(request, METADATA_VERSION).topics
            except OSError:
                return False
            found = [each for each in topic.partitions if len(each.isr_nodes) == 3 and each.leader_id >= 0]
            return len(found) == partitions

        for broker_id, port in self.ports.items():
            wait_until(f"broker {broker_id} knows all of {name}", partial(is_known, port), every_s=0.01)

    # --- loads --------------------------------------------------------------------------------------------------------

    def load(self, work: str, topic: str, count: int = 1, **options: object) -> list[dict[str, Any]]:
        """Run so many clients at the same time, begun together; what each found."""
        clients = [Load(self, work, topic, options) for _ in range(count)]
        for client in clients:
            client.wait_ready()
        for client in clients:
            client.go()
        return [client.result() for client in clients]

    def close(self) -> None:
        for load in self.loads:
            load.end()
        if hasattr(self, "client"):
            self.client.close()
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Cluster(Brokers):
    """A process each; stopped at first.

    Attributes:
        controller: the only one.
        brokers: all three.
    """

    def __init__(self, contender: Contender, parent: Path) -> None:
        ports = free_ports(4)
        super().__init__(contender, parent, ports[1:])
        ids = (CONTROLLER, *BROKERS)
        nodes = [Node(contender, self.folder, node_id, port, "1g") for node_id, port in zip(ids, ports, strict=True)]
        self.controller, *self.brokers = nodes
        self.controller.logging.write_text(LOGGING)
        bootstrap = {"controller.quorum.bootstrap.servers": f"{HOST}:{ports[0]}"}
        for node in nodes:
            role, name = ("controller", "CONTROLLER") if node is self.controller else ("broker", "PLAINTEXT")
            own = {"process.roles": role, "node.id": node.node_id, "log.dirs": node.log_dir}
            listener = f"{name}://{HOST}:{node.port}"
            node.set({**PROPERTIES, **bootstrap, **contender.properties, **own, "listeners": listener})

    @property
    def nodes(self) -> list[Node]:
        return [self.controller, *self.brokers]

    def start(self) -> None:
        """Format all directories, one after the other, and start all processes, until the controller listens."""
        cluster_id = str(Uuid.random())
        for node in self.nodes:
            node.format(cluster_id, "--standalone" if node is self.controller else "--no-initial-controllers")
        for node in self.nodes:
            node.start()
        wait_until("the controller listens", lambda: self.check() and is_listening(self.controller.port))
        self.client = Client(self.controller.port)

    def check(self) -> bool:
        """See the base class."""
        for node in self.nodes:
            node.check()
        return True

    def leader(self, name: str, partition: int) -> Node:
        """Who leads."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
        with Client(self.brokers[0].port) as client:
            (topic,) = client.call(request, METADATA_VERSION).topics
        (leader,) = (each.leader_id for each in topic.partitions if each.partition_index == partition)
        return next(node for node in self.brokers if node.node_id == leader)

    def resident_mib(self) -> float:
        """Mean of the brokers."""
        return statistics.mean(node.resident_bytes() for node in self.brokers) / MEBIBYTE

    def cpu_s(self) -> float:
        """Processor time of brokers and controller so far."""
        return sum(node.cpu_s() for node in self.nodes)

    def wait_at_rest(self, seconds: float = 1.0) -> None:
        """Wait until brokers and controller have worked off what they were asked for, and rest for so long."""

        def is_at_rest() -> bool:
            before = self.cpu_s()
            time.sleep(seconds)
            return self.check() and self.cpu_s() - before < AT_REST * seconds

        wait_until("the cluster is at rest", is_at_rest)

    def tool(self, main: str, *arguments: object) -> str:
        """Run a tool of Kafka's; what it printed."""
        command = [*java("512m", self.controller.logging), main, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_S, check=False)
        if done.returncode:
            raise Unexpected(f"{main} failed: {(done.stdout + done.stderr).strip()[-300:]}")
        return done.stdout

    def stop(self) -> None:
        """See the base class."""
        for node in (*self.brokers, self.controller):
            node.stop(signal.SIGKILL)


class OneProcess(Brokers):
    """``kraftcore up``: brokers and controller in one process, with that command's settings."""

    OPTIONS: ClassVar[Sequence[str]] = ()

    def __init__(self, contender: Contender, parent: Path) -> None:
        super().__init__(contender, parent, neighbouring_ports(len(BROKERS)))
        self._output = self.folder / "up.out"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Run the command, until broker 1 listens."""
        first = self.ports[BROKERS[0]]
        options = {"--brokers": len(BROKERS), "--first-port": first, "--directory": self.folder / "up"}
        settings = [f"--property={key}={value}" for key, value in ONE_PROCESS.items()]
        settings += self.OPTIONS
        command = [*OURS_COMMAND, "up", *(str(part) for option in options.items() for part in option), *settings]
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=end_with_the_driver,
                env=ours_environment(),
            )
        wait_until("broker 1 listens", lambda: self.check() and is_listening(first))
        self.client = Client(first)

    def check(self) -> bool:
        """See the base class."""
        if self._process is None or self._process.poll() is not None:
            raise Unexpected(f"kraftcore up ended: {self._output.read_text(errors='replace')[-300:]}")
        return True

    def stop(self) -> None:
        """See the base class."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class ForkedProcesses(OneProcess):
    """``kraftcore up --processes``: a process each, forked from one."""

    OPTIONS: ClassVar[Sequence[str]] = ("--processes",)

    def stop(self) -> None:
        """See the base class; its own processes are gone at the end, too."""
        if self._process is not None:
            for number in (signal.SIGTERM, signal.SIGINT):  # the second one ends it at once
                self._process.send_signal(number)
            self._process.wait()


class Load:
    """A process of ``load.py``."""

    def __init__(self, cluster: Brokers, work: str, topic: str, options: dict[str, object]) -> None:
        self.what = f"{work} of {topic}"
        arguments = [work, cluster.bootstrap, topic, *(f"{name}={value}" for name, value in options.items())]
        self.errors = (cluster.folder / f"load-{time.monotonic_ns()}.err").open("w+")
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(LOAD), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            preexec_fn=end_with_the_driver,
        )
        cluster.loads.append(self)

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            raise Unexpected(f"{self.what} failed: {self.errors.read().strip()[-300:]}")
        return line

    def wait_ready(self) -> None:
        if self._line() != "ready":
            raise Unexpected(f"{self.what} did not become ready")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._line())
        self.end()
        return found

    def end(self) -> None:
        if self.process.poll() is None and self.process.stdin is not None:
            self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            if stream is not None:
                stream.close()


@contextmanager
def running(contender: Contender, parent: Path) -> Iterator[Cluster]:
    """A cluster that was started."""
    with Cluster(contender, parent) as cluster:
        cluster.start()
        yield cluster


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which this share lies."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
