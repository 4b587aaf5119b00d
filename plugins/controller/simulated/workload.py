"""The workload of hosts with a controller each, and its own faults beside those of the world."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from kraftcore.core.batch import RecordBatch
from kraftcore.core.wire.struct import Struct
from kraftcore.errors import InvariantError
from kraftcore.executor.executor import size_of
from kraftcore.executor.proposals import BATCH_OVERHEAD
from kraftcore.metadata import Image, MetadataMachine, Partition
from kraftcore.metadata.partition import NO_LEADER
from kraftcore.node.registry import Asker, RequestContext
from kraftcore.plugins.controller.access import Gate
from kraftcore.plugins.controller.decision import ControllerSettings
from kraftcore.plugins.controller.fast_fencing import PROBE_TIMEOUT_MS, Presence, Probe
from kraftcore.plugins.controller.life import Life, Step
from kraftcore.plugins.controller.registry import APIS
from kraftcore.plugins.controller.requests import RequestStep
from kraftcore.plugins.controller.service import Service
from kraftcore.plugins.controller.settings import Periods
from kraftcore.plugins.controller.simulated.admins import Admin
from kraftcore.plugins.controller.simulated.brokers import Broker
from kraftcore.plugins.controller.simulated.clients import heard
from kraftcore.plugins.controller.simulated.rules import Rules, digest
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.features import ELIGIBLE_LEADER_REPLICAS_VERSION, METADATA_VERSION, MetadataVersion
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.raft.events import Resign, Upgrade
from kraftcore.simulation.checks import Violation
from kraftcore.simulation.host import Host, Ticket
from kraftcore.simulation.machine import Replicated
from kraftcore.simulation.options import Options
from kraftcore.simulation.workload import Workload
from kraftcore.simulation.world import World

FIRST_BROKER: Final = 101
FIRST_ADMIN: Final = -101
_DOUBT_MS: Final = 40
_VERSIONS: Final = (
    MetadataVersion.V4_3_IV0,
    MetadataVersion.V4_3_IV0,
    MetadataVersion.V4_0_IV1,
    MetadataVersion.V3_7_IV2,
    MetadataVersion.V3_6_IV0,
    MetadataVersion.V3_3_IV3,
)


class Machine(MetadataMachine, Replicated):
    """The metadata machine of one process, checked by the rules.

    Args:
        rules: of the run.
        host: the host that it runs on.

    Attributes:
        decided: records by the offset they were decided for.
        is_changed: whether it has changed since it was last checked.
    """

    def __init__(self, rules: Rules, host: Host) -> None:
        super().__init__()
        self._rules = rules
        self._host = host
        self.decided: dict[int, Sequence[bytes]] = {}
        self.is_changed = False

    @property
    def digest(self) -> bytes | None:  # type: ignore[override]
        """See `Replicated`; None for a leader that runs ahead."""
        if self._is_ahead and (self._ahead or self.image.in_transaction):
            return None
        return digest(self.image)

    def apply(self, batch: RecordBatch) -> Sequence[Any] | None:
        """See `StateMachine`."""
        result = super().apply(batch)
        if self.trouble is not None:
            raise Violation("same state", f"host {self._host.number} does not follow: {self.trouble}")
        self.is_changed = True
        found = self.digest
        self._rules.applied(f"host {self._host.number}", self.offset, found)
        self._host.world.checker.applied(self._host, self.offset, found)
        return result

    def restore(self, values: Iterable[bytes]) -> None:
        """See `StateMachine`."""
        super().restore(values)
        self.is_changed = True

    def put(self, values: Sequence[bytes], offset: int) -> None:
        """See `MetadataMachine`."""
        super().put(values, offset)
        self.is_changed = True
        self.decided[offset] = values
        if size_of(values) + BATCH_OVERHEAD > self._host.world.options.max_batch_bytes:
            self._rules.splits(values)
        self._rules.put(values)

    def take_back(self, offset: int) -> None:
        """See `MetadataMachine`."""
        super().take_back(offset)
        self.is_changed = True

    def follow(self) -> None:
        """See `MetadataMachine`."""
        super().follow()
        self.is_changed = True


class _Seat:
    """The `Seat` that a host gives its controller."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self.now_ms = host.clock_ms
        self.steps: list[Step] = []  # steps that wait to be decided

    def decide(self, step: Step) -> None:
        """See ``service.Seat``."""
        self._host.executor.decide(step)
        self.steps.append(step)

    def resign(self) -> None:
        """See ``service.Seat``."""
        self._host.executor.handle(self._host.clock_ms(), Resign())

    @property
    def other_leader_id(self) -> int | None:
        """See ``service.Seat``."""
        leader_id = self._host.replica.answering_leader_id
        return None if leader_id == self._host.number else leader_id

    def raise_kraft_version(self, level: int, validate_only: bool, done: Any) -> None:
        """See ``service.Seat``."""
        self._host.executor.handle(self._host.clock_ms(), Upgrade(done, level, validate_only))


