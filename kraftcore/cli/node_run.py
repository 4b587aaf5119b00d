"""Runs ``kraftcore server start``: a node, its events as lines, signals."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import trio

from kraftcore import __version__
from kraftcore.cli.collecting import SERVER_THRESHOLDS
from kraftcore.cli.service_manager import ServiceManager
from kraftcore.cli.stopping import STOPPING, Stopping
from kraftcore.config import NodeConfig
from kraftcore.core.allocator import keep_freed_memory
from kraftcore.errors import KraftError
from kraftcore.metadata import MetadataMachine
from kraftcore.node import Node, open_node
from kraftcore.node.announcing import RoleNews
from kraftcore.node.events import LeaderChanged, NodeEvent, RoleChanged, SnapshotRestored, VotersChanged
from kraftcore.node.opening import tcp_transport
from kraftcore.node.plugin import Plugin
from kraftcore.plugins.broker.config import KRAFT_HONOURED, BrokerConfig
from kraftcore.raft.quorum import VoterSet
from kraftcore.transports.tcp import TcpTransport

if TYPE_CHECKING:
    from kraftcore.plugins.broker.kraft import KRaftBroker
    from kraftcore.plugins.broker.kraft.lifecycle import Stage


class Reporter:
    """Prints events, one line each. When the output is closed the server goes on in silence."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json
        self._is_read = sys.stdout is not None

    def event(self, name: str, **fields: object) -> None:
        """Print one event."""
        if not self._is_read:
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self._as_json:
            line = json.dumps({"time": time, "event": name, **fields})
        else:
            line = " ".join([time, name, *(f"{key}={_text(value)}" for key, value in fields.items())])
        try:
            click.echo(line)
        except OSError:
            self._is_read = False
            # Python would complain about the rest of its buffer at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


