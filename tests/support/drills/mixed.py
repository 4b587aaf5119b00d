"""Brokers of Kafka and ours in one cluster, killed, frozen, stopped and cut off while a producer writes and partitions
move from broker to broker: nothing is lost.

Replication factor 3 of four brokers, min.insync.replicas 2, acks=all; one broker at a time, so that no promise may be
broken. Clients always reach all brokers, those too that no other node reaches.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from asked_brokers import ask, log_bytes
from broken import Broken
from confluent_kafka import KafkaException, Producer
from kafka_lab import HOST, KafkaLab, KafkaNode, KraftcoreNode, free_port, wait_for
from kafka_tools import KafkaTools

from drills.network import Network, both_ways
from kraftcore.core.batch import iter_batches
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftcore.protocol.messages.metadata import MetadataRequest

TOPIC, PARTITIONS, REPLICAS = "t", 3, 3
CONTROLLER, THEIRS, OURS = 1, (10, 11), (12, 13)
BROKERS = (*THEIRS, *OURS)
SESSION_MS = 3000
FROZEN_S = 5.0  # beyond a session, and beyond what a replica may lag
PATIENCE_S = 180
MOVED = 0.5  # the share of rounds in which a partition moves
QUICK = {"broker_heartbeat_interval_ms": 200, "replica_lag_time_max_ms": 3000, "log_initial_task_delay_ms": 200}


@dataclass(frozen=True)
class MixedVerdict:
    """What was looked at, and found to hold.

    Attributes:
        rounds: of faults.
        records: acknowledged, and found at their offsets in every replica's log.
        faults: rounds by what happened, by whose broker it happened to, and those in which a partition moved.
        led: partitions by whose broker led them when a fault came.
    """

    rounds: int
    records: int
    faults: dict[str, int] = field(default_factory=dict)
    led: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        faults, led = (
            ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) for counts in (self.faults, self.led)
        )
        return (
            f"{self.rounds} rounds ({faults}; led by {led}), "
            f"{self.records} acknowledged records, all in the logs of all replicas"
        )


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


class Mixed:
    """A controller, two brokers of Kafka and two of ours; between all of them a network that can be cut."""

    def __init__(self, lab: KafkaLab, network: Network, draw: Random) -> None:
        self.brokers: dict[int, KafkaNode] = {}
        self._lab = lab
        self._network = network
        self._draw = draw
        self._faults: tuple[Callable[[int], None], ...] = (
            self.kill,
            self.stop,
            self.freeze,
            self.cut_off_from_brokers,
            self.cut_off_from_controller,
            self.cut_off,
            self.mute,
            self.deafen,
        )

    def start(self, *, is_ours: bool) -> None:
        """Start everything, with a topic."""
        lab = self._lab
        controller = (lab.kraftcore if is_ours else lab.controller)(
            CONTROLLER,
            broker_session_timeout_ms=SESSION_MS,
            **({"kraftcore_offers_log": None} if is_ours else {}),
        )
        front = f"{HOST}:{self._network.lead_to(CONTROLLER, controller.port)}"
        lab.bootstrap = [front]
        controller.write(advertised_listeners=f"CONTROLLER://{front}", controller_quorum_bootstrap_servers=front)
        controller.format("--standalone").start().wait_listening()
        for number in BROKERS:
            kind = KafkaNode if number in THEIRS else KraftcoreNode
            self.brokers[number] = broker = lab.add(kind, number, "broker", "PLAINTEXT", **QUICK)
            inner = free_port()
            front = f"{HOST}:{self._network.lead_to(number, inner)}"
            broker.write(
                listeners=f"PLAINTEXT://{broker.address},INNER://{HOST}:{inner}",
                advertised_listeners=f"PLAINTEXT://{broker.address},INNER://{front}",
                listener_security_protocol_map="CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,INNER:PLAINTEXT",
                inter_broker_listener_name="INNER",
            )
            broker.format().start()
        for broker in self.brokers.values():
            broker.wait_listening()
        placed = ",".join(":".join(map(str, (BROKERS + BROKERS)[at : at + REPLICAS])) for at in range(PARTITIONS))
        arguments = ("--create", "--topic", TOPIC, "--replica-assignment", placed, "--config", "min.insync.replicas=2")
        tool = ("topics", "--bootstrap-server", self.brokers[THEIRS[0]].address, *arguments)
        wait_for("a topic", lambda: lab.tool(*tool).status == 0)
        self.wait_whole("it was made")

    def placed(self, at: int) -> dict[int, tuple[int, tuple[int, ...], frozenset[int]]]:
        """Leader, replicas and ISR by partition, as a broker tells its clients."""
        request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=TOPIC)])
        answer = ask(self.brokers[at], request, 12)
        if isinstance(answer, Failure):
            return {}
        return {
            each.partition_index: (each.leader_id, tuple(each.replica_nodes), frozenset(each.isr_nodes))
            for each in answer.topics[0].partitions
        }

    def wait_whole(self, what: str) -> None:
        """Until all brokers say that no partition moves, and all replicas are in sync and led."""

        def is_whole() -> bool:
            first, *others = (self.placed(number) for number in BROKERS)
            return (
                len(first) == PARTITIONS
                and all(first == other for other in others)
                and all(
                    leader in replicas and len(replicas) == REPLICAS and in_sync == set(replicas)
                    for leader, replicas, in_sync in first.values()
                )
            )

        wait_for(f"all to be in sync after {what}", is_whole, timeout_s=PATIENCE_S)

    def move(self) -> None:
        """Have another three brokers, in another order, hold a partition."""
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        replicas = self._draw.sample(BROKERS, REPLICAS)
        moved = kind.ReassignablePartition(partition_index=self._draw.randrange(PARTITIONS), replicas=replicas)
        request = AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=[kind(name=TOPIC, partitions=[moved])])
        answer = ask(self.brokers[self._draw.choice(BROKERS)], request, 0)
        if isinstance(answer, Failure) or answer.error_code or answer.responses[0].partitions[0].error_code:
            raise Broken(f"a reassignment is answered with {answer}")

    def have_faults(self, rounds: int, load: Load) -> MixedVerdict:
        """One after the other; everything is whole, and goes on, before the next."""
        faults: Counter[str] = Counter()
        led: Counter[str] = Counter()
        for number in range(rounds):
            victim, fault = self._draw.choice(BROKERS), self._faults[number % len(self._faults)]
            what = f"round {number}, {fault.__name__} of {self.brokers[victim].name}"
            faults[fault.__name__] += 1
            faults[f"at {_whose(victim)}"] += 1
            led.update(_whose(leader) for leader, _, _ in self.placed(BROKERS[0]).values())
            if self._draw.random() < MOVED:
                faults["moves"] += 1
                self.move()
            fault(victim)
            self.wait_whole(what)
            before = len(load.acknowledged)
            wait_for(
                f"progress after {what}",
                lambda before=before: len(load.acknowledged) > before,
                timeout_s=PATIENCE_S,
            )
        load.end()
        return MixedVerdict(rounds, self.check(load.acknowledged), dict(faults), dict(led))

    # --- faults -------------------------------------------------------------------------------------------------------

    def kill(self, victim: int) -> None:
        """SIGKILL; it is back when others lead."""
        self.brokers[victim].kill()
        other = next(number for number in BROKERS if number != victim)

        def is_led_by_others() -> bool:
            found = self.placed(other)
            return len(found) == PARTITIONS and all(leader not in (-1, victim) for leader, _, _ in found.values())

        wait_for("the others to go on", is_led_by_others, timeout_s=PATIENCE_S)
        self.brokers[victim].start()

    def stop(self, victim: int) -> None:
        """SIGTERM, and a new start."""
        self.brokers[victim].stop()
        self.brokers[victim].start()

    def freeze(self, victim: int) -> None:
        """Its session ends; it believes to lead still when it wakes up."""
        self.brokers[victim].signal(signal.SIGSTOP)
        time.sleep(FROZEN_S)
        self.brokers[victim].signal(signal.SIGCONT)

    def cut_off_from_brokers(self, victim: int) -> None:
        """It may lead, and nobody follows it; its session goes on."""
        self._cut(both_ways(victim, set(BROKERS) - {victim}))

    def cut_off_from_controller(self, victim: int) -> None:
        """Its session ends; whoever has not heard of that follows it still."""
        self._cut(both_ways(victim, [CONTROLLER]))

    def cut_off(self, victim: int) -> None:
        """Clients alone reach it."""
        self._cut(both_ways(victim, {CONTROLLER, *BROKERS} - {victim}))

    def mute(self, victim: int) -> None:
        """It hears everybody, and nobody hears it."""
        self._cut({(victim, other) for other in (CONTROLLER, *BROKERS) if other != victim})

    def deafen(self, victim: int) -> None:
        """Everybody hears it, and it hears nobody."""
        self._cut({(other, victim) for other in (CONTROLLER, *BROKERS) if other != victim})

    def _cut(self, directions: set[tuple[int, int]]) -> None:
        self._network.cut(directions)
        time.sleep(FROZEN_S)
        self._network.heal(resets=self._draw.random() < 0.5)

    # --- verdict ------------------------------------------------------------------------------------------------------

    def check(self, acknowledged: dict[tuple[int, int], bytes]) -> int:
        """How many records were acknowledged.

        Raises:
            Broken: one of them is not in a replica's log.
        """
        for partition, (_, replicas, _) in self.placed(BROKERS[0]).items():
            holders = [self.brokers[number] for number in replicas]

            def logs(name: str = f"{TOPIC}-{partition}", holders: list[KafkaNode] = holders) -> set[bytes]:
                return {log_bytes(broker, name) for broker in holders}

            wait_for(f"the logs of partition {partition} to be equal", lambda logs=logs: len(logs()) == 1)
            loss = first_loss(logs().pop(), partition, acknowledged)
            if loss is not None:
                raise Broken(loss)
        return len(acknowledged)


def _whose(number: int) -> str:
    return "Kafka" if number in THEIRS else "kraftcore"


def mixed_rounds(kafka: KafkaTools, folder: Path, rounds: int, seed: int, *, is_ours: bool) -> MixedVerdict:
    """Have faults at one broker after the other.

    Args:
        kafka: where Kafka is.
        folder: for everything.
        rounds: how many.
        seed: draws who, and what moves where.
        is_ours: the controller is of ours.

    Raises:
        Broken: something acknowledged is not in a replica's log, or the logs differ.
    """
    with Network() as network, KafkaLab(kafka, folder) as lab:
        mixed = Mixed(lab, network, Random(seed))
        mixed.start(is_ours=is_ours)
        load = Load(",".join(broker.address for broker in mixed.brokers.values()))
        try:
            return mixed.have_faults(rounds, load)
        finally:
            load.end()


def first_loss(log: bytes, partition: int, acknowledged: dict[tuple[int, int], bytes]) -> str | None:
    """What was acknowledged and is not where it was, in the log of a partition; None: nothing."""
    held: dict[int, bytes | None] = {}
    for batch in iter_batches(log):
        held.update(enumerate(batch.values(), batch.base_offset))
    for (number, offset), value in acknowledged.items():
        if number == partition and held.get(offset) != value:
            return f"{value!r} was acknowledged at {offset} of partition {partition}: {held.get(offset)!r} is there"
    return None
