"""A topic's configuration: what is refused, and what is in force.

Source: Kafka 4.3.1, ``LogConfig.validate`` and ``KafkaConfigSchema.resolveEffectiveTopicConfigs``.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from kraftcore.configdef.keys import ConfigKey, definitions
from kraftcore.configdef.types import ConfigType, ConfigValueError, invalid

_REMOTE = "remote.storage.enable"
_SYSTEM = "remote.log.storage.system.enable"
_COMPACTION = ("min.compaction.lag.ms", "max.compaction.lag.ms")
_OF_RETENTION, _NO_LIMIT = -2, -1
_COPY_DISABLED = (
    "When `remote.log.copy.disable` is set to true, the `local.{0}` and `{0}` must be set to the identical value "
    "because there will be no more logs copied to the remote storage."
)
_TURNED_OFF = (
    "It is invalid to disable remote storage without deleting remote data. If you want to keep the remote data and "
    "turn to read only, please set `remote.storage.enable=true,remote.log.copy.disable=true`. If you want to disable "
    "remote storage and delete all remote data, please set "
    "`remote.storage.enable=false,remote.log.delete.on.disable=true`."
)


class ConfigSource(IntEnum):
    """Where a value in force comes from; the numbers are those of DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Effective(NamedTuple):
    """A value in force.

    Attributes:
        name: the key.
        value: as text; None if there is none.
        source: who set it.
        type: of the key.
    """

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType


class TopicDefaults:
    """What holds for topics that set nothing themselves, by the configuration of one server and of all of them.

    Immutable; make a new one when one of the three changes.

    Args:
        static: properties of the server's own file.
        cluster: dynamic configuration of all brokers (resource BROKER with the empty name).
        node: dynamic configuration of this server (resource BROKER with its id).

    Raises:
        ConfigValueError: the file has a value that no topic may have.
    """

    def __init__(
        self, static: Mapping[str, str], cluster: Mapping[str, str] | None = None, node: Mapping[str, str] | None = None
    ) -> None:
        layers = (
            (node or {}, ConfigSource.DYNAMIC_BROKER),
            (cluster or {}, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (static, ConfigSource.STATIC_BROKER),
        )
        keys = definitions("topic")
        self._effective = {name: _resolve(keys[name], layers) for name in sorted(keys)}
        self._listed = tuple(each for name, each in self._effective.items() if not keys[name].is_internal)
        # What a topic's own values are checked together with: the server's file and defaults.
        server = {name: _resolve(key, layers[2:]) for name, key in keys.items()}
        self._server: dict[str, Any] = {
            name: None if each.value is None else keys[name].read(_unlimited(each)) for name, each in server.items()
        }
        self._tiered = definitions("broker")[_SYSTEM].read(static.get(_SYSTEM, "false")) is True

    @property
    def all(self) -> tuple[Effective, ...]:
        """What is in force for a topic without values of its own, by name."""
        return self._listed

    def effective(self, overrides: Mapping[str, str]) -> tuple[Effective, ...]:
        """What is in force for a topic, by name.

        Args:
            overrides: the topic's own values; unknown keys are ignored.
        """
        if not overrides:
            return self._listed
        keys = definitions("topic")
        return tuple(
            self.of(name, overrides) for name in self._effective if name in overrides or not keys[name].is_internal
        )

    def of(self, name: str, overrides: Mapping[str, str]) -> Effective:
        """One value in force for a topic.

        Raises:
            KeyError: no such key.
        """
        default = self._effective[name]
        value = overrides.get(name)
        return default if value is None else Effective(name, value, ConfigSource.TOPIC, default.type)

    def validate(self, configs: Mapping[str, str | None], existing: Mapping[str, str] | None = None) -> None:
        """Check all values that a topic is to have.

        Args:
            configs: the topic's own values as they are to be.
            existing: those it has now.

        Raises:
            ConfigValueError: refused, with Kafka's message.
        """
        if not configs and not existing:
            return
        given = not_null(configs, "topic")
        known = definitions("topic")
        for name in given:
            if name not in known:
                raise ConfigValueError(f"Unknown topic config name: {name}")
        read = ChainMap[str, Any](known.read(given), self._server)
        least, most = read[_COMPACTION[0]], read[_COMPACTION[1]]
        if least > most:
            text = f"{_COMPACTION[0]} ({least}) > {_COMPACTION[1]} ({most})"
            raise ConfigValueError(f"conflict topic config setting {text}")
        if read[_REMOTE]:
            self._check_remote(read)
        elif (existing or {}).get(_REMOTE, "").lower() == "true" and not read["remote.log.delete.on.disable"]:
            raise ConfigValueError(_TURNED_OFF)

    def _check_remote(self, read: Mapping[str, Any]) -> None:
        if not self._tiered:
            raise ConfigValueError(
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage."
            )
        if read["cleanup.policy"] not in ([], ["delete"]):
            raise ConfigValueError(
                "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty "
                "list."
            )
        for name, is_limited in (("retention.bytes", read["retention.bytes"] > -1), ("retention.ms", True)):
            whole, local = read[name], read[f"local.{name}"]
            if not is_limited or whole == _NO_LIMIT or local == _OF_RETENTION:
                continue
            if local == _NO_LIMIT:
                raise invalid(f"local.{name}", str(local), f"Value must not be -1 as {name} value is set as {whole}.")
            if local > whole:
                raise invalid(
                    f"local.{name}", str(local), f"Value must not be more than {name} property value: {whole}"
                )
        if read["remote.log.copy.disable"]:
            for name in ("retention.bytes", "retention.ms"):
                if read[f"local.{name}"] not in (_OF_RETENTION, read[name]):
                    raise ConfigValueError(_COPY_DISABLED.format(name))


def _unlimited(server: Effective) -> str:
    """A server's value; any negative retention time means no limit."""
    value = server.value or ""
    return "-1" if server.name == "retention.ms" and value.startswith("-") else value


def not_null(configs: Mapping[str, str | None], what: str) -> dict[str, str]:
    """The configuration, if every key has a value.

    Args:
        configs: key to value.
        what: the kind of resource, for the message: ``topic``, ``group``, ``client metrics``.

    Raises:
        ConfigValueError: a value is null.
    """
    given = {name: value for name, value in configs.items() if value is not None}
    if len(given) < len(configs):
        names = ",".join(name for name in configs if name not in given)
        raise ConfigValueError(f"Null value not supported for {what} configs: {names}")
    return given


def _resolve(key: ConfigKey, layers: Iterable[tuple[Mapping[str, str], ConfigSource]]) -> Effective:
    for layer, source in layers:
        for synonym in key.synonyms:
            if synonym.name in layer:
                return Effective(key.name, synonym.convert(layer[synonym.name]), source, key.type)
    return Effective(key.name, key.default, ConfigSource.DEFAULT, key.type)
