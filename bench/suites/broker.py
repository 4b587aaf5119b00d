"""Brokers from outside: three and a controller on loopback under Kafka's tools and librdkafka, Kafka's beside ours."""

from __future__ import annotations

from pathlib import Path

import confluent_kafka  # noqa: F401  (the loads need it: say so before a cluster is made)

from bench.harness import Effort
from bench.peers.broker import moments, rates, sizes, topics
from bench.peers.broker.cluster import CONTENDERS, FAST_FENCING
from bench.scenes import Rounds, Scene, SceneCase, measuring, settings

__all__ = ["cases", "measure", "settings"]

measure = measuring(sizes)
TOPICS = Rounds(topics.play)


def cases(folder: Path, effort: Effort) -> list[SceneCase]:
    """All cases."""
    rows: list[tuple[str, str, Scene | Rounds, str]] = []
    for acks in ("all", "1"):
        for label, size in (("100", "100 B"), ("1k", "1 KB")):
            for count, who in ((1, "a producer"), (rates.MANY, f"{rates.MANY} producers")):
                about = f"records of {size} acknowledged with acks={acks}, {who}"
                name = f"produce-{acks}-{label}/{count}"
                rows.append((name, "records/s", rates.loads, f"{about} of confluent-kafka"))
                if count == 1:
                    rows.append((f"perf-{name}", "records/s", rates.loads, f"{about}, kafka-producer-perf-test"))
    rows += [
        ("consume-100/1", "records/s", rates.loads, "records of 100 B read by a consumer of confluent-kafka"),
        (f"consume-100/{rates.MANY}", "records/s", rates.loads, f"the same by {rates.MANY}, each reads all"),
        ("perf-consume-100/1", "records/s", rates.loads, "the same by kafka-consumer-perf-test, in a group"),
        ("single-p50", "ms", rates.loads, "a record of 100 B with acks=all at a time, confluent-kafka: median"),
        ("single-p99", "ms", rates.loads, "99th percentile of that"),
        ("paced-p50", "ms", rates.loads, "50,000 records/s of 100 B with acks=all, confluent-kafka: median latency"),
        ("paced-p99", "ms", rates.loads, "99th percentile of that"),
        ("memory", "MiB", rates.loads, "resident memory a broker after these loads"),
        ("single-among-p50", "ms", rates.loads, "single-p50 with 1,000 partitions beside it"),
        ("single-among-p99", "ms", rates.loads, "99th percentile of that"),
        ("start", "s", moments.start, "from formatting to the first record acknowledged with acks=all"),
        ("start-up", "s", moments.start_up, "the same of `kraftcore up`, one process, beside Kafka's four"),
        ("start-processes", "s", moments.start_processes, "the same of `kraftcore up --processes`, four processes"),
        ("failover", "s", moments.failover, "SIGKILL of a leader to the next acknowledged record, sessions of 6 s"),
        *topic_rows(),
    ]
    contenders = {contender.name: contender for contender in CONTENDERS}
    found = [SceneCase(name, unit, contenders, about, scene, folder) for name, unit, scene, about in rows]
    about = "the same with kraftcore.fast.fencing.ms=100, which Kafka has not"
    fast = SceneCase("failover-fast", "s", {FAST_FENCING.name: FAST_FENCING}, about, moments.failover_fast, folder)
    return [*found, fast]


def topic_rows() -> list[tuple[str, str, Scene | Rounds, str]]:
    """Of topics made, made again, and opened: both clusters stand at the same time."""
    made = "from CreateTopics to a record taken by the last leader: "
    rows = []
    for width in (1, 64, 1000):
        one = f"one topic of {width} partitions of three replicas"
        rows.append((f"topic-{width}", "ms", TOPICS, f"{made}{one}"))
        rows.append((f"again-{width}", "ms", TOPICS, f"{made}the same, deleted just before"))
    return [
        *rows,
        (topics.MANY, "ms", TOPICS, f"{made}1,000 topics of one partition of three replicas, in one request"),
        (topics.LATE, "ms", TOPICS, f"{made}as again-64, after a hundred such topics were made and deleted"),
        (topics.RESTART, "s", TOPICS, "a broker with 10,000 partitions, from its start to a record taken by the last"),
    ]
