"""A broker's settings: Kafka's names and defaults, from a server's properties file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kraftcore.config.addresses import ALL_INTERFACES, WILDCARDS, parse_endpoint
from kraftcore.config.errors import ConfigError
from kraftcore.config.identity import read_log_dirs, read_node_id, read_roles
from kraftcore.config.kafka_properties import IGNORED_PREFIXES, KAFKA_PROPERTIES
from kraftcore.config.properties import NEVER, Properties, load_properties, read_flag, read_integer
from kraftcore.config.sasl_keys import BROKER_MECHANISM_KEY
from kraftcore.config.settings import one_line
from kraftcore.config.sources import read_broker_security
from kraftcore.config.tls import TlsConfig
from kraftcore.config.value_checks import check_values
from kraftcore.configdef.topics import TopicDefaults
from kraftcore.configdef.types import ConfigValueError
from kraftcore.forms import check_fields
from kraftcore.plugins.broker.groups.settings import PROPERTIES as GROUP_PROPERTIES
from kraftcore.plugins.broker.groups.settings import GroupSettings, read_group_settings
from kraftcore.plugins.broker.transactions_topic import PROPERTIES as TRANSACTION_LOG_PROPERTIES
from kraftcore.plugins.broker.transactions_topic import TransactionLogSettings, read_transaction_log_settings
from kraftcore.raft.quorum import Endpoint

if TYPE_CHECKING:
    from kraftcore.config.login import SaslLogin

CONTROL = "partition.control"
BY_REQUESTS = "requests"
INTER_BROKER_LISTENER = "inter.broker.listener.name"
INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
_DEFAULT_PROTOCOL = "PLAINTEXT"  # of the latter
_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
_INT_MAX = 2**31 - 1
_LONG_MAX = NEVER
_JAVA_LONG_MAX = 2**63 - 1
NEVER_MS = _LONG_MAX
"""As an interval."""

# field -> (property, lowest, highest)
_NUMBERS: Mapping[str, tuple[str, int, int]] = {
    "segment_bytes": ("log.segment.bytes", 1024, _INT_MAX),
    "segment_ms": ("log.roll.ms", 1, _LONG_MAX),
    "index_interval_bytes": ("log.index.interval.bytes", 0, _INT_MAX),
    "index_bytes_max": ("log.index.size.max.bytes", 4, _INT_MAX),
    "message_max_bytes": ("message.max.bytes", 0, _INT_MAX),
    "min_insync_replicas": ("min.insync.replicas", 1, _INT_MAX),
    "replica_lag_time_max_ms": ("replica.lag.time.max.ms", 1, _LONG_MAX),
    "replica_fetch_wait_max_ms": ("replica.fetch.wait.max.ms", 0, _INT_MAX),
    "replica_fetch_min_bytes": ("replica.fetch.min.bytes", 0, _INT_MAX),
    "replica_fetch_max_bytes": ("replica.fetch.max.bytes", 0, _INT_MAX),
    "replica_fetch_response_max_bytes": ("replica.fetch.response.max.bytes", 0, _INT_MAX),
    "replica_fetch_backoff_ms": ("replica.fetch.backoff.ms", 0, _INT_MAX),
    "fetch_max_bytes": ("fetch.max.bytes", 1024, _INT_MAX),
    "high_watermark_checkpoint_ms": ("replica.high.watermark.checkpoint.interval.ms", 1, _LONG_MAX),
    "recovery_checkpoint_ms": ("log.flush.offset.checkpoint.interval.ms", 1, _LONG_MAX),
    "log_start_checkpoint_ms": ("log.flush.start.offset.checkpoint.interval.ms", 1, _LONG_MAX),
    "initial_task_delay_ms": ("log.initial.task.delay.ms", 0, _LONG_MAX),
    "retention_bytes": ("log.retention.bytes", -_JAVA_LONG_MAX - 1, _LONG_MAX),
    "retention_check_ms": ("log.retention.check.interval.ms", 1, _LONG_MAX),
    "flush_check_ms": ("log.flush.scheduler.interval.ms", 1, _JAVA_LONG_MAX),
    "flush_ms": ("log.flush.interval.ms", 0, _JAVA_LONG_MAX),
    "flush_messages": ("log.flush.interval.messages", 1, _JAVA_LONG_MAX),
    "delete_delay_ms": ("log.segment.delete.delay.ms", 0, _LONG_MAX),
    "num_partitions": ("num.partitions", 1, _INT_MAX),
    "default_replication_factor": ("default.replication.factor", 1, 32767),
    "fetch_session_slots": ("max.incremental.fetch.session.cache.slots", 0, _INT_MAX),
    "producer_expiration_ms": ("producer.id.expiration.ms", 1, _INT_MAX),
    "quota_samples": ("quota.window.num", 1, _INT_MAX),
    "quota_sample_s": ("quota.window.size.seconds", 1, _INT_MAX),
    "replication_quota_samples": ("replication.quota.window.num", 1, _INT_MAX),
    "replication_quota_sample_s": ("replication.quota.window.size.seconds", 1, _INT_MAX),
    "moving_quota_samples": ("alter.log.dirs.replication.quota.window.num", 1, _INT_MAX),
    "moving_quota_sample_s": ("alter.log.dirs.replication.quota.window.size.seconds", 1, _INT_MAX),
    "request_max_bytes": ("socket.request.max.bytes", 1, _INT_MAX),
    "max_connections": ("max.connections", 0, _INT_MAX),
    "heartbeat_ms": ("broker.heartbeat.interval.ms", 1, _INT_MAX),
    "session_ms": ("broker.session.timeout.ms", 1, _INT_MAX),
    "registration_timeout_ms": ("initial.broker.registration.timeout.ms", 1, _INT_MAX),
    "leaving_timeout_ms": ("kraftcore.controlled.shutdown.timeout.ms", 0, _INT_MAX),
}
# property -> milliseconds in its unit; the first that is there counts
_RETENTION = {"log.retention.ms": 1, "log.retention.minutes": 60_000, "log.retention.hours": 3_600_000}
_TEXTS = {
    *_RETENTION,
    CONTROL,
    "broker.id",
    "node.id",
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    INTER_BROKER_LISTENER,
    INTER_BROKER_PROTOCOL,
    "log.dirs",
    "log.dir",
    "replica.selector.class",
    "auto.create.topics.enable",
    "authorizer.class.name",
    "super.users",
    "allow.everyone.if.no.acl.found",
    "broker.rack",
    "controlled.shutdown.enable",
}
RECORD_PROPERTIES = frozenset(
    {
        "log.message.timestamp.type",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
        "compression.type",
        "compression.gzip.level",
        "compression.zstd.level",
    }
)
"""Properties about what clients send, as topics have them."""
HONOURED = frozenset({*_TEXTS, *(key for key, _, _ in _NUMBERS.values()), *GROUP_PROPERTIES, *RECORD_PROPERTIES})
"""Properties that every broker honours."""
KRAFT_HONOURED = HONOURED | TRANSACTION_LOG_PROPERTIES | {BROKER_MECHANISM_KEY}
"""Properties that one under a KRaft controller honours."""


@dataclass(frozen=True, kw_only=True, repr=False)
class BrokerConfig:
    """The settings of a broker. Kafka's name stands in brackets; the defaults are Kafka's but where another is given.

    A number's unit is the end of its field's name: milliseconds, seconds, minutes or bytes.

    Attributes:
        node_id: of the broker, >= 0 (node.id, or broker.id).
        listeners: addresses that the broker listens on, one a name (listeners); port 0 means any free one.
        advertised_listeners: addresses at which clients and brokers reach it (advertised.listeners); empty: the
            listeners.
        inter_broker_listener: name of the listener at which other brokers and the controller reach it
            (inter.broker.listener.name, or security.inter.broker.protocol where listeners are named after protocols);
            empty: PLAINTEXT if there is such a listener, else the first one's.
        directories: log directories (log.dirs, or log.dir); made if missing.
        segment_bytes: size of a log's segment, after which the next one begins (log.segment.bytes).
        segment_ms: age of a segment after which the next one begins (log.roll.ms).
        index_interval_bytes: bytes of a log between two entries of its index (log.index.interval.bytes).
        index_bytes_max: size of an index file; when it is full the next segment begins (log.index.size.max.bytes).
        message_max_bytes: size of a batch that a client may append (message.max.bytes).
        min_insync_replicas: replicas that must be in sync for a Produce with acks=all; with fewer it is refused
            (min.insync.replicas).
        replica_lag_time_max_ms: how long a follower may lack records before it leaves the ISR
            (replica.lag.time.max.ms).
        replica_fetch_wait_max_ms: how long a leader may keep a Fetch of this broker waiting
            (replica.fetch.wait.max.ms).
        replica_fetch_min_bytes: bytes of records for which a leader answers that Fetch sooner
            (replica.fetch.min.bytes).
        replica_fetch_max_bytes: bytes of records of one partition in an answer to it (replica.fetch.max.bytes).
        replica_fetch_response_max_bytes: bytes of records in the whole answer (replica.fetch.response.max.bytes).
        replica_fetch_backoff_ms: pause before a partition whose Fetch failed is fetched again
            (replica.fetch.backoff.ms).
        fetch_max_bytes: bytes of records in this broker's answer to a Fetch (fetch.max.bytes).
        high_watermark_checkpoint_ms: how often high watermarks are stored
            (replica.high.watermark.checkpoint.interval.ms).
        recovery_checkpoint_ms: how often recovery points are stored, and sealed segments synced
            (log.flush.offset.checkpoint.interval.ms).
        log_start_checkpoint_ms: how often log start offsets are stored (log.flush.start.offset.checkpoint.interval.ms).
        initial_task_delay_ms: time from the start of the broker to the first of these periodic tasks
            (log.initial.task.delay.ms).
        retention_ms: age of its newest record at which a segment is deleted; -1: never (log.retention.ms, minutes or
            hours).
        retention_bytes: size of a log above which its oldest segments are deleted, while the others have as much;
            negative: never (log.retention.bytes).
        retention_check_ms: how often segments are looked for that are to be deleted (log.retention.check.interval.ms).
        flush_check_ms: how often logs are looked for that hold records which are not synced
            (log.flush.scheduler.interval.ms); the default is never.
        flush_ms: how old the last sync of such a log is when it is synced then (log.flush.interval.ms); the default is
            flush_check_ms.
        flush_messages: number of records without a sync after which a log is synced, before they are acknowledged or
            fetched again from it (log.flush.interval.messages); the default is never.
        delete_delay_ms: how long files of deleted segments and partitions stay on disk (log.segment.delete.delay.ms).
        auto_create_topics: whether topics are created that clients ask for (auto.create.topics.enable).
        num_partitions: partitions of a topic whose creation names no number (num.partitions).
        default_replication_factor: replicas of its partitions (default.replication.factor).
        fetch_session_slots: fetch sessions at a time (max.incremental.fetch.session.cache.slots).
        is_rack_aware: whether consumers are sent to a replica in their rack (replica.selector.class names Kafka's
            RackAwareReplicaSelector).
        producer_expiration_ms: how long a producer that numbers its batches is remembered after its last one
            (producer.id.expiration.ms).
        quota_samples: number of samples over which a client's rate is taken, under a KRaft controller
            (quota.window.num).
        quota_sample_s: length of such a sample in seconds (quota.window.size.seconds).
        replication_quota_samples: number of samples over which the rate of throttled replicas is taken
            (replication.quota.window.num).
        replication_quota_sample_s: length of such a sample in seconds (replication.quota.window.size.seconds).
        moving_quota_samples: number of samples over which the rate of moves between log directories is taken
            (alter.log.dirs.replication.quota.window.num).
        moving_quota_sample_s: length of such a sample in seconds
            (alter.log.dirs.replication.quota.window.size.seconds).
        request_max_bytes: size of a request; one that is longer ends its connection (socket.request.max.bytes).
        max_connections: connections that are accepted at a time; 0: none (max.connections).
        groups: see ``GroupSettings``.
        transaction_log: see ``TransactionLogSettings``.
        static_configs: all properties of the file, which DescribeConfigs tells; those of record timestamps and
            compression (``RECORD_PROPERTIES``) hold for topics that set no others.
        rack: name of the rack that the broker stands in, or None (broker.rack).
        heartbeat_ms: how often the broker sends a heartbeat to the controller (broker.heartbeat.interval.ms).
        session_ms: how long after the last heartbeat the controller fences the broker (broker.session.timeout.ms; the
            controller's own value counts); the broker waits for the answer to a heartbeat for half of it at most.
        registration_timeout_ms: how long the first registration may take (initial.broker.registration.timeout.ms).
        has_controlled_shutdown: whether leaderships are handed over before a stop (controlled.shutdown.enable).
        leaving_timeout_ms: how long handing them over may take (kraftcore.controlled.shutdown.timeout.ms; 5 minutes in
            Kafka).
        security: how other brokers are connected to under a KRaft controller: TLS, and the login; None: without.
        ignored: properties of the file that a broker of kraftcore does not use.

    Raises:
        ConfigError: a value is missing, not of its type, out of range, or contradicts another one.
    """

    node_id: int
    listeners: tuple[Endpoint, ...]
    directories: tuple[str, ...]
    advertised_listeners: tuple[Endpoint, ...] = ()
    inter_broker_listener: str = ""
    segment_bytes: int = 1024**3
    segment_ms: int = 7 * 24 * 3600 * 1000
    index_interval_bytes: int = 4096
    index_bytes_max: int = 10 * 1024**2
    message_max_bytes: int = 1024**2 + 12
    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_min_bytes: int = 1
    replica_fetch_max_bytes: int = 1024**2
    replica_fetch_response_max_bytes: int = 10 * 1024**2
    replica_fetch_backoff_ms: int = 1000
    fetch_max_bytes: int = 55 * 1024**2
    high_watermark_checkpoint_ms: int = 5000
    recovery_checkpoint_ms: int = 60_000
    log_start_checkpoint_ms: int = 60_000
    initial_task_delay_ms: int = 30_000
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    retention_check_ms: int = 300_000
    flush_check_ms: int = NEVER_MS
    flush_ms: int = NEVER_MS
    flush_messages: int = _JAVA_LONG_MAX
    delete_delay_ms: int = 60_000
    auto_create_topics: bool = True
    num_partitions: int = 1
    default_replication_factor: int = 1
    fetch_session_slots: int = 1000
    is_rack_aware: bool = False
    producer_expiration_ms: int = 24 * 3600 * 1000
    quota_samples: int = 11
    quota_sample_s: int = 1
    replication_quota_samples: int = 11
    replication_quota_sample_s: int = 1
    moving_quota_samples: int = 11
    moving_quota_sample_s: int = 1
    request_max_bytes: int = 100 * 1024**2
    max_connections: int = 1000
    groups: GroupSettings = field(default_factory=GroupSettings)
    transaction_log: TransactionLogSettings = field(default_factory=TransactionLogSettings)
    static_configs: Mapping[str, str] = field(default_factory=dict, repr=False)  # passwords may be in it
    rack: str | None = None
    heartbeat_ms: int = 2000
    session_ms: int = 9000
    registration_timeout_ms: int = 60_000
    has_controlled_shutdown: bool = True
    leaving_timeout_ms: int = 60_000
    security: tuple[TlsConfig | None, SaslLogin | None] = (None, None)
    ignored: tuple[str, ...] = ()

    __repr__ = one_line

    def __post_init__(self) -> None:
        if (wrong := check_fields(self, "SaslLogin")) is not None:
            raise ConfigError(wrong[1], [wrong[0]])
        if not 0 <= self.node_id <= _INT_MAX:
            raise ConfigError(f"node_id is {self.node_id}: it must be between 0 and {_INT_MAX}", ["node_id"])
        if not self.listeners:
            raise ConfigError("listeners is empty: name at least one, as PLAINTEXT://:9092", ["listeners"])
        if not self.directories:
            raise ConfigError("directories is empty: name at least one", ["directories"])
        names = [each.name for each in self.listeners]
        if len(set(names)) < len(names):
            raise ConfigError(f"two listeners have one name: {', '.join(names)}", ["listeners"])
        for each in self.advertised_listeners:
            if each.name not in names or each.host in WILDCARDS:
                raise ConfigError(
                    f"advertised_listeners has {each}: give a listener's name and an address that others can "
                    f"connect to",
                    ["advertised_listeners"],
                )
        if self.broker_listener not in names:
            raise ConfigError(
                f"inter_broker_listener is {self.inter_broker_listener}: the listeners are {', '.join(names)}",
                ["inter_broker_listener"],
            )
        for name, (key, low, high) in _NUMBERS.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} ({key}) is {value}: it must be between {low} and {high}", [name])

    @property
    def broker_listener(self) -> str:
        """Name of the listener between brokers."""
        if self.inter_broker_listener:
            return self.inter_broker_listener
        names = [each.name for each in self.listeners]
        return _DEFAULT_PROTOCOL if _DEFAULT_PROTOCOL in names else names[0]

    @classmethod
    def from_properties(cls, path: str, properties: Mapping[str, str] | None = None) -> BrokerConfig:
        """Read a Kafka server's file: with ``partition.control=requests``, or with the role ``broker``.

        Args:
            path: of the file.
            properties: win over what is in it.

        Raises:
            ConfigError: something is missing, cannot be read, or is not supported; it says where it stands.
            CorruptDataError: the file holds a broken escape.
            StorageError: it cannot be read.
        """
        return cls.read(load_properties(path, properties or {}))

    @classmethod
    def read(cls, properties: Properties) -> BrokerConfig:
        """As ``from_properties``, of a file that was read already: a pipe can be read only once.

        Raises:
            ConfigError: see there.
        """
        return _read(properties)


def is_broker(properties: Properties) -> bool:
    """Whether a server's properties describe a broker that obeys control requests."""
    return CONTROL in properties


def has_broker_role(properties: Properties) -> bool:
    """Whether they describe a node with the broker, under a KRaft controller."""
    return not is_broker(properties) and "broker" in read_roles(properties)


def _read(properties: Properties) -> BrokerConfig:
    if has_broker_role(properties):
        _check_kraft(properties)
        honoured = KRAFT_HONOURED
    else:
        _check_requests(properties)
        honoured = HONOURED
    values: dict[str, Any] = {
        "node_id": read_node_id(properties),
        "listeners": _own(properties, "listeners"),
        "advertised_listeners": _own(properties, "advertised.listeners"),
        "inter_broker_listener": _inter_broker_listener(properties),
        "directories": _directories(properties),
        "rack": properties.get("broker.rack"),
        "static_configs": properties.all,
        "ignored": tuple(name for name in properties.names if name not in honoured),
    }
    if properties.get("replica.selector.class") == _RACK_AWARE:
        values["is_rack_aware"] = True
    if "auto.create.topics.enable" in properties:
        values["auto_create_topics"] = read_flag(properties, "auto.create.topics.enable")
    if "controlled.shutdown.enable" in properties:
        values["has_controlled_shutdown"] = read_flag(properties, "controlled.shutdown.enable")
    for required, key in (("node_id", "node.id"), ("listeners", "listeners"), ("directories", "log.dirs")):
        if values[required] in (None, ()):
            raise properties.error(f"{key} is missing", key)
    for name, (key, low, high) in _NUMBERS.items():
        if key in properties:
            values[name] = read_integer(properties, key, low, high)
    values.setdefault("flush_ms", values.get("flush_check_ms", NEVER_MS))
    values["groups"] = read_group_settings(properties)
    values["transaction_log"] = read_transaction_log_settings(properties)
    retention = next((key for key in _RETENTION if key in properties), None)
    if retention is not None:
        most, least = (_INT_MAX, -_INT_MAX - 1) if _RETENTION[retention] > 1 else (_LONG_MAX, -_JAVA_LONG_MAX - 1)
        found = read_integer(properties, retention, least, most)
        if found == 0:  # as Kafka refuses it: all that is not the newest segment would be gone at once
            raise properties.error(f"{retention} is 0: it must be -1, for ever, or at least 1", retention)
        values["retention_ms"] = -1 if found < 0 else found * _RETENTION[retention]
    unknown = [name for name in values["ignored"] if not _is_of_kafka(name)]
    if not has_broker_role(properties):  # a node's settings are read besides, and say so
        if unknown:
            raise properties.error(f"{unknown[0]} is no property of a broker", unknown[0])
        check_values(properties)
    _check_unsupported(properties)
    try:
        config = BrokerConfig(**values)
        if has_broker_role(properties):
            config = replace(config, security=read_broker_security(properties, config.broker_listener))
        return config
    except ConfigError as error:
        raise properties.error(error.reason, *(_KEYS.get(name, name) for name in error.settings)) from None


def _directories(properties: Properties) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(os.path.normpath, read_log_dirs(properties))))


