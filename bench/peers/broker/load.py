"""A client of confluent-kafka in a process of its own: ``load.py WORK BOOTSTRAP TOPIC OPTION=VALUE...``.

It says ``ready``, begins at the line ``go``, and ends with one JSON object. Where many records are sent or read, no
Python is run for each of them: what is measured is brokers, not the interpreter that loads them.

produce: as fast as it can, for ``warm`` and then ``seconds``. fill: so many ``records``.
consume: ``records`` from the beginning of all partitions. single: one record, its acknowledgement, the next.
paced: ``rate`` records a second; latency of one in ten. first: connects after ``go``; when one record was acknowledged.
through: a record each 5 ms for ``settle`` seconds, and on from ``go``; when the first made since was acknowledged.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

QUEUE = 100_000
BATCH = 200
SAMPLE = 10
TICK_S = 0.001
THROUGH_S = 0.005
FLUSH_S = 120.0
READY_S = 60.0
PATIENT = {"message.timeout.ms": 120_000, "request.timeout.ms": 30_000}
EAGER = {
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 50,
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.interval.ms": 20,
}
"""Of a producer whose own pauses are not to be measured: without the last it asks once a second who leads now."""

UNREPORTED = {"delivery.report.only.error": True}
"""Of a producer that counts what it has not heard of yet, instead of being told of each record."""

READER = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}
"""Of a consumer that reads what is there: by default it makes pauses of a second when 100,000 records wait in it."""


def main(work: str, bootstrap: str, topic: str, *options: str) -> None:
    given = dict(option.split("=", 1) for option in options)
    print(json.dumps(WORKS[work](bootstrap, topic, given)), flush=True)


def wait_for_go() -> None:
    print("ready", flush=True)
    if sys.stdin.readline().strip() != "go":
        sys.exit("nobody said go")


def failed(error: KafkaError | None) -> None:
    if error is not None:
        sys.exit(f"a record was not taken: {error}")


def producer(bootstrap: str, given: dict[str, str], **more: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": given.get("acks", "all"),
            "enable.idempotence": given.get("idempotence", "false"),
            "queue.buffering.max.messages": QUEUE,
            **PATIENT,
            **more,
        }
    )


def connect(client: Producer | Consumer, topic: str) -> list[int]:
    """Wait until all partitions of a topic have leaders; their numbers."""
    end = time.monotonic() + READY_S
    while True:
        try:
            found = client.list_topics(topic, timeout=5).topics[topic]
            if found.error is None and found.partitions and all(p.leader >= 0 for p in found.partitions.values()):
                return sorted(found.partitions)
        except KafkaException:
            pass
        if time.monotonic() > end:
            sys.exit(f"topic {topic} has no leaders after {READY_S:g} s")
        time.sleep(0.005)


def produce(bootstrap: str, topic: str, given: dict[str, str]) -> dict[str, Any]:
    client = producer(bootstrap, given, **UNREPORTED)
    batch = [{"value": os.urandom(int(given["size"]))}] * BATCH
    sent = 0
    connect(client, topic)
    wait_for_go()
    begin = time.monotonic()
    counting = begin + float(given["warm"])
    end = counting + float(given["seconds"])
    at_begin: tuple[float, int] | None = None
    while True:
        now = time.monotonic()
        if at_begin is None and now >= counting:
            at_begin = now, sent - len(client)
        if now >= end:
            break
        sent += put(client, topic, batch)
    assert at_begin is not None
    seconds, records = now - at_begin[0], sent - len(client) - at_begin[1]
    drain(client)
    return {"seconds": seconds, "records": records, "processor_s": processor_s()}


def put(client: Producer, topic: str, batch: list[dict[str, Any]]) -> int:
    """Send these, or wait a little if there is no room for them; how many were sent."""
    client.poll(0)
    if len(client) + len(batch) > QUEUE:
        client.poll(TICK_S)
        return 0
    count = client.produce_batch(topic, batch, on_delivery=lambda error, _: failed(error))
    if count < len(batch):
        sys.exit(f"{len(batch) - count} of {len(batch)} records were not queued")
    return int(count)


def processor_s() -> float:
    """What this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def fill(bootstrap: str, topic: str, given: dict[str, str]) -> dict[str, Any]:
    client = producer(bootstrap, given, **UNREPORTED)
    record, left = {"value": os.urandom(int(given["size"]))}, int(given["records"])
    connect(client, topic)
    wait_for_go()
    while left:
        left -= put(client, topic, [record] * min(BATCH, left))
    drain(client)
    return {}


