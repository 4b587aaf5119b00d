"""Rates and latencies of a cluster of brokers, and its memory after them."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.peers.broker.cluster import Cluster, percentile, running
from bench.peers.broker.sizes import Sizes
from bench.peers.controller.nodes import MEBIBYTE, Contender
from bench.peers.controller.sizes import Found, Sample
from bench.peers.controller.wire import Unexpected

PERF = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER_PERF = "org.apache.kafka.tools.ConsumerPerformance"
PARTITIONS = 6
MANY = 8
FILLED = "filled"
SENT = re.compile(r"^\d+ records sent, ([\d.]+) records/sec", re.MULTILINE)


def loads(contender: Contender, folder: Path, sizes: Sizes, wanted: set[str]) -> Found:
    """Everything that can be asked of one cluster, in this order."""
    with running(contender, folder) as cluster:
        cluster.topic("warm", PARTITIONS)
        cluster.load("produce", "warm", size=100, warm=0, seconds=sizes.first_warm_s)
        for acks in ("all", "1"):
            for label, size in (("100", 100), ("1k", 1000)):
                for count in (1, MANY):
                    name = f"produce-{acks}-{label}/{count}"
                    if name in wanted:
                        yield name, tried(produced, cluster, sizes, acks, size, count)
                    if f"perf-{name}" in wanted:
                        yield f"perf-{name}", tried(performed, cluster, sizes, acks, size)
        if any(name.startswith(("consume", "perf-consume")) for name in wanted):
            yield from consumed(cluster, sizes, wanted)
        yield from latencies(cluster, sizes, wanted)
        if "memory" in wanted:
            time.sleep(1.0)
            mebibytes = cluster.resident_mib()
            controller = cluster.controller.resident_bytes() / MEBIBYTE
            yield "memory", Sample([mebibytes], 1, f"resident after these loads; the controller {controller:.0f} MiB")
        yield from latencies(cluster, sizes, wanted, among=sizes.among)


def tried(case: Callable[..., Sample], *arguments: object) -> Sample | Exception:
    """What a case gives, or why it does not: the others on this cluster are measured all the same."""
    try:
        return case(*arguments)
    except (Unexpected, subprocess.TimeoutExpired) as reason:
        return reason


def make_ready(cluster: Cluster, sizes: Sizes) -> None:
    """Before a load that writes: the disk has what earlier ones wrote, and memory is in use.

    The kernel holds back whoever writes while much is to be written: a load would be charged for the one before it.
    """
    if sizes.uses_memory:
        os.sync()
        cluster.memory.use()


def fresh(cluster: Cluster, partitions: int = PARTITIONS) -> str:
    """A new topic's name; it is made, and all are in sync."""
    name = f"bench-{time.monotonic_ns()}"
    cluster.topic(name, partitions)
    return name


def produced(cluster: Cluster, sizes: Sizes, acks: str, size: int, count: int) -> Sample:
    """Records acknowledged by producers of confluent-kafka that send as fast as they can."""
    topic = fresh(cluster)
    make_ready(cluster, sizes)
    before = cluster.cpu_s()
    found = cluster.load("produce", topic, count, acks=acks, size=size, warm=sizes.warm_s, seconds=sizes.measure_s)
    rate = sum(each["records"] / each["seconds"] for each in found)
    if not rate:
        raise Unexpected(f"nothing was acknowledged in {sizes.measure_s:g} s")
    seconds = sizes.warm_s + sizes.measure_s
    used = (cluster.cpu_s() - before) / seconds
    note = (
        f"{rate * size / 1e6:.1f} MB/s; the cluster took {used:.2f} processors, {used / rate * 1e6:.2f} us a record,"
        f" clients {used_by(found) / seconds:.2f} processors"
    )
    return Sample([1 / rate], sum(each["records"] for each in found), note)


def used_by(clients: Iterable[dict[str, Any]]) -> float:
    """Seconds of a processor that clients took, their start included."""
    return sum(each["processor_s"] for each in clients)


