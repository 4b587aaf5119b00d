"""From a controller's address to a running observer."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

import trio

from kraftcore import admin
from kraftcore.admin import Timing
from kraftcore.config.addresses import parse_address
from kraftcore.config.login import SaslLogin, make_login
from kraftcore.core.disk.files import Files
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import METADATA_TOPIC_ID, Uuid
from kraftcore.errors import LocalError, NodeStoppedError, UnreachableError, UnsupportedVersionError
from kraftcore.node.home import Home
from kraftcore.node.mirror import NAMELESS, open_mirror, saved_cluster_id, temporary_folder
from kraftcore.observer.observer import Observer
from kraftcore.ownership import owned_async_block
from kraftcore.ports.async_library import check_trio
from kraftcore.ports.nursery import open_nursery
from kraftcore.ports.transport import Address, Transport
from kraftcore.protocol.topics import METADATA_TOPIC
from kraftcore.raft.events import RaftConfig
from kraftcore.raft.snapshot_schedule import CleaningConfig
from kraftcore.transports.tcp import TcpTransport, TlsSettings


@owned_async_block("kraftcore.observe")
@asynccontextmanager
async def observe(
    bootstrap_controllers: Iterable[Address | str],
    directory: str | os.PathLike[str] | None = None,
    *,
    topic: str = METADATA_TOPIC,
    topic_id: Uuid = METADATA_TOPIC_ID,
    tls: TlsSettings | None = None,
    sasl: SaslLogin | None = None,
    transport: Transport | None = None,
    files: Files | None = None,
    timing: Timing | None = None,
    retention_bytes: int = -1,
    keeping_period_ms: int = 60_000,
    watch: admin.Watch | None = None,
) -> AsyncIterator[Observer]:
    """Observe a quorum for as long as the block runs.

    Args:
        bootstrap_controllers: ``host:port`` of some controllers. The others are found through them, at start.
        directory: where the mirror is, and goes on from what it has; None: a temporary one, removed at the end.
        topic: name of the quorum's log.
        topic_id: its id.
        tls: how to connect, for example ``kraftcore.transports.tcp.TlsFiles``; None: without TLS.
        sasl: who logs in, and with what; None: nobody does.
        transport: moves the frames, and stays open; None: TCP with ``tls`` and ``sasl``, closed at the end.
        files: where ``directory`` is; None: the operating system's.
        timing: how long to look for the quorum; None: Kafka's defaults for clients. An existing mirror does not
            wait for it: it tries on for as long as it runs.
        retention_bytes: log and snapshots that a newer snapshot makes superfluous are deleted while the mirror is
            larger; negative: never.
        keeping_period_ms: how often the leader is asked for a newer snapshot, to copy it; > 0.
        watch: as of ``kraftcore.admin.connect``, of the calls by which the quorum is looked for.

    Yields:
        The observer; it goes on through changes of leader. Nothing need be mirrored yet: ``observer.caught_up()``.

    Raises:
        LocalError: no address, or one that cannot be read; no directory or topic, but an empty text; the directory is
            a node's, or mirrors another cluster.
        AuthenticationError: the controllers do not accept the login.
        LockedError: another process owns the directory.
        CorruptDataError, StorageError: the directory cannot be read.
        UnreachableError, RefusedError, UnsupportedVersionError: nobody there tells the cluster's id, or no controller.
        NodeStoppedError: the observer failed while the block ran; ``__cause__`` says why.
    """
    check_trio("kraftcore.observe")
    servers = [parse_address(each) for each in bootstrap_controllers]
    _check_given(servers, directory, topic)
    disk = OsFiles() if files is None else files
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(temporary_folder("observe")) if directory is None else os.fspath(directory)
        saved = saved_cluster_id(disk, folder)
        if transport is None:
            login = None if sasl is None else make_login(sasl, "kraftcore-observer")
            transport = await stack.enter_async_context(TcpTransport(tls=tls, login=login, log=lambda _: None))
        cluster_id, known = await _find_cluster(servers, transport, topic, timing, watch, is_new=saved is None)
        home = await trio.to_thread.run_sync(open_mirror, disk, folder, cluster_id, topic, topic_id)
        places = tuple((server.host, server.port) for server in known)
        config = RaftConfig(
            home.cluster_id or None,
            NAMELESS,
            bootstrap_servers=places,
            can_become_voter=False,
            topic=topic,
            topic_id=topic_id,
        )
        cleaning = CleaningConfig(retention_bytes=retention_bytes, retention_ms=-1, period_ms=keeping_period_ms)
        async with _running(config, home, folder, transport, cleaning) as observer:
            yield observer


def _check_given(servers: list[Address], directory: str | os.PathLike[str] | None, topic: str) -> None:
    if not servers:
        raise LocalError("give at least one controller's host:port")
    if directory is not None and not os.fspath(directory):
        raise LocalError("the mirror's directory is empty: that would be the working directory")
    if not topic or "/" in topic:
        raise LocalError(f"{topic!r} is no topic: the mirror's folder is named after it")


@asynccontextmanager
async def _running(
    config: RaftConfig, home: Home, directory: str, transport: Transport, cleaning: CleaningConfig
) -> AsyncIterator[Observer]:
    raised: BaseException | None = None
    body = trio.CancelScope()
    try:
        observer = Observer(config, home, directory, transport, body.cancel, cleaning)
    except BaseException:
        home.close()
        raise
    try:
        async with open_nursery() as nursery:
            try:
                with body:
                    observer.begin(nursery)
                    yield observer
            finally:
                with trio.CancelScope(shield=True):
                    await observer.close()
                nursery.cancel_scope.cancel()
    except BaseException as error:
        raised = error
    is_interrupt = raised is not None and not isinstance(raised, Exception | trio.Cancelled)
    if observer.error is not None and not is_interrupt:
        raise NodeStoppedError(f"the observer stopped: {observer.error}") from observer.error
    if raised is not None:
        raise raised


async def _find_cluster(
    servers: list[Address],
    transport: Transport,
    topic: str,
    timing: Timing | None,
    watch: admin.Watch | None,
    *,
    is_new: bool,
) -> tuple[str | None, list[Address]]:
    # The cluster's id, if somebody tells it, and all controllers known.
    try:
        async with admin.connect(
            bootstrap_controllers=servers, transport=transport, timing=timing, topic=topic, watch=watch
        ) as client:
            with trio.move_on_after(float("inf") if is_new else 5):
                found = await client.describe_cluster()
                others = [Address(node.host, node.port) for node in found.nodes]
                return found.cluster_id, list(dict.fromkeys([*servers, *others]))
    except UnsupportedVersionError:
        if topic == METADATA_TOPIC:  # that is a broker, or no controller at all
            raise
    except UnreachableError:
        if is_new:
            raise
    return None, servers
