"""Configurations of topics, brokers, groups and client metrics. Source: KIP-226, 339, 1000, 1142; Kafka 4.3.1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kraftcore.admin.calls import all_told, check_active, settle
from kraftcore.admin.cluster import ClusterCalls
from kraftcore.admin.router import raise_refusal, refusal
from kraftcore.configdef.topics import ConfigSource
from kraftcore.configdef.types import ConfigType
from kraftcore.errors import LocalError, RefusedError
from kraftcore.metadata.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, ConfigResource
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kraftcore.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftcore.protocol.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from kraftcore.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


class ConfigOperation(IntEnum):
    """The change of a key, with the protocol's numbers (KIP-339). APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One key's change.

    Attributes:
        name: the key.
        operation: what to do.
        value: the value, or what to append or subtract, separated by commas; None for DELETE.
    """

    name: str
    operation: ConfigOperation
    value: str | None


class ConfigSynonym(NamedTuple):
    """A value that a key has, or would have if the synonyms before it were not set.

    Attributes:
        name: the key under which it is set, for example ``log.retention.ms`` for a topic's ``retention.ms``.
        value: the value; None if it is sensitive.
        source: where it is set.
    """

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A key of a resource.

    Attributes:
        name: the key.
        value: the value; None if there is none, or it is sensitive.
        source: where it is set.
        is_read_only: whether it cannot be changed while the node runs.
        is_sensitive: whether it is a password, whose value is never told.
        type: of the value; None if the node does not say.
        synonyms: all values it could have, the one in force first; empty unless asked for.
        documentation: None unless asked for.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType | None
    synonyms: tuple[ConfigSynonym, ...]
    documentation: str | None


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group that a broker coordinates.

    Attributes:
        id: its name.
        protocol_type: for example ``consumer``; empty if it has none.
        type: ``classic``, ``consumer``, ``share``, ``streams``; empty from brokers before Kafka 3.8.
        state: for example ``Stable``; empty from brokers before Kafka 2.6.
    """

    id: str
    protocol_type: str
    type: str
    state: str


