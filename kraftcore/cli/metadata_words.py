"""The differences between two states of a cluster's metadata, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from typing import Any, TypeVar

from kraftcore.configdef.keys import definitions
from kraftcore.core.uuid import Uuid
from kraftcore.metadata import Change, ConfigResource, Delta, Image, Partition, ScramCredential
from kraftcore.metadata.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftcore.protocol.features import METADATA_VERSION, MetadataVersion
from kraftcore.protocol.json_form import to_json_dict
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.records.user_scram_credential_record import UserScramCredentialRecord
from kraftcore.protocol.schema import MetadataRecord
from kraftcore.protocol.topics import PartitionKey
from kraftcore.security.acl import Operation, PatternType, Permission, ResourceType

V = TypeVar("V")
_NOT_SHOWN = "(not shown)"
RESOURCES = {
    TOPIC: "topic",
    BROKER: "broker",
    BROKER_LOGGER: "broker logger",
    CLIENT_METRICS: "client metrics",
    GROUP: "group",
}
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_PARTITION = ("replicas", "isr", "leader", "leader_epoch", "partition_epoch", "elr", "last_known_elr", "removing")
_PARTITION_TAIL = ("adding", "recovery_state", "directories")


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not the same in both states.

    Attributes:
        kind: as ``topic``, ``partition``, ``broker``.
        name: of the thing.
        before: its fields, values fit for JSON; None: it was not there. Secrets are not in there.
        after: the same afterwards.
        topic: name of the topic that it belongs to, or None.
    """

    kind: str
    name: str
    before: Mapping[str, object] | None
    after: Mapping[str, object] | None
    topic: str | None = None

    @property
    def changed(self) -> dict[str, tuple[object, object]]:
        """The fields that differ, before and after, of a thing that is in both states."""
        before, after = self.before or {}, self.after or {}
        return {
            key: (before.get(key), after.get(key)) for key in {**before, **after} if before.get(key) != after.get(key)
        }


def differences_of(delta: Delta, before: Image, after: Image) -> Iterator[Difference]:
    """The differences in a fixed order: features, nodes, topics, partitions, configurations, the rest."""
    topics = {**before.topics, **after.topics}

    def by_topic(key: PartitionKey) -> tuple[str, str, int]:
        return topics[key.topic_id].name, str(key.topic_id), key.partition_id

    for name, level in sorted(delta.features.items()):
        yield _difference("feature", name, level, _feature)
    for number, broker in sorted(delta.brokers.items()):
        yield _difference("broker", str(number), broker, plain_fields)
    for number, controller in sorted(delta.controllers.items()):
        yield _difference("controller", str(number), controller, plain_fields)
    for topic_id, topic in sorted(delta.topics.items(), key=lambda item: (topics[item[0]].name, str(item[0]))):
        name = topics[topic_id].name
        yield _difference("topic", name, topic, lambda each: {"id": str(each.id)}, name)
    for key, partition in sorted(delta.partitions.items(), key=lambda item: by_topic(item[0])):
        name = topics[key.topic_id].name
        yield _difference("partition", f"{name}-{key.partition_id}", partition, partition_fields, name)
    for resource, config in sorted(delta.configs.items()):
        kind = RESOURCES.get(resource.type, f"resource type {resource.type}")
        of_topic = resource.name if resource.type == TOPIC else None
        as_fields = partial(config_fields, resource, change=config)
        yield _difference("configuration", f"{kind} {resource.name or '(default)'}", config, as_fields, of_topic)
    for entity, quota in sorted(delta.quotas.items(), key=lambda item: entity_name(item[0])):
        yield _difference("quota", entity_name(entity), quota, dict)
    for acl_id, acl in sorted(delta.acls.items(), key=lambda item: str(item[0])):
        yield _difference("access control entry", str(acl_id), acl, acl_fields)
    for user, credential in sorted(delta.scram.items()):
        name = f"{user.name}, {MECHANISMS.get(user.mechanism, user.mechanism)}"
        yield _difference("credential", name, credential, partial(credential_fields, change=credential))
    for token_id, token in sorted(delta.tokens.items()):
        yield _difference("delegation token", token_id, token, plain_fields)
    if delta.next_producer_id is not None:
        yield _difference("producer id", "next", delta.next_producer_id, lambda each: {"next": each})


def _difference(
    kind: str,
    name: str,
    change: Change[V],
    as_fields: Callable[[V], Mapping[str, object]],
    topic: str | None = None,
) -> Difference:
    before, after = (None if each is None else as_fields(each) for each in change)
    return Difference(kind, name, before, after, topic)