class _Exchange(RequestContext):
    """A request that a host received, until it is answered."""

    def __init__(self, workload: Controllers, host: Host, ticket: Ticket) -> None:
        super().__init__(Asker(host.endpoint.name, f"10.0.0.1:{1000 + abs(ticket.source)}"), ticket.version)
        self._workload = workload
        self._host = host
        self._ticket = ticket
        self.asked: RequestStep | None = None

    def answer(self, response: Any) -> None:
        """Check the answer, and send it."""
        if self.asked is not None:
            self._workload.judge(self._host, self._ticket, self.asked, response)
        if self._host.is_up:
            self._host.answer(self._ticket, response)

    def close(self) -> None:
        """Nothing: the asker gets no answer, and asks again."""


class Controllers(Workload):
    """A workload of hosts with a controller each, and the faults that happen beside those of the world.

    Attributes:
        rules: the rules that are checked.
        metadata_version: the level that the cluster begins with.
        session_ms: ``broker.session.timeout.ms``.
        static_configs: the properties of the controllers' files.
        brokers: the brokers of the cluster.
        admins: the administrators of the cluster.
        fast_fencing_ms: ``kraftcore.fast.fencing.ms``.
        found_dead: how many sessions fast fencing ended.
    """

    brokers: Sequence[Broker]
    admins: Sequence[Admin]

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.rules = Rules(world.checker)
        self._rng = rng = Random(f"controllers-{world.seed}")
        self.metadata_version = version = rng.choice(_VERSIONS)
        is_elr_on = version >= MetadataVersion.V4_0_IV1 and rng.random() < 0.6
        self._bootstrap = [
            encode_metadata_record(FeatureLevelRecord(name=name, feature_level=int(level)), 0)
            for name, level in ((METADATA_VERSION, version), (ELIGIBLE_LEADER_REPLICAS_VERSION.name, is_elr_on))
            if level
        ]
        self.session_ms = rng.choice((2_000, 4_000, 9_000))
        self.static_configs: dict[str, str] = {}
        self._periods = Periods(
            rebalance_ms=rng.choice((0, 5_000)), unclean_ms=rng.choice((0, 5_000)), idle_ms=rng.choice((500, 2_000))
        )
        self.fast_fencing_ms = 0
        self.found_dead = 0
        self._presences: dict[int, Presence] = {}
        self._services: dict[int, Service] = {}
        self._seats: dict[int, _Seat] = {}
        self._armed: dict[int, int] = {}
        self._broken: Violation | None = None

    @classmethod
    def adapt(cls, options: Options) -> Options:
        """See `Workload`: no batch is larger than a segment, followers fetch batches one by one, no
        second quorum begins at the end, and leaders have no leases."""
        batch_bytes = min(options.max_batch_bytes, options.segment_bytes)
        return replace(
            options,
            max_batch_bytes=batch_bytes,
            chunk_bytes=min(options.chunk_bytes, batch_bytes),
            comes_alone=False,
            leader_lease_ms=0,
            lease_of_some_ms=0,
            lease_cuts_every=0,
            lease_reads_every=0,
        )

    def schedule(self) -> None:
        """See `Workload`."""
        world, rng = self.world, self._rng
        heartbeat_ms = self.session_ms * rng.choice((0.15, 0.3))
        numbers = range(FIRST_BROKER, FIRST_BROKER + rng.choice((2, 3, 4, 5)))
        self.brokers = [Broker(world, number, self.rules, heartbeat_ms) for number in numbers]
        self.admins = [Admin(world, FIRST_ADMIN - at, self.rules, numbers) for at in range(2)]
        world.network.peers.update({client.number: client for client in (*self.brokers, *self.admins)})
        for broker in self.brokers:
            world.agenda.after_ms(rng.random() * 3000, broker.start)
        for admin in self.admins:
            world.every(world.options.append_every * 2, admin.act)
            world.every(_DOUBT_MS, admin.doubt)
        for mean_ms, action in (
            (12_000, Broker.die),
            (12_000, Broker.pause),
            (12_000, Broker.shut_down),
            (30_000, Broker.lose_directory),
        ):
            world.every(mean_ms * (0.5 + rng.random()), partial(self._happens, action))

    def _happens(self, action: Any) -> None:
        if not self.world.calm:
            action(self._rng.choice(self.brokers))

    # --- hosts --------------------------------------------------------------------------------------------------------

    def make_machine(self, host: Host) -> Machine:
        """See `Workload`."""
        return Machine(self.rules, host)

    def started(self, host: Host) -> None:
        """See `Workload`."""
        life = Life(
            _machine_of(host),
            ControllerSettings("simulated", host.number, self.session_ms, static_configs=self.static_configs),
            self._periods,
            Random(f"controller-{self.world.seed}-{host.number}-{host.incarnation}"),
            lambda: self._bootstrap,
            lambda: host.replica.kraft_version,
            self.world.options.max_batch_bytes,
        )
        life.on_bug = self._on_bug
        self._seats[host.number] = seat = _Seat(host)
        self._services[host.number] = Service(life, Gate(None), seat)
        self._armed[host.number] = 0
        if self.fast_fencing_ms:
            self._presences[host.number] = Presence(self.fast_fencing_ms)
            self.world.agenda.after_ms(1, self._keep_watch, host, host.incarnation)

    # --- fast fencing -------------------------------------------------------------------------------------------------

    def _keep_watch(self, host: Host, incarnation: int) -> None:
        if host.incarnation != incarnation or not host.is_up:
            return
        self.world.agenda.after_ms(self.fast_fencing_ms / 8, self._keep_watch, host, incarnation)
        host.perform(incarnation, self._look_around, host)

    def _look_around(self, host: Host) -> None:
        presence, life = self._presences[host.number], self._services[host.number].life
        if not life.is_active:
            presence.forget()
            return
        presence.watch(life.present, host.clock_ms())
        for probe in presence.due(host.clock_ms()):
            delay_ms = self.world.options.delay_ms * self._rng.random()
            self.world.agenda.after_ms(delay_ms, self._reach, host, host.incarnation, probe, delay_ms)

    def _reach(self, host: Host, incarnation: int, probe: Probe, delay_ms: float) -> None:
        """Deliver a probe to a broker's address, whether or not the broker runs."""
        number, blocked = probe.whom.broker_id, self.world.network.blocked
        broker = next(each for each in self.brokers if each.number == number)
        failure: Failure | None = None
        if (host.number, number) in blocked or (number, host.number) in blocked:
            failure = Failure.TIMED_OUT
        elif not broker.is_up:
            failure = Failure.REFUSED if broker.refuses else Failure.TIMED_OUT
        elif broker.paused_until > self.world.agenda.now:
            failure = Failure.TIMED_OUT
        if failure is Failure.TIMED_OUT:
            delay_ms = PROBE_TIMEOUT_MS
        self.world.agenda.after_ms(delay_ms, host.perform, incarnation, self._reached, host, probe, failure)

    def _reached(self, host: Host, probe: Probe, failure: Failure | None) -> None:
        if self._presences[host.number].answered(probe, failure, host.clock_ms()):
            self.found_dead += 1
            self._services[host.number].life.end_session(*probe.whom)

    def _on_bug(self, what: str, error: Exception) -> None:
        # The caller would catch it: it is raised when the event has ended.
        self._broken = error if isinstance(error, Violation) else Violation("invariant", f"{what}: {error!r}")

    def leading(self, host: Host, epoch: int) -> None:
        """See `Workload`."""
        self._services[host.number].lead(epoch)

    def leading_ended(self, host: Host) -> None:
        """See `Workload`."""
        self._services[host.number].follow()
        machine = _machine_of(host)
        self.world.checker.applied(host, machine.offset, machine.digest)

    def handled(self, host: Host) -> None:
        """See `Workload`."""
        if self._broken is not None:
            raise self._broken
        machine = _machine_of(host)
        if machine.is_changed:
            machine.is_changed = False
            self._note_decisions(machine, self._seats[host.number])
            self.rules.check_image(f"host {host.number}", machine.image)
        due_ms = self._services[host.number].life.due_ms
        if due_ms is not None:
            time = max(host.time_of(due_ms), self.world.agenda.now + 1000)
            if not self.world.agenda.now < self._armed[host.number] <= time:
                self._armed[host.number] = time
                self.world.agenda.at(time, self._due, host, host.incarnation, time)

    def _note_decisions(self, machine: Machine, seat: _Seat) -> None:
        for step in seat.steps:
            if step.made is not None and step.made.records and step.made.is_atomic and step.decided_at is not None:
                self.rules.decided(step.decided_at, machine.decided[step.decided_at])
        seat.steps = [step for step in seat.steps if step.made is None]

    def _due(self, host: Host, incarnation: int, time: int) -> None:
        if self._armed[host.number] == time and host.incarnation == incarnation:
            self._armed[host.number] = 0
            host.perform(incarnation, self._services[host.number].pass_time)

    # --- requests and answers -----------------------------------------------------------------------------------------

    def serves(self, message: Struct) -> bool:
        """See `Workload`."""
        return type(message) in APIS

    def received(self, host: Host, ticket: Ticket) -> None:
        """See `Workload`."""
        exchange = _Exchange(self, host, ticket)
        exchange.asked = self._services[host.number].ask(ticket.message, exchange)  # type: ignore[arg-type]

    def judge(self, host: Host, ticket: Ticket, asked: RequestStep, response: Any) -> None:
        """Check a controller's answer to a request."""
        if asked.made is None or response is not asked.made.answer:
            return  # refused
        values = _machine_of(host).decided.get(asked.decided_at or 0, ()) if asked.made.records else ()
        client: Any = self.world.network.peers[ticket.source]
        self.rules.answered(asked, ticket.message, response, values, client.known[ticket.correlation_id])  # type: ignore[arg-type]
        if values:
            self.answered += 1

    # --- the end ------------------------------------------------------------------------------------------------------

    def committed(self, batch: RecordBatch) -> None:
        """See `Workload`."""
        self.rules.committed(batch)

    def healed(self) -> None:
        """See `Workload`."""
        silent = self._rng.choice(self.brokers) if self._rng.random() < 0.5 else None
        for broker in self.brokers:
            broker.heal(stays_down=broker is silent)

    def ask(self) -> None:
        """See `Workload`."""
        request = self.admins[0].set_register()
        if request is not None:
            self.admins[0].send(request, heard)

    def lacks(self) -> str | None:
        """See `Workload`: running brokers are unfenced, all others fenced, and each partition that can has a leader."""
        image = self.rules.reference
        for broker in self.brokers:
            known = image.brokers.get(broker.number)
            if broker.stays_down:
                if known is not None and not known.is_fenced:
                    return f"broker {broker.number} is silent, and not fenced"
            elif known is None or not known.is_active or known.epoch != broker.epoch:
                return f"broker {broker.number} is alive, and not unfenced: {known}"
        for topic in image.topics.values():
            for number, each in image.partitions.of_topic(topic.id):
                if each.leader == NO_LEADER and any(self._may_lead(image, each, one) for one in (*each.isr, *each.elr)):
                    return f"{topic.name}-{number} has no leader: {each}"
        return None

    @staticmethod
    def _may_lead(image: Image, partition: Partition, broker_id: int) -> bool:
        broker: Any = image.brokers.get(broker_id)
        is_active = broker is not None and broker.is_active
        return (
            is_active
            and broker_id in partition.replicas
            and broker.has_online_directory(partition.directory_of(broker_id))
        )

    def check_end(self) -> None:
        """See `Workload`."""
        expected = digest(self.rules.reference)
        for host in self.world.hosts:
            machine = _machine_of(host) if host.is_up else None
            if machine is not None and machine.offset == self.rules.end and machine.digest not in (None, expected):
                raise Violation("same state", f"host {host.number} has another image than the committed records make")


def _machine_of(host: Host) -> Machine:
    machine = host.machine
    if not isinstance(machine, Machine):
        raise InvariantError(f"host {host.number} runs {machine!r}")
    return machine