class ReportedLog(logging.Handler):
    """Prints log records as events: warnings of the node and its transport, and the authorizer's denials."""

    def __init__(self, reporter: Reporter, level: int = logging.WARNING) -> None:
        super().__init__(level)
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line, with the exception if there is one."""
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += f": {record.exc_info[1]!r}"
        self._reporter.event("log", level=record.levelname, logger=record.name, text=text)


def run_server(
    config: NodeConfig,
    properties: Mapping[str, str],
    *,
    offers_log: bool,
    as_json: bool,
    broker: BrokerConfig | None = None,
) -> str | None:
    """Run a node until a signal, or its failure, ends it.

    Args:
        config: see `NodeConfig`.
        properties: all properties of the file, for the controller.
        offers_log: see `Controller`.
        as_json: print JSON objects instead of text.
        broker: configuration of a broker in the same node; None: there is no broker.

    Returns:
        Why the node could not start or had to stop; None if it was told to stop.
    """
    reporter = Reporter(as_json=as_json)
    logger, audit = logging.getLogger("kraftcore"), logging.getLogger("kraftcore.authorizer")
    handler, denials = ReportedLog(reporter), ReportedLog(reporter, logging.INFO)
    logger.addHandler(handler)
    audit.addHandler(denials)
    audit.setLevel(logging.INFO)
    error = None
    try:
        honoured: set[str] = set()
        plugins: list[Plugin] = []
        # Only the parts that the node has are imported.
        if config.can_become_voter:
            from kraftcore.plugins.controller import Controller
            from kraftcore.plugins.controller.settings import HONOURED

            honoured |= set(HONOURED)
            plugins.append(Controller(properties, offers_log=offers_log))
        if broker is not None:
            honoured |= set(KRAFT_HONOURED)
        ignored = [key for key in config.ignored if key not in honoured]
        if ignored:
            reporter.event("ignored", properties=ignored)
        if broker is not None:
            plugins.append(_make_broker(config, broker, properties, reporter))
        begin_serving()
        vital = () if broker is None else (broker.broker_listener,)
        trio.run(_Server(config, plugins, reporter, vital).run)
    except KraftError as found:
        error = str(found)
    finally:
        logger.removeHandler(handler)
        audit.removeHandler(denials)
    reporter.event("stopped", error=error)
    return error


def begin_serving() -> None:
    """Set the garbage collector and the allocator of this process up for a server.

    The collector runs rarely and skips imported objects; freed buffers are kept for the next allocations.
    """
    gc.set_threshold(*SERVER_THRESHOLDS)
    gc.freeze()
    gc.enable()
    keep_freed_memory()


def _make_broker(
    config: NodeConfig, settings: BrokerConfig, properties: Mapping[str, str], reporter: Reporter
) -> KRaftBroker:
    from kraftcore.plugins.broker.kraft import KRaftBroker

    def tell(stage: Stage) -> None:
        reporter.event("broker", stage=stage.name.capitalize(), epoch=broker.broker_epoch)

    # The node's transport serves where connections to brokers are made as those to controllers are.
    security = None if settings.security == (config.tls, config.sasl) else settings.security
    broker = KRaftBroker(settings, properties, security=security, on_stage=tell)
    return broker


class _Server:
    def __init__(
        self, config: NodeConfig, plugins: Sequence[Plugin], reporter: Reporter, vital_listeners: Collection[str]
    ) -> None:
        self._config = config
        self._vital_listeners = vital_listeners
        self._plugins = plugins
        self._reporter = reporter
        self._node: Node | None = None
        self._transport: TcpTransport | None = None
        self._opening = trio.CancelScope()
        self._stopping = Stopping(self._stop)
        self._news = RoleNews()
        self._manager = ServiceManager(os.environ)
        self._started = trio.Event()

    async def run(self) -> None:
        with trio.open_signal_receiver(*STOPPING, signal.SIGHUP) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._obey, signals)
                nursery.start_soon(self._report)
                failure: KraftError | None = None
                try:
                    with self._opening:
                        await self._serve()
                except KraftError as error:
                    failure = error  # outside the nursery, which would wrap it in a group
                nursery.cancel_scope.cancel()
            if failure is not None:
                raise failure

    async def _serve(self) -> None:
        async with (
            tcp_transport(self._config, vital_listeners=self._vital_listeners) as self._transport,
            open_node(
                self._config,
                MetadataMachine(),
                transport=self._transport,
                plugins=self._plugins,
            ) as node,
        ):
            events = node.events(RoleChanged, LeaderChanged, VotersChanged, SnapshotRestored)
            self._node = node
            if self._stopping.is_told:
                node.stop()
            gc.freeze()  # modules and the node's objects stay: the collector need not walk over them again
            self._tell_start(node)
            self._started.set()
            async for event in events:
                self._tell(event)
            # The node failed: leaving the block says why.

    async def _report(self) -> None:
        await self._started.wait()
        if self._node is not None:
            await self._manager.keep(self._node)

    async def _obey(self, signals: Any) -> None:
        async for number in signals:
            if number == signal.SIGHUP:
                self._reload_tls()
            else:
                self._stopping.take(number)

    def _stop(self, name: str) -> None:
        self._reporter.event("stopping", signal=name)
        self._manager.stopping()
        if self._node is None:
            self._opening.cancel()
        else:
            self._node.stop()

    def _reload_tls(self) -> None:
        if self._transport is None:
            return
        error = None
        try:
            self._transport.reload_tls()
        except KraftError as found:
            error = str(found)
        self._reporter.event("tls", reloaded=error is None, error=error)

    def _tell_start(self, node: Node) -> None:
        status, bound = node.status(), (*node.endpoints, *node.broker_endpoints)
        self._reporter.event(
            "started",
            nodeId=status.node_id,
            directoryId=str(status.directory_id),
            clusterId=status.cluster_id,
            directory=self._config.directory,
            listeners=[str(endpoint) for endpoint in bound],
            advertisedListeners=[str(endpoint) for endpoint in self._config.advertise(bound)],
            pid=os.getpid(),
            version=__version__,
        )
        # Events that happened before there was a subscriber.
        self._tell(VotersChanged(status.voters))
        self._tell(RoleChanged(status.role, status.epoch))
        self._tell(LeaderChanged(status.leader_id, status.epoch))

    def _tell(self, event: NodeEvent) -> None:
        tell = self._reporter.event
        match event:
            case RoleChanged(role, epoch) if self._news.is_news(role, epoch):
                tell("role", role=role.name.capitalize(), epoch=epoch)
            case LeaderChanged(leader_id, epoch):
                self._news.heard(leader_id)
                tell("leader", leaderId=leader_id, epoch=epoch)
            case VotersChanged(voters):
                tell("voters", voters=_voters(voters))
            case SnapshotRestored(end_offset, epoch):
                tell("snapshot", endOffset=end_offset, epoch=epoch)


def _voters(voters: VoterSet) -> list[dict[str, object]]:
    return [
        {
            "id": voter.key.id,
            "directoryId": str(voter.key.directory_id) if voter.key.has_directory else None,
            "endpoints": [str(endpoint) for endpoint in voter.endpoints],
        }
        for voter in voters
    ]


def _text(value: object) -> str:
    # An unprintable character may be half a character of a path, which no stream takes.
    plain = isinstance(value, str) and value and value.isprintable() and " " not in value
    return str(value) if plain else json.dumps(value)
