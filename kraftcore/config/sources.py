"""Settings from Kafka's ``.properties`` files and from environment variables.

Both are read as properties: names and texts. Kafka's properties that a node does not use are set aside, for the server
to list; any other unknown property is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kraftcore.config.errors import ConfigError, suggestion
from kraftcore.config.identity import (
    check_listener_names,
    read_listeners,
    read_log_dirs,
    read_node_id,
    read_roles,
)
from kraftcore.config.kafka_properties import IGNORED_PREFIXES, KAFKA_PROPERTIES
from kraftcore.config.node_settings import FETCH_WAIT_MS, GIVEN, SETTINGS, label
from kraftcore.config.properties import Properties
from kraftcore.config.providers import PROVIDERS_KEY
from kraftcore.config.sasl_keys import (
    JAAS_KEY,
    OAUTH_READ,
    REAUTH_KEY,
    RECEIVE_KEY,
    SASL_READ,
    listener_prefix,
    mechanism_key,
)
from kraftcore.config.settings import INT64_MAX, Number
from kraftcore.config.tls import CLIENT_AUTH, TlsConfig
from kraftcore.config.value_checks import check_values
from kraftcore.errors import LocalError
from kraftcore.raft.quorum import Endpoint
from kraftcore.security.principals import RULES_KEY, PrincipalMapper
from kraftcore.security.sasl.mechanism_table import MECHANISMS

if TYPE_CHECKING:
    from kraftcore.config.login import SaslLogin
    from kraftcore.config.security import SaslConfig

_Config = TypeVar("_Config")

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_LISTENER_PREFIX = "listener.name."
_LISTENER_VARIABLE = "LISTENER_NAME_"
_INTERNAL_SEGMENT_BYTES = "internal.metadata.log.segment.bytes"
_BROKER_ID = "broker.id"
_PLUGIN_PREFIX = "PLUGIN_"
_KEYS = tuple(setting.key for setting in SETTINGS.values())
# Properties that are read here, besides those of the settings.
_ALSO_READ = frozenset(
    {
        "process.roles",
        "controller.listener.names",
        "log.dir",
        PROVIDERS_KEY,
        _BROKER_ID,
        _INTERNAL_SEGMENT_BYTES,
        "kraftcore.fast.fencing.ms",
        "kraftcore.offers.log",
        "ssl.client.auth",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.type",
        RULES_KEY,
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
        REAUTH_KEY,
        RECEIVE_KEY,
        JAAS_KEY,
        *OAUTH_READ,
    }
)
_TLS_READ = frozenset(key for key in (*_KEYS, *_ALSO_READ) if key.startswith("ssl."))


def config_from_properties(
    make: Callable[..., _Config], properties: Properties, overrides: Mapping[str, Any], *, with_broker: bool = False
) -> _Config:
    """Implements ``NodeConfig.read``; ``make`` is that class."""
    GIVEN.check_names(overrides)
    ignored = []
    everywhere = [text.partition("://")[0] for text in properties.list("listeners")]
    names = properties.list("controller.listener.names") or everywhere
    if with_broker:
        names = [*names, *everywhere]
    own = {listener_prefix(name) for name in names}
    for key in properties.names:
        if key.startswith(f"{PROVIDERS_KEY}."):
            continue
        listener, name = _listener_and_name(key)
        if listener in own and any(name == each or name.endswith("." + each) for each in SASL_READ):
            continue  # may be set for one mechanism, too
        read: Collection[str] = _TLS_READ if listener else (*_KEYS, *_ALSO_READ)
        # For one listener only encryption and authentication are read; other names may be a plugin's own.
        aside = name in KAFKA_PROPERTIES or name.startswith(IGNORED_PREFIXES)
        if aside or (listener and not name.startswith("ssl.")):
            ignored.append(key)
        elif name not in read and not key.startswith(SETTINGS["plugin_settings"].key):
            setting = SETTINGS.get(key.replace(".", "_"))
            known = (listener + each for each in (*read, *KAFKA_PROPERTIES))
            close = f"; did you mean {setting.key}?" if setting else suggestion(key, known)
            raise properties.error(f"there is no property {key}{close}", key)
    return _make(make, properties, ignored, overrides, with_broker=with_broker)


def config_from_environment(
    make: Callable[..., _Config], prefix: str, environment: Mapping[str, str], overrides: Mapping[str, Any]
) -> _Config:
    """Implements ``NodeConfig.from_environment``; ``make`` is that class."""
    GIVEN.check_names(overrides)
    names = {_variable(key): key for key in (*KAFKA_PROPERTIES, *_ALSO_READ, *_KEYS)}
    names |= {_variable(key.removeprefix("kraftcore.")): key for key in _KEYS}
    # `process.roles` is not true or false.
    names |= {name.upper(): setting.key for name, setting in SETTINGS.items() if name != "can_become_voter"}
    values: dict[str, str] = {}
    places: dict[str, str] = {}
    ignored = []
    for variable, text in environment.items():
        if not prefix or not variable.startswith(prefix):
            continue
        name = variable.removeprefix(prefix)
        key = names.get(name)
        if key is None and name.startswith(_LISTENER_VARIABLE):
            key = _of_listener(name.removeprefix(_LISTENER_VARIABLE))
        if key is None and name.startswith(_PLUGIN_PREFIX):  # KRAFTCORE_PLUGIN_METRICS_LISTEN
            key = SETTINGS["plugin_settings"].key + name.removeprefix(_PLUGIN_PREFIX).lower().replace("_", ".", 1)
        if key is None:
            close = suggestion(name, names)
            if close:
                raise ConfigError(
                    f"there is no such setting{close.replace('mean ', 'mean ' + prefix)}", [name], variable
                )
            ignored.append(variable)
        elif key in KAFKA_PROPERTIES:
            ignored.append(variable)
        elif key in values and values[key] != text:
            raise ConfigError(f"contradicts {places[key]}, which is {key} as well", [key], variable)
        else:
            values[key] = text
            places[key] = variable
    return _make(make, Properties(values, places, f"environment {prefix}*"), ignored, overrides)


def _make(
    make: Callable[..., _Config],
    properties: Properties,
    ignored: list[str],
    overrides: Mapping[str, Any],
    *,
    with_broker: bool = False,
) -> _Config:
    settings = _settings(properties, ignored, overrides, with_broker=with_broker)
    check_values(properties)
    for name in ("node_id", "directory"):
        if name not in settings:
            raise properties.error(f"{label(name)} is missing", SETTINGS[name].key)
    try:
        return make(**settings)
    except ConfigError as error:
        keys = [SETTINGS[name].key if name in SETTINGS else name for name in error.settings if name not in overrides]
        raise ConfigError(error.reason, error.settings, properties.where(*keys)) from None


def _settings(
    properties: Properties, ignored: list[str], overrides: Mapping[str, Any], *, with_broker: bool
) -> dict[str, Any]:
    settings = {
        name: setting.read(properties)
        for name, setting in SETTINGS.items()
        if setting.key in properties and not setting.is_composed
    }
    if settings.get("idle_timeout_ms", 1) <= 0:  # means never in Kafka
        settings["idle_timeout_ms"] = INT64_MAX
    settings.update(_at_least(settings))
    if _INTERNAL_SEGMENT_BYTES in properties:
        settings["segment_bytes"] = SETTINGS["segment_bytes"].read_as(properties, _INTERNAL_SEGMENT_BYTES)
    node_id = read_node_id(properties)
    if node_id is not None:
        settings["node_id"] = node_id
    logs = read_log_dirs(properties)
    directory = properties.get("metadata.log.dir") or next(iter(logs), None)
    if directory:
        settings["directory"] = directory
        others = dict.fromkeys(os.path.normpath(each) for each in logs)
        others.pop(os.path.normpath(directory), None)
        settings["log_directories"] = tuple(others)
    prefix = SETTINGS["plugin_settings"].key
    found = {key.removeprefix(prefix): properties.get(key) for key in properties.names if key.startswith(prefix)}
    if found:
        settings["plugin_settings"] = found
    settings.update(_network_settings(properties, ignored, overrides, with_broker=with_broker))
    settings["ignored"] = tuple(ignored)
    return _with_shorter_wait({**settings, **overrides})


def _at_least(settings: Mapping[str, Any]) -> dict[str, int]:
    """The least values of a node for numbers that are smaller in the file, as Kafka allows."""
    least = {name: each.low for name, each in SETTINGS.items() if isinstance(each, Number) and name in settings}
    return {name: low for name, low in least.items() if settings[name] < low}


def _with_shorter_wait(settings: dict[str, Any]) -> dict[str, Any]:
    """Shorten the wait of a Fetch, fixed in Kafka, so that with short timeouts a leader does not look dead."""
    times = [settings.get(name) for name in ("request_timeout_ms", "fetch_timeout_ms")]
    given = [time for time in times if isinstance(time, int)]
    if "fetch_max_wait_ms" in settings or not given or min(given) > FETCH_WAIT_MS:
        return settings
    return {**settings, "fetch_max_wait_ms": min(given) // 2}


def _network_settings(
    properties: Properties, ignored: list[str], overrides: Mapping[str, Any], *, with_broker: bool
) -> dict[str, Any]:
    roles = read_roles(properties) or ("controller",)
    bound = read_listeners(properties, "listeners")
    names = [name.upper() for name in properties.list("controller.listener.names")]
    own = names or [endpoint.name for endpoint in bound]
    found: dict[str, Any] = {"can_become_voter": "controller" in roles}
    of_broker = []
    if with_broker and "broker" in roles and "broker_listeners" not in overrides:
        of_broker = [endpoint.name for endpoint in bound if endpoint.name not in own]
        found["broker_listeners"] = [endpoint for endpoint in bound if endpoint.name in of_broker]
    if "controller" in roles:
        if "listeners" not in overrides:
            found["listeners"] = _own_listeners(properties, bound, own, [] if of_broker else ignored)
    elif not of_broker:
        ignored.extend(key for key in ("listeners", "advertised.listeners") if key in properties)
    told = {*(own if "listeners" in found else ()), *of_broker}
    if told and "advertised_listeners" not in overrides:
        advertised = read_listeners(properties, "advertised.listeners")
        found["advertised_listeners"] = [endpoint for endpoint in advertised if endpoint.name in told]
    # A node without listeners connects by the protocol of the first name.
    protocols = _protocols(properties, [*(own if found.get("listeners") else own[:1]), *of_broker])
    if "tls" not in overrides:
        found.update(_tls(properties, protocols))
        if not found.get("listeners") and own:
            found["listener_tls"] = {name: tls for name, tls in found["listener_tls"].items() if name in of_broker}
    if "sasl" not in overrides and protocols:
        first = next(iter(protocols))
        found["sasl"] = _node_login(properties, first) if protocols[first].startswith("SASL_") else None
    served = {*(own if found.get("listeners") else ()), *of_broker}
    if served:
        found["listener_sasl"] = {
            name: _listener_sasl(properties, name)
            for name, each in protocols.items()
            if name in served and each.startswith("SASL_")
        }
    return found


# SASL is imported where a file asks for it.


def _node_login(properties: Properties, listener: str) -> SaslLogin | None:
    from kraftcore.config.login import read_node_login

    return read_node_login(properties, listener)


def _broker_login(properties: Properties, listener: str) -> SaslLogin:
    from kraftcore.config.login import read_broker_login

    return read_broker_login(properties, listener)


def _listener_sasl(properties: Properties, listener: str) -> SaslConfig:
    from kraftcore.config.sasl_properties import read_listener_sasl

    return read_listener_sasl(properties, listener)


def _own_listeners(properties: Properties, bound: list[Endpoint], own: list[str], ignored: list[str]) -> list[Endpoint]:
    by_name = {endpoint.name: endpoint for endpoint in bound}
    check_listener_names(properties, own, by_name)
    others = [endpoint.name for endpoint in bound if endpoint.name not in own]
    ignored.extend(f"listeners={name}" for name in others)
    return [by_name[name] for name in dict.fromkeys(own)]


def _protocols(properties: Properties, listeners: list[str]) -> dict[str, str]:
    """The security protocol of each of these listeners, in their order."""
    key = "listener.security.protocol.map"
    protocols: dict[str, str] = {}
    for entry in properties.list(key):
        name, colon, protocol = entry.partition(":")
        if not entry:
            continue  # as in Kafka, empty entries are skipped
        if not colon:
            raise properties.error(f"{key} has {entry!r}: write NAME:PROTOCOL", key)
        protocols[name.strip().upper()] = protocol.strip().upper()
    found: dict[str, str] = {}
    for name in listeners:
        if protocols and name not in protocols and name not in _PROTOCOLS:
            # As in Kafka: a misspelt name must not leave the listener open to everybody.
            raise properties.error(f"{key} does not have {name}{suggestion(name, protocols)}", key)
        protocol = found[name] = protocols.get(name, name if name in _PROTOCOLS else "PLAINTEXT")
        if protocol not in _PROTOCOLS:
            close = suggestion(protocol, _PROTOCOLS)
            raise properties.error(f"{key}: {name} has {protocol}: it may be {', '.join(_PROTOCOLS)}{close}", key)
    return found


def _tls(properties: Properties, protocols: Mapping[str, str]) -> dict[str, Any]:
    """``tls`` of the first listener, and ``listener_tls`` of listeners that differ from it."""
    found = {
        name: _tls_config(properties, name.lower(), protocol) if protocol.endswith("SSL") else None
        for name, protocol in protocols.items()
    }
    first = found.pop(next(iter(found))) if found else None
    return {"tls": first, "listener_tls": {name: tls for name, tls in found.items() if tls != first}}


def _tls_config(properties: Properties, listener: str, protocol: str) -> TlsConfig:
    def key_of(name: str) -> str:
        # A listener's own properties override those of all listeners.
        specific = f"{_LISTENER_PREFIX}{listener}.{name}"
        return specific if specific in properties else name

    def find(name: str) -> str | None:
        return properties.get(key_of(name))

    for name in ("ssl.keystore.key", "ssl.keystore.certificate.chain", "ssl.truststore.certificates"):
        if find(name):
            instead = "ssl.truststore.location" if "trust" in name else "ssl.keystore.location"
            raise properties.error(f"{name}: put the PEM text into a file and name it in {instead}", name)
    for kind in ("keystore", "truststore"):
        name = f"ssl.{kind}.type"
        if find(f"ssl.{kind}.location") and (find(name) or "JKS").upper() != "PEM":
            raise properties.error(
                f"{name} is {find(name) or 'JKS'}: a node reads PEM; convert the store (keytool -importkeystore to "
                f"PKCS12, then openssl pkcs12) and set {name}=PEM",
                name,
                f"ssl.{kind}.location",
            )
    # As in Kafka, a listener with SASL asks for certificates only if its own property says so.
    is_meant = protocol == "SSL" or key_of("ssl.client.auth") != "ssl.client.auth"
    auth = (find("ssl.client.auth") if is_meant else None) or "none"
    if auth not in CLIENT_AUTH:
        close = suggestion(auth, CLIENT_AUTH)
        raise properties.error(
            f"ssl.client.auth is {auth!r}: it may be {', '.join(CLIENT_AUTH)}{close}", "ssl.client.auth"
        )
    algorithm = find("ssl.endpoint.identification.algorithm")
    rules = find(RULES_KEY)
    try:
        PrincipalMapper(rules or "")
    except LocalError as error:
        raise properties.error(str(error), key_of(RULES_KEY)) from None
    return TlsConfig(
        certificate=find("ssl.keystore.location") or None,  # `NodeConfig` checks that all but observers have one
        key_password=find("ssl.key.password"),
        ca=find("ssl.truststore.location"),
        client_auth=auth,  # type: ignore[arg-type]  # checked above
        check_host_name=algorithm != "",
        principal_mapping_rules=rules,
    )


def read_broker_security(properties: Properties, listener: str) -> tuple[TlsConfig | None, SaslLogin | None]:
    """Read TLS and login of a broker's connections to other brokers' listener of this name; None: without.

    Raises:
        ConfigError: a property is missing, or cannot be used.
    """
    protocol = _protocols(properties, [listener])[listener]
    tls = _tls_config(properties, listener.lower(), protocol) if protocol.endswith("SSL") else None
    return tls, _broker_login(properties, listener) if protocol.startswith("SASL_") else None


def _listener_and_name(key: str) -> tuple[str, str]:
    """Split a key into ``listener.name.controller.`` and ``ssl.client.auth``; the first is empty without a listener."""
    if not key.startswith(_LISTENER_PREFIX):
        return "", key
    name = key.removeprefix(_LISTENER_PREFIX).partition(".")[2]
    return key.removesuffix(name), name


def _of_listener(name: str) -> str | None:
    """Read ``CONTROLLER_PLAIN_SASL_JAAS_CONFIG`` as a property of a listener, or of its mechanism; None: it is not."""
    for key in sorted((*_TLS_READ, *SASL_READ), key=len, reverse=True):
        listener = name.removesuffix("_" + _variable(key))
        if listener == name:
            continue
        for mechanism in MECHANISMS if key in SASL_READ else ():
            owner = listener.removesuffix("_" + _variable(mechanism))
            if owner not in (listener, ""):
                return mechanism_key(owner, mechanism, key)
        return f"{_LISTENER_PREFIX}{listener.lower()}.{key}"
    return None


def _variable(key: str) -> str:
    return key.replace(".", "_").replace("-", "_").upper()
