"""The peers by name: how each is built, how its nodes are started, and with what settings."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from bench import builds
from bench.harness import OURS
from bench.peers.nodes.cluster import Cluster, Command, Place

SOURCES = Path(__file__).parent
PYSYNCOBJ = "pysyncobj==0.3.17"
LEASE_MS = 1000
READ_CASES = frozenset({"read-1", "read-64", "read-lease-1", "read-lease-64"})
Purpose = Literal["load", "lease", "failover", "idle"]


@dataclass(frozen=True)
class Built:
    """What a build left: the nodes' command line, and the environment they need besides the driver's."""

    command: Command
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Peer:
    """A replicated log that takes part.

    Attributes:
        build: makes it, or finds it made. Raises Missing with what to install.
        settings: what a reader must know about the figures.
    """

    name: str
    build: Callable[[Purpose], Built]
    settings: str
    skips: frozenset[str] = frozenset()

    def start(self, purpose: Purpose, parent: Path) -> Cluster:
        """Start a cluster below a folder.

        Raises:
            Missing: it cannot be built or does not start.
        """
        built = self.build(purpose)
        return self._cluster_class()(built.command, built.environment, parent)

    def _cluster_class(self) -> type[Cluster]:
        return Cluster


class KafkaPeer(Peer):
    """Kafka is watched from outside; it does not speak the driver's protocol."""

    def _cluster_class(self) -> type[Cluster]:
        from bench.peers.nodes.kafka import KafkaCluster

        return KafkaCluster


def _options(place: Place) -> list[str]:
    peers = ",".join(place.peers)
    return [f"--id={place.index}", f"--peers={peers}", f"--control={place.control}", f"--dir={place.folder}"]


def _go(name: str) -> Path:
    (go,) = builds.tools(["go"], "install Go 1.26 or newer")
    source = SOURCES / "go" / name

    def fill(folder: Path) -> None:
        builds.run([go, "build", "-trimpath", "-o", folder / name, "."], f"go build of {name}", source)

    return builds.make(name, [source, SOURCES / "go" / "control"], fill) / name


def hashicorp(store: str, purpose: Purpose) -> Built:
    """Build hashicorp/raft with one of its stores."""
    program = str(_go("hashicorp"))
    return Built(lambda place: [program, *_options(place), f"--store={store}"])


def etcd(purpose: Purpose) -> Built:
    """Build embedded etcd."""
    program = str(_go("etcd"))
    return Built(lambda place: [program, *_options(place), f"--client={place.client}"])


def openraft(purpose: Purpose) -> Built:
    """Build openraft."""
    (cargo,) = builds.tools(["cargo"], "install Rust 1.85 or newer with its cargo (rustup.rs)")
    source = SOURCES / "openraft"

    def fill(folder: Path) -> None:
        target = builds.CACHE / "openraft-target"  # kept, so that a change compiles one crate and not two hundred
        command: list[str | Path] = [cargo, "build", "--release", "--locked", "--target-dir", target]
        builds.run(command, "cargo build of openraft", source)
        shutil.copy2(target / "release" / "openraft-node", folder)

    ingredients = [source / "src", source / "Cargo.toml", source / "Cargo.lock"]
    program = str(builds.make("openraft", ingredients, fill) / "openraft-node")
    return Built(lambda place: [program, str(place.index), ",".join(place.peers), place.control, str(place.folder)])


def pysyncobj(flags: tuple[str, ...], purpose: Purpose) -> Built:
    """Fetch PySyncObj from the package index."""

    def fill(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder), PYSYNCOBJ]
        builds.run(command, f"pip install {PYSYNCOBJ}")

    packages = builds.make("pysyncobj", [PYSYNCOBJ], fill)
    path = os.pathsep.join(filter(None, (str(packages), os.environ.get("PYTHONPATH"))))
    program = [sys.executable, "-m", "bench.peers.nodes.pysyncobj_node"]
    return Built(lambda place: [*program, *_options(place), *flags], {"PYTHONPATH": path})


def kafka(purpose: Purpose) -> Built:
    """Fetch Kafka's jars; a node is one JVM."""
    from bench.peers.nodes import kafka as node

    (java,) = builds.tools(["java"], "install a JDK (17 or newer)")
    pom = SOURCES / "kafka" / "pom.xml"
    jars = builds.make("kafka-raft", [pom], lambda folder: builds.copy_jars(pom, folder))
    rates = {"load": node.RATE, "lease": node.RATE, "failover": node.FAILOVER_RATE, "idle": node.IDLE_RATE}
    return Built(node.KafkaCommand(java, f"{jars}/*", rates[purpose]))


def kraftcore(purpose: Purpose) -> Built:
    """Ours is installed already."""
    program = [sys.executable, "-m", "bench.peers.nodes.kraftcore_node"]
    found_here = {"PYTHONSAFEPATH": ""}  # the bench lies in the folder that nodes run in
    more = [f"--lease={LEASE_MS}"] if purpose == "lease" else []
    return Built(lambda place: [*program, *_options(place), *more], found_here)


PYSYNCOBJ_TEXT = "election timeout 0.4 to 1.4 s; "
PEERS = (
    Peer(
        OURS,
        kraftcore,
        "defaults (fast failover, election timeout 1 to 2 s), log.preallocate, as raft-wal does, and Python's "
        f"gc.set_threshold(20_000, 50, 100); read-lease: kraftcore.leader.lease.ms={LEASE_MS}",
    ),
    Peer(
        "hashicorp-wal",
        partial(hashicorp, "wal"),
        "hashicorp/raft 1.7.3, raft-wal: an fsync per StoreLogs batch; heartbeat and election timeout 1 s",
        skips=READ_CASES,
    ),
    Peer(
        "hashicorp-boltdb",
        partial(hashicorp, "boltdb"),
        "hashicorp/raft 1.7.3, raft-boltdb v2: two fdatasyncs per StoreLogs batch; heartbeat and election timeout 1 s",
        skips=READ_CASES,
    ),
    Peer(
        "etcd-embed-inproc",
        etcd,
        "etcd 3.7.3, client in the leader's process without gRPC; heartbeat 100 ms, election timeout 1 s; "
        "a batch is a transaction; read-lease: serializable reads, which may be outdated",
    ),
    Peer(
        "openraft",
        openraft,
        "openraft 0.9.25; heartbeat 50 ms, election timeout 150 to 300 ms; log store and TCP are this benchmark's, "
        "an fdatasync per batch",
        skips=READ_CASES,
    ),
    Peer(
        "pysyncobj-journal",
        partial(pysyncobj, ("--batch",)),
        PYSYNCOBJ_TEXT + "defaults: entries wait for a 50 ms tick; NOT durable: the journal is never flushed",
        skips=READ_CASES,
    ),
    Peer(
        "pysyncobj-journal-nobatch",
        partial(pysyncobj, ()),
        PYSYNCOBJ_TEXT + "appendEntriesUseBatch off; NOT durable: the journal is never flushed",
        skips=READ_CASES,
    ),
    Peer(
        "pysyncobj-journal-msync-nobatch",
        partial(pysyncobj, ("--msync",)),
        PYSYNCOBJ_TEXT + "appendEntriesUseBatch off; durable by a patch of ours: msync after each entry",
        skips=READ_CASES,
    ),
    KafkaPeer(
        "kafka-raft",
        kafka,
        "Kafka 4.3.1, TestRaftServer: its own generator appends 400,000 records/s; linger 25 ms; "
        "its latency histogram ends at 250 ms",
        skips=READ_CASES | {"commit-1", "commit-1-p50", "commit-64", "commit-1024", "soak"},
    ),
)
"""All of them, ours first."""