def _inter_broker_listener(properties: Properties) -> str:
    """Source: Kafka 4.3.1, AbstractKafkaConfig.getInterBrokerListenerNameAndSecurityProtocol."""
    name, protocol = properties.get(INTER_BROKER_LISTENER), properties.get(INTER_BROKER_PROTOCOL)
    if name and protocol:
        raise properties.error(
            f"{INTER_BROKER_LISTENER} and {INTER_BROKER_PROTOCOL} both name the listener between brokers: set one",
            INTER_BROKER_PROTOCOL,
        )
    return (name or protocol or "").upper()


def _check_requests(properties: Properties) -> None:
    control = properties.get(CONTROL)
    if control != BY_REQUESTS:
        raise properties.error(f"{CONTROL} is {control!r}: it must be {BY_REQUESTS}", CONTROL)
    if properties.get("process.roles"):
        raise properties.error(
            f"process.roles does not go with {CONTROL}={BY_REQUESTS}: such a broker has no KRaft controller",
            "process.roles",
        )
    if properties.get(_AUTHORIZER):
        raise properties.error(
            f"{_AUTHORIZER} is {properties.get(_AUTHORIZER)}: a broker that obeys requests asks no authorizer, and "
            "would let everybody do everything: leave it out",
            _AUTHORIZER,
        )
    _check_protocols(properties)


