"""Scripted brokers: they register, send heartbeats, fall silent, shut down, lose directories, and lead partitions.

A broker's view of the metadata is a copy of the committed state, taken now and then and used for a while, as a real
broker's image is late. ISRs are proposed from such views, so that some proposals are stale.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Partition, PartitionKey
from kraftcore.metadata.partition import RECOVERED
from kraftcore.plugins.controller.simulated.clients import Client, heard
from kraftcore.plugins.controller.simulated.rules import Rules
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import LATEST_PRODUCTION_LEVEL, METADATA_VERSION, MINIMUM_METADATA_VERSION
from kraftcore.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftcore.protocol.messages.alter_partition import AlterPartitionRequest
from kraftcore.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from kraftcore.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from kraftcore.simulation.world import World

FEATURES: Final = {
    METADATA_VERSION: (int(MINIMUM_METADATA_VERSION), LATEST_PRODUCTION_LEVEL),
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
}
_WITH_EPOCHS: Final = 3
_Wanted = AlterPartitionRequest.TopicData.PartitionData
_MOST_PARTITIONS: Final = 4  # partitions in one AlterPartition


class View(NamedTuple):
    """A broker's view of the metadata.

    Attributes:
        offset: the view has all records below.
        led: the partitions that the broker leads.
        epochs: broker epochs of all registered brokers.
        active: ids of the brokers that are neither fenced nor shutting down.
    """

    offset: int = -1
    led: tuple[tuple[PartitionKey, Partition], ...] = ()
    epochs: dict[int, int] = {}  # noqa: RUF012
    active: frozenset[int] = frozenset()


class Broker(Client):
    """One broker, over all its restarts.

    Args:
        world: the simulated world.
        number: its id, and its number in the network.
        rules: has the committed state.
        heartbeat_ms: time between heartbeats.

    Attributes:
        rules: as given.
        directories: ids of its log directories.
        views: its views of the metadata, the newest first.
        paused_until: end of its pause, in the world's time.
        epoch: of its registration; -1 while it has none.
        is_fenced: whether it is fenced, by the last heartbeat's answer.
        stays_down: whether it does not start again.
    """

    def __init__(self, world: World, number: int, rules: Rules, heartbeat_ms: float) -> None:
        super().__init__(world, number)
        self.rules = rules
        self._heartbeat_ms = heartbeat_ms
        self._incarnation_id = Uuid()
        self.directories = sorted(Uuid.random(self.rng.randbytes) for _ in range(1 + self.rng.randrange(2)))
        self._offline: list[Uuid] = []
        self.views = [View()]
        self.paused_until = 0
        self._wants_shutdown = False
        self._last_epoch = -1
        self._former_epoch = -1  # of the process before the present one
        self.epoch = -1
        self.is_fenced = True
        self.stays_down = False

    def start(self) -> None:
        """Start a new process."""
        if self.stays_down:
            return
        self.begin_anew()
        self.is_up = True
        self._incarnation_id = Uuid.random(self.rng.randbytes)
        self._former_epoch = max(self.epoch, self._former_epoch)
        self.epoch = -1
        self.is_fenced = True
        self._wants_shutdown = False
        self._offline = []
        self.views = [View()]
        self.world.agenda.after_ms(self.rng.random() * self._heartbeat_ms, self._beat, self._incarnation_id)

    def die(self) -> None:
        """Kill the process; another starts later, which may not know this one's epoch."""
        if self.is_up:
            self.ended()

    def ended(self) -> None:
        """Note that the process has ended without telling anybody."""
        self.is_up = False
        self._last_epoch = -1
        self.world.agenda.after_ms(200 + self.rng.random() * 12_000, self.start)

    def pause(self) -> None:
        """Pause the process; its session may end meanwhile."""
        self.paused_until = self.world.agenda.now + int(self.rng.random() * 15_000_000)

    def shut_down(self) -> None:
        """Begin a controlled shutdown."""
        self._wants_shutdown = True

    def lose_directory(self) -> None:
        """Fail a log directory until the next start, but never the last one, which would end the process."""
        left = [each for each in self.directories if each not in self._offline]
        if len(left) > 1:
            self._offline.append(self.rng.choice(left))
        else:
            self.die()

    def heal(self, *, stays_down: bool) -> None:
        """End all faults."""
        self.paused_until = 0
        self.stays_down = stays_down
        if stays_down:
            self.is_up = False
        elif not self.is_up:
            self.start()

    # --- one beat -----------------------------------------------------------------------------------------------------

    def _beat(self, incarnation_id: Uuid) -> None:
        if not self.is_up or incarnation_id != self._incarnation_id:
            return
        agenda = self.world.agenda
        if self.paused_until > agenda.now:
            agenda.at(self.paused_until, self._beat, incarnation_id)
            return
        if self.epoch < 0:
            self._register()
        else:
            self.look()
            self._send_heartbeat()
            self._haunt()
            if not self.is_fenced:
                self.lead()
        agenda.after_ms(self._heartbeat_ms * (0.7 + 0.6 * self.rng.random()), self._beat, incarnation_id)

    def look(self) -> None:
        """Take a new view of the committed state, or keep the old one."""
        if self.world.calm or self.rng.random() < 0.7:
            image = self.rules.reference
            brokers = image.brokers.values()
            view = View(
                self.rules.end - 1,
                tuple(image.partitions.led_by(self.number)),
                {each.id: each.epoch for each in brokers},
                frozenset(each.id for each in brokers if each.is_active),
            )
            self.views = [view, *self.views[:3]]

    def _register(self) -> None:
        kind = BrokerRegistrationRequest
        request = kind(
            broker_id=self.number,
            cluster_id="simulated",
            incarnation_id=self._incarnation_id,
            listeners=[kind.Listener(name="PLAINTEXT", host=f"b{self.number}", port=9092)],
            features=[
                kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in FEATURES.items()
            ],
            log_dirs=list(self.directories),
            previous_broker_epoch=self._last_epoch,
        )
        incarnation_id = self._incarnation_id

        def registered(response: BrokerRegistrationResponse) -> None:
            if incarnation_id == self._incarnation_id and response.error_code == ErrorCode.NONE:
                self.epoch = response.broker_epoch

        self.send(request, registered)

    def _send_heartbeat(self) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=self.number,
            broker_epoch=self.epoch,
            current_metadata_offset=self.views[0].offset,
            want_fence=not self.world.calm and self.rng.random() < 0.02,
            want_shut_down=self._wants_shutdown,
            offline_log_dirs=list(self._offline),
        )
        incarnation_id = self._incarnation_id

        def answered(response: BrokerHeartbeatResponse) -> None:
            if incarnation_id != self._incarnation_id:
                return
            if response.error_code == ErrorCode.STALE_BROKER_EPOCH:
                self.epoch = -1  # an administrator unregistered it
            elif response.error_code == ErrorCode.NONE:
                self.is_fenced = response.is_fenced
                if response.should_shut_down and self._wants_shutdown:
                    self.end_cleanly()

        self.send(request, answered)

    def _haunt(self) -> None:
        """Send requests of the former process, as if it had only hung: they must not be carried out."""
        if self._former_epoch >= 0 and not self.world.calm and self.rng.random() < 0.05:
            heartbeat = BrokerHeartbeatRequest(
                broker_id=self.number, broker_epoch=self._former_epoch, current_metadata_offset=self.views[0].offset
            )
            ids = AllocateProducerIdsRequest(broker_id=self.number, broker_epoch=self._former_epoch)
            self.send(self.rng.choice((heartbeat, ids)), heard)

    def end_cleanly(self) -> None:
        """End the process, as the controller allowed."""
        self.is_up = False
        self._last_epoch = self.epoch
        self.world.agenda.after_ms(200 + self.rng.random() * 8_000, self.start)

    # --- as a leader --------------------------------------------------------------------------------------------------

    def lead(self) -> None:
        """Propose ISRs, and send other requests of a working broker."""
        rng, calm = self.rng, self.world.calm
        view = self.views[0] if calm else rng.choice(self.views)
        has_epochs = calm or rng.random() < 0.8
        wanted = []
        for key, partition in view.led[: 64 if calm else _MOST_PARTITIONS]:
            change = self._wish(key, partition, view, has_epochs)
            if change is not None:
                wanted.append((key[0], change))
        if wanted:
            topics: dict[Uuid, list[Any]] = {}
            for topic_id, change in wanted:
                topics.setdefault(topic_id, []).append(change)
            data = [AlterPartitionRequest.TopicData(topic_id=each, partitions=of) for each, of in topics.items()]
            request = AlterPartitionRequest(broker_id=self.number, broker_epoch=self.epoch, topics=data)
            self.rules.proposes(request)
            self.send(request, heard, None if has_epochs else _WITH_EPOCHS - 1)
        if not calm and rng.random() < 0.1:
            self.send(AllocateProducerIdsRequest(broker_id=self.number, broker_epoch=self.epoch), heard)
        if not calm and view.led and rng.random() < 0.1:
            self._tell_directory(view)

    def _wish(self, key: PartitionKey, partition: Partition, view: View, has_epochs: bool) -> Any:
        rng, calm = self.rng, self.world.calm
        others = [replica for replica in partition.replicas if replica != self.number]
        if calm:
            isr = [self.number, *(each for each in others if each in view.active)]
        else:
            # Now and then with a broker that is fenced in the view: it may have come back meanwhile.
            isr = [self.number, *(each for each in others if rng.random() < (0.8 if each in view.active else 0.15))]
        if partition.recovery_state != RECOVERED:
            isr = [self.number]
        elif set(isr) == set(partition.isr):
            return None
        epochs = view.epochs if calm else rng.choice(self.views).epochs
        return _Wanted(
            partition_index=key[1],
            leader_epoch=partition.leader_epoch,
            new_isr=[] if has_epochs else isr,
            new_isr_with_epochs=[
                _Wanted.BrokerState(broker_id=each, broker_epoch=epochs.get(each, -1)) for each in isr if has_epochs
            ],
            leader_recovery_state=RECOVERED,
            partition_epoch=partition.partition_epoch,
        )

    def _tell_directory(self, view: View) -> None:
        (topic_id, number), _ = self.rng.choice(view.led)
        kind = AssignReplicasToDirsRequest.DirectoryData
        topic = kind.TopicData(topic_id=topic_id, partitions=[kind.TopicData.PartitionData(partition_index=number)])
        self.send(
            AssignReplicasToDirsRequest(
                broker_id=self.number,
                broker_epoch=self.epoch,
                directories=[kind(id=self.rng.choice(self.directories), topics=[topic])],
            ),
            heard,
        )
