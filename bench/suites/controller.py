"""Controllers from outside: admin requests and scripted brokers on the controller's own port, Kafka's beside ours.

Cases that share a cluster are a scene. Each scene starts a fresh one of every contender, one after the other.
"""

from __future__ import annotations

from pathlib import Path

from bench.harness import Effort
from bench.peers.controller import loops, moments, sizes
from bench.peers.controller.nodes import CONTENDERS
from bench.peers.controller.sizes import Scene
from bench.scenes import SceneCase, measuring, settings

__all__ = ["cases", "measure", "settings"]

measure = measuring(sizes)


def cases(folder: Path, effort: Effort) -> list[SceneCase]:
    """All cases."""
    one = "CreateTopics of one topic of one partition, a connection with one request in flight each: "
    rows: list[tuple[str, str, Scene, str]] = [
        ("create-topic-1/1", "topics/s", loops.create_topics, f"{one}one connection"),
        ("create-topic-1/16", "topics/s", loops.create_topics, f"{one}16 connections"),
        ("create-topic-1/64", "topics/s", loops.create_topics, f"{one}64 connections"),
        ("create-topics-1000", "topics/s", moments.bulk, "1,000 such topics in a request, one request at a time"),
        ("create-topic-9999p", "partitions/s", moments.bulk, "a topic of 9,999 partitions, placed by the controller"),
        ("alter-partition/16", "partitions/s", loops.alter_partitions, "one ISR changed a request, 16 in flight"),
        ("alter-partition-1000", "partitions/s", loops.alter_partitions, "1,000 ISRs changed a request, one in flight"),
        ("configs/16", "requests/s", loops.set_configs, "one topic's retention.ms set a request, 16 in flight"),
        (
            "heartbeats",
            "heartbeats/s",
            loops.heartbeats,
            "100 brokers, one heartbeat in flight each; nothing written",
        ),
        (
            "observers-100",
            "topics/s",
            loops.observed,
            "create-topic-1/16 while 100 observers read the log's end",
        ),
        (
            "fence",
            "ms",
            moments.fence,
            "the leader of 9,998 partitions is fenced, to the last change read",
        ),
        ("fence-return", "ms", moments.fence, "it is unfenced, gets into all ISRs, and is elected everywhere again"),
        ("fence-elect", "ms", moments.fence, "the election in fence-return"),
        (
            "restart-log/100k",
            "ms",
            moments.restart,
            "start with 100,000 partitions, to the first topic made",
        ),
        ("failover/100k", "ms", moments.failover, "SIGKILL of the active one of three, to the first topic made"),
        ("load-1m", "s", moments.load, "a million partitions made, 9,000 a request"),
        ("load-1m-memory", "MiB", moments.load, "memory resident after that"),
    ]
    contenders = {contender.name: contender for contender in CONTENDERS}
    return [SceneCase(name, unit, contenders, about, scene, folder) for name, unit, scene, about in rows]
