"""Single events of a cluster of brokers: its start, the death of a leader."""

from __future__ import annotations

import signal
import time
from pathlib import Path

from bench.peers.broker.cluster import Cluster, Load, running
from bench.peers.broker.sizes import Sizes
from bench.peers.controller.nodes import Contender
from bench.peers.controller.sizes import Found, Sample, events

HEARTBEAT_S = 2.0
"""``broker.heartbeat.interval.ms``: the default, ours and Kafka's."""


def start(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """From the first formatting to the first acknowledged record."""
    took = []
    for _ in range(sizes.trials):
        with Cluster(contender, folder) as cluster:
            load = Load(cluster, "first", "first", {})
            load.wait_ready()
            begun = time.time()
            cluster.start()
            cluster.topic("first", 1)
            load.go()
            took.append(load.result()["at"] - begun)
    yield "start", events(took, "four formatted directories, four processes, a topic, a client, a record with acks=all")


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
