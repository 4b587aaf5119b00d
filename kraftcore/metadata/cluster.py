"""Registered brokers and controllers of the image (KIP-631, KIP-919)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from kraftcore.core.uuid import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, Uuid
from kraftcore.errors import MetadataRecordError
from kraftcore.metadata.journal import Part
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.records.fence_broker_record import FenceBrokerRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.register_controller_record import RegisterControllerRecord
from kraftcore.protocol.records.unfence_broker_record import UnfenceBrokerRecord
from kraftcore.protocol.records.unregister_broker_record import UnregisterBrokerRecord
from kraftcore.protocol.schema import MetadataRecord


class Listener(NamedTuple):
    """A listener of a broker or controller.

    Attributes:
        name: the listener's name.
        host: its advertised host.
        port: its advertised port.
        security_protocol: Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL.
    """

    name: str
    host: str
    port: int
    security_protocol: int


class LevelRange(NamedTuple):
    """Levels of a feature that a node supports, both included."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker.

    Attributes:
        id: its node id.
        epoch: the broker epoch: the offset of the record that registered this incarnation.
        incarnation_id: drawn by the broker's process at its start.
        listeners: where clients and other brokers reach it, in the order of its registration.
        features: supported levels, by feature name.
        rack: name of its rack, or None.
        is_fenced: whether it is fenced: it may neither lead nor be in an ISR, and clients do not see it.
        is_shutting_down: whether it is in controlled shutdown (KIP-841).
        is_migrating: whether it was a ZooKeeper broker when it registered (KIP-866).
        directories: ids of its online log directories, sorted; empty for a broker that named none (KIP-858).
        cordoned_directories: ids of directories that get no new partitions; None: it never told (KIP-1066).
    """

    id: int
    epoch: int
    incarnation_id: Uuid
    listeners: tuple[Listener, ...] = ()
    features: Mapping[str, LevelRange] = field(default_factory=lambda: MappingProxyType({}))
    rack: str | None = None
    is_fenced: bool = True
    is_shutting_down: bool = False
    is_migrating: bool = False
    directories: tuple[Uuid, ...] = ()
    cordoned_directories: tuple[Uuid, ...] | None = None

    @property
    def is_active(self) -> bool:
        """Whether it may lead and be in ISRs: it is neither fenced nor shutting down."""
        return not (self.is_fenced or self.is_shutting_down)

    def has_online_directory(self, directory_id: Uuid) -> bool:
        """Whether a replica in this directory is usable.

        True for its online directories, for all ids while it registered none, and for the ids that stand for an unknown
        directory (KIP-858), unassigned and migrating; never for the id of lost directories.
        """
        if directory_id.is_reserved:
            if directory_id == LOST_DIRECTORY:
                return False
            if directory_id in (UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
                return True
        return not self.directories or directory_id in self.directories

    @property
    def has_uncordoned_directory(self) -> bool:
        """Whether new partitions may be placed on it."""
        return not self.directories or not set(self.directories) <= set(self.cordoned_directories or ())


_SECURITY_PROTOCOLS = range(4)


@dataclass(frozen=True, slots=True)
class Controller:
    """A registered controller (KIP-919).

    Attributes:
        id: its node id.
        incarnation_id: drawn by its process at its start.
        listeners: its listeners, in the order of its registration.
        features: supported levels, by feature name.
        is_ready_to_migrate: whether it could take over ZooKeeper's metadata (KIP-866).
    """

    id: int
    incarnation_id: Uuid
    listeners: tuple[Listener, ...] = ()
    features: Mapping[str, LevelRange] = field(default_factory=lambda: MappingProxyType({}))
    is_ready_to_migrate: bool = False


def _listeners(record: RegisterBrokerRecord | RegisterControllerRecord) -> tuple[Listener, ...]:
    end_points: Iterable[RegisterBrokerRecord.BrokerEndpoint | RegisterControllerRecord.ControllerEndpoint]
    end_points = record.end_points
    for each in end_points:
        if each.security_protocol not in _SECURITY_PROTOCOLS:
            raise MetadataRecordError(
                record, f"listener {each.name} has the security protocol {each.security_protocol}: 0 to 3 are known"
            )
    found = {each.name: Listener(each.name, each.host, each.port, each.security_protocol) for each in end_points}
    return tuple(found.values())


def _features(
    features: Iterable[RegisterBrokerRecord.BrokerFeature | RegisterControllerRecord.ControllerFeature],
) -> Mapping[str, LevelRange]:
    return MappingProxyType(
        {each.name: LevelRange(each.min_supported_version, each.max_supported_version) for each in features}
    )


class Brokers(Part[int, Broker]):
    """Registered brokers by id."""

    __slots__ = ()

    def on_register(self, record: RegisterBrokerRecord) -> None:
        """A new registration takes the place of an earlier one.

        Raises:
            MetadataRecordError: a listener's security protocol is unknown.
        """
        cordoned = record.cordoned_log_dirs
        self.put(
            record.broker_id,
            Broker(
                id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation_id=record.incarnation_id,
                listeners=_listeners(record),
                features=_features(record.features),
                rack=record.rack,
                is_fenced=record.fenced,
                is_shutting_down=record.in_controlled_shutdown,
                is_migrating=record.is_migrating_zk_broker,
                directories=tuple(sorted(record.log_dirs)),
                cordoned_directories=None if cordoned is None else tuple(cordoned),
            ),
        )

    def on_unregister(self, record: UnregisterBrokerRecord) -> None:
        """Remove a registration.

        Raises:
            MetadataRecordError: the broker is not registered, or registered with another epoch.
        """
        self._known(record, record.broker_id, record.broker_epoch)
        self.drop(record.broker_id)

    def on_fence(self, record: FenceBrokerRecord) -> None:
        """Fence a broker; raises as `on_unregister`."""
        self.put(record.id, replace(self._known(record, record.id, record.epoch), is_fenced=True))

    def on_unfence(self, record: UnfenceBrokerRecord) -> None:
        """Unfence a broker; raises as `on_unregister`."""
        self.put(record.id, replace(self._known(record, record.id, record.epoch), is_fenced=False))

    def on_change(self, record: BrokerRegistrationChangeRecord) -> None:
        """Change fencing, controlled shutdown, directories; an empty list of directories means no change, as in Kafka.

        Raises:
            MetadataRecordError: as `on_unregister`, or the change has a number that Kafka does not know.
        """
        broker = self._known(record, record.broker_id, record.broker_epoch)
        if record.fenced not in _FENCING:
            raise MetadataRecordError(record, f"{record.fenced} is no change of fencing: -1, 0 and 1 are")
        if record.in_controlled_shutdown not in (0, 1):
            raise MetadataRecordError(
                record, f"{record.in_controlled_shutdown} is no change of the controlled shutdown: 0 and 1 are"
            )
        fenced, cordoned = _FENCING[record.fenced], record.cordoned_log_dirs
        changed = replace(
            broker,
            is_fenced=broker.is_fenced if fenced is None else fenced,
            is_shutting_down=broker.is_shutting_down or record.in_controlled_shutdown == 1,
            directories=tuple(sorted(record.log_dirs)) if record.log_dirs else broker.directories,
            cordoned_directories=broker.cordoned_directories if cordoned is None else tuple(cordoned),
        )
        if changed != broker:
            self.put(record.broker_id, changed)

    def _known(self, record: MetadataRecord, broker_id: int, epoch: int) -> Broker:
        broker = self._items.get(broker_id)
        if broker is None:
            raise MetadataRecordError(record, f"broker {broker_id} is not registered")
        if broker.epoch != epoch:
            raise MetadataRecordError(
                record, f"broker {broker_id} is registered with epoch {broker.epoch}, not {epoch}"
            )
        return broker


_FENCING = {0: None, 1: True, -1: False}


class Controllers(Part[int, Controller]):
    """Registered controllers by id."""

    __slots__ = ()

    def on_register(self, record: RegisterControllerRecord) -> None:
        """A new registration takes the place of an earlier one.

        Raises:
            MetadataRecordError: a listener's security protocol is unknown.
        """
        self.put(
            record.controller_id,
            Controller(
                id=record.controller_id,
                incarnation_id=record.incarnation_id,
                listeners=_listeners(record),
                features=_features(record.features),
                is_ready_to_migrate=record.zk_migration_ready,
            ),
        )


def broker_record(broker: Broker) -> RegisterBrokerRecord:
    """For a snapshot."""
    kind = RegisterBrokerRecord
    cordoned = broker.cordoned_directories
    return kind(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            kind.BrokerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in broker.listeners
        ],
        features=[
            kind.BrokerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.is_shutting_down,
        log_dirs=list(broker.directories),
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def controller_record(controller: Controller) -> RegisterControllerRecord:
    """For a snapshot."""
    kind = RegisterControllerRecord
    return kind(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.is_ready_to_migrate,
        end_points=[
            kind.ControllerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in controller.listeners
        ],
        features=[
            kind.ControllerFeature(name=name, min_supported_version=levels.min, max_supported_version=levels.max)
            for name, levels in controller.features.items()
        ],
    )
