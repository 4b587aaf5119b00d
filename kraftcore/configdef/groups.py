"""A group's configuration (KIP-848, KIP-932, KIP-1071): what is refused.

Source: Kafka 4.3.1, ``GroupConfig.validate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kraftcore.configdef.keys import definitions
from kraftcore.configdef.topics import not_null
from kraftcore.configdef.types import ConfigValueError


class _Bounds(NamedTuple):
    """A key has to lie between two keys of the server; ``if_set``: only checked where the group sets it."""

    name: str
    least: str | None
    most: str
    if_set: bool = False


def _of(kind: str, name: str, *, if_set: bool = False) -> _Bounds:
    return _Bounds(f"{kind}.{name}", f"group.{kind}.min.{name}", f"group.{kind}.max.{name}", if_set)


# In the order in which Kafka checks them.
_BOUNDS = (
    _of("consumer", "heartbeat.interval.ms"),
    _of("consumer", "session.timeout.ms"),
    _of("consumer", "assignment.interval.ms", if_set=True),
    _of("share", "heartbeat.interval.ms"),
    _of("share", "session.timeout.ms"),
    _of("share", "record.lock.duration.ms"),
    _of("share", "delivery.count.limit"),
    _of("share", "partition.max.record.locks"),
    _of("share", "assignment.interval.ms", if_set=True),
    _of("streams", "heartbeat.interval.ms"),
    _of("streams", "session.timeout.ms"),
    _Bounds("streams.num.standby.replicas", None, "group.streams.max.standby.replicas"),
    _of("streams", "assignment.interval.ms", if_set=True),
)
_KINDS = ("consumer", "share", "streams")


def validate_group(configs: Mapping[str, str | None], static: Mapping[str, str]) -> None:
    """Check all values that a group is to have.

    Args:
        configs: the group's own values as they are to be.
        static: properties of the controller's file; they bound the values and stand in for those not set.

    Raises:
        ConfigValueError: refused, with Kafka's message.
    """
    given = not_null(configs, "group")
    known, server = definitions("group"), definitions("broker")
    for name in given:
        if name not in known:
            raise ConfigValueError(f"Unknown group config name: {name}")

    def of_server(name: str) -> Any:
        key = server[name]
        return key.read(static.get(name, key.default or ""))

    read: dict[str, Any] = known.read(given)
    for name, key in known.items():
        if name not in given:
            read[name] = of_server(key.synonyms[0].name) if key.synonyms else key.read(key.default or "")
    for each in _BOUNDS:
        if each.if_set and each.name not in given:
            continue
        if each.least is not None and read[each.name] < of_server(each.least):
            raise ConfigValueError(f"{each.name} must be greater than or equal to {each.least}")
        if read[each.name] > of_server(each.most):
            raise ConfigValueError(f"{each.name} must be less than or equal to {each.most}")
    for kind in _KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if read[session] <= read[heartbeat]:
            raise ConfigValueError(f"{session} must be greater than {heartbeat}")
