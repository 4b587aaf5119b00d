"""Brokers with partitions in a world of controllers, their clients, and what goes wrong with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from kraftcore.core.batch import RecordBatch
from kraftcore.metadata import PartitionKey
from kraftcore.metadata.partition import NO_LEADER
from kraftcore.plugins.broker.partition.retention import Retention
from kraftcore.plugins.broker.partition.state import PartitionSettings
from kraftcore.plugins.broker.replication.follower_fetch import FetchSettings
from kraftcore.plugins.broker.simulated.brokers import PartitionBroker
from kraftcore.plugins.broker.simulated.clients import (
    Consumer,
    IdempotentProducer,
    Producer,
    RecordsAdmin,
    TopicAdmin,
    TransactionalProducer,
)
from kraftcore.plugins.broker.simulated.rules import PartitionRules
from kraftcore.plugins.controller.simulated.workload import FIRST_ADMIN, FIRST_BROKER, Controllers
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.simulation.options import Options
from kraftcore.simulation.world import World

_FIRST_PRODUCER: Final = -201
_FIRST_CONSUMER: Final = -301
_RECORDS_ADMIN: Final = -401
_IN_FLIGHT: Final = 5
_MIXED: Final = 0.6  # share of the clusters that have brokers of Kafka
_THEIRS: Final = (0.5, 1.0)  # shares of the brokers that are Kafka's there
_THROTTLES_MS: Final = 1_000
_INTERFERENCE: Final = 0.35  # share of the proposals


class Partitions(Controllers):
    """A workload of brokers with partitions, their clients, and the faults that happen to them.

    Attributes:
        partitions: what must hold of them.
        producers: its writers.
    """

    brokers: list[PartitionBroker]
    admins: list[TopicAdmin]

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._draw = rng = Random(f"partitions-{world.seed}")
        self._min_isr = rng.choice((1, 2, 2, 2))
        self.static_configs = {"min.insync.replicas": str(self._min_isr)}
        self.fast_fencing_ms = rng.choice((0, 0, 100, 400))
        self.partitions = PartitionRules(self.rules, self._min_isr, None if world.timeline is None else world.tell)
        self._log: list[tuple[int, tuple[bytes | None, ...]]] = []
        self._healed: dict[PartitionKey, int] | None = None

    @classmethod
    def adapt(cls, options: Options) -> Options:
        """See `Workload`: the controllers are rather well, as it is the brokers that matter."""
        options = super().adapt(options)
        return replace(
            options,
            crash_every=options.crash_every * 4,
            disk_every=0,
            full_every=0,
            replace_every=0,
            lost_every=0,
            members_every=0,
            pause_every=options.pause_every * 3,
            loss=min(options.loss, 0.02),
        )

    def schedule(self) -> None:
        """See `Workload`."""
        world, rng = self.world, self._draw
        heartbeat_ms = self.session_ms * rng.choice((0.15, 0.3))
        numbers = range(FIRST_BROKER, FIRST_BROKER + rng.choice((3, 3, 4)))
        lag_ms = rng.choice((1_500, 3_000))
        # Leaders change often, and hold requests for partitions that nobody writes to.
        is_narrow = world.seed % 4 == 1
        settings = PartitionSettings(self._min_isr, lag_ms)
        fetching = FetchSettings(
            wait_max_ms=300 if is_narrow else rng.choice((50, 300)),
            max_bytes=rng.choice((800, 100_000)),
            backoff_ms=200,
        )
        loses_power = rng.choice((0.0, 0.0, 0.4, 0.8))
        retention = Retention(bytes=rng.choice((-1, -1, 16_000)))
        cleans = rng.choice((0.0, 0.5, 1.0))
        has_directories = self.metadata_version >= MetadataVersion.V3_7_IV2 and rng.random() < 0.6
        folders = ("/logs-1", "/logs-2") if has_directories else ("/logs",)
        share = rng.choice(_THEIRS) if rng.random() < _MIXED else 0.0
        theirs = {each for each in numbers if rng.random() < share}
        self.brokers = [
            PartitionBroker(
                world,
                number,
                self.rules,
                self.partitions,
                heartbeat_ms,
                settings,
                fetching,
                self._log,
                loses_power,
                folders,
                retention,
                cleans,
                is_theirs=number in theirs,
                on_proposal=self._interfere,
            )
            for number in numbers
        ]
        self._make_clients(numbers, theirs)
        for broker in self.brokers:
            world.agenda.after_ms(rng.random() * 1000, broker.start)
        self._have_clients_act(is_narrow=is_narrow)
        for mean_ms, action in (
            (5_000, PartitionBroker.die),
            (8_000, PartitionBroker.pause),
            (12_000, PartitionBroker.shut_down),
            (8_000 if has_directories else 20_000, PartitionBroker.fail_disk),
        ):
            world.every(mean_ms * rng.choice((0.5, 1, 3)), partial(self._happens, action))
        world.every(rng.choice((2_000, 6_000, 0)), self._cut)

    def _make_clients(self, numbers: Sequence[int], theirs: Collection[int]) -> None:
        world = self.world
        self.admins = [TopicAdmin(world, FIRST_ADMIN, self.rules, numbers)]
        self.producers = [
            Producer(world, _FIRST_PRODUCER, self.rules),
            IdempotentProducer(world, _FIRST_PRODUCER - 1, self.rules, self.partitions.numbered),
            IdempotentProducer(world, _FIRST_PRODUCER - 2, self.rules, self.partitions.numbered, _IN_FLIGHT),
        ]
        if theirs:
            number = _FIRST_PRODUCER - len(self.producers)
            self.producers.append(TransactionalProducer(world, number, self.rules, self.partitions, theirs))
        self._deletes_records = RecordsAdmin(world, _RECORDS_ADMIN, self.rules)
        self.consumers = [
            Consumer(world, _FIRST_CONSUMER - at, self.rules, isolation) for at, isolation in enumerate((0, 0, 1))
        ]
        clients: Iterable[Any] = (
            *self.brokers,
            *self.admins,
            *self.producers,
            *self.consumers,
            self._deletes_records,
        )
        world.network.peers.update({client.number: client for client in clients})

    def _have_clients_act(self, *, is_narrow: bool) -> None:
        world, rng = self.world, self._draw
        for producer in self.producers:
            # Followers ask for partitions beside a held request, and their logs are cut and grow to the same ends.
            producer.is_narrow = is_narrow
        for client in (*self.producers, *self.consumers, self._deletes_records):
            # What is checked aside holds up producers; where logs are to be cut and grow, half of the seeds have none.
            client.is_plain = is_narrow and bool(world.seed // 8 % 2)
        for admin in self.admins:
            world.every(300 if is_narrow else rng.choice((300, 1_000, 3_000)), admin.act)
            world.every(_THROTTLES_MS if world.seed % 16 == 15 else 0, admin.throttle)
        world.every(rng.choice((0, 400, 1_500)), self._deletes_records.act)
        for act in (*(each.act for each in self.producers), *(each.act for each in self.consumers)):
            world.every(80 if is_narrow else rng.choice((30, 90)), act)

    def _happens(self, action: Any) -> None:
        if not self.world.calm:
            action(self._draw.choice(self.brokers))

    def _cut(self) -> None:
        """Some of the brokers and controllers do not reach some of the others for a while, in one direction or both."""
        world, rng = self.world, self._draw
        if world.calm:
            return
        brokers, hosts = [each.number for each in self.brokers], [each.number for each in world.hosts]
        one = rng.choice(brokers)
        others = rng.choice(([each for each in brokers if each != one], hosts, [rng.choice(brokers)]))
        cut = {(one, each) for each in others if each != one}
        if rng.random() < 0.7:
            cut |= {(b, a) for a, b in cut}
        world.network.blocked |= cut
        world.note(None, "partition", f"broker {one} and {others}: {len(cut)} directions")
        world.agenda.after_ms(500 + rng.random() * 8_000, self._mend, cut)

    def _interfere(self, number: int, request: AlterPartitionRequest) -> None:
        """Things go wrong while an ISR is being changed: the leader loses its controller, and who joins goes."""
        world, rng = self.world, self._draw
        if world.calm or rng.random() >= _INTERFERENCE:
            return
        wanted = [one for topic in request.topics for one in topic.partitions]
        members = {each.broker_id for one in wanted for each in one.new_isr_with_epochs}
        others = [each for each in self.brokers if each.number in members and each.number != number]
        hosts = [each.number for each in world.hosts]
        # It hears nothing; and half the time nobody hears it, so that it asks again when things have changed.
        cut = {(each, number) for each in hosts}
        if rng.random() < 0.5:
            cut |= {(number, each) for each in hosts}
        world.network.blocked |= cut
        world.note(None, "partition", f"broker {number} from its controllers as it proposes, {len(cut)} directions")
        world.agenda.after_ms(500 + rng.random() * 5_000, self._mend, cut)
        if others:
            goes = rng.choice(
                (PartitionBroker.shut_down, PartitionBroker.shut_down, PartitionBroker.die, PartitionBroker.pause)
            )
            world.agenda.after_ms(rng.random() * 500, goes, rng.choice(others))

    def _mend(self, cut: set[tuple[int, int]]) -> None:
        self.world.network.blocked -= cut

    # --- what happens -------------------------------------------------------------------------------------------------

    def committed(self, batch: RecordBatch) -> None:
        """See `Workload`."""
        super().committed(batch)
        self._log.append((batch.base_offset, tuple(None if each is None else bytes(each) for each in batch.values())))
        self.partitions.committed()

    # --- the end ------------------------------------------------------------------------------------------------------

    def healed(self) -> None:
        """See `Workload`."""
        super().healed()
        self._healed = self._acknowledged()

    def _acknowledged(self) -> dict[PartitionKey, int]:
        found: dict[PartitionKey, int] = {}
        for producer in self.producers:
            for key, count in producer.acknowledged.items():
                found[key] = found.get(key, 0) + count
        return found

    def lacks(self) -> str | None:
        """See `Workload`: ISRs are full, and every partition takes records."""
        found = super().lacks() or next(self.partitions.lacking(self._alive()), None) or self._misplaced()
        if found is not None:
            return found
        image = self.rules.reference
        now, before = self._acknowledged(), self._healed or {}
        for topic in image.topics.values():
            for number, each in image.partitions.of_topic(topic.id):
                key = PartitionKey(topic.id, number)
                can_take = len(each.isr) >= min(self._min_isr, len(each.replicas)) and each.leader != NO_LEADER
                if can_take and now.get(key, 0) <= before.get(key, 0):
                    self.producers[0].produce((topic.name, number), each.leader)
                    return f"{topic.name}-{number} took no record since all faults ended: {each}"
        return None

    def _alive(self) -> list[PartitionBroker]:
        return [broker for broker in self.brokers if not broker.stays_down]

    def _misplaced(self) -> str | None:
        """A replica of which the controller does not know in which log directory it is."""
        if self.metadata_version < MetadataVersion.V3_7_IV2:
            return None
        image = self.rules.reference
        for broker in self._alive():
            for name in broker.hosted:
                topic = image.topics.by_name(name.topic)
                row = None if topic is None else image.partitions.get(topic.id, name.partition)
                place = broker.directory_of(name)
                if row is not None and broker.number in row.replicas and row.directory_of(broker.number) != place:
                    return f"broker {broker.number} has {name} in {place}, the controller says {row}"
        return None

    def check_end(self) -> None:
        """See `Workload`."""
        super().check_end()
        self.partitions.check_end()