def _feature(level: int) -> dict[str, object]:
    return {"level": level}


def plain_fields(value: Any) -> dict[str, object]:
    """The fields of a value of the image, fit for JSON."""
    return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}


def _plain(value: Any) -> object:
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: _plain(each) for name, each in zip(value._fields, value, strict=True)}
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return plain_fields(value) if is_dataclass(value) else value


def partition_fields(partition: Partition) -> dict[str, object]:
    """The fields of a partition, fit for JSON."""
    return {name: _plain(getattr(partition, name)) for name in (*_PARTITION, *_PARTITION_TAIL)}


def config_fields(
    resource: ConfigResource, values: Mapping[str, str], change: Change[Mapping[str, str]] | None = None
) -> dict[str, object]:
    """The values of a resource. A broker's that may be secret are not shown, only whether they changed."""
    if resource.type != BROKER:
        return dict(values)
    known, before = definitions("broker"), (change and change.before) or values

    def shown(key: str, value: str) -> str:
        if key in known and not known[key].type.is_sensitive:
            return value
        return _NOT_SHOWN if before.get(key, value) == value else f"{_NOT_SHOWN}, another one"

    return {key: shown(key, value) for key, value in values.items()}


def entity_name(entity: Iterable[tuple[str, str | None]]) -> str:
    """An entity of client quotas as text."""
    return ", ".join(f"{kind} {'(default)' if name is None else name}" for kind, name in entity)


def acl_fields(acl: Any) -> dict[str, object]:
    """The fields of an access control entry, with the names of its numbers."""
    enums = {
        "resource_type": ResourceType,
        "pattern_type": PatternType,
        "operation": Operation,
        "permission_type": Permission,
    }
    return {name: enums[name](value).name if name in enums else value for name, value in acl._asdict().items()}


def credential_fields(credential: ScramCredential, change: Change[ScramCredential] | None = None) -> dict[str, object]:
    """The fields of a credential without its secrets."""
    is_other = change is not None and change.before is not None and credential is change.after
    return {"iterations": credential.iterations, "secret": _NOT_SHOWN + (", another one" if is_other else "")}


def record_fields(record: MetadataRecord, version: int) -> dict[str, object]:
    """A record as ``dump-log`` has it, but for secrets."""
    found = to_json_dict(record, version)
    if isinstance(record, ConfigRecord) and record.value is not None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        found["value"] = config_fields(resource, {record.name: record.value})[record.name]
    if isinstance(record, UserScramCredentialRecord):
        found |= dict.fromkeys(("salt", "storedKey", "serverKey"), _NOT_SHOWN)
    return found


# --- words ------------------------------------------------------------------------------------------------------------


def sentences(found: Iterable[Difference]) -> Iterator[str]:
    """A line for each difference; partitions and configurations of topics that come or go are told with the topic."""
    listed = list(found)
    whole = {each.topic for each in listed if each.kind == "topic"}
    parts = Counter(each.topic for each in listed if each.kind == "partition" and each.topic in whole)
    for each in listed:
        if each.kind != "topic" and each.topic in whole:
            continue
        yield _sentence(each, parts[each.topic] if each.kind == "topic" else 0)


def _sentence(each: Difference, partitions: int) -> str:
    what = f"{each.kind} {each.name}"
    if each.before is not None and each.after is not None:
        told = "; ".join(f"{key} {_words(key, *values, each)}" for key, values in each.changed.items())
        return f"{what} changed: {told}"
    there = each.after if each.before is None else each.before
    more = {"partitions": partitions} if partitions else {}
    told = ", ".join(
        f"{key} {_short(value)}" for key, value in {**(there or {}), **more}.items() if value not in ([], None)
    )
    return f"{what} {'is new' if each.before is None else 'is gone'}: {told}"


def _words(key: str, before: object, after: object, each: Difference) -> str:
    if each.kind == "feature" and each.name == METADATA_VERSION:
        return " -> ".join(_version(level) for level in (before, after))
    return f"{_short(before)} -> {_short(after)}"


def _version(level: object) -> str:
    known = isinstance(level, int) and level in list(MetadataVersion)
    return f"{level} ({MetadataVersion.from_level(level).text})" if known and isinstance(level, int) else str(level)


def _short(value: object) -> str:
    if value is None:
        return "(none)"
    if isinstance(value, list):
        return f"[{','.join(map(_short, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_short(each)}" for key, each in value.items()) + "}"
    return str(value)
