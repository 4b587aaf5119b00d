"""What ``kraftcore server`` keeps of a metadata log: the records that later ones did not make void, in their order.

Replayed in that order they give the state that the whole log gives, so they are what a snapshot has to hold. What voids
what: Kafka 4.3.1, org.apache.kafka.image.*Delta and PartitionRegistration.merge.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import itemgetter
from typing import Any

from kraftcore.core.batch import RecordBatch
from kraftcore.core.uuid import ZERO_UUID, Uuid
from kraftcore.errors import LocalError, RemoteProtocolError
from kraftcore.protocol.features import METADATA_VERSION
from kraftcore.protocol.metadata import MetadataRecordType, decode_metadata_record, encode_metadata_record
from kraftcore.state_machine import SnapshotSink, StateMachine

_TOPIC_CONFIG = 2
_NO_LEADER_CHANGE = -2
_MIGRATING = ZERO_UUID  # directories of a partition that was never told any
_TRANSACTIONS = {
    MetadataRecordType.BEGIN_TRANSACTION_RECORD,
    MetadataRecordType.END_TRANSACTION_RECORD,
    MetadataRecordType.ABORT_TRANSACTION_RECORD,
}


class MetadataRecords(StateMachine):
    """Takes any log; of one that does not consist of metadata records it keeps nothing, and writes no snapshot."""

    def __init__(self) -> None:
        self._groups: dict[Hashable, dict[Hashable, list[tuple[bytes, int]]]] = {}
        self._topic_ids: dict[str, Uuid] = {}
        self._transaction: list[bytes] | None = None
        self._count = 0
        self._foreign = ""

    def apply(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Take over the batch's records."""
        if not self._foreign:
            self._take(batch.values())
        return None

    def snapshot(self, sink: SnapshotSink) -> None:
        """Write what is left.

        Raises:
            LocalError: this is no metadata log, or a metadata transaction is under way.
        """
        if self._foreign:
            raise LocalError(f"only metadata records can be summed up: {self._foreign}")
        if self._transaction is not None:
            raise LocalError("a metadata transaction is under way")
        kept = [item for group in self._groups.values() for items in group.values() for item in items]
        kept.sort(key=itemgetter(1))
        sink.append([value for value, _ in kept])

    def restore(self, values: Iterable[bytes]) -> None:
        """Begin anew with a snapshot's records."""
        self.__init__()  # type: ignore[misc]
        self._take(values)

    @property
    def metadata_version(self) -> int:
        """The level that is finalized; 0 if none is, or this is no metadata log."""
        found = self._groups.get("features", {}).get(METADATA_VERSION)
        if found is None:
            return 0
        record: Any = decode_metadata_record(found[-1][0])[0]
        return int(record.feature_level)

    def incarnation(self, controller_id: int) -> Uuid | None:
        """Of the registration of a controller, or None without one."""
        found = self._groups.get("controllers", {}).get(controller_id)
        if found is None:
            return None
        record: Any = decode_metadata_record(found[-1][0])[0]
        return record.incarnation_id  # type: ignore[no-any-return]

    def _take(self, values: Iterable[bytes | None]) -> None:
        for value in values:
            raw = bytes(value or b"")
            try:
                record, version = decode_metadata_record(raw)
            except RemoteProtocolError as error:
                self.__init__()  # type: ignore[misc]
                self._foreign = str(error)
                return
            kind = record.schema.api_key
            if kind in _TRANSACTIONS:
                self._bound_transaction(kind)
            elif self._transaction is not None:
                self._transaction.append(raw)
            else:
                self._replay(kind, record, version, raw)

    def _bound_transaction(self, kind: int | None) -> None:
        done, self._transaction = self._transaction or [], None
        if kind == MetadataRecordType.BEGIN_TRANSACTION_RECORD:
            self._transaction = []
        elif kind == MetadataRecordType.END_TRANSACTION_RECORD:
            self._take(done)

    def _replay(self, kind: int | None, record: Any, version: int, raw: bytes) -> None:
        if kind in _SETS:
            group, key = _SETS[kind](record)
            self._put(group, key, raw)
        elif kind in _DROPS:
            self._drop(*_DROPS[kind](record))
        elif kind in _BROKER_CHANGES:
            self._add(("broker", _BROKER_CHANGES[kind](record)), None, raw)
        elif kind in _SPECIAL:
            _SPECIAL[kind](self, record, version, raw)

    # --- what becomes of a record -------------------------------------------------------------------------------------

    def _put(self, group: Hashable, key: Hashable, raw: bytes) -> None:
        items = self._groups.setdefault(group, {})
        items.pop(key, None)
        self._add(group, key, raw)

    def _add(self, group: Hashable, key: Hashable, raw: bytes) -> None:
        self._count += 1
        self._groups.setdefault(group, {}).setdefault(key, []).append((raw, self._count))

    def _drop(self, group: Hashable, key: Hashable) -> None:
        items = self._groups.get(group)
        if items is not None:
            items.pop(key, None)
            if not items:
                del self._groups[group]

    def _on_feature(self, record: Any, version: int, raw: bytes) -> None:
        if record.feature_level == 0:
            self._drop("features", record.name)
        else:
            self._put("features", record.name, raw)

    def _on_config(self, record: Any, version: int, raw: bytes) -> None:
        group = ("config", record.resource_type, record.resource_name)
        if record.value is None:
            self._drop(group, record.name)
        else:
            self._put(group, record.name, raw)

    def _on_quota(self, record: Any, version: int, raw: bytes) -> None:
        entity = (
            "quota",
            *sorted((each.entity_type, each.entity_name or "", each.entity_name is None) for each in record.entity),
        )
        if record.remove:
            self._drop(entity, record.key)
        else:
            self._put(entity, record.key, raw)

    def _on_topic(self, record: Any, version: int, raw: bytes) -> None:
        self._topic_ids[record.name] = record.topic_id
        self._put(("topic", record.topic_id), "topic", raw)

    def _on_remove_topic(self, record: Any, version: int, raw: bytes) -> None:
        self._groups.pop(("topic", record.topic_id), None)
        for name in [name for name, topic_id in self._topic_ids.items() if topic_id == record.topic_id]:
            del self._topic_ids[name]
            self._groups.pop(("config", _TOPIC_CONFIG, name), None)

    def _on_clear_elr(self, record: Any, version: int, raw: bytes) -> None:
        for name, topic_id in self._topic_ids.items():
            if record.topic_name in ("", name):
                group = ("topic", topic_id)
                for key in [key for key in self._groups.get(group, ()) if key != "topic"]:
                    partition: Any
                    partition, known_version = decode_metadata_record(self._groups[group][key][-1][0])
                    if partition.eligible_leader_replicas or partition.last_known_elr:
                        partition.eligible_leader_replicas = partition.last_known_elr = None
                        self._put(group, key, encode_metadata_record(partition, known_version))

    def _on_partition_change(self, record: Any, version: int, raw: bytes) -> None:
        group, key = ("topic", record.topic_id), record.partition_id
        known = self._groups.get(group, {}).get(key)
        if known is None:
            return
        partition, old_version = decode_metadata_record(known[-1][0])
        merge_partition(partition, record)
        self._put(group, key, encode_metadata_record(partition, max(version, old_version)))


