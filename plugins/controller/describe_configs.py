"""DescribeConfigs, as a controller answers it: of topics, groups and client metrics, and of the controller itself.

Of servers a controller describes itself and the defaults of all brokers. The value in force and its source follow
Kafka's ConfigHelper, down to its oddities: a topic's value that comes from a coarser key of the server
(``log.retention.hours``) is told as a default. The documentation of a key, if asked for, is a sentence of our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from kraftcore.configdef.brokers import applied, server_key, synonyms
from kraftcore.configdef.keys import ConfigKey, definitions, texts
from kraftcore.configdef.topics import ConfigSource, TopicDefaults
from kraftcore.configdef.types import ConfigType, ConfigValueError, Value, read_integer, show
from kraftcore.metadata.configs import BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP, TOPIC
from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, Refusal
from kraftcore.plugins.controller.topic_names import what_is_wrong
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kraftcore.protocol.schema import Request
from kraftcore.security.acl import CLUSTER_NAME, Operation, ResourceType
from kraftcore.security.audit import Action

_Result = DescribeConfigsResponse.DescribeConfigsResult
_Entry = _Result.DescribeConfigsResourceResult
_Synonym = _Entry.DescribeConfigsSynonym

# So often one resource is described in one answer: a server named in five bytes has 27 KB to be told, 60 with texts.
REPEATS_MAX: Final = 4
# Groups and subscriptions of which nothing is set are described under any name: 2 KB for one of five bytes. So many.
INVENTED_MAX: Final = 10_000
_SCOPES: Final = {TOPIC: "topic", GROUP: "group", CLIENT_METRICS: "client-metrics"}
_IDS: Final = (("broker.id", "node.id"), ("node.id", "broker.id"))


class _Setting(NamedTuple):
    """A value that is set, with the source that it is set in."""

    name: str
    value: str
    source: ConfigSource


class _Layers:
    """The configuration of this server, in order: dynamic for this broker, dynamic for all, its file, Kafka's defaults.

    Attributes:
        static, cluster, node: values by key.
        inherited: entries, by kind and key, for resources that do not set the key themselves.
    """

    def __init__(self, context: Context) -> None:
        self.inherited: dict[tuple[int, str], _Entry] = {}
        configs = context.image.configs
        self.static = _with_both_ids(context.settings.static_configs)
        self.node = applied(configs.of(BROKER, str(context.settings.node_id)), of_one=True)
        self.cluster = applied(configs.of(BROKER, ""), of_one=False)
        self._settings: dict[str, list[_Setting]] = {}

    @cached_property
    def topics(self) -> TopicDefaults:
        """The values of topics that set nothing themselves."""
        return TopicDefaults(self.static, self.cluster, self.node)

    def settings(self, name: str) -> list[_Setting]:
        """The values set for a server's key, in order, from the first that has this very name."""
        known = self._settings.get(name)
        if known is None:
            known = self._settings[name] = self._look_up(name)
        return known.copy()

    def _look_up(self, name: str) -> list[_Setting]:
        found: list[_Setting] = []
        names = synonyms(name)
        for layer, source in (
            (self.node, ConfigSource.DYNAMIC_BROKER),
            (self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            (self.static, ConfigSource.STATIC_BROKER),
        ):
            found += [_Setting(each, layer[each], source) for each in names if each in layer]
        for each in names:
            key = definitions("broker").get(each)  # None for quotas, which have no server key
            if key is not None and key.default is not None:
                found.append(_Setting(each, key.default, ConfigSource.DEFAULT))
        while found and found[0].name != name:
            found.pop(0)
        return found


def describe(context: Context, request: DescribeConfigsRequest, version: int) -> ControllerResult:
    """Answer with the configuration in force of some resources."""
    descriptions = Descriptions(context, request)
    descriptions.add(request.resources)
    return ControllerResult(descriptions.response())


class Descriptions:
    """Builds an answer; entries that resources share are made once.

    Args:
        context: of the decision.
        request: says whether each value comes with the values that it overrides, and with its key's documentation.
    """

    def __init__(self, context: Context, request: DescribeConfigsRequest) -> None:
        self._context = context
        self._layers = _Layers(context)
        self._with_synonyms, self._with_texts = request.include_synonyms, request.include_documentation
        self._made: dict[tuple[int, str | int], list[_Entry]] = {}
        self._told: Counter[tuple[int, str | int]] = Counter()
        self._invented = 0
        self._allowed: list[_Result] = []
        self._denied: list[_Result] = []

    def add(self, resources: Iterable[DescribeConfigsRequest.DescribeConfigsResource]) -> None:
        """Add these resources to the answer.

        Raises:
            Refusal: a resource is of no known type, for which Kafka refuses the whole request.
        """
        for each in resources:
            if each.resource_type not in _DESCRIBERS:
                raise Refusal.in_general_words(ErrorCode.INVALID_REQUEST)
            result = _Result(resource_type=each.resource_type, resource_name=each.resource_name)
            try:
                _check_allowed(self._context, each.resource_type, each.resource_name)
            except Refusal as refused:
                result.error_code, result.error_message = refused.code, refused.text
                self._denied.append(result)
                continue
            try:
                entries = self._of(each.resource_type, each.resource_name)
                wanted = frozenset(each.configuration_keys or ())
                result.configs = [entry for entry in entries if entry.name in wanted] if wanted else entries
            except Refusal as refused:
                result.error_code, result.error_message = refused.code, refused.text
            self._allowed.append(result)

    def response(self) -> DescribeConfigsResponse:
        """The answer with the resources added so far."""
        return DescribeConfigsResponse(results=self._allowed + self._denied)

    def _of(self, kind: int, name: str) -> list[_Entry]:
        """The entries of a resource.

        Raises:
            Refusal: the resource cannot be described, or it, or resources without configuration, came too often.
        """
        number = read_integer(name) if kind == BROKER else None
        which = kind, name if number is None else number
        made = self._made.get(which)
        if made is None:
            if kind in (GROUP, CLIENT_METRICS) and not self._context.image.configs.of(kind, name):
                self._invented += 1
                if self._invented > INVENTED_MAX:
                    text = f"The request names more than {INVENTED_MAX} groups and subscriptions without configuration"
                    raise Refusal(ErrorCode.INVALID_REQUEST, text)
            made = list(_DESCRIBERS[kind](self._context, self._layers, name))
            for entry in made:
                if not self._with_synonyms:
                    entry.synonyms = []
                if self._with_texts:
                    entry.documentation = meaning(kind, entry.name)
            self._made[which] = made
        self._told[which] += 1
        if self._told[which] > REPEATS_MAX:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"The request names this resource more than {REPEATS_MAX} times")
        return made


