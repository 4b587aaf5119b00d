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
                "metadata.log.dir",
                "The folder that holds the log, snapshots and the node's own files. A file "
                "without it means the first of ``log.dirs``.",
                True,
            )
        )
    )
    log_directories: Converted[Iterable[str | os.PathLike[str]], tuple[str, ...]] = Converted(
        (),
        Setting(
            "log.dirs",
            "The other folders of the server. A node keeps nothing there, but does not start when the "
            "``meta.properties`` in one of them is another cluster's or node's.",
            True,
        ),
    )
    cluster_id: str | None = text(
        None,
        _OWN + "cluster.id",
        "Id of the cluster that the directory must belong to. None: the one "
        "that is in the directory's ``meta.properties``.",
    )
    listeners: Converted[Iterable[Endpoint | str], tuple[Endpoint, ...]] = Converted(
        (),
        Setting(
            "listeners",
            "The addresses that the node listens on: those named in ``controller.listener.names``, the default "
            "one first. Also as texts, ``CONTROLLER://127.0.0.1:9093`` or ``127.0.0.1:9093``. Port 0: any free "
            "port. An empty host is 0.0.0.0, all interfaces.",
            True,
        ),
    )
    advertised_listeners: Converted[Iterable[Endpoint | str], tuple[Endpoint, ...]] = Converted(
        (),
        Setting(
            "advertised.listeners",
            "The addresses at which other nodes reach the listeners, also as texts. Of a listener without one "
            "it is the address it listens on; if that is all interfaces, the address in ``voters``, or this "
            "host's name.",
            True,
        ),
    )
    broker_listeners: Converted[Iterable[Endpoint | str], tuple[Endpoint, ...]] = Converted(
        (),
        Setting(
            "listeners",
            "Of a node with the broker: the addresses that it listens on for clients and other brokers, that is "
            "all that are not named in ``controller.listener.names``. A file gives them where ``process.roles`` "
            "holds ``broker`` and the plugin ``broker`` is installed. Forms as of ``listeners``.",
            True,
        ),
    )
    voters: Converted[VoterSet | str | Iterable[str], VoterSet] = Converted(
        VoterSet(),
        Setting(
            _QUORUM + "voters",
            "The voters of a quorum that never change, also as ``1@host:port,2@host:port``; the same on every "
            "node. Empty: the voters stand in the log, and can be changed (KIP-853).",
        ),
    )
    bootstrap_servers: Converted[Iterable[Address | str], tuple[Address, ...]] = Converted(
        (),
        Several(
            _QUORUM + "bootstrap.servers",
            "Nodes that this node asks who leads, also as ``host:port``. Without any, it asks the voters that "
            "the log names.",
        ),
    )
    can_become_voter: bool = flag(
        True,
        "process.roles",
        "True: the node may be a voter. False: it is always an observer. In a file: whether ``process.roles`` "
        "holds ``controller``.",
        is_composed=True,
    )
    auto_join: bool = flag(
        False,
        _QUORUM + "auto.join.enable",
        "True: the node makes itself a voter once it has caught up, and nobody has to add it (KIP-1186).",
    )
    reluctant: bool = flag(
        False,
        _OWN + "reluctant",
        "True: the node votes and acknowledges, but leads only while no other voter can, and hands leadership "
        "over as soon as another one keeps up. Set it on a voter without the plugin ``controller`` among "
        "Kafka's controllers, for brokers must be able to reach a controller that leads.",
    )
    topic: str = text(
        METADATA_TOPIC,
        _OWN + "topic",
        "Name of the topic that the log is; the same on every node. Change it only to tell two kinds of quorums apart.",
    )
    topic_id: Uuid = field(
        default=METADATA_TOPIC_ID,
        metadata=declare(TopicId(_OWN + "topic.id", "Id of that topic; the same on every node.")),
    )
    create: Creation | None = text(
        None,
        _OWN + "create",
        "What to do with an empty directory. None: it is an error. ``standalone``: format it as a quorum of "
        "one, unless one of ``bootstrap_servers`` knows a quorum; then, as with ``join``, format it without "
        "voters, so that the node is added or joins by itself. With ``voters`` a directory is formatted only "
        "after all other voters were heard (docs/damage.md).",
        choices=get_args(Creation),
    )
    attachable: bool = flag(
        False,
        _OWN + "attachable",
        "True: other processes of this host and user may use this node: ``kraftcore.attach(directory, machine)``. "
        "``observer_linger_ms`` is then at most 1: set it alike on all nodes.",
    )
    plugins: Converted[Iterable[str], tuple[str, ...]] = several(
        _OWN + "plugins", "Names of the installed plugins to load, as ``metrics``."
    )
    plugin_settings: Mapping[str, str] = composed_mapping(
        _OWN + "plugin.",
        "Settings of plugins by ``NAME.SETTING``. In a file: the properties that begin with ``kraftcore.plugin.``.",
        is_secret=True,
    )
    tls: TlsConfig | None = composed(
        None,
        "ssl.keystore.location",
        "How connections are encrypted, from ``ssl.*`` and ``listener.security.protocol.map``; None: they are "
        "not. It holds for connections to other nodes, which go to their listener of the name of this node's "
        "first one, and for all listeners but those in ``listener_tls``.",
    )
    listener_tls: Mapping[str, TlsConfig | None] = composed_mapping(
        "listener.security.protocol.map",
        "By name of a listener: how its connections are encrypted, if otherwise than ``tls`` says; ``None``: "
        "they are not. The first listener is not among them.",
    )
    tls_reload_ms: int = number(
        10_000,
        _OWN + "tls.reload.ms",
        "Milliseconds between two looks at the TLS files. Those that changed are read again, for connections "
        "made from then on. 0: only when the node is told to.",
    )

    sasl: SaslLogin | None = composed(
        None,
        "sasl.mechanism.controller.protocol",
        "How this node logs in at other nodes, where their listener of the name of this node's first one wants "
        "it: the mechanism, with the login module in ``listener.name.LISTENER.MECHANISM.sasl.jaas.config`` or "
        "``sasl.jaas.config``; None: it does not log in.",
    )
    listener_sasl: Mapping[str, SaslConfig] = composed_mapping(
        "sasl.enabled.mechanisms",
        "By name of a listener: the mechanisms by which clients log in there, from "
        "``listener.security.protocol.map``, ``sasl.*`` and ``connections.max.reauth.ms``. At other listeners "
        "clients do not log in; they may have a certificate.",
    )
    failed_authentication_delay_ms: int = number(
        100,
        "connection.failed.authentication.delay.ms",
        "Milliseconds by which the answer to a failed login is delayed, so that passwords cannot be tried out quickly.",
    )

    # --- the consensus ------------------------------------------------------------------------------------------------

    election_timeout_ms: int = number(
        1000,
        _QUORUM + "election.timeout.ms",
        "Milliseconds that a candidate waits for votes before it tries again; a random time up to as much is "
        "added. Raise it where the network is slow. 0 in a file, which Kafka takes, means 1.",
        low=1,
        low_in_file=0,
    )
    fetch_timeout_ms: int = number(
        2000,
        _QUORUM + "fetch.timeout.ms",
        "Milliseconds without an answer from the leader after which a voter calls an election; a leader resigns "
        "after half as long again without Fetches of a majority. Raise it where nodes pause or the network is "
        "slow: a failover then takes longer. 0 in a file means 1.",
        low=1,
        low_in_file=0,
    )
    election_backoff_max_ms: int = number(
        1000,
        _QUORUM + "election.backoff.max.ms",
        "Milliseconds that a candidate pauses at most between a lost election and the next one.",
    )
    request_timeout_ms: int = number(
        2000,
        _QUORUM + "request.timeout.ms",
        "Milliseconds that a request to another node may take before it counts as failed. 0 in a file means 1.",
        low=1,
        low_in_file=0,
    )
    retry_backoff_ms: int = number(
        20,
        _QUORUM + "retry.backoff.ms",
        "Milliseconds of pause after a failed request to a node, before the next one to it.",
    )
    discovery_pause_ms: int = number(
        100,
        _OWN + "discovery.pause.ms",
        "Milliseconds of pause between two questions who leads, while none is answered.",
    )
    fetch_max_wait_ms: int = number(
        FETCH_WAIT_MS,
        _OWN + "fetch.max.wait.ms",
        "Milliseconds that a leader keeps a Fetch waiting while there is nothing new, a voter's for at most "
        "half of its own ``fetch_timeout_ms``; fixed in Kafka. Where a file sets ``fetch_timeout_ms`` or "
        "``request_timeout_ms`` to no more, and does not set this: half of the lesser.",
    )
    fetch_max_bytes: int = number(
        _MIB,
        _QUORUM + "fetch.max.bytes",
        "Bytes of records that the answer to one Fetch has at most; one batch it has in any case.",
        low=1,
    )
    fetch_snapshot_max_bytes: int = number(
        _MIB,
        _QUORUM + "fetch.snapshot.max.bytes",
        "Bytes of a snapshot that the answer to one FetchSnapshot has at most.",
        low=1,
    )
    high_watermark_linger_ms: int = number(
        2,
        _OWN + "high.watermark.linger.ms",
        "Milliseconds that a leader waits for new records before it tells a follower that lacks nothing else "
        "the latest high watermark, which saves an answer. 0: it does not wait, as Kafka.",
    )
    observer_linger_ms: int = number(
        10,
        _OWN + "observer.linger.ms",
        "Milliseconds between two answers to observers (brokers), which are all told of commits together; a "
        "commit after a time as long without one is told at once. Raise it where there are many brokers. 0: "
        "whenever records are appended or committed, as Kafka.",
    )
    fast_failover: bool = flag(
        True,
        _OWN + "fast.failover",
        "True: a voter calls an election when its connection to the leader breaks. False: only after "
        "``fetch_timeout_ms``, as Kafka.",
    )
    leader_lease_ms: int = number(
        0,
        _OWN + "leader.lease.ms",
        "Milliseconds for which voters promise their leader to elect nobody else, so that meanwhile the leader answers "
        "reads without asking them (``read_barrier``). 0: they promise nothing, as Kafka. Set it on a majority of the "
        "voters; an election after the leader's death waits for the promises to end. ASSUMED: no voter's clock runs a "
        "twentieth too fast or too slow, or stands still as that of a virtual machine that is moved; else reads may be "
        "outdated. Before a voter starts with a lower value, it must have been down for the former one.",
        high=60_000,
    )

    # --- the log ------------------------------------------------------------------------------------------------------

    segment_bytes: int = number(
        _GIB,
        "metadata.log.segment.bytes",
        "Bytes of a segment of the log, after which the next segment begins. In a file at least 8 MiB, as in "
        "Kafka (``internal.metadata.log.segment.bytes`` takes less).",
        low=64,
        low_in_file=8 * _MIB,
    )
    segment_ms: int = number(
        7 * _DAY_MS,
        "metadata.log.segment.ms",
        "Milliseconds that a segment's oldest record may be old; then the next segment begins.",
        low=1,
        high=2**62,
    )
    max_batch_bytes: int = number(
        8 * _MIB,
        "internal.metadata.max.batch.size.in.bytes",
        "Bytes that a batch of records may have, header included; ``segment_bytes`` if that is less. A larger "
        "append is refused.",
        low=64,
    )
    index_interval_bytes: int = number(
        4 * _KIB,
        _OWN + "index.interval.bytes",
        "Bytes of the log between two entries of its index; fixed in "
        "Kafka. Less makes reads from the middle quicker, and the "
        "index larger.",
    )
    index_bytes_max: int = number(
        10 * _MIB,
        _OWN + "index.bytes.max",
        "Bytes that an index file may have; when it is full the next segment begins. Fixed in Kafka.",
        low=36,
    )
    file_delete_delay_ms: int = number(
        60_000,
        "internal.metadata.delete.delay.millis",
        "Milliseconds that a deleted segment or snapshot stays on disk, renamed to ``.deleted``, for those who "
        "still read it.",
        high=2**62,
    )
    tail_bytes: int = number(
        8 * _MIB,
        _OWN + "tail.bytes",
        "Bytes of the log's end that are kept in memory, so "
        "that followers that keep up are answered without "
        "reading files.",
        high=2**40,
    )
    preallocate: bool = flag(
        False,
        "log.preallocate",
        "True: 256 KiB of zeros are written ahead of small appends, which makes each sync quicker where a "
        "file's size is costly to store; see ``preallocate_bytes`` of ``kraftcore.core.log.LogConfig``.",
    )

    # --- snapshots and retention --------------------------------------------------------------------------------------

    snapshot_bytes: int = number(
        20 * _MIB,
        "metadata.log.max.record.bytes.between.snapshots",
        "Bytes of records applied since the last snapshot after which another is written. Less: a quicker "
        "start, and more writing.",
        low=1,
        high=INT64_MAX,
    )
    snapshot_interval_ms: int = number(
        _DAY_MS // 24,
        "metadata.log.max.snapshot.interval.ms",
        "Milliseconds since the last snapshot after which another is written, if records were applied since. 0: "
        "snapshots depend on ``snapshot_bytes`` alone.",
        high=INT64_MAX,
    )
    retention_bytes: int = number(
        100 * _MIB,
        "metadata.max.retention.bytes",
        "Bytes that the log and snapshots may take together: beyond that the oldest are deleted, as far as a "
        "newer snapshot has their records. Negative: no limit.",
        low=INT64_MIN,
        high=INT64_MAX,
    )
    retention_ms: int = number(
        7 * _DAY_MS,
        "metadata.max.retention.ms",
        "Milliseconds after which a snapshot that a newer one replaces is deleted, with the log before it. "
        "Negative: age deletes nothing.",
        low=INT64_MIN,
        high=INT64_MAX,
    )
    cleaning_period_ms: int = number(
        60_000,
        _OWN + "cleaning.period.ms",
        "Milliseconds between two looks for snapshots and segments to delete; fixed in Kafka.",
        low=1,
    )

    # --- appending ----------------------------------------------------------------------------------------------------

    append_linger_ms: int = number(
        0,
        _QUORUM + "append.linger.ms",
        "Milliseconds that the first record of a batch waits for others. Kafka has 25; here a batch takes all "
        "that arrives while the one before it is flushed, so that waiting seldom helps.",
    )
    max_bytes_in_flight: int = number(
        32 * _MIB,
        _OWN + "max.bytes.in.flight",
        "Bytes of records that may be proposed and not committed yet; beyond that ``append`` waits.",
        low=1,
        high=INT64_MAX,
    )
    session_expiry_ms: int = number(
        7 * _DAY_MS,
        _OWN + "session.expiry.ms",
        "Milliseconds that a silent client's last proposals are remembered, by which a repeated one is applied "
        "once. The same on every node, for it decides what is applied.",
        low=1,
        high=INT64_MAX,
    )
    inline_flush_bytes: int = number(
        64 * _KIB,
        _OWN + "inline.flush.bytes",
        "Bytes up to which records are synced in the node's own thread; "
        "a larger flush goes to another thread, so that it holds "
        "nothing up. 0: every flush goes to a thread.",
        high=INT64_MAX,
    )
    busy_poll_us: int = number(
        500,
        _OWN + "busy.poll.us",
        "Microseconds that a leader with more than one processor polls for answers before it sleeps, while "
        "batches are on their way: commits come sooner, for processor time. 0: it sleeps at once.",
    )
    record_file: Converted[str | os.PathLike[str] | None, str | None] = Converted(
        None,
        Setting(
            _OWN + "record.file",
            "A file to which every event of the consensus is written with its time, for ``kraftcore simulate "
            "--replay``. It holds the log's records and grows without bound: set it only to find a fault. None: "
            "nothing is written.",
        ),
    )
    shutdown_timeout_ms: int = number(
        5000,
        _OWN + "shutdown.timeout.ms",
        "Milliseconds that a leader that is told to stop has to hand leadership over; fixed in Kafka.",
    )

    # --- connections --------------------------------------------------------------------------------------------------

    max_frame_bytes: int = number(
        100 * _MIB,
        "socket.request.max.bytes",
        "Bytes of the longest request or response. A longer one is not read, and its connection closed.",
        low=1024,
    )
    max_connections: int = number(
        1000,
        "max.connections",
        "Connections from others at a time. A further one takes the place of one that has sent no request yet; "
        "where there is none, the new one is closed. 0: each is closed. Kafka has no limit.",
    )
    max_connections_per_peer: int = number(
        1000,
        "max.connections.per.ip",
        "Connections from one IP address at a time; a further one is closed. Kafka has no limit.",
        low=1,
    )
    max_connection_creation_rate: int = number(
        2000,
        "max.connection.creation.rate",
        "Connections accepted a second; others wait. Kafka has no limit. 0 in a file, by which Kafka accepts "
        "about one, means 1.",
        low=1,
        low_in_file=0,
    )
    max_in_flight: int = number(
        1000,
        _OWN + "max.in.flight",
        "Requests of one connection that are served at a time; while there are as many no further one is read from it.",
        low=1,
    )
    connection_memory_bytes: int = number(
        128 * _MIB,
        _OWN + "connection.memory.bytes",
        "Bytes that may wait in memory for one connection until the other side takes them. Beyond that a "
        "connection of a client is closed, and a request of this node fails.",
        low=64 * _KIB,
        high=INT64_MAX,
    )
    receive_memory_bytes: int = number(
        512 * _MIB,
        _OWN + "receive.memory.bytes",
        "Bytes that requests of all connections may take in memory while they arrive. Beyond that the "
        "connection whose request began first is closed.",
        low=64 * _KIB,
        high=INT64_MAX,
    )
    send_memory_bytes: int = number(
        512 * _MIB,
        _OWN + "send.memory.bytes",
        "Bytes that responses of all connections may take in memory until they are sent. Beyond that the "
        "connection that has taken nothing for the longest time is closed.",
        low=64 * _KIB,
        high=INT64_MAX,
    )
    handshake_timeout_ms: int = number(
        10_000,
        _OWN + "handshake.timeout.ms",
        "Milliseconds that a new connection has for its TLS handshake and first request together; then it is closed.",
        low=1,
    )
    frame_timeout_ms: int = number(
        10_000,
        _OWN + "frame.timeout.ms",
        "Milliseconds that a request that has begun to arrive may take, besides the time that its length takes "
        "at ``min_bytes_per_second``; then its connection is closed.",
        low=1,
    )
    min_bytes_per_second: int = number(
        256 * _KIB,
        _OWN + "min.bytes.per.second",
        "Bytes a second that the sender of a long request must send at least; see ``frame_timeout_ms``.",
        low=1,
    )
    stuck_timeout_ms: int = number(
        1000,
        _OWN + "stuck.timeout.ms",
        "Milliseconds without a byte on a connection after which, when a request on it times out, the "
        "connection is made anew.",
        low=1,
    )
    idle_timeout_ms: int = number(
        600_000,
        "connections.max.idle.ms",
        "Milliseconds without traffic after which a connection is closed. Negative in a file: never.",
        low=1,
        high=INT64_MAX,
        low_in_file=INT64_MIN,
    )
    reconnect_backoff_ms: int = number(
        50, _OWN + "reconnect.backoff.ms", "Milliseconds of the first pause after connecting to a node failed.", low=1
    )
    reconnect_backoff_max_ms: int = number(
        1000,
        _OWN + "reconnect.backoff.max.ms",
        "Milliseconds up to which that pause doubles with each failure; Kafka has 500.",
        low=1,
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
    attachable: bool
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
    leader_lease_ms: int
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
