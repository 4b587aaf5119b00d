"""Decisions on dynamic configurations: IncrementalAlterConfigs (KIP-339) and AlterConfigs.

Each resource of a request is decided by itself; if one change is refused, so are all changes of that resource. All
changes are one batch. A value that is set already is not written again, except for brokers, as in Kafka.

Keys and values of topics, groups and client metrics are checked. Those of brokers are stored unchecked, for the broker
that passes a request on checks them. With eligible leader replicas on, min.insync.replicas cannot differ between
brokers, and a change of it is followed by ClearElr (KIP-966).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from kraftcore.configdef.groups import validate_group
from kraftcore.configdef.keys import definitions
from kraftcore.configdef.metrics import UnknownMetricsConfigError, validate_client_metrics
from kraftcore.configdef.types import ConfigValueError, read_integer
from kraftcore.metadata import ConfigResource
from kraftcore.metadata.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftcore.plugins.controller.decision import (
    Api,
    Context,
    ControllerResult,
    Record,
    Refusal,
    check_item_count,
    check_record_count,
)
from kraftcore.plugins.controller.topic_configs import (
    MIN_ISR,
    check_length,
    clear_elr_records,
    validate_topic_configs,
)
from kraftcore.plugins.controller.topic_names import what_is_wrong
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kraftcore.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftcore.protocol.records.config_record import ConfigRecord
from kraftcore.protocol.schema import Request
from kraftcore.security.acl import CLUSTER_NAME, Operation, ResourceType
from kraftcore.security.audit import Action

SET, DELETE, APPEND, SUBTRACT = range(4)
_OPERATIONS: Final = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}
_KNOWN: Final = {TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP}
_CORDONED: Final = "cordoned.log.dirs"
_COMMA: Final = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")
# Those whose keys can be lists, as far as the controller knows.
_SCOPES: Final = {TOPIC: "topic", BROKER: "broker"}

Values = dict[str, str | None]
"""New values by key; None: the key is deleted."""


class _Change(Protocol):
    """The change of one key, in either request."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> str | None: ...


_Decide = Callable[[Context, ConfigResource, Sequence[Any]], list[Record]]


class _RefusedAsAWhole(Refusal):
    """Refuses all resources of a request: an operation is unknown, or its value is missing."""