def merge_partition(partition: Any, change: Any) -> None:
    """Carry out a PartitionChangeRecord on a PartitionRecord."""
    for name in ("isr", "replicas", "removing_replicas", "adding_replicas", "directories"):
        if (changed := getattr(change, name)) is not None:
            setattr(partition, name, changed)
    if all(each == _MIGRATING for each in partition.directories):
        partition.directories = [_MIGRATING] * len(partition.replicas)
    for name in ("eligible_leader_replicas", "last_known_elr"):
        if (changed := getattr(change, name)) is not None:
            setattr(partition, name, changed or None)
    if change.leader != _NO_LEADER_CHANGE:
        partition.leader = change.leader
        partition.leader_epoch += 1
    if change.leader_recovery_state >= 0:
        partition.leader_recovery_state = change.leader_recovery_state
    partition.partition_epoch += 1


_Place = Callable[[Any], tuple[Hashable, Hashable]]
_Kind = MetadataRecordType
_SETS: dict[int | None, _Place] = {
    _Kind.REGISTER_BROKER_RECORD: lambda record: (("broker", record.broker_id), None),
    _Kind.PARTITION_RECORD: lambda record: (("topic", record.topic_id), record.partition_id),
    _Kind.DELEGATION_TOKEN_RECORD: lambda record: ("tokens", record.token_id),
    _Kind.USER_SCRAM_CREDENTIAL_RECORD: lambda record: ("scram", (record.name, record.mechanism)),
    _Kind.PRODUCER_IDS_RECORD: lambda record: ("producer ids", None),
    _Kind.ACCESS_CONTROL_ENTRY_RECORD: lambda record: ("acls", record.id),
    _Kind.ZK_MIGRATION_STATE_RECORD: lambda record: ("zk migration", None),
    _Kind.REGISTER_CONTROLLER_RECORD: lambda record: ("controllers", record.controller_id),
}
_DROPS: dict[int | None, _Place] = {
    _Kind.UNREGISTER_BROKER_RECORD: lambda record: (("broker", record.broker_id), None),
    _Kind.REMOVE_DELEGATION_TOKEN_RECORD: lambda record: ("tokens", record.token_id),
    _Kind.REMOVE_USER_SCRAM_CREDENTIAL_RECORD: lambda record: ("scram", (record.name, record.mechanism)),
    _Kind.REMOVE_ACCESS_CONTROL_ENTRY_RECORD: lambda record: ("acls", record.id),
}
_BROKER_CHANGES: dict[int | None, Callable[[Any], int]] = {
    _Kind.FENCE_BROKER_RECORD: lambda record: record.id,
    _Kind.UNFENCE_BROKER_RECORD: lambda record: record.id,
    _Kind.BROKER_REGISTRATION_CHANGE_RECORD: lambda record: record.broker_id,
}
_SPECIAL: dict[int | None, Callable[[MetadataRecords, Any, int, bytes], None]] = {
    _Kind.FEATURE_LEVEL_RECORD: MetadataRecords._on_feature,
    _Kind.CONFIG_RECORD: MetadataRecords._on_config,
    _Kind.CLIENT_QUOTA_RECORD: MetadataRecords._on_quota,
    _Kind.TOPIC_RECORD: MetadataRecords._on_topic,
    _Kind.REMOVE_TOPIC_RECORD: MetadataRecords._on_remove_topic,
    _Kind.CLEAR_ELR_RECORD: MetadataRecords._on_clear_elr,
    _Kind.PARTITION_CHANGE_RECORD: MetadataRecords._on_partition_change,
}