class ConfigCalls(ClusterCalls):
    """Calls about configurations; see ``AdminClient`` for the errors that all of them raise."""

    async def describe_configs(
        self,
        resources: Iterable[ConfigResource],
        *,
        keys: Sequence[str] | None = None,
        include_synonyms: bool = False,
        include_documentation: bool = False,
    ) -> Mapping[ConfigResource, tuple[ConfigEntry, ...]]:
        """Describe configurations. A broker is asked about itself; through controllers, a controller about itself.

        Args:
            resources: type (``kraftcore.metadata.configs``: TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP) and
                name: of the topic or group; the node's id in decimal; empty for the default of all brokers.
            keys: keys to describe; None: all.
            include_synonyms: with every value that could be in force.
            include_documentation: with Kafka's text about each key.

        Returns:
            By resource, in the order of ``resources``.

        Raises:
            LocalError: a broker's name is not an id, or there is no such node.
            PartlyRefusedError: by resource. UNKNOWN_TOPIC_OR_PARTITION, INVALID_REQUEST, ..._AUTHORIZATION_FAILED.
        """
        results: dict[ConfigResource, tuple[ConfigEntry, ...] | RefusedError] = {}
        wanted = tuple(dict.fromkeys(resources))
        resource_of = DescribeConfigsRequest.DescribeConfigsResource
        for node_id, asked in _by_node(wanted).items():
            response = await self._router.call(
                "describeConfigs",
                DescribeConfigsRequest(
                    resources=[
                        resource_of(
                            resource_type=each.type,
                            resource_name=each.name,
                            configuration_keys=None if keys is None else list(keys),
                        )
                        for each in asked
                    ],
                    include_synonyms=include_synonyms,
                    include_documentation=include_documentation,
                ),
                DescribeConfigsResponse,
                lambda answer: check_active(each.error_code for each in answer.results),
                node_id=node_id,
            )
            told = {ConfigResource(each.resource_type, each.resource_name): _entries(each) for each in response.results}
            results.update(all_told(asked, told))
        return settle({resource: results[resource] for resource in wanted})

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Sequence[ConfigChange]], *, validate_only: bool = False
    ) -> None:
        """Change keys; all other keys stay (IncrementalAlterConfigs). For each resource all changes are made, or none.

        Args:
            changes: by resource, as for ``describe_configs``.
            validate_only: check, change nothing.

        Raises:
            LocalError: a broker's name is no id: nothing was changed; or there is no such node: all others were asked.
            PartlyRefusedError: by resource. INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION,
                POLICY_VIOLATION, ..._AUTHORIZATION_FAILED.
        """
        resource_of = IncrementalAlterConfigsRequest.AlterConfigsResource

        async def ask(node_id: int | None, asked: list[ConfigResource]) -> Mapping[ConfigResource, bool | RefusedError]:
            response = await self._router.call(
                "incrementalAlterConfigs",
                IncrementalAlterConfigsRequest(
                    resources=[
                        resource_of(
                            resource_type=each.type,
                            resource_name=each.name,
                            configs=[
                                resource_of.AlterableConfig(
                                    name=change.name, config_operation=change.operation, value=change.value
                                )
                                for change in changes[each]
                            ],
                        )
                        for each in asked
                    ],
                    validate_only=validate_only,
                ),
                IncrementalAlterConfigsResponse,
                lambda answer: check_active(each.error_code for each in answer.responses),
                node_id=node_id,
            )
            told = {
                ConfigResource(each.resource_type, each.resource_name): refusal(each.error_code, each.error_message)
                or True
                for each in response.responses
            }
            return all_told(asked, told)

        results = await self._of_each_node(_by_node(changes), ask)
        settle({resource: results[resource] for resource in changes})

    async def list_config_resources(self, types: Iterable[int] = ()) -> tuple[ConfigResource, ...]:
        """Resources that have a configuration, or could have one (KIP-1142). Only through brokers.

        Args:
            types: types of resources to list; empty: all. Brokers before Kafka 4.1 know only CLIENT_METRICS.
        """
        wanted = sorted(set(types))
        response = await self._router.call(
            "listConfigResources",
            ListConfigResourcesRequest(resource_types=[] if wanted == [CLIENT_METRICS] else wanted),
            ListConfigResourcesResponse,
            lambda answer: raise_refusal(answer.error_code, None),
            min_version=0 if wanted == [CLIENT_METRICS] else 1,
        )
        found = {ConfigResource(each.resource_type, each.resource_name) for each in response.config_resources}
        return tuple(sorted(each for each in found if not wanted or each.type in wanted))

    async def list_groups(self) -> tuple[GroupListing, ...]:
        """The groups of all brokers, by name. Only through brokers.

        Raises:
            RefusedError: a broker refused, for another reason than that it is still loading its groups.
        """
        found: dict[str, GroupListing] = {}

        async def ask(node_id: int) -> None:
            response = await self._router.call(
                "listGroups",
                ListGroupsRequest(),
                ListGroupsResponse,
                lambda answer: raise_refusal(answer.error_code, None),
                node_id=node_id,
                retry_refusals=True,
            )
            for each in response.groups:
                found[each.group_id] = GroupListing(
                    each.group_id, each.protocol_type, each.group_type, each.group_state
                )

        for node in (await self.describe_cluster()).nodes:
            await ask(node.id)
        return tuple(found[name] for name in sorted(found))


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Resources by the node to ask: for a broker and its loggers that node, else None for any node."""
    groups: dict[int | None, list[ConfigResource]] = defaultdict(list)
    for each in resources:
        groups[_node_of(each)].append(each)
    return groups


def _node_of(resource: ConfigResource) -> int | None:
    if resource.type != BROKER_LOGGER and (resource.type != BROKER or not resource.name):
        return None
    if not (resource.name.isascii() and resource.name.isdigit()) or int(resource.name) >= 1 << 31:
        raise LocalError(f"{resource.name!r} is not the id of a broker")
    return int(resource.name)


def _entries(result: DescribeConfigsResponse.DescribeConfigsResult) -> tuple[ConfigEntry, ...] | RefusedError:
    error = refusal(result.error_code, result.error_message)
    if error is not None:
        return error
    return tuple(
        ConfigEntry(
            each.name,
            each.value,
            _source(each.config_source),
            each.read_only,
            each.is_sensitive,
            ConfigType(each.config_type) if each.config_type in ConfigType._value2member_map_ else None,
            tuple(ConfigSynonym(same.name, same.value, _source(same.source)) for same in each.synonyms),
            each.documentation,
        )
        for each in result.configs
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in ConfigSource._value2member_map_ else ConfigSource.UNKNOWN