class _Request:
    """The resources of a request, and the result of each."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._wanted: dict[ConfigResource, Sequence[Any]] = {}
        self._twice: set[ConfigResource] = set()
        self.results: list[tuple[ConfigResource, Refusal | None]] = []
        self.records: list[Record] = []

    def add(self, resource: ConfigResource, changes: Sequence[_Change]) -> None:
        """Add a resource; a resource of unknown type or named twice is refused, and answered once."""
        if resource.type not in _KNOWN:
            text = f"Unknown resource type {resource.type}."
            self.results.append((resource, Refusal(ErrorCode.UNSUPPORTED_VERSION, text)))
        elif resource not in self._twice:
            if resource in self._wanted:
                self._twice.add(resource)
                del self._wanted[resource]
                self.results.append((resource, Refusal(ErrorCode.INVALID_REQUEST, "Duplicate resource.")))
            else:
                self._wanted[resource] = changes

    def decide_all(self, decide: _Decide) -> None:
        """Decide on every resource that was not refused."""
        for resource, changes in self._wanted.items():
            self.decide(resource, changes, decide, check=True)

    def decide(self, resource: ConfigResource, changes: Sequence[Any], decide: _Decide, *, check: bool) -> None:
        """Decide on a resource; ``check`` asks whether the caller may."""
        try:
            if check:
                _check_allowed(self._context, resource)
            self.records += decide(self._context, resource, changes)
        except _RefusedAsAWhole:
            raise
        except Refusal as refused:
            self.results.append((resource, refused))
        else:
            self.results.append((resource, None))

    def written(self, *, validate_only: bool) -> list[Record]:
        """The records that the request writes.

        Raises:
            Refusal: they are more than one request may write.
        """
        self.records += clear_elr_records(self._context, self.records)
        check_record_count(len(self.records))
        return [] if validate_only else self.records


def alter_incrementally(context: Context, request: IncrementalAlterConfigsRequest, version: int) -> ControllerResult:
    """Set, delete, append to and subtract from single keys."""
    check_item_count(_count(request.resources))
    all_of_it = _Request(context)
    loggers = [each for each in request.resources if each.resource_type == BROKER_LOGGER]
    for each in request.resources:
        if each.resource_type != BROKER_LOGGER:
            all_of_it.add(ConfigResource(each.resource_type, each.resource_name), each.configs)
    for each in loggers:
        resource = ConfigResource(BROKER_LOGGER, each.resource_name)
        all_of_it.decide(resource, each.configs, _alter_loggers, check=False)
    all_of_it.decide_all(_alter_keys)
    written = all_of_it.written(validate_only=request.validate_only)
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    answer = IncrementalAlterConfigsResponse(responses=[result(**_fields(*each)) for each in all_of_it.results])
    return ControllerResult(answer, written)


def alter(context: Context, request: AlterConfigsRequest, version: int) -> ControllerResult:
    """Replace the whole configuration of a resource: keys that are not named are deleted."""
    check_item_count(_count(request.resources))
    all_of_it = _Request(context)
    for each in request.resources:
        all_of_it.add(ConfigResource(each.resource_type, each.resource_name), each.configs)
    all_of_it.decide_all(_replace_keys)
    written = all_of_it.written(validate_only=request.validate_only)
    result = AlterConfigsResponse.AlterConfigsResourceResponse
    answer = AlterConfigsResponse(responses=[result(**_fields(*each)) for each in all_of_it.results])
    return ControllerResult(answer, written)


def _count(resources: Iterable[Any]) -> int:
    """The number of keys, with 1 for each resource that names no key."""
    return sum(max(len(each.configs), 1) for each in resources)


def _fields(resource: ConfigResource, refused: Refusal | None) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE if refused is None else refused.code,
        "error_message": None if refused is None else refused.text,
        "resource_type": resource.type,
        "resource_name": resource.name,
    }


def _check_allowed(context: Context, resource: ConfigResource) -> None:
    if resource.type in (BROKER, CLIENT_METRICS):
        what, name, error = ResourceType.CLUSTER, CLUSTER_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif resource.type == TOPIC:
        what, name, error = ResourceType.TOPIC, resource.name, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif resource.type == GROUP:
        what, name, error = ResourceType.GROUP, resource.name, ErrorCode.GROUP_AUTHORIZATION_FAILED
    else:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Unexpected resource type BROKER_LOGGER.")
    if not context.is_allowed(Action(Operation.ALTER_CONFIGS, what, name)):
        raise Refusal.in_general_words(error)


# --- one resource


def _alter_keys(
    context: Context,
    resource: ConfigResource,
    changes: Sequence[IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig],
) -> list[Record]:
    present = context.image.configs.of(*resource)
    values: Values = {}
    for change in {each.name: each for each in changes}.values():  # the last change of a key that is named twice
        operation = change.config_operation
        if operation == SET:
            values[change.name] = change.value
        elif operation == DELETE:
            values[change.name] = None
        elif operation in _OPERATIONS:
            values[change.name] = _edited(resource, change.name, present.get(change.name), operation, change.value)
        else:
            raise _RefusedAsAWhole(ErrorCode.UNKNOWN_SERVER_ERROR)
    return _change(context, resource, present, values, ())


def _replace_keys(
    context: Context,
    resource: ConfigResource,
    changes: Sequence[AlterConfigsRequest.AlterConfigsResource.AlterableConfig],
) -> list[Record]:
    present = context.image.configs.of(*resource)
    values: Values = {change.name: change.value for change in changes}
    gone = [name for name in present if name not in values]
    return _change(context, resource, present, values, gone)


def _edited(resource: ConfigResource, name: str, present: str | None, operation: int, operand: str | None) -> str:
    """The list of a key with elements added or removed; if the key is not set, its default is edited."""
    scope = _SCOPES.get(resource.type)
    if scope is None or not definitions(scope).is_list(name):
        text = f"Can't {_OPERATIONS[operation]} to key {name} because its type is not LIST."
        raise Refusal(ErrorCode.INVALID_CONFIG, text)
    if operand is None:
        raise _RefusedAsAWhole(ErrorCode.UNKNOWN_SERVER_ERROR)
    elements = (definitions(scope)[name].default or "") if present is None else present
    edited = [element for element in elements.split(",") if element]
    operands = _split(operand)
    if operation == APPEND:
        there = set(edited)
        edited += [element for element in dict.fromkeys(operands) if element not in there]
    else:
        edited = _without(edited, operands)
    return ",".join(edited)


def _without(elements: list[str], gone: list[str]) -> list[str]:
    """The elements without those in ``gone``: each removes its first occurrence, once for each time it is listed."""
    due = Counter(gone)
    left = []
    for element in elements:
        if due[element]:
            due[element] -= 1
        else:
            left.append(element)
    return left


def _split(text: str) -> list[str]:
    """Split at commas as Java does: without the empty elements at the end."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts if any(parts) or not text else []


def _change(
    context: Context, resource: ConfigResource, present: Mapping[str, str], values: Values, gone: Sequence[str]
) -> list[Record]:
    """Check new values and deleted keys, and return their records."""
    if resource.type != BROKER:
        values = {name: value for name, value in values.items() if present.get(name) != value}
    changes = {**values, **dict.fromkeys(gone)}
    all_of_it = dict(present)
    for name, value in changes.items():
        if resource.type == BROKER:
            _check_broker_key(context, resource.name, name, value, present.get(name))
        check_length(value)
        if value is None:
            all_of_it.pop(name, None)
        else:
            all_of_it[name] = value
    _check(context, resource, all_of_it, present)
    return [
        (ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value), 0)
        for name, value in changes.items()
    ]