def drain(client: Producer) -> None:
    left = client.flush(FLUSH_S)
    if left:
        sys.exit(f"{left} records were not acknowledged after {FLUSH_S:g} s")


def consume(bootstrap: str, topic: str, given: dict[str, str]) -> dict[str, Any]:
    own = {"bootstrap.servers": bootstrap, "group.id": f"bench-{os.getpid()}", "enable.auto.commit": False}
    client = Consumer({**own, **READER})
    partitions = connect(client, topic)
    wanted, found, size = int(given["records"]), 0, 0
    wait_for_go()
    begin = time.monotonic()
    client.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
    while found < wanted:
        messages = client.consume(min(10_000, wanted - found), 30)
        if not messages:
            sys.exit(f"only {found} of {wanted} records came")
        size += sum(map(len, messages))
        found += len(messages)
    seconds = time.monotonic() - begin
    client.close()
    if size != found * int(given["size"]):
        sys.exit(f"{found} records of {given['size']} bytes came with {size} bytes: some are errors")
    return {"seconds": seconds, "records": found, "bytes": size, "processor_s": processor_s()}


def single(bootstrap: str, topic: str, given: dict[str, str]) -> dict[str, Any]:
    client = producer(bootstrap, given, **{"linger.ms": 0})
    value = os.urandom(int(given["size"]))
    connect(client, topic)
    wait_for_go()
    latencies: list[float] = []
    counting = time.monotonic() + float(given["warm"])
    end = counting + float(given["seconds"])
    while (begin := time.perf_counter()) and time.monotonic() < end:
        answered: list[KafkaError | None] = []
        client.produce(topic, value, on_delivery=lambda error, _, answered=answered: answered.append(error))
        while not answered:
            client.poll(1)
        failed(answered[0])
        if time.monotonic() >= counting:
            latencies.append(time.perf_counter() - begin)
    return latencies_of(latencies)


def latencies_of(found: list[float]) -> dict[str, Any]:
    if not found:
        sys.exit("nothing was acknowledged in the time measured")
    return {"latencies_s": found}


def paced(bootstrap: str, topic: str, given: dict[str, str]) -> dict[str, Any]:
    client = producer(bootstrap, given)
    value, rate = os.urandom(int(given["size"])), float(given["rate"])
    latencies: list[float] = []
    connect(client, topic)
    wait_for_go()
    begin = time.monotonic()
    counting = begin + float(given["warm"])
    end = counting + float(given["seconds"])
    sent = 0

    def delivered(error: KafkaError | None, message: Any) -> None:
        failed(error)
        if time.monotonic() >= counting:
            latencies.append(message.latency())

    some = [{"value": value} for _ in range(SAMPLE - 1)] + [{"value": value, "callback": delivered}]
    while (now := time.monotonic()) < end:
        due = int((now - begin) * rate / SAMPLE)
        count = (due - sent) * SAMPLE
        if count + len(client) > QUEUE:
            sys.exit(f"{QUEUE} records wait: {rate:g} a second are too many")
        if client.produce_batch(topic, some * (due - sent)) < count:
            sys.exit("a record was not queued")
        sent = due
        client.poll(TICK_S)
    drain(client)
    return latencies_of(latencies)


def first(bootstrap: str, topic: str, given: dict[str, str]) -> dict[str, Any]:
    wait_for_go()
    client = producer(bootstrap, given, **{"linger.ms": 0}, **EAGER)
    connect(client, topic)
    answered: list[KafkaError | None] = []
    client.produce(topic, b"first", partition=0, on_delivery=lambda error, _: answered.append(error))
    while not answered:
        client.poll(0.1)
    failed(answered[0])
    return {"at": time.time()}


def through(bootstrap: str, topic: str, given: dict[str, str]) -> dict[str, Any]:
    client = producer(bootstrap, given, **{"linger.ms": 0}, **EAGER)
    connect(client, topic)
    acknowledged: list[float] = []
    end = time.monotonic() + float(given["settle"])
    while time.monotonic() < end:
        client.produce(topic, b"before", partition=0, on_delivery=lambda error, _: failed(error))
        client.poll(THROUGH_S)
    wait_for_go()

    def delivered(error: KafkaError | None, _: object) -> None:
        failed(error)
        acknowledged.append(time.time())

    while not acknowledged:
        client.produce(topic, b"after", partition=0, on_delivery=delivered)
        client.poll(THROUGH_S)
    drain(client)
    return {"at": acknowledged[0]}


WORKS: dict[str, Callable[[str, str, dict[str, str]], dict[str, Any]]] = {
    "produce": produce,
    "fill": fill,
    "consume": consume,
    "single": single,
    "paced": paced,
    "first": first,
    "through": through,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
