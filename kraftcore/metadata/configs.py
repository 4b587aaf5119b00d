"""Dynamic configurations of the image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from kraftcore.metadata.journal import Part
from kraftcore.protocol.records.config_record import ConfigRecord

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Types of resources, Kafka's ConfigResource.Type."""

_NONE: Mapping[str, str] = MappingProxyType({})


class ConfigResource(NamedTuple):
    """The resource that a configuration belongs to.

    Attributes:
        type: ``TOPIC``, ``BROKER``, ``GROUP``, ``CLIENT_METRICS``.
        name: of the topic, the group; a broker's id in decimal, empty for the default of all brokers.
    """

    type: int
    name: str


class Configs(Part[ConfigResource, Mapping[str, str]]):
    """Values by key, by resource; a resource without values is not in it."""

    __slots__ = ()

    def of(self, resource_type: int, name: str) -> Mapping[str, str]:
        """The values set on a resource, by key; empty if there are none."""
        return self._items.get(ConfigResource(resource_type, name), _NONE)

    def on_config(self, record: ConfigRecord) -> None:
        """Set a key, or, with a null value, remove it."""
        resource = ConfigResource(record.resource_type, record.resource_name)
        changed = dict(self._items.get(resource, _NONE))
        if record.value is None:
            if changed.pop(record.name, None) is None:
                return
        else:
            changed[record.name] = record.value
        if changed:
            self.put(resource, MappingProxyType(changed))
        else:
            self.drop(resource)

    def drop_topic(self, name: str) -> None:
        """Remove the configuration of a removed topic."""
        self.drop(ConfigResource(TOPIC, name))


def config_records(configs: dict[ConfigResource, Mapping[str, str]]) -> Iterator[ConfigRecord]:
    """The records of the configurations in a snapshot."""
    for resource, settings in configs.items():
        for name, value in settings.items():
            yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