def _check(context: Context, resource: ConfigResource, configs: dict[str, str], present: Mapping[str, str]) -> None:
    """Check that a resource can exist, does exist, and may have all these values."""
    name = resource.name
    if resource.type == TOPIC:
        is_there = context.image.topics.by_name(name) is not None
        if not is_there:
            check_topic_name(name)
        validate_topic_configs(context, configs, present)
        if not is_there:
            raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    elif resource.type == BROKER:
        node_id = check_broker_name(name)
        if node_id is not None and not _is_known(context, node_id):
            raise Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No node with id {node_id} found.")
    elif resource.type == CLIENT_METRICS:
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        try:
            validate_client_metrics(configs)
        except UnknownMetricsConfigError as refused:
            raise Refusal(ErrorCode.INVALID_REQUEST, str(refused)) from None
        except ConfigValueError as refused:
            raise Refusal(ErrorCode.INVALID_CONFIG, str(refused)) from None
    else:
        if not name:
            raise Refusal(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
        try:
            validate_group(configs, context.settings.static_configs)
        except ConfigValueError as refused:
            raise Refusal(ErrorCode.INVALID_CONFIG, str(refused)) from None


def check_topic_name(name: str) -> None:
    """Check that there can be a topic of this name.

    Raises:
        Refusal: INVALID_REQUEST for the empty name, else INVALID_TOPIC_EXCEPTION.
    """
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    why = what_is_wrong(name)
    if why is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def check_broker_name(name: str) -> int | None:
    """The broker id in the name of a resource of type BROKER; None for the empty name, which stands for all brokers.

    Raises:
        Refusal: INVALID_REQUEST: the name is not a number, or below 0.
    """
    if not name:
        return None
    node_id = read_integer(name)
    if node_id is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Unable to parse broker name as a base 10 number.")
    if node_id < 0:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Invalid negative broker ID.")
    return node_id


def _is_known(context: Context, node_id: int) -> bool:
    image = context.image
    return node_id in image.brokers or node_id in image.controllers or node_id in context.settings.static_voters


def _check_broker_key(context: Context, broker: str, name: str, value: str | None, present: str | None) -> None:
    """Check the keys of brokers that the controller decides on: min.insync.replicas and cordoned directories."""
    if name == MIN_ISR and context.image.features.is_elr_on:
        if broker:
            text = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            raise Refusal(ErrorCode.INVALID_CONFIG, text)
        if value is None:
            text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            raise Refusal(ErrorCode.INVALID_CONFIG, text)
    if name != _CORDONED:
        return
    if context.image.features.metadata_version_or_minimum < MetadataVersion.V4_3_IV0:
        text = f"requires metadata.version >= {MetadataVersion.V4_3_IV0.text}"
        raise Refusal(ErrorCode.INVALID_CONFIG, f"The {_CORDONED} configuration value cannot be set because it {text}")
    if context.caller.is_forwarded or value is None or not value.strip():
        return
    # A broker checks changes of its own directories; for requests sent to a controller directories can only be removed.
    known = [] if present is None else _COMMA.split(present.strip())
    if not set(_COMMA.split(value.strip())) <= set(known):
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"When updating {_CORDONED} via controllers,  the new value must be a subset of the current configuration "
            "value.",
        )


# --- loggers


def _alter_loggers(
    context: Context,
    resource: ConfigResource,
    changes: Iterable[IncrementalAlterConfigsRequest.AlterConfigsResource.AlterableConfig],
) -> list[Record]:
    """Refuse each logger name as unknown, for this process has no loggers that can be set by name."""
    if not context.is_allowed(Action(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)):
        raise Refusal.in_general_words(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    node_id = read_integer(resource.name)
    if node_id is None:
        text = f"Node id must be an integer, but it is: {resource.name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, text)
    if node_id != context.settings.node_id:
        text = f"Unexpected node id. Expected {context.settings.node_id}, but received {node_id}"
        raise Refusal(ErrorCode.INVALID_REQUEST, text)
    for change in changes:
        operation = change.config_operation
        if operation in (SET, DELETE):
            raise Refusal(ErrorCode.INVALID_CONFIG, f"Logger {change.name} does not exist!")
        what = _OPERATIONS.get(operation)
        what = f"Unknown operation type {operation}" if what is None else f"{what} operation"
        raise Refusal(ErrorCode.INVALID_REQUEST, f"{what} is not allowed for the BROKER_LOGGER resource")
    return []


# --- whole requests refused


def _refuse_incremental(
    request: IncrementalAlterConfigsRequest, version: int, error: ErrorCode, message: str | None
) -> IncrementalAlterConfigsResponse:
    refused = Refusal(error, message)
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    resources = (ConfigResource(each.resource_type, each.resource_name) for each in request.resources)
    return IncrementalAlterConfigsResponse(responses=[result(**_fields(each, refused)) for each in resources])


def _refuse(request: AlterConfigsRequest, version: int, error: ErrorCode, message: str | None) -> AlterConfigsResponse:
    refused = Refusal(error, message)
    result = AlterConfigsResponse.AlterConfigsResourceResponse
    resources = (ConfigResource(each.resource_type, each.resource_name) for each in request.resources)
    return AlterConfigsResponse(responses=[result(**_fields(each, refused)) for each in resources])


APIS: dict[type[Request], Api] = {
    IncrementalAlterConfigsRequest: Api(alter_incrementally, _refuse_incremental),
    AlterConfigsRequest: Api(alter, _refuse),
}