def _check_kraft(properties: Properties) -> None:
    if not properties.list("controller.listener.names"):
        raise properties.error(
            "controller.listener.names is missing: it says which listeners are not the broker's",
            "controller.listener.names",
        )


def _own(properties: Properties, key: str) -> tuple[Endpoint, ...]:
    others = {name.upper() for name in properties.list("controller.listener.names")}
    return tuple(each for each in _endpoints(properties, key) if each.name not in others)


_AUTHORIZER = "authorizer.class.name"
_KEYS = {
    "advertised_listeners": "advertised.listeners",
    "inter_broker_listener": INTER_BROKER_LISTENER,
    "directories": "log.dirs",
}
# Kafka 3.9.1 knows more than 4.3.1, from which the list of its properties comes.
_OF_ZOOKEEPER = ("zookeeper.", "broker.id.generation.enable", "reserved.broker.max.id", "controlled.shutdown.")


def _is_of_kafka(name: str) -> bool:
    return name in KAFKA_PROPERTIES or name.startswith(
        (*IGNORED_PREFIXES, *_OF_ZOOKEEPER, "listener.name.", "kraftcore.")
    )


def _check_unsupported(properties: Properties) -> None:
    """Refuse unsupported settings that would change the meaning of stored records."""
    wanted: tuple[tuple[str, Callable[[str], bool], str], ...] = (
        ("log.cleanup.policy", lambda text: text == "delete", "delete"),
        ("replica.selector.class", lambda text: text in ("", _RACK_AWARE), _RACK_AWARE),
    )
    for key, is_good, only in wanted:
        text = properties.get(key)
        if text is not None and not is_good(text):
            raise properties.error(f"{key} is {text!r}: a broker of kraftcore has {only} alone", key)
    for key in sorted(RECORD_PROPERTIES & set(properties.names)):
        try:
            TopicDefaults({key: properties.all[key]})
        except ConfigValueError as error:
            raise properties.error(str(error), key) from None


def _check_protocols(properties: Properties) -> None:
    named = [endpoint.name for endpoint in _endpoints(properties, "listeners")]
    protocols = dict(text.rpartition(":")[::2] for text in properties.list("listener.security.protocol.map"))
    protocols = {name.strip().upper(): protocol.strip().upper() for name, protocol in protocols.items()}
    for name in named:
        protocol = protocols.get(name, name)
        if protocol != "PLAINTEXT":
            raise properties.error(
                f"listener {name} has {protocol}: a broker of kraftcore speaks PLAINTEXT alone",
                "listener.security.protocol.map",
                "listeners",
            )


def _endpoints(properties: Properties, key: str) -> tuple[Endpoint, ...]:
    try:
        found = tuple(parse_endpoint(text) for text in properties.list(key))
    except ConfigError as error:
        raise properties.error(f"{key}: {error.reason}", key) from None
    return tuple(Endpoint(each.name, "" if each.host == ALL_INTERFACES else each.host, each.port) for each in found)
