"""Every setting of a node, declared once: type, default, property, range and text."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import Field, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypedDict, get_args

from kraftcore.config.identity import NODE_ID
from kraftcore.config.security import SaslConfig
from kraftcore.config.settings import (
    INT64_MAX,
    INT64_MIN,
    Converted,
    Given,
    Setting,
    Several,
    TopicId,
    composed,
    composed_mapping,
    declare,
    declared,
    flag,
    number,
    settings,
    several,
    text,
)
from kraftcore.config.tls import TlsConfig
from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.ports.transport import Address
from kraftcore.protocol.topics import METADATA_TOPIC
from kraftcore.raft.quorum import Endpoint, VoterSet
from kraftcore.security.authorizer import Authorizer
from kraftcore.security.principals import PrincipalBuilder

if TYPE_CHECKING:
    from kraftcore.config.login import SaslLogin

_QUORUM = "controller.quorum."
_OWN = "kraftcore."
_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30
_DAY_MS = 24 * 3_600_000
FETCH_WAIT_MS = 500
"""How long a leader holds a Fetch; Kafka's."""

_LATER = ("SaslLogin",)

Creation: TypeAlias = Literal["standalone", "join"]


@settings(later=_LATER)
class NodeSettings:
    """The fields of ``NodeConfig``, which converts and checks them.

    Names and defaults are Kafka's where Kafka has them. A default that a part of a node has as well (``RaftConfig``,
    ``LogConfig``, ``CleaningConfig``, ``Limits``) is the same there.
    """

    if TYPE_CHECKING:  # `settings` makes it a dataclass
        __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    node_id: int = field(metadata=declare(NODE_ID))
    directory: Converted[str | os.PathLike[str], str] = field(
        metadata=declare(
            Setting(
                "metadata.log.dir", "The folder that holds the log. In a file else the first of ``log.dirs``.", True
            )
        )
    )
    log_directories: Converted[Iterable[str | os.PathLike[str]], tuple[str, ...]] = Converted(
        (),
        Setting(
            "log.dirs",
            "Beside ``directory``: a node keeps nothing there, but does not start when their ``meta.properties`` are "
            "another cluster's or node's.",
            True,
        ),
    )
    cluster_id: str | None = text(None, _OWN + "cluster.id", "None: what the directory's ``meta.properties`` says.")
    listeners: Converted[Iterable[Endpoint | str], tuple[Endpoint, ...]] = Converted(
        (),
        Setting(
            "listeners",
            "What is bound: those named in ``controller.listener.names``, the default one first. Also as texts, "
            "``CONTROLLER://127.0.0.1:9093`` or ``127.0.0.1:9093``. Port 0: any free port. An empty host is 0.0.0.0, "
            "all interfaces.",
            True,
        ),
    )
    advertised_listeners: Converted[Iterable[Endpoint | str], tuple[Endpoint, ...]] = Converted(
        (),
        Setting(
            "advertised.listeners",
            "What others are told, also as texts. For a listener that is not among them it is what was bound; for one "
            "on all interfaces the address in ``voters``, or this host's name.",
            True,
        ),
    )
    broker_listeners: Converted[Iterable[Endpoint | str], tuple[Endpoint, ...]] = Converted(
        (),
        Setting(
            "listeners",
            "Of a node with the broker: what is bound besides for clients and other brokers, all that are not named "
            "in ``controller.listener.names``. A file gives them where ``process.roles`` holds ``broker`` and the "
            "broker is there. Forms as above.",
            True,
        ),
    )
    voters: Converted[VoterSet | str | Iterable[str], VoterSet] = Converted(
        VoterSet(),
        Setting(
            _QUORUM + "voters",
            "Static voters, also as ``1@host:port,2@host:port``. Empty: the voters are in the log (KIP-853).",
        ),
    )
    bootstrap_servers: Converted[Iterable[Address | str], tuple[Address, ...]] = Converted(
        (),
        Several(
            _QUORUM + "bootstrap.servers",
            "Asked for the leader; also as ``host:port``. Without any, the voters that the log names are asked.",
        ),
    )
    can_become_voter: bool = flag(
        True,
        "process.roles",
        "In a file: whether it holds ``controller``. False: always an observer.",
        is_composed=True,
    )
    auto_join: bool = flag(False, _QUORUM + "auto.join.enable", "True: become a voter without being added (KIP-1186).")
    reluctant: bool = flag(
        False,
        _OWN + "reluctant",
        "True: vote and acknowledge, but lead only while no other voter can, and hand over as soon as one keeps up. "
        "A choice for a node with the controller, which may lead Kafka's; for a voter without one among them a need: "
        "brokers have to reach a controller.",
    )
    topic: str = text(METADATA_TOPIC, _OWN + "topic", "Name of the log's topic.")
    topic_id: Uuid = field(
        default=METADATA_TOPIC_ID, metadata=declare(TopicId(_OWN + "topic.id", "Id of the log's topic."))
    )
    create: Creation | None = text(
        None,
        _OWN + "create",
        "What to do with an empty directory. None: it is an error; ``standalone``: format it as a quorum of one, "
        "unless one of ``bootstrap_servers`` knows a quorum: then, or with ``join``, it is formatted without voters, "
        "to be added or to join by itself. Of ``voters`` it counts only when all the others were heard "
        "(docs/damage.md).",
        choices=get_args(Creation),
    )
    plugins: Converted[Iterable[str], tuple[str, ...]] = several(
        _OWN + "plugins", "Names of installed plugins to load."
    )
    plugin_settings: Mapping[str, str] = composed_mapping(
        _OWN + "plugin.",
        "What begins with ``kraftcore.plugin.``, without that: ``NAME.SETTING`` of a plugin.",
        is_secret=True,
    )
    tls: TlsConfig | None = composed(
        None,
        "ssl.keystore.location",
        "How to encrypt, from ``ssl.*`` and ``listener.security.protocol.map``; None: plain text. It holds for "
        "connections to other nodes, which go to their listener of our first one's name, and for all listeners but "
        "those in ``listener_tls``.",
    )
    listener_tls: Mapping[str, TlsConfig | None] = composed_mapping(
        "listener.security.protocol.map",
        "By name of a listener: how it encrypts where ``tls`` does not say, ``None`` if it does not; the first "
        "listener is not among them.",
    )
    tls_reload_ms: int = number(
        10_000,
        _OWN + "tls.reload.ms",
        "How often TLS files are looked at; those that changed are read again for connections made from then on. 0: "
        "only when the node is told to.",
    )

    sasl: SaslLogin | None = composed(
        None,
        "sasl.mechanism.controller.protocol",
        "How this node logs in at other nodes, where their listener of our first one's name wants it, with the login "
        "module in ``listener.name.LISTENER.MECHANISM.sasl.jaas.config`` or ``sasl.jaas.config``; None: it does not.",
    )
    listener_sasl: Mapping[str, SaslConfig] = composed_mapping(
        "sasl.enabled.mechanisms",
        "By name of a listener: how those who connect there prove who they are, from "
        "``listener.security.protocol.map``, ``sasl.*`` and ``connections.max.reauth.ms``; who connects to another "
        "one proves nothing, or has a certificate.",
    )
    failed_authentication_delay_ms: int = number(
        100,
        "connection.failed.authentication.delay.ms",
        "How long whoever did not prove who it is waits for the answer that says so.",
    )

    # --- the consensus ------------------------------------------------------------------------------------------------

    election_timeout_ms: int = number(
        1000,
        _QUORUM + "election.timeout.ms",
        "How long an election may take; a random time up to as much is added. 0 in a file, which Kafka takes, is 1.",
        low=1,
        low_in_file=0,
    )
    fetch_timeout_ms: int = number(
        2000,
        _QUORUM + "fetch.timeout.ms",
        "After so long without a leader's answer, call an election. 0 in a file is 1.",
        low=1,
        low_in_file=0,
    )
    election_backoff_max_ms: int = number(
        1000, _QUORUM + "election.backoff.max.ms", "Longest pause between a lost election and the next one."
    )
    request_timeout_ms: int = number(
        2000,
        _QUORUM + "request.timeout.ms",
        "How long a request to another node may take. 0 in a file is 1.",
        low=1,
        low_in_file=0,
    )
    retry_backoff_ms: int = number(20, _QUORUM + "retry.backoff.ms", "Pause after a failed request to one peer.")
    discovery_pause_ms: int = number(
        100, _OWN + "discovery.pause.ms", "Pause between two questions for the leader that brought no answer."
    )
    fetch_max_wait_ms: int = number(
        FETCH_WAIT_MS,
        _OWN + "fetch.max.wait.ms",
        "How long a leader holds a Fetch when there is nothing new, a voter's no longer than half its own "
        "``fetch_timeout_ms``; fixed in Kafka. In a file whose "
        "``fetch_timeout_ms`` or ``request_timeout_ms`` is no longer: half of that, if it does not say.",
    )
    fetch_max_bytes: int = number(
        _MIB, _QUORUM + "fetch.max.bytes", "Records in one Fetch, but one batch at least.", low=1
    )
    fetch_snapshot_max_bytes: int = number(
        _MIB, _QUORUM + "fetch.snapshot.max.bytes", "Part of a snapshot in one FetchSnapshot.", low=1
    )
    high_watermark_linger_ms: int = number(
        2,
        _OWN + "high.watermark.linger.ms",
        "How long a follower that lacks nothing but the latest high watermark is kept waiting for records to come "
        "along with it; 0: not at all, as Kafka.",
    )
    observer_linger_ms: int = number(
        10,
        _OWN + "observer.linger.ms",
        "Observers (brokers) hear of what is committed, all of them together, at most once in this time: at once if "
        "nothing was committed for so long. 0: whenever something is appended or committed, as Kafka.",
    )
    fast_failover: bool = flag(
        True,
        _OWN + "fast.failover",
        "An election begins when the leader's connection breaks, not only at ``fetch_timeout_ms``.",
    )

    # --- the log ------------------------------------------------------------------------------------------------------

    segment_bytes: int = number(
        _GIB,
        "metadata.log.segment.bytes",
        "Size of a segment. In a file at least 8 MiB, as in Kafka (``internal.metadata.log.segment.bytes`` takes "
        "less).",
        low=64,
        low_in_file=8 * _MIB,
    )
    segment_ms: int = number(
        7 * _DAY_MS,
        "metadata.log.segment.ms",
        "Age of its oldest record at which a segment is not written to any more.",
        low=1,
        high=2**62,
    )
    max_batch_bytes: int = number(
        8 * _MIB,
        "internal.metadata.max.batch.size.in.bytes",
        "Largest batch; ``segment_bytes`` if that is less.",
        low=64,
    )
    index_interval_bytes: int = number(
        4 * _KIB, _OWN + "index.interval.bytes", "Bytes of log between two index entries; fixed in Kafka."
    )
    index_bytes_max: int = number(10 * _MIB, _OWN + "index.bytes.max", "Size of an index file; fixed in Kafka.", low=36)
    file_delete_delay_ms: int = number(
        60_000,
        "internal.metadata.delete.delay.millis",
        "How long a superseded file stays, renamed to ``.deleted``.",
        high=2**62,
    )
    tail_bytes: int = number(8 * _MIB, _OWN + "tail.bytes", "How much of the log's end is kept in memory.", high=2**40)
    preallocate: bool = flag(
        False,
        "log.preallocate",
        "True: write 256 KiB of zeros ahead of small appends, for quicker syncs; see ``preallocate_bytes`` of "
        "``kraftcore.core.log.LogConfig``.",
    )

    # --- snapshots and retention --------------------------------------------------------------------------------------

    snapshot_bytes: int = number(
        20 * _MIB,
        "metadata.log.max.record.bytes.between.snapshots",
        "When so much was applied since the last snapshot, another is written.",
        low=1,
        high=INT64_MAX,
    )
    snapshot_interval_ms: int = number(
        _DAY_MS // 24,
        "metadata.log.max.snapshot.interval.ms",
        "When the last snapshot is so old and something was applied since, another is written; 0: not because of time.",
        high=INT64_MAX,
    )
    retention_bytes: int = number(
        100 * _MIB,
        "metadata.max.retention.bytes",
        "How much room log and snapshots may take; negative: no limit.",
        low=INT64_MIN,
        high=INT64_MAX,
    )
    retention_ms: int = number(
        7 * _DAY_MS,
        "metadata.max.retention.ms",
        "How old a superseded snapshot may become; negative: no limit.",
        low=INT64_MIN,
        high=INT64_MAX,
    )
    cleaning_period_ms: int = number(
        60_000, _OWN + "cleaning.period.ms", "How often to look for what to delete; fixed in Kafka.", low=1
    )

    # --- appending ----------------------------------------------------------------------------------------------------

    append_linger_ms: int = number(
        0,
        _QUORUM + "append.linger.ms",
        "How long records wait for others of their batch. Kafka has 25; here a batch takes everything that arrives "
        "while the one before it is flushed.",
    )
    max_bytes_in_flight: int = number(
        32 * _MIB,
        _OWN + "max.bytes.in.flight",
        "How much may be proposed and not committed; then ``append`` waits.",
        low=1,
        high=INT64_MAX,
    )
    session_expiry_ms: int = number(
        7 * _DAY_MS,
        _OWN + "session.expiry.ms",
        "How long a client's last proposals are remembered. All nodes must have the same: it decides what is applied.",
        low=1,
        high=INT64_MAX,
    )
    inline_flush_bytes: int = number(
        64 * _KIB, _OWN + "inline.flush.bytes", "A larger flush goes to a thread; 0: every one.", high=INT64_MAX
    )
    busy_poll_us: int = number(
        500,
        _OWN + "busy.poll.us",
        "While batches are on their way, a leader with more than one processor looks for news that long before it "
        "sleeps; 0: it sleeps at once.",
    )
    record_file: Converted[str | os.PathLike[str] | None, str | None] = Converted(
        None,
        Setting(
            _OWN + "record.file",
            "Write everything the consensus gets, and when, to this file, for ``kraftcore simulate --replay``. It "
            "holds the log's records and grows without bound; None: do not.",
        ),
    )
    shutdown_timeout_ms: int = number(
        5000, _OWN + "shutdown.timeout.ms", "How long handing leadership over may take at a stop; fixed in Kafka."
    )

    # --- connections --------------------------------------------------------------------------------------------------

    max_frame_bytes: int = number(100 * _MIB, "socket.request.max.bytes", "Longest request or response.", low=1024)
    max_connections: int = number(
        1000, "max.connections", "Accepted connections at a time; Kafka has no limit. 0: none."
    )
    max_connections_per_peer: int = number(
        1000, "max.connections.per.ip", "Accepted connections from one address; Kafka has no limit.", low=1
    )
    max_connection_creation_rate: int = number(
        2000,
        "max.connection.creation.rate",
        "Connections accepted a second; Kafka has no limit. 0 in a file, by which Kafka accepts about one, is 1.",
        low=1,
        low_in_file=0,
    )
    max_in_flight: int = number(
        1000,
        _OWN + "max.in.flight",
        "Requests of one connection being served; then no more is read from it.",
        low=1,
    )
    connection_memory_bytes: int = number(
        128 * _MIB,
        _OWN + "connection.memory.bytes",
        "Most that one connection may buffer.",
        low=64 * _KIB,
        high=INT64_MAX,
    )
    receive_memory_bytes: int = number(
        512 * _MIB,
        _OWN + "receive.memory.bytes",
        "Most that frames of all connections may take while they arrive; then the oldest of them is given up, with "
        "its connection.",
        low=64 * _KIB,
        high=INT64_MAX,
    )
    send_memory_bytes: int = number(
        512 * _MIB,
        _OWN + "send.memory.bytes",
        "Most that responses of all connections may take while nobody takes them; then the connection that has taken "
        "nothing for the longest time is broken.",
        low=64 * _KIB,
        high=INT64_MAX,
    )
    handshake_timeout_ms: int = number(
        10_000, _OWN + "handshake.timeout.ms", "How long TLS and the first request may take together.", low=1
    )
    frame_timeout_ms: int = number(
        10_000,
        _OWN + "frame.timeout.ms",
        "How long a frame that has begun to arrive may take, besides what its length takes at "
        "``min_bytes_per_second``.",
        low=1,
    )
    min_bytes_per_second: int = number(
        256 * _KIB, _OWN + "min.bytes.per.second", "Slowest sender of long frames that is waited for.", low=1
    )
    stuck_timeout_ms: int = number(
        1000,
        _OWN + "stuck.timeout.ms",
        "A connection on which a request timed out and nothing at all came for so long is made anew.",
        low=1,
    )
    idle_timeout_ms: int = number(
        600_000,
        "connections.max.idle.ms",
        "After so long without traffic a connection is closed; negative in a file: never.",
        low=1,
        high=INT64_MAX,
        low_in_file=INT64_MIN,
    )
    reconnect_backoff_ms: int = number(50, _OWN + "reconnect.backoff.ms", "First pause when connecting failed.", low=1)
    reconnect_backoff_max_ms: int = number(
        1000, _OWN + "reconnect.backoff.max.ms", "The pause doubles up to this; Kafka has 500.", low=1
    )

    # --- what an application brings; no file can say it ---------------------------------------------------------------

    authorizer: Authorizer | None = None
    principal_builder: PrincipalBuilder | None = None

    ignored: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        """``NodeConfig`` converts here, and checks what belongs together."""