def _check_allowed(context: Context, kind: int, name: str) -> None:
    if kind in (BROKER, BROKER_LOGGER, CLIENT_METRICS):
        what, name, error = ResourceType.CLUSTER, CLUSTER_NAME, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    elif kind == TOPIC:
        what, error = ResourceType.TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    else:
        what, error = ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not context.is_allowed(Action(Operation.DESCRIBE_CONFIGS, what, name)):
        raise Refusal.in_general_words(error)


# --- resources


def _topic(context: Context, layers: _Layers, name: str) -> Iterable[_Entry]:
    why = what_is_wrong(name)
    if why is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, why)
    if context.image.topics.by_name(name) is None:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    own = context.image.configs.of(TOPIC, name)
    keys = definitions("topic")
    for each in layers.topics.effective(own):
        is_own = each.name in own
        entry = None if is_own else layers.inherited.get((TOPIC, each.name))
        if entry is None:
            key = keys[each.name]
            value = None if each.value is None else _as_told(key, each.value)
            settings = layers.settings(key.synonyms[0].name) if key.synonyms else []
            if is_own:
                settings.insert(0, _Setting(key.name, value or "", ConfigSource.TOPIC))
            entry = _entry(key.name, value, key.type, settings, is_read_only=False)
            if not is_own:
                layers.inherited[TOPIC, key.name] = entry
        yield entry


def _server(context: Context, layers: _Layers, name: str) -> Iterable[_Entry]:
    if not name:
        for each in layers.cluster:
            yield _server_entry(layers, each, layers.cluster[each], ConfigSource.DYNAMIC_DEFAULT_BROKER)
        return
    _check_this_node(context, name, "or empty string, ")
    known = definitions("broker")
    in_force = {**layers.static, **layers.cluster, **layers.node}
    for each, key in known.items():
        if not key.is_internal or each in in_force:
            value = in_force.get(each, key.default)
            yield _server_entry(layers, each, None if value is None else _as_told(key, value), None)
    for each, value in in_force.items():
        if each not in known:
            yield _server_entry(layers, each, value, None)


