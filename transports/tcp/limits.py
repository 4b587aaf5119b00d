"""Bounds of a TCP transport: bytes, connections, time."""

from __future__ import annotations

from dataclasses import dataclass, fields

from kraftcore.errors import LocalError

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on the resources that peers may use. Kafka's name and default in brackets where it has one.

    Attributes:
        max_frame_bytes: longest frame in either direction (socket.request.max.bytes, 100 MiB).
        max_connections: accepted connections at a time. One more pushes out a connection that never sent a request; if
            it came in on a vital listener, else one to another listener; when there is none, it is turned away;
            0: each is (max.connections, unlimited).
        max_connections_per_peer: the same for one IP address (max.connections.per.ip, unlimited).
        max_connection_creation_rate: accepted connections a second, after a burst of a tenth of that; more wait in the
            kernel, so that a flood of them takes little from those that are there (max.connection.creation.rate,
            unlimited).
        max_in_flight: requests of one connection that are being served; beyond it no more is read from it. A connection
            of ours on which more have timed out without an answer is broken.
        connection_memory_bytes: what may lie here for one connection that the other side has not taken yet. A server
            breaks the connection; a client fails the request that would go beyond.
        receive_memory_bytes: what all frames together may take that have arrived in part. Beyond it the connection
            whose frame began first is broken.
        send_memory_bytes: what all responses together may take that lie here. Beyond it the connection that has taken
            nothing for the longest time is broken.
        handshake_timeout_ms: from accepting a connection to its first whole frame, TLS handshake included; also how
            long to try to connect.
        frame_timeout_ms: for a whole frame once its first byte is here, on top of the time its length takes at
            ``min_bytes_per_second``; also how long a peer may not read at all while something waits for it.
        min_bytes_per_second: the slowest sender of long frames.
        idle_timeout_ms: an accepted connection without traffic is closed (connections.max.idle.ms, 10 minutes); our
            own to others a little earlier, so that a request never crosses with that.
        stuck_timeout_ms: when a request timed out and nothing at all has come for so long, the connection is broken.
        reconnect_backoff_ms: first wait after a failed attempt to connect (reconnect.backoff.ms, 50).
        reconnect_backoff_max_ms: it doubles up to this (reconnect.backoff.max.ms, 1000); up to a fifth is added or
            taken away at random.
    """

    max_frame_bytes: int = 100 * MIB
    max_connections: int = 1000
    max_connections_per_peer: int = 1000
    max_connection_creation_rate: int = 2000
    max_in_flight: int = 1000
    connection_memory_bytes: int = 128 * MIB
    receive_memory_bytes: int = 512 * MIB
    send_memory_bytes: int = 512 * MIB
    handshake_timeout_ms: int = 10_000
    frame_timeout_ms: int = 10_000
    min_bytes_per_second: int = 256 * 1024
    idle_timeout_ms: int = 600_000
    stuck_timeout_ms: int = 1000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            least = 0 if field.name == "max_connections" else 1
            if not isinstance(value, int) or value < least:
                raise LocalError(f"{field.name} must be a whole number, at least {least}, not {value!r}")
        if self.max_frame_bytes >= 2**31:
            raise LocalError(f"max_frame_bytes must be below 2 GiB, not {self.max_frame_bytes}: the length is an int32")
        if self.reconnect_backoff_max_ms < self.reconnect_backoff_ms:
            raise LocalError(
                f"reconnect_backoff_max_ms ({self.reconnect_backoff_max_ms}) is below"
                f" reconnect_backoff_ms ({self.reconnect_backoff_ms})"
            )
