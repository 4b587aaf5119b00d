"""``NodeConfig``: all settings of a node, checked when the object is made."""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Unpack

from kraftcore.config.addresses import (
    ALL_INTERFACES,
    DEFAULT_LISTENER,
    WILDCARDS,
    parse_address,
    parse_endpoint,
    parse_voters,
)
from kraftcore.config.errors import ConfigError, suggestion
from kraftcore.config.node_settings import BROUGHT, SETTINGS, NodeOverrides, NodeSettings, label
from kraftcore.config.properties import Properties, load_properties
from kraftcore.config.security import SecurityProtocol
from kraftcore.config.settings import documented
from kraftcore.config.sources import config_from_environment, config_from_properties
from kraftcore.core.log.config import LogConfig
from kraftcore.forms import with_article
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.events import RESPONSE_OVERHEAD, RaftConfig
from kraftcore.raft.quorum import Endpoint
from kraftcore.raft.snapshot_schedule import CleaningConfig

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

PREALLOCATE_BYTES = 256 * 1024  # thousands of small batches between two writes of zeros
ATTACHED_LINGER_MS = 1  # callers wait for what attached processes, which are observers, hear


@documented
class NodeConfig(NodeSettings):
    """Settings of a node. Names and defaults are Kafka's where Kafka has them; each setting names its property.

    Times are milliseconds, sizes bytes. ``from_properties`` reads Kafka's file format, ``from_environment`` variables.
    ``ignored`` has the file's Kafka properties that a node does not use; ``kraftcore server start`` lists them.

    ``authorizer`` (`kraftcore.security.authorizer.Authorizer`) and ``principal_builder``
    (`kraftcore.security.principals.PrincipalBuilder`) are objects of the application. Without an authorizer every
    request is allowed, unless a plugin brings one; without a principal builder Kafka's rules hold.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another one.
    """

    def __post_init__(self) -> None:
        self._convert()
        self._check_values()
        self._check_listeners()
        self._check_listener_tls()
        self._check_certificates()
        self._check_listener_sasl()
        self._check_login()
        self._check_quorum()
        self._check_sizes()
        self._check_plugins()
        self._check_brought()

    @classmethod
    def from_properties(
        cls,
        path: str | os.PathLike[str],
        *,
        properties: Mapping[str, str] | None = None,
        with_broker: bool = False,
        **overrides: Unpack[NodeOverrides],
    ) -> NodeConfig:
        """Read one of Kafka's ``.properties`` files.

        A missing ``process.roles`` stands for ``controller``, missing ``controller.listener.names`` for all listeners.

        Args:
            path: the file.
            properties: properties that replace the file's.
            with_broker: read the broker's listeners, too, if ``process.roles`` has ``broker``.
            **overrides: settings that replace what the properties say.

        Raises:
            ConfigError: as for the class; the file and line are named.
            CorruptDataError: the file holds a broken escape.
            StorageError: the file cannot be read.
        """
        return cls.read(load_properties(os.fspath(path), properties or {}), with_broker=with_broker, **overrides)

    @classmethod
    def read(
        cls, properties: Properties, *, with_broker: bool = False, **overrides: Unpack[NodeOverrides]
    ) -> NodeConfig:
        """Do as ``from_properties`` with a file that was read already, for a pipe can be read only once.

        Args:
            properties: all properties of the file.
            with_broker: see ``from_properties``.
            **overrides: see ``from_properties``.

        Raises:
            ConfigError: see ``from_properties``.
        """
        return config_from_properties(cls, properties, overrides, with_broker=with_broker)

    @classmethod
    def from_environment(
        cls,
        prefix: str = "KRAFTCORE_",
        *,
        environment: Mapping[str, str] | None = None,
        **overrides: Unpack[NodeOverrides],
    ) -> NodeConfig:
        """Read variables: ``KRAFTCORE_CONTROLLER_QUORUM_VOTERS`` is ``controller.quorum.voters``.

        Variables are named after this class's fields or Kafka's properties, upper case and with ``_``, for example
        ``KRAFTCORE_DIRECTORY`` and ``KRAFTCORE_METADATA_LOG_DIR``, or after ``kraftcore.*`` properties, with the prefix
        once. A variable whose name resembles no setting is not for the node, and goes to ``ignored``.

        Args:
            prefix: of the variables' names.
            environment: variables; None: those of this process.
            **overrides: settings that replace what the variables say.

        Raises:
            ConfigError: as for the class, with the variable's name; or a variable is nearly named like a setting.
        """
        variables = os.environ if environment is None else environment
        return config_from_environment(cls, prefix, variables, overrides)

    # --- settings of the parts of a node ------------------------------------------------------------------------------

    def advertise(self, bound: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
        """The endpoints that other nodes are told for the bound listeners.

        Args:
            bound: the listeners with their bound ports.
        """
        return tuple(self._advertised(endpoint) for endpoint in bound)

    def raft_config(self, key: ReplicaKey, cluster_id: str, listeners: Iterable[Endpoint]) -> RaftConfig:
        """Settings of the replica.

        Args:
            key: node and directory id.
            cluster_id: of ``meta.properties``.
            listeners: the bound listeners, which become advertised ones.
        """
        linger_ms = self.observer_linger_ms
        return RaftConfig(
            cluster_id=cluster_id,
            key=key,
            listeners=self.advertise(listeners),
            static_voters=self.voters,
            bootstrap_servers=tuple((server.host, server.port) for server in self.bootstrap_servers),
            observer_linger_ms=min(linger_ms, ATTACHED_LINGER_MS) if self.attachable else linger_ms,
            **self.settings_of(
                RaftConfig, besides=("cluster_id", "listeners", "bootstrap_servers", "observer_linger_ms")
            ),
        )

    def log_config(self) -> LogConfig:
        """Settings of the log."""
        return LogConfig(preallocate_bytes=PREALLOCATE_BYTES if self.preallocate else 0, **self.settings_of(LogConfig))

    def cleaning_config(self) -> CleaningConfig:
        """When to write snapshots and what to delete."""
        return CleaningConfig(period_ms=self.cleaning_period_ms, **self.settings_of(CleaningConfig))

    def settings_of(self, part: type[DataclassInstance], besides: Collection[str] = ()) -> dict[str, Any]:
        """The settings that a part of a node has under the same names.

        Args:
            part: a dataclass.
            besides: fields of the part to leave out.
        """
        return {
            each.name: getattr(self, each.name)
            for each in fields(part)
            if each.name in SETTINGS and each.name not in besides
        }

    # --- private ------------------------------------------------------------------------------------------------------

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _convert(self) -> None:
        self._set("directory", os.fspath(self.directory))
        self._set("log_directories", tuple(map(os.fspath, self.log_directories)))
        self._set("record_file", None if self.record_file is None else os.fspath(self.record_file))
        self._set("plugin_settings", dict(self.plugin_settings))
        for name in ("listeners", "broker_listeners", "advertised_listeners"):
            given: Iterable[Endpoint | str] = getattr(self, name)
            self._set(name, tuple(_converted(name, parse_endpoint, value) for value in given))
        for name in ("listeners", "broker_listeners"):
            everywhere = (each._replace(host=each.host or ALL_INTERFACES) for each in getattr(self, name))
            self._set(name, tuple(everywhere))
        servers = (_converted("bootstrap_servers", parse_address, each) for each in self.bootstrap_servers)
        self._set("bootstrap_servers", tuple(servers))
        try:
            listener = self.listeners[0].name if self.listeners else DEFAULT_LISTENER
            self._set("voters", parse_voters(self.voters, listener))
        except ConfigError as error:
            raise ConfigError(f"{label('voters')}: {error.reason}", ["voters"]) from None

    def _check_values(self) -> None:
        if not self.directory:
            raise ConfigError(f"{label('directory')} is empty: name the folder that holds the log", ["directory"])
        if self.cluster_id is not None and not self.cluster_id:
            raise ConfigError(f"{label('cluster_id')} is empty: leave it out to take the directory's", ["cluster_id"])
        if (
            not self.topic
            or len(self.topic) > 249
            or not all(c.isascii() and (c.isalnum() or c in "._-") for c in self.topic)
        ):
            raise ConfigError(
                f"{label('topic')} is {self.topic!r}: a topic has 1 to 249 letters, digits, '.', '_' or '-'", ["topic"]
            )

    def _check_listeners(self) -> None:
        names = [endpoint.name for endpoint in self.all_listeners]
        for endpoint in (*self.all_listeners, *self.advertised_listeners):
            if not endpoint.name or not 0 <= endpoint.port <= 65535:
                raise ConfigError(
                    f"{label('listeners')}: {endpoint} needs a name and a port up to 65535", ["listeners"]
                )
        for field_name in ("all_listeners", "advertised_listeners"):
            found = [endpoint.name for endpoint in getattr(self, field_name)]
            field_name = field_name.removeprefix("all_")
            twice = next((name for name in found if found.count(name) > 1), None)
            if twice is not None:
                raise ConfigError(f"{label(field_name)}: two listeners are called {twice}", [field_name])
        places = [(endpoint.host, endpoint.port) for endpoint in self.all_listeners if endpoint.port]
        if len(set(places)) != len(places):
            raise ConfigError(f"{label('listeners')}: two listeners share an address", ["listeners"])
        for endpoint in self.advertised_listeners:
            if endpoint.name not in names:
                close = suggestion(endpoint.name, names)
                raise ConfigError(
                    f"{label('advertised_listeners')}: {endpoint.name} is none of the listeners, "
                    f"which are {', '.join(names) or 'none'}{close}",
                    ["advertised_listeners", "listeners"],
                )
            if endpoint.host in WILDCARDS or not endpoint.port:
                raise ConfigError(
                    f"{label('advertised_listeners')}: nobody can connect to {endpoint}: name a host and its port",
                    ["advertised_listeners"],
                )
        if self.can_become_voter and not self.listeners:
            raise ConfigError(
                f"{label('listeners')} is missing: whoever may become a voter must be reachable, for example "
                "CONTROLLER://127.0.0.1:9093; an observer has can_become_voter=False (process.roles=broker)",
                ["listeners", "can_become_voter"],
            )

    def _check_listener_tls(self) -> None:
        self._set("listener_tls", {name.upper(): tls for name, tls in self.listener_tls.items()})
        names = [endpoint.name for endpoint in self.all_listeners]
        for name in self.listener_tls:
            if name not in names:
                raise ConfigError(
                    f"listener_tls: {name} is none of the listeners, which are {', '.join(names) or 'none'}"
                    f"{suggestion(name, names)}",
                    ["listener_tls", "listeners"],
                )
            if self.listeners and name == names[0]:
                raise ConfigError(
                    f"listener_tls: {name} is the first listener, which encrypts as connections to other nodes do: say "
                    "with tls how",
                    ["listener_tls", "tls"],
                )

    def _check_certificates(self) -> None:
        for endpoint in self.all_listeners:
            tls = self.listener_tls.get(endpoint.name, self.tls)
            if tls is not None and tls.certificate is None:
                raise ConfigError(
                    f"tls.certificate (ssl.keystore.location) is missing: listener {endpoint.name} encrypts, and has "
                    "to show one: name a PEM file",
                    ["tls"],
                )

    def _check_listener_sasl(self) -> None:
        self._set("listener_sasl", {name.upper(): sasl for name, sasl in self.listener_sasl.items()})
        names = [endpoint.name for endpoint in self.all_listeners]
        for name in self.listener_sasl:
            if name not in names:
                raise ConfigError(
                    f"listener_sasl: {name} is none of the listeners, which are {', '.join(names) or 'none'}"
                    f"{suggestion(name, names)}",
                    ["listener_sasl", "listeners"],
                )

    def _check_login(self) -> None:
        if self.sasl is not None:
            from kraftcore.config.login import SaslLogin  # whoever has one has imported it

            if not isinstance(self.sasl, SaslLogin):
                raise ConfigError(f"sasl is {with_article(type(self.sasl))}: it must be a SaslLogin or None", ["sasl"])
        if not self.listeners:
            return
        first = self.listeners[0].name
        others = bool(self.voters.ids - {self.node_id}) or bool(self.bootstrap_servers)
        if first in self.listener_sasl and self.sasl is None and others:
            raise ConfigError(
                f"{label('sasl')} is missing: connections to other nodes go to their listener {first}, which wants a "
                "login",
                ["sasl", "listener_sasl"],
            )
        if first not in self.listener_sasl and self.sasl is not None:
            raise ConfigError(
                f"{label('sasl')} says how to log in, but connections to other nodes go to their listener {first}, "
                "which is not among listener_sasl",
                ["sasl", "listener_sasl"],
            )

    @property
    def all_listeners(self) -> tuple[Endpoint, ...]:
        """All listeners to bind: ``listeners``, then ``broker_listeners``."""
        return (*self.listeners, *self.broker_listeners)

    def security_protocol(self, listener: str) -> SecurityProtocol:
        """A listener's security protocol in Kafka: whether it encrypts, and whether clients log in."""
        encrypts = self.listener_tls.get(listener, self.tls) is not None
        return SecurityProtocol((2 if listener in self.listener_sasl else 0) + encrypts)

    def _check_quorum(self) -> None:
        ids = sorted(self.voters.ids)
        if self.can_become_voter and ids and self.node_id not in ids:
            raise ConfigError(
                f"node_id {self.node_id} is not among the {label('voters')} {ids}, but this node may become a voter",
                ["voters", "node_id"],
            )
        if not self.can_become_voter and self.node_id in ids:
            raise ConfigError(
                f"node_id {self.node_id} is among the {label('voters')} {ids}, but this node is an observer",
                ["voters", "node_id"],
            )
        if self.auto_join and not self.can_become_voter:
            raise ConfigError(
                f"{label('auto_join')} is for nodes that may become a voter (process.roles holds controller)",
                ["auto_join", "can_become_voter"],
            )
        if self.create == "standalone" and (ids or not self.can_become_voter):
            other = "voters" if ids else "can_become_voter"
            raise ConfigError(
                f"{label('create')}=standalone makes this node the only voter, which contradicts {label(other)}",
                ["create", other],
            )
        alone = not ids and not self.bootstrap_servers
        if alone and (self.create == "join" or self.auto_join or not self.can_become_voter):
            raise ConfigError(
                f"{label('bootstrap_servers')} is missing: without it or {label('voters')} this node cannot find "
                "the quorum",
                ["bootstrap_servers"],
            )
        if self.create == "join" and self.cluster_id is None and (len(ids) > 1 or not ids):
            others = f"the {label('voters')} {ids}" if ids else f"those at {label('bootstrap_servers')}"
            raise ConfigError(
                f"{label('cluster_id')} is missing: {label('create')}=join would give an empty directory a cluster id "
                f"that none of {others} has. Set it to the same text on all nodes; what a quorum has already says "
                "kraftcore cluster cluster-id",
                ["cluster_id", "create"],
            )

    def _check_brought(self) -> None:
        for name, method in zip(BROUGHT, ("authorize", "build"), strict=True):
            given = getattr(self, name)
            if given is not None and not callable(getattr(given, method, None)):
                raise ConfigError(f"{name} is {given!r}: it has no method {method}", [name])

    def _check_plugins(self) -> None:
        for key in self.plugin_settings:
            name, dot, setting = key.partition(".")
            if not (dot and setting) or name not in self.plugins:
                names = ", ".join(self.plugins) or "none"
                raise ConfigError(
                    f"{label('plugin_settings')} has {key!r}, a setting of no plugin that is loaded: "
                    f"{label('plugins')} names {names}{suggestion(name, self.plugins)}",
                    ["plugin_settings", "plugins"],
                )

    def _check_sizes(self) -> None:
        if self.fetch_max_wait_ms and self.fetch_max_wait_ms >= min(self.request_timeout_ms, self.fetch_timeout_ms):
            raise ConfigError(
                f"{label('fetch_max_wait_ms')} is {self.fetch_max_wait_ms}: it must be less than request_timeout_ms "
                f"({self.request_timeout_ms}) and fetch_timeout_ms ({self.fetch_timeout_ms}), or an idle log would "
                "look like a dead leader",
                ["fetch_max_wait_ms", "request_timeout_ms", "fetch_timeout_ms"],
            )
        if self.max_batch_bytes > self.segment_bytes:
            self._set("max_batch_bytes", self.segment_bytes)
        largest = max(self.max_batch_bytes, self.fetch_max_bytes, self.fetch_snapshot_max_bytes) + RESPONSE_OVERHEAD
        if self.max_frame_bytes < largest:
            raise ConfigError(
                f"{label('max_frame_bytes')} is {self.max_frame_bytes}: a Fetch may need {largest} with the present "
                "max_batch_bytes, fetch_max_bytes and fetch_snapshot_max_bytes",
                ["max_frame_bytes", "max_batch_bytes", "fetch_max_bytes", "fetch_snapshot_max_bytes"],
            )
        if self.connection_memory_bytes < self.max_frame_bytes:
            raise ConfigError(
                f"{label('connection_memory_bytes')} is {self.connection_memory_bytes}: a connection must be able to "
                f"buffer one frame of max_frame_bytes ({self.max_frame_bytes})",
                ["connection_memory_bytes", "max_frame_bytes"],
            )
        if self.receive_memory_bytes < self.max_frame_bytes:
            raise ConfigError(
                f"{label('receive_memory_bytes')} is {self.receive_memory_bytes}: one frame of max_frame_bytes "
                f"({self.max_frame_bytes}) must find room in it",
                ["receive_memory_bytes", "max_frame_bytes"],
            )
        if self.reconnect_backoff_max_ms < self.reconnect_backoff_ms:
            raise ConfigError(
                f"{label('reconnect_backoff_max_ms')} is {self.reconnect_backoff_max_ms}, less than "
                f"reconnect_backoff_ms ({self.reconnect_backoff_ms})",
                ["reconnect_backoff_max_ms", "reconnect_backoff_ms"],
            )

    def _advertised(self, bound: Endpoint) -> Endpoint:
        for endpoint in self.advertised_listeners:
            if endpoint.name == bound.name:
                return endpoint
        if bound.host not in WILDCARDS:
            return bound
        own = self.voters.get(self.node_id)
        if own is not None and own.endpoints and bound.name == self.listeners[0].name:
            return Endpoint(bound.name, own.endpoints[0].host, own.endpoints[0].port)
        return Endpoint(bound.name, socket.getfqdn(), bound.port)


def _converted(name: str, parse: Any, value: object) -> Any:
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(f"{label(name)}: {error.reason}", [name]) from None