def _server_entry(layers: _Layers, name: str, value: str | None, only: ConfigSource | None) -> _Entry:
    key = server_key(name)
    settings = [each for each in layers.settings(name) if only in (None, each.source)]
    known = definitions("broker").get(name)  # by this very name: a key with a listener's prefix is told as read-only
    is_read_only = known.update_mode == "read-only" if known else name not in definitions("broker-quota")
    return _entry(name, value, None if key is None else key.type, settings, is_read_only=is_read_only)


def _loggers(context: Context, layers: _Layers, name: str) -> Iterable[_Entry]:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    _check_this_node(context, name, "")
    return ()


def _client_metrics(context: Context, layers: _Layers, name: str) -> Iterable[_Entry]:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    own = context.image.configs.of(CLIENT_METRICS, name)
    for key in definitions("client-metrics").values():
        value = _as_told(key, own.get(key.name, key.default or ""))
        settings = [_Setting(key.name, value, ConfigSource.CLIENT_METRICS)] if key.name in own else []
        yield _entry(key.name, value, key.type, settings, is_read_only=False)


def _group(context: Context, layers: _Layers, name: str) -> Iterable[_Entry]:
    if not name:
        raise Refusal(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
    own = context.image.configs.of(GROUP, name)
    for key in definitions("group").values():
        is_own = key.name in own
        entry = None if is_own else layers.inherited.get((GROUP, key.name))
        if entry is not None:
            yield entry
            continue
        settings = (
            layers.settings(key.synonyms[0].name)
            if key.synonyms
            else [_Setting(key.name, key.default or "", ConfigSource.DEFAULT)]
        )
        if is_own:
            value = own[key.name]
        elif settings and not key.name.endswith(_NOT_OF_SERVER):
            value = settings[0].value
        else:
            value = key.default or ""
        value = _as_told(key, value)
        if is_own:
            settings.insert(0, _Setting(key.name, value, ConfigSource.GROUP))
        entry = _entry(key.name, value, key.type, settings, is_read_only=False)
        if not is_own:
            layers.inherited[GROUP, key.name] = entry
        yield entry


_NOT_OF_SERVER: Final = ".assignment.interval.ms"  # shown with its own default, not with the server's value


_DESCRIBERS: Final[Mapping[int, Callable[[Context, _Layers, str], Iterable[_Entry]]]] = {
    TOPIC: _topic,
    BROKER: _server,
    BROKER_LOGGER: _loggers,
    CLIENT_METRICS: _client_metrics,
    GROUP: _group,
}


def _check_this_node(context: Context, name: str, alternative: str) -> None:
    node_id = read_integer(name)
    if node_id is None:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if node_id != context.settings.node_id:
        wanted = f"{context.settings.node_id} {alternative}"
        text = f"Unexpected broker id, expected {wanted}but received {name}"
        raise Refusal(ErrorCode.INVALID_REQUEST, text)


# --- keys and values


def _with_both_ids(static: Mapping[str, str]) -> Mapping[str, str]:
    """A server's file with both ``node.id`` and ``broker.id``, of which it names one."""
    found = {name: static[other] for name, other in _IDS if other in static}
    return {**found, **static}


def meaning(kind: int, name: str) -> str | None:
    """The meaning of a key of some kind of resource, in a sentence; None for an unknown key."""
    if kind != BROKER:
        return texts(_SCOPES[kind]).get(name)
    key = server_key(name)
    return None if key is None else texts("broker").get(key.name) or texts("broker-quota").get(key.name)


def _as_told(key: ConfigKey, text: str) -> str:
    """A value as it stands in the answer: parsed and printed again."""
    try:
        value: Value = key.read(text)
    except ConfigValueError:
        return text
    return ",".join(value) if isinstance(value, list) else show(value)


def _entry(
    name: str, value: str | None, kind: ConfigType | None, settings: Sequence[_Setting], *, is_read_only: bool
) -> _Entry:
    is_sensitive = kind is None or kind.is_sensitive
    return _Entry(
        name=name,
        value=None if is_sensitive else value,
        read_only=is_read_only,
        config_source=settings[0].source if settings else ConfigSource.DEFAULT,
        is_sensitive=is_sensitive,
        synonyms=[
            _Synonym(name=each.name, value=None if is_sensitive else each.value, source=each.source)
            for each in settings
        ],
        config_type=0 if kind is None else kind,
        documentation=None,
    )


def _refuse(
    request: DescribeConfigsRequest, version: int, error: ErrorCode, message: str | None
) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(
        results=[
            _Result(
                error_code=error,
                error_message=message,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
            for each in request.resources
        ]
    )


APIS: dict[type[Request], Api] = {DescribeConfigsRequest: Api(describe, _refuse)}
