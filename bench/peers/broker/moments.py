"""Single events of a cluster of brokers: its start, the death of a leader."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from bench.peers.broker.cluster import Brokers, Cluster, ForkedProcesses, Load, OneProcess, running
from bench.peers.broker.sizes import Sizes
from bench.peers.controller.nodes import Contender, ours_environment
from bench.peers.controller.sizes import Found, Sample, events

HEARTBEAT_S = 2.0
"""``broker.heartbeat.interval.ms``: the default, ours and Kafka's."""


def start(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """From the first formatting to the first acknowledged record."""
    took = [started(Cluster(contender, folder)) for _ in range(sizes.trials)]
    yield "start", events(took, "four formatted directories, four processes, a topic, a client, a record with acks=all")


def start_up(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """The same with one process of ours, and Kafka's four."""
    kind, note = (OneProcess, "kraftcore up, one process") if contender.is_ours else (Cluster, "four processes")
    took = [started(kind(contender, folder)) for _ in range(sizes.trials)]
    yield "start-up", events(took, f"{note}; a topic, a client, a record with acks=all")


def start_processes(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """The same with four processes of ours, forked from one."""
    kind, note = (ForkedProcesses, "kraftcore up --processes") if contender.is_ours else (Cluster, "four processes")
    took = [started(kind(contender, folder)) for _ in range(sizes.trials)]
    yield "start-processes", events(took, f"{note}; a topic, a client, a record with acks=all")


def started(brokers: Brokers) -> float:
    """Seconds from nothing to the first acknowledged record."""
    if brokers.contender.is_ours:
        ours_environment()  # makes bytecode, the first time
    with brokers:
        load = Load(brokers, "first", "first", {})
        load.wait_ready()
        begun = time.time()
        brokers.start()
        brokers.topic("first", 1)
        load.go()
        return float(load.result()["at"]) - begun


def failover(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """SIGKILL of a partition's leader under load, to the next acknowledged record, by Kafka's rules."""
    yield "failover", killed(contender, folder, sizes, "broker.session.timeout.ms=6000")


def failover_fast(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """The same where the controller looks whether brokers are there."""
    yield "failover-fast", killed(contender, folder, sizes, contender.settings)


def killed(contender: Contender, folder: Path, sizes: Sizes, settings: str) -> Sample:
    took = []
    for trial in range(sizes.trials):
        # A session counts from the last heartbeat: kills are spread over the time between two.
        settle_s = sizes.settle_s + HEARTBEAT_S * trial / sizes.trials
        with running(contender, folder) as cluster:
            cluster.topic("killed", 1)
            load = Load(cluster, "through", "killed", {"settle": settle_s})
            load.wait_ready()
            leader = cluster.leader("killed", 0)
            killed_at = time.time()
            leader.stop(signal.SIGKILL)
            load.go()
            took.append(load.result()["at"] - killed_at)
    return events(took, f"{settings}, acks=all, a record each 5 ms")
