"""``NodeConfig``: everything a node can be told, checked when it is made."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, Self, TypeVar, overload

from kraftcore.config.addresses import ALL_INTERFACES, WILDCARDS, parse_address, parse_endpoint, parse_voters
from kraftcore.config.errors import ConfigError, suggestion
from kraftcore.config.settings import FLAGS, NUMBERS, known_settings, label
from kraftcore.config.sources import config_from_environment, config_from_properties
from kraftcore.config.tls import TlsConfig
from kraftcore.core.log.config import LogConfig
from kraftcore.core.uuid import METADATA_TOPIC_ID, ZERO_UUID, Uuid
from kraftcore.ports.transport import Address
from kraftcore.protocol.election_state import ReplicaKey
from kraftcore.raft.cleaning import CleaningConfig
from kraftcore.raft.events import RaftConfig
from kraftcore.raft.quorum import Endpoint, VoterSet

_Given = TypeVar("_Given")
_Kept = TypeVar("_Kept")
_BATCH_OVERHEAD = 4096  # at most, of a Fetch response around its records
PREALLOCATE_BYTES = 256 * 1024  # thousands of small batches between two writes of zeros


class _Converted(Generic[_Given, _Kept]):
    """A field that is given in friendlier forms than the one it is kept in; ``__post_init__`` converts."""

    def __init__(self, default: _Kept) -> None:
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> _Kept: ...
    @overload
    def __get__(self, instance: object, owner: type) -> _Kept: ...
    def __get__(self, instance: object | None, owner: type) -> _Kept:
        if instance is None:
            return self._default
        kept: _Kept = instance.__dict__[self._name]
        return kept

    def __set__(self, instance: object, value: _Given) -> None:
        instance.__dict__[self._name] = value


@dataclass(frozen=True, kw_only=True)
class NodeConfig:
    """Settings of a node. Names and defaults are Kafka's where Kafka has them; its property is named with each.

    Times are milliseconds, sizes bytes. ``from_properties`` reads Kafka's file format, ``from_environment`` variables.

    Attributes:
        node_id: ``node.id``, >= 0; must be given.
        directory: ``metadata.log.dir``, else the first of ``log.dirs``; must be given.
        log_directories: ``log.dirs``, beside ``directory``: a node keeps nothing there, but does not start when their
            ``meta.properties`` are another cluster's or node's.
        cluster_id: ``kraftcore.cluster.id``; None: what the directory's ``meta.properties`` says.
        listeners: ``listeners`` named in ``controller.listener.names``, the default one first; what is bound. Also as
            texts, ``CONTROLLER://127.0.0.1:9093`` or ``127.0.0.1:9093``. Port 0: any free port. An empty host is
            0.0.0.0, all interfaces.
        advertised_listeners: ``advertised.listeners``; what others are told, also as texts. For a listener that is not
            among them it is what was bound; for one on all interfaces the address in ``voters``, or this host's name.
        voters: ``controller.quorum.voters``, static voters, also as ``1@host:port,2@host:port``. Empty: the voters are
            in the log (KIP-853).
        bootstrap_servers: ``controller.quorum.bootstrap.servers``, asked for the leader; also as ``host:port``.
            Without any, the voters that the log names are asked.
        can_become_voter: ``process.roles`` holds ``controller``; False: always an observer.
        auto_join: ``controller.quorum.auto.join.enable``, false: become a voter without being added (KIP-1186).
        reluctant: ``kraftcore.reluctant``, false; true: vote and acknowledge, but lead only while no other voter can,
            and hand over as soon as one keeps up. A choice for a node with the controller, which may lead Kafka's; for
            a voter without one among them a need: brokers have to reach a controller.
        topic: ``kraftcore.topic``, name of the log's topic, ``__cluster_metadata``.
        topic_id: ``kraftcore.topic.id``, the topic's id, that of ``__cluster_metadata``.
        create: ``kraftcore.create``; what to do with an empty directory: None is an error, ``standalone`` formats it
            as a quorum of one, ``join`` formats it without voters, to be added or to join by itself.
        plugins: ``kraftcore.plugins``, names of installed plugins to load.
        plugin_settings: what begins with ``kraftcore.plugin.``, without that: ``NAME.SETTING`` of a plugin.
        tls: how to encrypt, from ``ssl.*`` and ``listener.security.protocol.map``; None: plain text. For connections to
            other nodes, which go to their listener of our first one's name, and for all listeners but those in
            ``listener_tls``.
        listener_tls: ``listener.security.protocol.map``, by name of a listener: how it encrypts where ``tls`` does not
            say, ``None`` if it does not; the first listener is not among them.
        election_timeout_ms: ``controller.quorum.election.timeout.ms``, 1000; a random time up to as much is added.
        fetch_timeout_ms: ``controller.quorum.fetch.timeout.ms``, 2000: without a leader's answer, call an election.
        election_backoff_max_ms: ``controller.quorum.election.backoff.max.ms``, 1000: longest pause before a new try.
        request_timeout_ms: ``controller.quorum.request.timeout.ms``, 2000, of a request to another node.
        retry_backoff_ms: ``controller.quorum.retry.backoff.ms``, 20, after a failed request to one peer.
        discovery_pause_ms: ``kraftcore.discovery.pause.ms``, 100, between two fruitless questions for the leader.
        fetch_max_wait_ms: ``kraftcore.fetch.max.wait.ms``, 500 as in Kafka: how long a leader holds a Fetch.
        fetch_max_bytes: ``controller.quorum.fetch.max.bytes``, 1 MiB: records in one Fetch, but one batch at least.
        fetch_snapshot_max_bytes: ``controller.quorum.fetch.snapshot.max.bytes``, 1 MiB: of a snapshot at once.
        high_watermark_linger_ms: ``kraftcore.high.watermark.linger.ms``, 2: how long a follower that lacks nothing but
            the latest high watermark is kept waiting for records to come along with it; 0: not at all, as Kafka.
        fast_failover: ``kraftcore.fast.failover``, true: an election begins when the leader's connection breaks,
            not only at ``fetch_timeout_ms``.
        segment_bytes: ``metadata.log.segment.bytes``, 1 GiB; in a file at least 8 MiB, as in Kafka
            (``internal.metadata.log.segment.bytes`` takes less).
        segment_ms: ``metadata.log.segment.ms``, 7 days: oldest record of the segment that is written to.
        max_batch_bytes: ``internal.metadata.max.batch.size.in.bytes``, 8 MiB, or ``segment_bytes`` if that is less.
        index_interval_bytes: ``kraftcore.index.interval.bytes``, 4096 as in Kafka: of log between two index entries.
        index_bytes_max: ``kraftcore.index.bytes.max``, 10 MiB as in Kafka: size of an index file.
        file_delete_delay_ms: ``internal.metadata.delete.delay.millis``, 60000: until a superseded file is removed.
        tail_bytes: ``kraftcore.tail.bytes``, 8 MiB of the log's end are kept in memory.
        preallocate: ``log.preallocate``, false: write 256 KiB of zeros ahead of small appends, for quicker syncs; see
            ``preallocate_bytes`` of ``kraftcore.core.log.config.LogConfig``.
        snapshot_bytes: ``metadata.log.max.record.bytes.between.snapshots``, 20 MiB: applied since the last snapshot,
            then another is written.
        snapshot_interval_ms: ``metadata.log.max.snapshot.interval.ms``, 1 hour; 0: no snapshot because of time.
        retention_bytes: ``metadata.max.retention.bytes``, 100 MiB of log and snapshots; negative: no limit.
        retention_ms: ``metadata.max.retention.ms``, 7 days; negative: no limit.
        cleaning_period_ms: ``kraftcore.cleaning.period.ms``, 60000 as in Kafka: how often to look for what to delete.
        append_linger_ms: ``controller.quorum.append.linger.ms``; 0, where Kafka has 25: a batch already takes
            everything that arrives while the one before it is flushed.
        max_bytes_in_flight: ``kraftcore.max.bytes.in.flight``, 32 MiB proposed and not committed; then ``append``
            waits.
        session_expiry_ms: ``kraftcore.session.expiry.ms``, 7 days: how long a client's last proposals are remembered.
            All nodes must have the same: it decides what is applied.
        inline_flush_bytes: ``kraftcore.inline.flush.bytes``, 64 KiB: a larger flush goes to a thread; 0: every one.
        busy_poll_us: ``kraftcore.busy.poll.us``, 500: while batches are on their way, a leader with more than one
            processor looks for news that long before it sleeps; 0: it sleeps at once.
        record_file: ``kraftcore.record.file``: write everything the consensus gets, and when, to this file, for
            ``kraftcore simulate --replay``. It holds the log's records and grows without bound; None: do not.
        shutdown_timeout_ms: ``kraftcore.shutdown.timeout.ms``, 5000 as in Kafka, to hand leadership over.
        max_frame_bytes: ``socket.request.max.bytes``, 100 MiB: longest request or response.
        max_connections: ``max.connections``, 1000 accepted at a time (Kafka: no limit).
        max_connections_per_peer: ``max.connections.per.ip``, 1000 from one address (Kafka: no limit).
        max_connection_creation_rate: ``max.connection.creation.rate``, 2000 a second (Kafka: no limit).
        max_in_flight: ``kraftcore.max.in.flight``, 1000 requests of one connection being served; then no more is read
            from it.
        connection_memory_bytes: ``kraftcore.connection.memory.bytes``, 128 MiB: most that one connection may buffer.
        receive_memory_bytes: ``kraftcore.receive.memory.bytes``, 512 MiB: most that frames of all connections may take
            while they arrive; then the oldest of them is given up, with its connection.
        handshake_timeout_ms: ``kraftcore.handshake.timeout.ms``, 10000, for TLS and the first request.
        frame_timeout_ms: ``kraftcore.frame.timeout.ms``, 10000, for a frame that has begun to arrive, besides what
            its length takes at ``min_bytes_per_second``.
        min_bytes_per_second: ``kraftcore.min.bytes.per.second``, 256 KiB: slowest sender of long frames.
        stuck_timeout_ms: ``kraftcore.stuck.timeout.ms``, 1000: a connection on which a request timed out and nothing at
            all came for so long is made anew.
        idle_timeout_ms: ``connections.max.idle.ms``, 600000: then an unused connection is closed; negative in a
            file: never.
        reconnect_backoff_ms: ``kraftcore.reconnect.backoff.ms``, 50 as in Kafka: first pause when connecting failed.
        reconnect_backoff_max_ms: ``kraftcore.reconnect.backoff.max.ms``, 1000 (Kafka: 500): it doubles up to this.
        ignored: properties of Kafka in the file that mean nothing to a node, for the server to say so.

    Raises:
        ConfigError: a setting is unknown, out of range, or contradicts another one.
    """

    node_id: int
    directory: str
    log_directories: tuple[str, ...] = ()
    cluster_id: str | None = None
    listeners: _Converted[Iterable[Endpoint | str], tuple[Endpoint, ...]] = _Converted(())
    advertised_listeners: _Converted[Iterable[Endpoint | str], tuple[Endpoint, ...]] = _Converted(())
    voters: _Converted[VoterSet | str | Iterable[str], VoterSet] = _Converted(VoterSet())
    bootstrap_servers: _Converted[Iterable[Address | str], tuple[Address, ...]] = _Converted(())
    can_become_voter: bool = True
    auto_join: bool = False
    reluctant: bool = False
    topic: str = "__cluster_metadata"
    topic_id: Uuid = METADATA_TOPIC_ID
    create: Literal["standalone", "join"] | None = None
    plugins: tuple[str, ...] = ()
    plugin_settings: Mapping[str, str] = field(default_factory=dict, hash=False)
    tls: TlsConfig | None = None
    listener_tls: Mapping[str, TlsConfig | None] = field(default_factory=dict, hash=False)

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    discovery_pause_ms: int = 100
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1024**2
    fetch_snapshot_max_bytes: int = 1024**2
    high_watermark_linger_ms: int = 2
    fast_failover: bool = True

    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * 3_600_000
    max_batch_bytes: int = 8 * 1024**2
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 * 1024**2
    file_delete_delay_ms: int = 60_000
    tail_bytes: int = 8 * 1024**2
    preallocate: bool = False

    snapshot_bytes: int = 20 * 1024**2
    snapshot_interval_ms: int = 3_600_000
    retention_bytes: int = 100 * 1024**2
    retention_ms: int = 7 * 24 * 3_600_000
    cleaning_period_ms: int = 60_000

    append_linger_ms: int = 0
    max_bytes_in_flight: int = 32 * 1024**2
    session_expiry_ms: int = 7 * 24 * 3_600_000
    inline_flush_bytes: int = 64 * 1024
    busy_poll_us: int = 500
    record_file: str | None = None
    shutdown_timeout_ms: int = 5000

    max_frame_bytes: int = 100 * 1024**2
    max_connections: int = 1000
    max_connections_per_peer: int = 1000
    max_connection_creation_rate: int = 2000
    max_in_flight: int = 1000
    connection_memory_bytes: int = 128 * 1024**2
    receive_memory_bytes: int = 512 * 1024**2
    handshake_timeout_ms: int = 10_000
    frame_timeout_ms: int = 10_000
    min_bytes_per_second: int = 256 * 1024
    stuck_timeout_ms: int = 1000
    idle_timeout_ms: int = 600_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000

    ignored: tuple[str, ...] = field(default=(), compare=False)

    def __new__(cls, **given: Any) -> Self:
        """Refuse unknown settings before ``__init__`` would, with a suggestion."""
        known_settings(given)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self._set("directory", os.fspath(self.directory))
        self._set("log_directories", tuple(map(os.fspath, _several("log_directories", self.log_directories))))
        self._set("plugins", tuple(_several("plugins", self.plugins)))
        self._set("plugin_settings", dict(self.plugin_settings))
        self._convert()
        self._check_values()
        self._check_listeners()
        self._check_listener_tls()
        self._check_quorum()
        self._check_sizes()
        self._check_plugins()

    @classmethod
    def from_properties(
        cls, path: str | os.PathLike[str], *, properties: Mapping[str, str] | None = None, **overrides: Any
    ) -> NodeConfig:
        """Read one of Kafka's ``.properties`` files.

        A missing ``process.roles`` stands for ``controller``, missing ``controller.listener.names`` for all listeners.

        Args:
            path: the file.
            properties: properties that replace the file's.
            **overrides: settings that replace what the properties say.

        Raises:
            ConfigError: as for the class; the file and line are named.
            CorruptDataError: the file holds a broken escape.
            StorageError: it cannot be read.
        """
        return config_from_properties(cls, os.fspath(path), properties or {}, overrides)

    @classmethod
    def from_environment(
        cls, prefix: str = "KRAFTCORE_", *, environment: Mapping[str, str] | None = None, **overrides: Any
    ) -> NodeConfig:
        """Read variables: ``KRAFTCORE_CONTROLLER_QUORUM_VOTERS`` is ``controller.quorum.voters``.

        The names of this class's fields and of Kafka's properties both do, upper case and with ``_``, for example
        ``KRAFTCORE_DIRECTORY`` and ``KRAFTCORE_METADATA_LOG_DIR``; so do ``kraftcore.*`` properties, with the prefix
        once. A variable that resembles no setting belongs to someone else and goes to ``ignored``.

        Args:
            prefix: of the variables' names.
            environment: variables; None: those of this process.
            **overrides: settings that replace what the variables say.

        Raises:
            ConfigError: as for the class; a variable that nearly is a setting is refused. The variable is named.
        """
        variables = os.environ if environment is None else environment
        return config_from_environment(cls, prefix, variables, overrides)

    # --- what the parts of a node are given ---------------------------------------------------------------------------

    def tls_of(self, listener: str) -> TlsConfig | None:
        """How a listener encrypts; None: plain text."""
        return self.listener_tls.get(listener, self.tls)

    def advertise(self, bound: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
        """What others are told of the listeners that were bound.

        Args:
            bound: the listeners with their real ports.
        """
        return tuple(self._advertised(endpoint) for endpoint in bound)

    def raft_config(self, key: ReplicaKey, cluster_id: str, listeners: Iterable[Endpoint]) -> RaftConfig:
        """Settings of the replica.

        Args:
            key: node and directory id.
            cluster_id: of ``meta.properties``.
            listeners: the bound listeners; it is told what is advertised for them.
        """
        return RaftConfig(
            cluster_id=cluster_id,
            key=key,
            listeners=self.advertise(listeners),
            static_voters=self.voters,
            bootstrap_servers=tuple((server.host, server.port) for server in self.bootstrap_servers),
            can_become_voter=self.can_become_voter,
            auto_join=self.auto_join,
            reluctant=self.reluctant,
            topic=self.topic,
            topic_id=self.topic_id,
            election_timeout_ms=self.election_timeout_ms,
            fetch_timeout_ms=self.fetch_timeout_ms,
            election_backoff_max_ms=self.election_backoff_max_ms,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            discovery_pause_ms=self.discovery_pause_ms,
            fetch_max_wait_ms=self.fetch_max_wait_ms,
            fetch_max_bytes=self.fetch_max_bytes,
            fetch_snapshot_max_bytes=self.fetch_snapshot_max_bytes,
            high_watermark_linger_ms=self.high_watermark_linger_ms,
            fast_failover=self.fast_failover,
        )

    def log_config(self) -> LogConfig:
        """Settings of the log."""
        return LogConfig(
            segment_bytes=self.segment_bytes,
            segment_ms=self.segment_ms,
            index_interval_bytes=self.index_interval_bytes,
            index_bytes_max=self.index_bytes_max,
            max_batch_bytes=self.max_batch_bytes,
            file_delete_delay_ms=self.file_delete_delay_ms,
            tail_bytes=self.tail_bytes,
            preallocate_bytes=PREALLOCATE_BYTES if self.preallocate else 0,
            topic_id=self.topic_id,
        )

    def cleaning_config(self) -> CleaningConfig:
        """When to write snapshots and what to delete."""
        return CleaningConfig(
            snapshot_bytes=self.snapshot_bytes,
            snapshot_interval_ms=self.snapshot_interval_ms,
            retention_bytes=self.retention_bytes,
            retention_ms=self.retention_ms,
            period_ms=self.cleaning_period_ms,
        )

    # --- private ------------------------------------------------------------------------------------------------------

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _convert(self) -> None:
        for name in ("listeners", "advertised_listeners"):
            given: Iterable[Endpoint | str] = getattr(self, name)
            self._set(name, tuple(_converted(name, parse_endpoint, value) for value in _several(name, given)))
        everywhere = (each._replace(host=each.host or ALL_INTERFACES) for each in self.listeners)
        self._set("listeners", tuple(everywhere))
        servers = _several("bootstrap_servers", self.bootstrap_servers)
        self._set("bootstrap_servers", tuple(_converted("bootstrap_servers", parse_address, each) for each in servers))
        try:
            listener = self.listeners[0].name if self.listeners else "CONTROLLER"
            self._set("voters", parse_voters(self.voters, listener))
        except ConfigError as error:
            raise ConfigError(f"{label('voters')}: {error.reason}", ["voters"]) from None

    def _check_values(self) -> None:
        for name, number in NUMBERS.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool):
                raise ConfigError(f"{label(name)} is {value!r}: it must be a whole number", [name])
            if not number.low <= value <= number.high:
                raise ConfigError(
                    f"{label(name)} is {value}: it must be between {number.low} and {number.high}", [name]
                )
        for name in (*FLAGS, "can_become_voter"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{label(name)} is {getattr(self, name)!r}: it must be true or false", [name])
        if not self.directory:
            raise ConfigError(f"{label('directory')} is empty: name the folder that holds the log", ["directory"])
        if self.create not in (None, "standalone", "join"):
            close = suggestion(str(self.create), ("standalone", "join"))
            raise ConfigError(f"{label('create')} is {self.create!r}: it may be standalone or join{close}", ["create"])
        if self.cluster_id is not None and not self.cluster_id:
            raise ConfigError(f"{label('cluster_id')} is empty: leave it out to take the directory's", ["cluster_id"])
        if not isinstance(self.topic_id, Uuid) or self.topic_id == ZERO_UUID:
            raise ConfigError(f"{label('topic_id')} is {self.topic_id!r}: it must be an id of a topic", ["topic_id"])
        if (
            not self.topic
            or len(self.topic) > 249
            or not all(c.isascii() and (c.isalnum() or c in "._-") for c in self.topic)
        ):
            raise ConfigError(
                f"{label('topic')} is {self.topic!r}: a topic has 1 to 249 letters, digits, '.', '_' or '-'", ["topic"]
            )

    def _check_listeners(self) -> None:
        names = [endpoint.name for endpoint in self.listeners]
        for endpoint in (*self.listeners, *self.advertised_listeners):
            if not endpoint.name or not 0 <= endpoint.port <= 65535:
                raise ConfigError(
                    f"{label('listeners')}: {endpoint} needs a name and a port up to 65535", ["listeners"]
                )
        for field_name in ("listeners", "advertised_listeners"):
            found = [endpoint.name for endpoint in getattr(self, field_name)]
            twice = next((name for name in found if found.count(name) > 1), None)
            if twice is not None:
                raise ConfigError(f"{label(field_name)}: two listeners are called {twice}", [field_name])
        places = [(endpoint.host, endpoint.port) for endpoint in self.listeners if endpoint.port]
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
        others = self.listener_tls
        if not isinstance(others, Mapping) or not all(isinstance(each, TlsConfig | None) for each in others.values()):
            raise ConfigError("listener_tls gives a TlsConfig, or None, by the name of a listener", ["listener_tls"])
        self._set("listener_tls", {name.upper(): tls for name, tls in others.items()})
        names = [endpoint.name for endpoint in self.listeners]
        for name in self.listener_tls:
            if name not in names:
                raise ConfigError(
                    f"listener_tls: {name} is none of the listeners, which are {', '.join(names) or 'none'}"
                    f"{suggestion(name, names)}",
                    ["listener_tls", "listeners"],
                )
            if name == names[0]:
                raise ConfigError(
                    f"listener_tls: {name} is the first listener, which encrypts as connections to other nodes do: say "
                    "with tls how",
                    ["listener_tls", "tls"],
                )

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
        largest = max(self.max_batch_bytes, self.fetch_max_bytes, self.fetch_snapshot_max_bytes) + _BATCH_OVERHEAD
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


def _several(name: str, given: Iterable[_Given]) -> Sequence[_Given]:
    if isinstance(given, str):
        raise ConfigError(f"{label(name)} is one text, {given!r}: give a list of them", [name])
    return tuple(given)


def _converted(name: str, parse: Any, value: object) -> Any:
    try:
        return parse(value)
    except ConfigError as error:
        raise ConfigError(f"{label(name)}: {error.reason}", [name]) from None
