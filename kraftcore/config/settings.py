"""The settings with a plain value as a table: Kafka's property name, and the range.

``kraftcore.*`` names what Kafka has no property for.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kraftcore.config.errors import ConfigError, suggestion

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Number:
    """A setting that is a whole number.

    Attributes:
        key: property name.
        low: least value.
        high: greatest value.
        low_in_file: least value in a file, where Kafka refuses more or less than that; None: ``low``.
    """

    key: str
    low: int = 0
    high: int = INT32_MAX
    low_in_file: int | None = None


QUORUM = "controller.quorum."
OWN = "kraftcore."

NUMBERS: dict[str, Number] = {
    "node_id": Number("node.id"),
    "election_timeout_ms": Number(QUORUM + "election.timeout.ms", 1),
    "fetch_timeout_ms": Number(QUORUM + "fetch.timeout.ms", 1),
    "election_backoff_max_ms": Number(QUORUM + "election.backoff.max.ms"),
    "request_timeout_ms": Number(QUORUM + "request.timeout.ms", 1),
    "retry_backoff_ms": Number(QUORUM + "retry.backoff.ms"),
    "discovery_pause_ms": Number(OWN + "discovery.pause.ms"),
    "fetch_max_wait_ms": Number(OWN + "fetch.max.wait.ms"),
    "fetch_max_bytes": Number(QUORUM + "fetch.max.bytes", 1),
    "fetch_snapshot_max_bytes": Number(QUORUM + "fetch.snapshot.max.bytes", 1),
    "segment_bytes": Number("metadata.log.segment.bytes", 64, low_in_file=8 * 1024**2),
    "segment_ms": Number("metadata.log.segment.ms", 1, 2**62),
    "max_batch_bytes": Number("internal.metadata.max.batch.size.in.bytes", 64),
    "index_interval_bytes": Number(OWN + "index.interval.bytes"),
    "index_bytes_max": Number(OWN + "index.bytes.max", 36),
    "file_delete_delay_ms": Number("internal.metadata.delete.delay.millis", 0, 2**62),
    "tail_bytes": Number(OWN + "tail.bytes", 0, 2**40),
    "snapshot_bytes": Number("metadata.log.max.record.bytes.between.snapshots", 1, INT64_MAX),
    "snapshot_interval_ms": Number("metadata.log.max.snapshot.interval.ms", 0, INT64_MAX),
    "retention_bytes": Number("metadata.max.retention.bytes", -INT64_MAX, INT64_MAX),
    "retention_ms": Number("metadata.max.retention.ms", -INT64_MAX, INT64_MAX),
    "cleaning_period_ms": Number(OWN + "cleaning.period.ms", 1),
    "append_linger_ms": Number(QUORUM + "append.linger.ms"),
    "high_watermark_linger_ms": Number(OWN + "high.watermark.linger.ms"),
    "max_bytes_in_flight": Number(OWN + "max.bytes.in.flight", 1, INT64_MAX),
    "session_expiry_ms": Number(OWN + "session.expiry.ms", 1, INT64_MAX),
    "inline_flush_bytes": Number(OWN + "inline.flush.bytes", 0, INT64_MAX),
    "busy_poll_us": Number(OWN + "busy.poll.us"),
    "shutdown_timeout_ms": Number(OWN + "shutdown.timeout.ms"),
    "max_frame_bytes": Number("socket.request.max.bytes", 1024),
    "max_connections": Number("max.connections", 1),
    "max_connections_per_peer": Number("max.connections.per.ip", 1),
    "max_connection_creation_rate": Number("max.connection.creation.rate", 1),
    "max_in_flight": Number(OWN + "max.in.flight", 1),
    "connection_memory_bytes": Number(OWN + "connection.memory.bytes", 64 * 1024, INT64_MAX),
    "receive_memory_bytes": Number(OWN + "receive.memory.bytes", 64 * 1024, INT64_MAX),
    "handshake_timeout_ms": Number(OWN + "handshake.timeout.ms", 1),
    "frame_timeout_ms": Number(OWN + "frame.timeout.ms", 1),
    "min_bytes_per_second": Number(OWN + "min.bytes.per.second", 1),
    "stuck_timeout_ms": Number(OWN + "stuck.timeout.ms", 1),
    "idle_timeout_ms": Number("connections.max.idle.ms", 1, INT64_MAX, low_in_file=-INT64_MAX),
    "reconnect_backoff_ms": Number(OWN + "reconnect.backoff.ms", 1),
    "reconnect_backoff_max_ms": Number(OWN + "reconnect.backoff.max.ms", 1),
}
FLAGS: dict[str, str] = {
    "auto_join": QUORUM + "auto.join.enable",
    "fast_failover": OWN + "fast.failover",
    "preallocate": "log.preallocate",
    "reluctant": OWN + "reluctant",
}
# What is neither a number nor a flag, or is put together from several properties.
OTHERS: dict[str, str] = {
    "directory": "metadata.log.dir",
    "log_directories": "log.dirs",
    "cluster_id": OWN + "cluster.id",
    "listeners": "listeners",
    "advertised_listeners": "advertised.listeners",
    "voters": QUORUM + "voters",
    "bootstrap_servers": QUORUM + "bootstrap.servers",
    "can_become_voter": "process.roles",
    "topic": OWN + "topic",
    "topic_id": OWN + "topic.id",
    "create": OWN + "create",
    "record_file": OWN + "record.file",
    "plugins": OWN + "plugins",
    "plugin_settings": OWN + "plugin.",
    "tls": "ssl.keystore.location",
    "listener_tls": "listener.security.protocol.map",
}
KEYS: dict[str, str] = {**{field: number.key for field, number in NUMBERS.items()}, **FLAGS, **OTHERS}


def known_settings(given: Iterable[str]) -> None:
    """Check names of settings.

    Raises:
        ConfigError: one is no field of ``NodeConfig``.
    """
    known = [*KEYS, "ignored"]
    for name in given:
        if name not in known:
            own = next((each for each, key in KEYS.items() if key == name), None)
            close = f"; did you mean {own}?" if own else suggestion(name, known)
            raise ConfigError(f"there is no setting {name}{close}", [name])


def label(name: str) -> str:
    """A setting's name for a message, with its property."""
    return f"{name} ({KEYS[name]})" if name in KEYS else name
