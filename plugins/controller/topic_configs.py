"""Configurations, as decisions about topics need them.

validate_topic_configs(context, {"retention.ms": "5"})        raises Refusal with INVALID_CONFIG and Kafka's words
topic_config_records(context, "orders", {...})             Config records, and ClearElr where one has to follow
created_configs(context, {...})                            all values in force, by name, as CreateTopics answers
topic_defaults(context).of("min.insync.replicas", own)     one value in force, with its source
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Final, NamedTuple

from kraftcore.configdef.topics import Effective, TopicDefaults
from kraftcore.configdef.types import ConfigValueError
from kraftcore.metadata.configs import BROKER, TOPIC
from kraftcore.plugins.controller.decision import Context, Record, Refusal
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.create_topics import CreateTopicsResponse
from kraftcore.protocol.records.clear_elr_record import ClearElrRecord
from kraftcore.protocol.records.config_record import ConfigRecord

MIN_ISR: Final = "min.insync.replicas"
MAX_VALUE_BYTES: Final = 32_767
"""Most bytes of a value in a record, in UTF-8. Kafka counts characters, and fails to write a longer value."""
CreatedConfig = CreateTopicsResponse.CreatableTopicResult.CreatableTopicConfigs

_KEPT: Final = 64
_NAME = attrgetter("name")


class _Defaults(NamedTuple):
    # The mappings of the last call; they are immutable, so the same objects mean the same defaults.
    static: Mapping[str, str]
    cluster: Mapping[str, str]
    node: Mapping[str, str]
    defaults: TopicDefaults
    created: tuple[CreatedConfig, ...]


_made: dict[int, _Defaults] = {}


def topic_defaults(context: Context) -> TopicDefaults:
    """The values of topics that set nothing themselves, by this controller's file and the brokers' configuration."""
    return _defaults(context).defaults


def _defaults(context: Context) -> _Defaults:
    static, configs = context.settings.static_configs, context.image.configs
    cluster, node = configs.of(BROKER, ""), configs.of(BROKER, str(context.settings.node_id))
    known = _made.get(id(static))
    if known is None or known.static is not static or known.cluster is not cluster or known.node is not node:
        if len(_made) >= _KEPT:
            _made.clear()
        defaults = TopicDefaults(static, cluster, node)
        known = _Defaults(static, cluster, node, defaults, tuple(map(_created, defaults.all)))
        _made[id(static)] = known
    return known


def validate_topic_configs(
    context: Context, configs: Mapping[str, str | None], existing: Mapping[str, str] | None = None
) -> None:
    """Check that a topic may have these values.

    Args:
        context: of the decision.
        configs: all values that the topic is to have of its own.
        existing: the values it has now; None for a new topic.

    Raises:
        Refusal: INVALID_CONFIG.
    """
    if not configs and not existing:
        return
    for value in configs.values():
        check_length(value)
    try:
        topic_defaults(context).validate(configs, existing)
    except ConfigValueError as refused:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(refused)) from None


def check_length(value: str | None) -> None:
    """Check that a record can hold a value.

    Raises:
        Refusal: INVALID_CONFIG.
    """
    if value is not None and len(value) * 4 > MAX_VALUE_BYTES and len(value.encode()) > MAX_VALUE_BYTES:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            "The configuration value cannot be added because it exceeds the maximum value size of "
            f"{MAX_VALUE_BYTES} bytes.",
        )


def topic_config_records(context: Context, name: str, configs: Mapping[str, str]) -> list[Record]:
    """The records that give a new topic its values; they stand between its Topic and its Partition records.

    Args:
        context: of the decision.
        name: of the topic.
        configs: values that `validate_topic_configs` has let pass.
    """
    records: list[Record] = [
        (ConfigRecord(resource_type=TOPIC, resource_name=name, name=key, value=value), 0)
        for key, value in configs.items()
    ]
    return records + clear_elr_records(context, records)


def clear_elr_records(context: Context, records: Iterable[Record]) -> list[Record]:
    """The ClearElr records that must follow changes of min.insync.replicas, which decides who is eligible (KIP-966).

    Args:
        context: of the decision.
        records: all records of the request.
    """
    if not context.image.features.is_elr_on:
        return []
    return [
        (ClearElrRecord(topic_name=record.resource_name if record.resource_type == TOPIC else ""), 0)
        for record, _ in records
        if isinstance(record, ConfigRecord) and record.name == MIN_ISR
    ]


def created_configs(context: Context, configs: Mapping[str, str]) -> list[CreatedConfig]:
    """All values in force for a new topic, sorted by name, as CreateTopics answers them.

    Args:
        context: of the decision.
        configs: the topic's own values, checked.
    """
    known = _defaults(context)
    created = list(known.created)
    for name in configs:
        place = bisect_left(created, name, key=_NAME)
        if place == len(created) or created[place].name != name:  # set by the topic, without a default
            created.insert(place, known.created[0])
        created[place] = _created(known.defaults.of(name, configs))
    return created


def _created(each: Effective) -> CreatedConfig:
    return CreatedConfig(
        name=each.name,
        value=None if each.type.is_sensitive else each.value,
        read_only=False,
        config_source=each.source,
        is_sensitive=each.type.is_sensitive,
    )
