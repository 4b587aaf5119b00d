"""Records of the metadata log as events in words; an event's type is what ``kraftcore observe`` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kraftcore.core.uuid import Uuid
from kraftcore.metadata.configs import BROKER, TOPIC
from kraftcore.protocol.control import ControlRecordType
from kraftcore.protocol.data.kraft_version_record import KRaftVersionRecord
from kraftcore.protocol.data.leader_change_message import LeaderChangeMessage
from kraftcore.protocol.data.voters_record import VotersRecord
from kraftcore.protocol.metadata import MetadataRecordType
from kraftcore.protocol.records.broker_registration_change_record import BrokerRegistrationChangeRecord
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.feature_level_record import FeatureLevelRecord
from kraftcore.protocol.records.fence_broker_record import FenceBrokerRecord
from kraftcore.protocol.records.partition_change_record import PartitionChangeRecord
from kraftcore.protocol.records.partition_record import PartitionRecord
from kraftcore.protocol.records.register_broker_record import RegisterBrokerRecord
from kraftcore.protocol.records.register_controller_record import RegisterControllerRecord
from kraftcore.protocol.records.remove_topic_record import RemoveTopicRecord
from kraftcore.protocol.records.topic_record import TopicRecord
from kraftcore.protocol.records.unfence_broker_record import UnfenceBrokerRecord
from kraftcore.protocol.records.unregister_broker_record import UnregisterBrokerRecord

NO_LEADER = -1
_UNCHANGED = -2
_SILENT = {
    MetadataRecordType.NO_OP_RECORD.name,
    MetadataRecordType.BEGIN_TRANSACTION_RECORD.name,
    MetadataRecordType.END_TRANSACTION_RECORD.name,
    ControlRecordType.SNAPSHOT_HEADER.name,
    ControlRecordType.SNAPSHOT_FOOTER.name,
}
NameOf = Callable[[Uuid], str]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        number: counts all events of a picture, from 1.
        offset: of the record in the metadata log.
        at_ms: when the leader wrote it, milliseconds since 1970.
        type: of the record, as ``kraftcore observe`` prints it.
        text: in words.
        is_bad: whether something became worse.
    """

    number: int
    offset: int
    at_ms: int
    type: str
    text: str
    is_bad: bool


def ids(brokers: Iterable[int]) -> str:
    """Node ids as text, ``1,2,3``, or ``none``."""
    return ",".join(map(str, brokers)) or "none"


def told(kind: str, record: Any, name_of: NameOf) -> tuple[str, bool] | None:
    """A record in words, and whether something became worse by it; None: it is not worth an event.

    Args:
        kind: the record's type.
        record: typed.
        name_of: a topic's name by its id.
    """
    if kind in _SILENT:
        return None
    tell = _TELLERS.get(type(record))
    if tell is not None:
        return tell(record, name_of)
    return kind.removesuffix("_RECORD").replace("_", " ").lower(), False


def _registered(record: RegisterBrokerRecord, _: NameOf) -> tuple[str, bool]:
    return f"broker {record.broker_id} registers, epoch {record.broker_epoch}", False


def _registration_changed(record: BrokerRegistrationChangeRecord, _: NameOf) -> tuple[str, bool]:
    parts = []
    if record.fenced:
        parts.append("is fenced" if record.fenced > 0 else "is unfenced")
    if record.in_controlled_shutdown:
        parts.append("begins a controlled shutdown")
    if record.log_dirs:
        parts.append(f"has {len(record.log_dirs)} log directories online")
    if record.cordoned_log_dirs is not None:
        parts.append(f"has {len(record.cordoned_log_dirs)} log directories cordoned")
    return f"broker {record.broker_id} {' and '.join(parts) or 'is as before'}", record.fenced > 0


def _partition(record: PartitionRecord, name_of: NameOf) -> tuple[str, bool]:
    name = f"{name_of(record.topic_id)}-{record.partition_id}"
    return f"{name} is created: replicas {ids(record.replicas)}, leader {record.leader}", record.leader == NO_LEADER


def _partition_changed(record: PartitionChangeRecord, name_of: NameOf) -> tuple[str, bool]:
    parts = []
    if record.leader != _UNCHANGED:
        parts.append("no leader" if record.leader == NO_LEADER else f"leader {record.leader}")
    lists: tuple[tuple[str, Sequence[int] | None], ...] = (
        ("replicas", record.replicas),
        ("ISR", record.isr),
        ("ELR", record.eligible_leader_replicas),
        ("last known ELR", record.last_known_elr),
        ("removing", record.removing_replicas),
        ("adding", record.adding_replicas),
    )
    parts += [f"{label} {ids(members)}" for label, members in lists if members is not None]
    if record.leader_recovery_state >= 0:
        parts.append("recovered" if record.leader_recovery_state == 0 else "recovering after an unclean election")
    is_bad = record.leader == NO_LEADER or record.leader_recovery_state > 0
    return f"{name_of(record.topic_id)}-{record.partition_id}: {', '.join(parts) or 'as before'}", is_bad


def _config(record: ConfigRecord, _: NameOf) -> tuple[str, bool]:
    # Never the value: it may be a password.
    owner = {TOPIC: "topic", BROKER: "broker"}.get(record.resource_type, f"resource type {record.resource_type}")
    verb = "is removed from" if record.value is None else "is set on"
    return f"{record.name} {verb} {owner} {record.resource_name or '(default of all)'}", False


def _voters(record: VotersRecord, _: NameOf) -> tuple[str, bool]:
    return f"the voters are {ids(sorted(voter.voter_id for voter in record.voters))}", False


_TELLERS: dict[type, Callable[[Any, NameOf], tuple[str, bool]]] = {
    RegisterBrokerRecord: _registered,
    UnregisterBrokerRecord: lambda record, _: (f"broker {record.broker_id} is forgotten", True),
    FenceBrokerRecord: lambda record, _: (f"broker {record.id} is fenced", True),
    UnfenceBrokerRecord: lambda record, _: (f"broker {record.id} is unfenced", False),
    BrokerRegistrationChangeRecord: _registration_changed,
    RegisterControllerRecord: lambda record, _: (f"controller {record.controller_id} registers", False),
    TopicRecord: lambda record, _: (f"topic {record.name} is created", False),
    RemoveTopicRecord: lambda record, name_of: (f"topic {name_of(record.topic_id)} is removed", False),
    PartitionRecord: _partition,
    PartitionChangeRecord: _partition_changed,
    ConfigRecord: _config,
    FeatureLevelRecord: lambda record, _: (f"feature {record.name} is at level {record.feature_level}", False),
    LeaderChangeMessage: lambda record, _: (f"controller {record.leader_id} leads", False),
    VotersRecord: _voters,
    KRaftVersionRecord: lambda record, _: (f"kraft.version is {record.kraft_version}", False),
}