class SharedSettings(TypedDict, total=False):
    """Settings that all nodes of a test's cluster may have, for a function that takes some of them (PEP 692).

    Made from ``NodeSettings``: ``pytest tests/house/test_configuration.py --rewrite`` writes it anew.
    """

    # made from NodeSettings
    log_directories: Iterable[str | os.PathLike[str]]
    cluster_id: str | None
    listeners: Iterable[Endpoint | str]
    advertised_listeners: Iterable[Endpoint | str]
    broker_listeners: Iterable[Endpoint | str]
    voters: VoterSet | str | Iterable[str]
    bootstrap_servers: Iterable[Address | str]
    can_become_voter: bool
    auto_join: bool
    reluctant: bool
    topic: str
    topic_id: Uuid
    create: Creation | None
    plugin_settings: Mapping[str, str]
    tls: TlsConfig | None
    listener_tls: Mapping[str, TlsConfig | None]
    tls_reload_ms: int
    sasl: SaslLogin | None
    listener_sasl: Mapping[str, SaslConfig]
    failed_authentication_delay_ms: int
    election_timeout_ms: int
    fetch_timeout_ms: int
    election_backoff_max_ms: int
    request_timeout_ms: int
    retry_backoff_ms: int
    discovery_pause_ms: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    fetch_snapshot_max_bytes: int
    high_watermark_linger_ms: int
    observer_linger_ms: int
    fast_failover: bool
    segment_bytes: int
    segment_ms: int
    max_batch_bytes: int
    index_interval_bytes: int
    index_bytes_max: int
    file_delete_delay_ms: int
    tail_bytes: int
    preallocate: bool
    snapshot_bytes: int
    snapshot_interval_ms: int
    retention_bytes: int
    retention_ms: int
    cleaning_period_ms: int
    append_linger_ms: int
    max_bytes_in_flight: int
    session_expiry_ms: int
    inline_flush_bytes: int
    busy_poll_us: int
    record_file: str | os.PathLike[str] | None
    shutdown_timeout_ms: int
    max_frame_bytes: int
    max_connections: int
    max_connections_per_peer: int
    max_connection_creation_rate: int
    max_in_flight: int
    connection_memory_bytes: int
    receive_memory_bytes: int
    send_memory_bytes: int
    handshake_timeout_ms: int
    frame_timeout_ms: int
    min_bytes_per_second: int
    stuck_timeout_ms: int
    idle_timeout_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    authorizer: Authorizer | None
    principal_builder: PrincipalBuilder | None
    ignored: tuple[str, ...]


class NodeOverrides(SharedSettings, total=False):
    """All settings, likewise."""

    node_id: int
    directory: str | os.PathLike[str]
    plugins: Iterable[str]


SETTINGS = declared(NodeSettings)
BROUGHT = ("authorizer", "principal_builder")
"""Fields that hold objects of an application."""


GIVEN = Given(NodeSettings, None, _LATER)


def label(name: str) -> str:
    """A setting's name for a message, with its property."""
    return GIVEN.label(name)
