"""Brokers of Kafka and ours in one cluster, killed, frozen and stopped while a producer writes: nothing is lost.

Replication factor 3, min.insync.replicas 2, acks=all; one broker at a time, so that no promise may be broken.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from asked_brokers import described, log_bytes
from broken import Broken
from confluent_kafka import KafkaException, Producer
from kafka_lab import KafkaLab, KafkaNode, KraftcoreNode, wait_for
from kafka_tools import KafkaTools

from kraftcore.core.batch import iter_batches

TOPIC, PARTITIONS = "t", 3
THEIRS, OURS = 11, (12, 13)
SESSION_MS = 3000
FROZEN_S = 5.0
PATIENCE_S = 180
QUICK = {"broker_heartbeat_interval_ms": 200, "replica_lag_time_max_ms": 3000, "log_initial_task_delay_ms": 200}


@dataclass(frozen=True)
class MixedVerdict:
    """What was looked at, and found to hold.

    Attributes:
        rounds: of faults.
        records: acknowledged, and found at their offsets in every broker's log.
    """

    rounds: int
    records: int

    def __str__(self) -> str:
        return f"{self.rounds} rounds, {self.records} acknowledged records, all in the logs of all brokers"


class Load:
    """A producer at work in a thread; what it was told is kept."""

    def __init__(self, places: str) -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        self._producer = Producer(
            {
                "bootstrap.servers": places,
                "acks": "all",
                "enable.idempotence": True,
                "delivery.timeout.ms": PATIENCE_S * 1000,
                "log_level": 0,
            }
        )
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.is_set():
            try:
                self._producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._told)
            except BufferError:
                pass
            else:
                number += 1
            self._producer.poll(0.002)

    def _told(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.partition(), message.offset()] = message.value()

    def end(self) -> None:
        """Write no more, and wait for what is on its way."""
        self._is_over.set()
        self._thread.join()
        try:
            self._producer.flush(PATIENCE_S)
        except KafkaException as error:
            raise Broken(f"the producer failed: {error}") from error


def mixed_rounds(kafka: KafkaTools, folder: Path, rounds: int, seed: int, *, is_ours: bool) -> MixedVerdict:
    """Have faults at one broker after the other.

    Args:
        kafka: where Kafka is.
        folder: for everything.
        rounds: how many.
        seed: draws who, and what.
        is_ours: the controller is of ours.

    Raises:
        Broken: something acknowledged is not in a broker's log, or the logs differ.
    """
    draw = Random(seed)
    with KafkaLab(kafka, folder) as lab:
        make = lab.kraftcore if is_ours else None
        only_ours = {"kraftcore_offers_log": None} if is_ours else {}
        lab.start_quorum([1], make=make, broker_session_timeout_ms=SESSION_MS, **only_ours)
        brokers = [lab.broker(THEIRS, **QUICK)]
        brokers += [lab.add(KraftcoreNode, number, "broker", "PLAINTEXT", **QUICK) for number in OURS]
        for broker in brokers:
            broker.format().start()
        for broker in brokers:
            broker.wait_listening()
        _make_topic(lab, brokers[0])
        load = Load(",".join(broker.address for broker in brokers))
        try:
            for number in range(rounds):
                victim, fault = draw.choice(brokers), draw.choice(FAULTS)
                others = [each for each in brokers if each is not victim]
                fault(victim, others[0])
                before = len(load.acknowledged)
                what = f"round {number}, {fault.__name__} of {victim.name}"
                wait_for(f"all in sync after {what}", lambda others=others: _is_whole(others[0]), timeout_s=PATIENCE_S)
                wait_for(
                    f"progress after {what}",
                    lambda before=before: len(load.acknowledged) > before,
                    timeout_s=PATIENCE_S,
                )
        finally:
            load.end()
        return MixedVerdict(rounds, _check(brokers, load.acknowledged))


def _kill(victim: KafkaNode, other: KafkaNode) -> None:
    victim.kill()
    wait_for("the others to go on", lambda: _is_led_by_others(victim, other), timeout_s=PATIENCE_S)
    victim.start()


def _stop(victim: KafkaNode, other: KafkaNode) -> None:
    victim.stop()
    victim.start()


def _freeze(victim: KafkaNode, other: KafkaNode) -> None:
    """Its session ends; it believes to lead still when it wakes up."""
    victim.signal(signal.SIGSTOP)
    time.sleep(FROZEN_S)
    victim.signal(signal.SIGCONT)


FAULTS: tuple[Callable[[KafkaNode, KafkaNode], None], ...] = (_kill, _stop, _freeze)


def _make_topic(lab: KafkaLab, broker: KafkaNode) -> None:
    numbers = [THEIRS, *OURS]
    placed = ",".join(":".join(map(str, numbers[at:] + numbers[:at])) for at in range(PARTITIONS))
    arguments = ("--create", "--topic", TOPIC, "--replica-assignment", placed, "--config", "min.insync.replicas=2")
    tool = ("topics", "--bootstrap-server", broker.address, *arguments)
    wait_for("a topic", lambda: lab.tool(*tool).status == 0)
    wait_for("all to be in sync", lambda: _is_whole(broker))


def _is_whole(node: KafkaNode) -> bool:
    found = described(node, TOPIC)
    return len(found) == PARTITIONS and all(len(isr) == 3 and leader >= 0 for leader, isr in found.values())


def _is_led_by_others(victim: KafkaNode, other: KafkaNode) -> bool:
    number = int(str(victim.properties["node.id"]))
    found = described(other, TOPIC)
    return len(found) == PARTITIONS and all(leader not in (-1, number) for leader, _ in found.values())


def _check(brokers: list[KafkaNode], acknowledged: dict[tuple[int, int], bytes]) -> int:
    for partition in range(PARTITIONS):

        def logs(partition: int = partition) -> list[bytes]:
            return [log_bytes(broker, f"{TOPIC}-{partition}") for broker in brokers]

        wait_for(f"the logs of partition {partition} to be equal", lambda logs=logs: len(set(logs())) == 1)
        loss = first_loss(logs()[0], partition, acknowledged)
        if loss is not None:
            raise Broken(loss)
    return len(acknowledged)


def first_loss(log: bytes, partition: int, acknowledged: dict[tuple[int, int], bytes]) -> str | None:
    """What was acknowledged and is not where it was, in the log of a partition; None: nothing."""
    held: dict[int, bytes | None] = {}
    for batch in iter_batches(log):
        held.update(enumerate(batch.values(), batch.base_offset))
    for (number, offset), value in acknowledged.items():
        if number == partition and held.get(offset) != value:
            return f"{value!r} was acknowledged at {offset} of partition {partition}: {held.get(offset)!r} is there"
    return None