def performed(cluster: Cluster, sizes: Sizes, acks: str, size: int) -> Sample:
    """The same by Kafka's tool, with its defaults."""
    records, topic = sizes.perf_records if size == 100 else sizes.perf_records // 10, fresh(cluster)
    make_ready(cluster, sizes)
    before = cluster.cpu_s()
    out = cluster.tool(
        PERF,
        *("--topic", topic, "--num-records", records, "--record-size", size, "--throughput", -1),
        *("--producer-props", f"bootstrap.servers={cluster.bootstrap}", f"acks={acks}"),
    )
    rates = SENT.findall(out)
    if not rates:
        raise Unexpected(f"{PERF} printed no rate: {out[-200:]}")
    # The last line is the sum of the run; those before are of five seconds each.
    rate = float(rates[-1])
    used = (cluster.cpu_s() - before) / records * 1e6
    note = f"{rate * size / 1e6:.1f} MB/s, {used:.2f} us of processor a record, the tool's warming up included"
    return Sample([1 / rate], records, note)


def consumed(cluster: Cluster, sizes: Sizes, wanted: set[str]) -> Found:
    """One and eight consumers read all partitions from the beginning."""
    fill(cluster, sizes.consumed)
    for count in (1, MANY):
        name = f"consume-100/{count}"
        if name in wanted:
            yield name, tried(read, cluster, sizes, count)
    if "perf-consume-100/1" in wanted:
        yield "perf-consume-100/1", tried(read_in_a_group, cluster, sizes)


def read(cluster: Cluster, sizes: Sizes, count: int) -> Sample:
    """Consumers of confluent-kafka, without a group."""
    before = cluster.cpu_s()
    found = cluster.load("consume", FILLED, count, records=sizes.consumed, size=100)
    records = sum(each["records"] for each in found)
    used = (cluster.cpu_s() - before) / records * 1e6
    rate = records / max(each["seconds"] for each in found)
    note = (
        f"{rate / 1e4:.1f} MB/s of values, {used:.2f} us of processor a record, clients"
        f" {used_by(found) / records * 1e6:.2f} us"
    )
    return Sample([1 / rate], records, note)


def read_in_a_group(cluster: Cluster, sizes: Sizes) -> Sample:
    """Kafka's tool."""
    out = cluster.tool(
        CONSUMER_PERF,
        *("--bootstrap-server", cluster.bootstrap, "--topic", FILLED),
        *("--messages", sizes.consumed, "--hide-header", "--timeout", 60_000),
    )
    rate = float(out.strip().splitlines()[-1].split(",")[-1])
    return Sample([1 / rate], sizes.consumed, "without the joining of its group")


def fill(cluster: Cluster, records: int) -> None:
    cluster.topic(FILLED, PARTITIONS)
    cluster.load("fill", FILLED, size=100, records=records)


def latencies(cluster: Cluster, sizes: Sizes, wanted: set[str], *, among: int = 0) -> Found:
    """One record at a time, and a steady half of what Kafka takes here; or one at a time among many partitions."""
    one = "one record of 100 B at a time"
    alone = [("single", "single", 1, one), ("paced", "paced", PARTITIONS, f"{sizes.rate} records/s of 100 B")]
    for name, load, partitions, about in (
        [("single-among", "single", 1, f"{one}, {among} partitions beside it")] if among else alone
    ):
        cases = [(f"{name}-p50", 0.5), (f"{name}-p99", 0.99)]
        if not any(case in wanted for case, _ in cases):
            continue
        rate = {"rate": sizes.rate} if load == "paced" else {}
        try:
            make_many(cluster, among)
            times = {"warm": sizes.warm_s, "seconds": sizes.measure_s, "size": 100}
            (found,) = cluster.load(load, fresh(cluster, partitions), **times, **rate)
        except Unexpected as reason:
            yield from ((case, reason) for case, _ in cases if case in wanted)
            continue
        values = found["latencies_s"]
        for case, share in cases:
            if case in wanted:
                yield case, Sample([percentile(values, share)], len(values), f"acks=all, {about}")


def make_many(cluster: Cluster, partitions: int) -> None:
    """So many partitions more, in topics of a hundred; at rest when this returns."""
    for _ in range(partitions // 100):
        fresh(cluster, 100)
    if partitions:
        cluster.wait_at_rest()
