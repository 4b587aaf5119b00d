"""Three controllers, three unmodified brokers, and clients at work."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka_lab import HOST, KafkaLab, KafkaNode, ToolResult, free_port, wait_for
from kafka_tools import KafkaTools

from drills.load import Load
from drills.verdict import Verdict, check_images

CONTROLLERS, BROKERS = (1, 2, 3), (11, 12, 13)
BROKER_S = 240  # a broker starts, catches up and gets its leaderships back, on a busy machine
CLIENT_S = 300
SECURED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
CONTROLLER = {
    **SECURED,
    "metadata.log.max.record.bytes.between.snapshots": 20_000,
    "kraftcore.offers.log": None,
}
BROKER = {
    **SECURED,
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.sasl.scram-sha-512.sasl.jaas.config": (
        "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    ),
    "auto.create.topics.enable": "false",  # or a deleted topic comes back by itself
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "num.partitions": 3,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.state.log.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "replica.high.watermark.checkpoint.interval.ms": 1000,  # writes there show a dead disk
}


class Cluster:
    """A cluster that operators' commands are tried at: three controllers, three brokers, clients at work.

    Args:
        kafka: Kafka's jars.
        folder: of everything.
        release: whose metadata.version the cluster begins with.
        make: what makes a controller of a lab; None: ``kraftcore server``.
        topics: that clients write to, of six partitions each.
    """

    def __init__(
        self,
        kafka: KafkaTools,
        folder: Path,
        release: str = "4.3",
        make: Callable[[KafkaLab], Callable[..., KafkaNode]] | None = None,
        topics: tuple[str, ...] = ("load-a", "load-b"),
    ) -> None:
        self.kafka = kafka
        self.lab = KafkaLab(kafka, folder)
        self._release = release
        self._make = make
        self._topics = topics
        self.controllers: dict[int, KafkaNode] = {}
        self.brokers: dict[int, KafkaNode] = {}
        self.sasl_ports: dict[int, int] = {}
        self.load: Load

    def __enter__(self) -> Self:
        self.lab.__enter__()
        try:
            self._start()
        except BaseException:
            self.lab.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if hasattr(self, "load"):
            self.load.close()
        self.lab.__exit__(kind, error, traceback)

    def _start(self) -> None:
        lab = self.lab
        make = lab.kraftcore if self._make is None else self._make(lab)
        release = ("--release-version", self._release)
        started = lab.start_quorum(CONTROLLERS, make=make, arguments=release, **CONTROLLER)
        self.controllers = dict(zip(CONTROLLERS, started, strict=True))
        for number in BROKERS:
            self._add_broker(number, release)
        for broker in self.brokers.values():
            broker.wait_listening()
        for topic in self._topics:
            self.make_topic(topic, 6)
        self.load = Load(lab, self.servers)
        for topic in self._topics:
            self.load.add(topic)
        self.load.wait_progress()

    def _add_broker(self, number: int, release: tuple[str, str]) -> None:
        broker = self.lab.broker(number, **BROKER)
        self.sasl_ports[number] = free_port()
        where = f"PLAINTEXT://{broker.address},SASL://{HOST}:{self.sasl_ports[number]}"
        broker.write(
            listeners=where,
            advertised_listeners=where,
            log_dirs=f"{broker.folder},{self.disk_of(broker)}",
            metadata_log_dir=broker.folder,
        )
        broker.format(*release).start()
        self.brokers[number] = broker

    @staticmethod
    def disk_of(broker: KafkaNode) -> Path:
        """A broker's second log directory, without its metadata log."""
        return broker.folder.with_name(f"{broker.name}-disk")

    @property
    def servers(self) -> str:
        """What --bootstrap-server takes."""
        return ",".join(broker.address for broker in self.brokers.values())

    # --- tools --------------------------------------------------------------------------------------------------------

    def try_tool(self, name: str, *arguments: object) -> ToolResult:
        """One of Kafka's tools, at the brokers."""
        return self.lab.tool(name, "--bootstrap-server", self.servers, *arguments)

    def tool(self, name: str, *arguments: object) -> str:
        """The same; it has to succeed, if asked again because brokers were not ready."""
        said: list[ToolResult] = []

        def ask() -> bool:
            said.append(self.try_tool(name, *arguments))
            return said[-1].status == 0

        try:
            wait_for(f"{name} {arguments}", ask)
        except TimeoutError as error:
            error.add_note(str(said[-1]))
            raise
        return said[-1].out

    def run(self, main: str, *arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One of Kafka's clients, in a JVM of its own, until it ends; errors and progress are in its stderr."""
        command = [*self.lab.java(), main, *map(str, arguments)]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=CLIENT_S)

    @contextmanager
    def client(self, main: str, *arguments: object) -> Iterator[Path]:
        """One that goes on until it is enough; gives the file of what it prints."""
        out = self.lab.folder / "client.out"
        with out.open("wb") as to:
            process = subprocess.Popen([*self.lab.java(), main, *map(str, arguments)], stdout=to, stderr=to)
        try:
            yield out
        finally:
            process.kill()
            process.wait()

    def make_topic(self, name: str, partitions: int, *arguments: object) -> None:
        """Create it, three replicas each, once there are brokers for them."""
        known = arguments or ("--replication-factor", 3)
        create = ("--create", "--if-not-exists", "--topic", name, *known)
        if "--replica-assignment" not in known:
            create += ("--partitions", partitions)
        self.tool("topics", *create)

    # --- nodes --------------------------------------------------------------------------------------------------------

    def active(self) -> KafkaNode:
        """The active controller."""
        return self.controllers[wait_for("an active controller", self.lab.describe).leader_id]

    def wait_broker(self, number: int) -> None:
        """Wait until a broker serves, and is in every ISR again."""
        self.brokers[number].wait_listening()
        self.wait_full()

    def wait_full(self) -> None:
        """Wait until every replica is in its ISR, as Kafka's tool says."""

        def full() -> bool:
            done = self.try_tool("topics", "--describe", "--under-replicated-partitions")
            return done.status == 0 and not done.out.strip()

        wait_for("full ISRs", full, timeout_s=BROKER_S)

    # --- what must hold -----------------------------------------------------------------------------------------------

    def check(self) -> Verdict:
        """Everything is as it should be: records, ISRs, images.

        Raises:
            Broken: it is not.
            TimeoutError: it does not come to be.
        """
        self.load.wait_progress()
        told = self.load.check()
        self.wait_full()
        return check_images(self, told)
