"""Three brokers and a controller as processes on loopback, Kafka's or ours, from the same properties."""

from __future__ import annotations

import json
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import OURS
from bench.peers.controller.nodes import LOGGING, MEBIBYTE, Contender, Node, is_listening, java, wait_until
from bench.peers.controller.wire import HOST, Client, Topic, Unexpected, create
from bench.peers.nodes.cluster import end_with_the_driver, free_ports
from kraftcore.core.uuid import Uuid
from kraftcore.protocol.messages.metadata import MetadataRequest

CONTROLLER, BROKERS = 100, (1, 2, 3)
LOAD = Path(__file__).with_name("load.py")
LOAD_S = 600.0
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
FAST_FENCING = Contender(OURS, {"kraftcore.fast.fencing.ms": 100}, "kraftcore.fast.fencing.ms=100")


class Cluster:
    """Stopped at first; gone at the end.

    Attributes:
        controller: the only one.
        brokers: all three.
    """

    def __init__(self, contender: Contender, parent: Path) -> None:
        self.contender = contender
        self.folder = parent / f"{contender.name}-{time.monotonic_ns()}"
        self.folder.mkdir()
        self.loads: list[Load] = []
        ports = free_ports(4)
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
        """Format all directories, one after the other, and start all processes."""
        cluster_id = str(Uuid.random())
        for node in self.nodes:
            node.format(cluster_id, "--standalone" if node is self.controller else "--no-initial-controllers")
        for node in self.nodes:
            node.start()
        wait_until("the controller listens", lambda: self._checked() and is_listening(self.controller.port))
        self.client = Client(self.controller.port)

    def _checked(self) -> bool:
        for node in self.nodes:
            node.check()
        return True

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{node.port}" for node in self.brokers)

    def topic(self, name: str, partitions: int) -> None:
        """Make a topic of three replicas, as soon as the brokers are there; every broker knows it at the end."""

        def made() -> bool:
            self._checked()
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

        def is_known(node: Node) -> bool:
            self._checked()
            request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
            try:
                with Client(node.port, 10) as client:
                    (topic,) = client.call(request, METADATA_VERSION).topics
            except OSError:
                return False
            found = [each for each in topic.partitions if len(each.isr_nodes) == 3 and each.leader_id >= 0]
            return len(found) == partitions

        for node in self.brokers:
            wait_until(f"broker {node.node_id} knows all of {name}", lambda node=node: is_known(node), every_s=0.01)  # type: ignore[misc]

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

    # --- loads --------------------------------------------------------------------------------------------------------

    def load(self, work: str, topic: str, count: int = 1, **options: object) -> list[dict[str, Any]]:
        """Run so many clients at the same time, begun together; what each found."""
        clients = [Load(self, work, topic, options) for _ in range(count)]
        for client in clients:
            client.wait_ready()
        for client in clients:
            client.go()
        return [client.result() for client in clients]

    def tool(self, main: str, *arguments: object) -> str:
        """Run a tool of Kafka's; what it printed."""
        command = [*java("512m", self.controller.logging), main, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_S, check=False)
        if done.returncode:
            raise Unexpected(f"{main} failed: {(done.stdout + done.stderr).strip()[-300:]}")
        return done.stdout

    def close(self) -> None:
        for load in self.loads:
            load.end()
        if hasattr(self, "client"):
            self.client.close()
        for node in (*self.brokers, self.controller):
            node.stop(signal.SIGKILL)
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Load:
    """A process of ``load.py``."""

    def __init__(self, cluster: Cluster, work: str, topic: str, options: dict[str, object]) -> None:
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
