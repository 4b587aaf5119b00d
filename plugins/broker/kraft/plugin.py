"""The broker as a plugin of a node, which brings the metadata log, listeners, SASL and TLS.

    config = NodeConfig.from_properties("broker.properties", with_broker=True)
    broker = KRaftBroker(BrokerConfig.from_properties("broker.properties"))
    async with open_node(config, MetadataMachine(), plugins=[broker]) as node:
        await broker.wait_running()

With ``process.roles=broker,controller`` the plugins are ``[Controller(properties), broker]``.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import trio

from kraftcore import __version__
from kraftcore.config.addresses import split_list
from kraftcore.config.tls import TlsConfig
from kraftcore.core.disk.files import Files
from kraftcore.core.disk.os_files import OsFiles
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, NodeStoppedError
from kraftcore.metadata import Image, MetadataMachine
from kraftcore.metadata.cluster import Listener
from kraftcore.metadata.registration import BrokerIdentity
from kraftcore.node.authorization import Authorization
from kraftcore.node.clock import wall_clock
from kraftcore.node.events import LeaderChanged, NodeEvent
from kraftcore.node.outbox import Outbox
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import PluginNode
from kraftcore.node.registry import RequestContext, RequestHandler
from kraftcore.ownership import Owned
from kraftcore.plugins.broker.broker_parts import BrokerParts, Surroundings, raise_file_limit, topic_settings
from kraftcore.plugins.broker.config import BrokerConfig
from kraftcore.plugins.broker.controller_channel import HEARTBEATS, ControllerChannel
from kraftcore.plugins.broker.handlers import client_handlers
from kraftcore.plugins.broker.kraft.committed_image import CommittedImage
from kraftcore.plugins.broker.kraft.directories import DirectoryAssignments
from kraftcore.plugins.broker.kraft.image_cache import ImageCache
from kraftcore.plugins.broker.kraft.lifecycle import Lifecycle, Stage
from kraftcore.plugins.broker.kraft.publisher import Publisher
from kraftcore.plugins.broker.logdirs import LogDirs
from kraftcore.plugins.broker.logdirs.directory import Directory
from kraftcore.plugins.broker.work.deadlines import REQUEST_TIMEOUT_MS
from kraftcore.plugins.controller.access import ImageAuthorizer
from kraftcore.plugins.controller.credentials import LogCredentials
from kraftcore.plugins.controller.features import describe as describe_features
from kraftcore.plugins.controller.tokens import SECRET_KEY
from kraftcore.ports.complaints import Complaints
from kraftcore.ports.transport import Address, Transport
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.protocol.schema import Request
from kraftcore.security.authorizer import StandardAuthorizer
from kraftcore.state_machine import StateMachine
from kraftcore.transports.tcp import TcpTransport

if TYPE_CHECKING:
    from kraftcore.config.login import SaslLogin
    from kraftcore.security.sasl.credentials import Credentials

_NOT_RUNNING = "the broker is not running"
_DIRECTORIES_S = 5  # how long a start waits for a controller that does not answer about directories
_logger = logging.getLogger("kraftcore.broker")


class KRaftBroker(Owned, Plugin):
    """Makes a node a broker of a KRaft cluster.

    The node's state machine must be a `MetadataMachine`, and its configuration must have the broker's listeners.

    Args:
        config: the broker's settings.
        properties: of Kafka's server file, texts by key: the secret of delegation tokens, ``authorizer.class.name`` and
            what belongs to it. Where the node is a controller, too, its plugin brings the authorizer.
        security: how other brokers are connected to, TLS and login; None: as other nodes are.
        files: where the log directories are; None: the operating system's.
        on_stage: called with the broker's stage when that changes.

    Raises:
        LocalError: ``authorizer.class.name`` is another than StandardAuthorizer, or a super user has no type.

    Attributes:
        config: as given; its listeners with the ports that were bound, once it runs.
        incarnation_id: drawn when this object is made.
    """

    name: ClassVar[str] = "broker"
    interests: ClassVar[frozenset[type]] = frozenset({LeaderChanged})
    participates: ClassVar[bool] = True

    def __init__(
        self,
        config: BrokerConfig,
        properties: Mapping[str, str] | None = None,
        *,
        security: tuple[TlsConfig | None, SaslLogin | None] | None = None,
        files: Files | None = None,
        on_stage: Callable[[Stage], None] = lambda stage: None,
    ) -> None:
        self._on_stage = on_stage
        self.config = config
        self.incarnation_id = Uuid.random(os.urandom)
        self._files = OsFiles() if files is None else files
        self._security = security
        texts = dict(properties or {})
        self._credentials = LogCredentials(texts.get(SECRET_KEY, "").strip())
        is_controller = "controller" in split_list(texts.get("process.roles", ""))
        standard = None if is_controller else StandardAuthorizer.from_properties(texts)
        own = None if standard is None else Authorization(ImageAuthorizer(standard, self._image))
        self._authorization = own
        self._node: PluginNode | None = None
        self._machine: MetadataMachine | None = None
        self._committed = CommittedImage(self._committed_more)
        self._cache = ImageCache(config.node_id)
        self._topics = topic_settings(config)
        # Each is replaced once a task has waited for it: metadata is to be published; a heartbeat is due at once.
        self._news = trio.Event()
        self._heartbeat_due = trio.Event()
        # Set once, about in this order: how far the broker has come.
        self._registered = trio.Event()
        self._caught_up = trio.Event()
        self._is_loaded = trio.Event()
        self._running = trio.Event()
        self._gone = trio.Event()  # its controller allowed it to stop, or nobody waits for that
        self._ended = trio.Event()  # its logs are closed
        self._scope = trio.CancelScope()
        self._is_leaving_in_order = False
        self._is_open = False
        self._dirs: LogDirs | None = None
        self._parts: BrokerParts | None = None
        self._lifecycle: Lifecycle | None = None
        self._complain = Complaints(_logger.warning, time.monotonic)

    # --- what others see ----------------------------------------------------------------------------------------------

    @property
    def parts(self) -> BrokerParts:
        """The parts of the running broker.

        Raises:
            LocalError: the broker does not run yet.
        """
        if self._parts is None:
            raise LocalError(_NOT_RUNNING)
        return self._parts

    @property
    def stage(self) -> Stage:
        """How far the broker has come."""
        return Stage.STARTING if self._lifecycle is None else self._lifecycle.stage

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of the registration; -1: there is none."""
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    async def wait_running(self) -> None:
        """Wait until it is unfenced for the first time."""
        await self._running.wait()

    async def send_to_controller(self, request: Request, timeout_ms: int = REQUEST_TIMEOUT_MS) -> Any:
        """See ``ControllerChannel.send_to_controller``."""
        return await self.parts.controllers.send_to_controller(request, timeout_ms)

    # --- a plugin -----------------------------------------------------------------------------------------------------

    def attach(self, machine: StateMachine) -> None:
        """See the base class.

        Raises:
            LocalError: it is no `MetadataMachine`.
        """
        if not isinstance(machine, MetadataMachine):
            raise LocalError(f"a broker needs a MetadataMachine as its node's state machine, not {machine!r}")
        self._machine = machine
        machine.followers.append(self._committed)

    @property
    def late_listeners(self) -> frozenset[str]:
        """Clients and other brokers wait until this broker knows what it holds."""
        return frozenset(endpoint.name for endpoint in self.config.listeners)

    def on_event(self, event: NodeEvent) -> None:
        """A broker that is not registered sends its registration to a new controller at once."""
        if isinstance(event, LeaderChanged) and event.leader_id is not None and self.stage is Stage.STARTING:
            self._heartbeat_due.set()

    def unready(self) -> Iterable[str]:
        """See the base class."""
        if self.stage is not Stage.RUNNING:
            yield f"the broker is {self.stage.name.lower()}: clients are served when it runs"
        elif self.config.node_id not in self._cache.brokers:
            yield "the broker is fenced: the controller has not heard from it in time"

    async def loaded(self) -> None:
        """See the base class."""
        await self._is_loaded.wait()

    @property
    def authorization(self) -> Authorization | None:
        """Who may do what by the entries in the log; None without an authorizer in the properties."""
        return self._authorization

    @property
    def credentials(self) -> Credentials:
        """Who may log in with SCRAM: the users and tokens of the metadata log."""
        return self._credentials

    async def run(self, node: PluginNode) -> None:
        """Until the node stops.

        Raises:
            LocalError: the node has other listeners than the broker; or no registration came about
                in time.
            CorruptDataError, StorageError: no log directory can be used.
        """
        self._check(node)
        self._node = node
        try:
            with self._scope:
                await self._open(node)
                async with AsyncExitStack() as stack:
                    transport = await self._own_transport(stack)
                    async with trio.open_nursery() as nursery:
                        self._begin(node, transport, nursery)
        finally:
            self._is_open = False
            self._gone.set()  # after a cancellation from outside the controller's leave is not awaited
            try:
                with trio.CancelScope(shield=True):
                    await self._close()
            finally:
                self._ended.set()  # also when the disk failed

    def _check(self, node: PluginNode) -> None:
        ours = {endpoint.name for endpoint in self.config.listeners}
        theirs = {endpoint.name for endpoint in node.broker_endpoints}
        if ours != theirs:
            raise LocalError(
                f"BrokerConfig.listeners names {', '.join(sorted(ours))}, broker_listeners of its NodeConfig names "
                f"{', '.join(sorted(theirs)) or 'none'}: give both the same listeners"
            )
        if self.config.node_id != node.key.id:
            raise LocalError(f"the broker has the id {self.config.node_id}, its node {node.key.id}: give both the same")

    async def stopping(self) -> None:
        """Leave the cluster: leaderships are handed over, then all logs are closed in order."""
        lifecycle = self._lifecycle
        if self._node is None:
            return
        if lifecycle is not None and not self._ended.is_set():
            if self.config.has_controlled_shutdown:
                lifecycle.leave()
                if lifecycle.stage is Stage.GONE:
                    self._gone.set()
                self._heartbeat_due.set()
                with trio.move_on_after(self.config.leaving_timeout_ms / 1000) as waited:
                    await self._gone.wait()
                if waited.cancelled_caught:
                    _logger.warning("broker %d goes without its controller's leave", self.config.node_id)
            self._is_leaving_in_order = True
        self._scope.cancel()
        await self._ended.wait()

    # --- beginning and end --------------------------------------------------------------------------------------------

    async def _open(self, node: PluginNode) -> None:
        config = self.config
        raise_file_limit()
        make = partial(
            LogDirs,
            self._files,
            config.directories,
            config.node_id,
            self._topics.log_config,
            config.delete_delay_ms,
            node.now_ms(),
            producer_expiration_ms=config.producer_expiration_ms,
            kraft_cluster_id=node.cluster_id,
            held=(node.config.directory,),
        )
        self._dirs = await trio.to_thread.run_sync(make)

    async def _own_transport(self, stack: AsyncExitStack) -> Transport | None:
        """The transport to other brokers, where it differs from that to controllers; None: it does not."""
        if self._security is None:
            return None
        tls, sasl = self._security
        login = None
        if sasl is not None:
            from kraftcore.config.login import make_login

            login = make_login(sasl)
        return await stack.enter_async_context(
            TcpTransport(tls=tls, login=login, max_frame_bytes=self.config.request_max_bytes)
        )

    def _begin(self, node: PluginNode, transport: Transport | None, nursery: trio.Nursery) -> None:
        dirs, machine = self._dirs, self._machine
        if dirs is None or machine is None:
            raise LocalError(_NOT_RUNNING)
        bound = {each.name: each for each in node.broker_endpoints}
        self.config = config = replace(
            self.config, listeners=tuple(bound[each.name] for each in self.config.listeners), advertised_listeners=()
        )
        client_id = f"broker-{config.node_id}"
        own = None if transport is None else Outbox(transport, client_id, __version__, _logger.warning)
        self._credentials.begin(node, machine)
        controllers = ControllerChannel(lambda: _active_controller(node), node.ask)
        self._lifecycle = lifecycle = Lifecycle(
            self._identity(node),
            lambda: _ids(dirs.usable),
            lambda: _ids([each for each in dirs.directories if each.failure is not None]),
            config.heartbeat_ms,
            dirs.previous_epoch,
        )
        directories = DirectoryAssignments(config.node_id, lambda: lifecycle.broker_epoch, controllers, self._image)
        around = Surroundings(
            cache=self._cache,
            topics=self._topics,
            broker_epoch=lambda: lifecycle.broker_epoch,
            outbox=own or node.make_outbox(client_id),
            controllers=controllers,
            nursery=nursery,
            now_ms=node.now_ms,
            wall_ms=wall_clock(),
            fail=node.fail,
            on_directory_failure=self._directory_failed,
            tell_directory=directories.tell,
            is_behind=self._committed.is_behind,
            image=self._image,
            authorization=lambda: node.authorization,
        )
        self._parts = parts = BrokerParts(config, dirs, around)
        publisher = Publisher(config.node_id, parts, self._committed, directories)
        if node.config.can_become_voter is False:
            node.describe_features_by(self._describe_features)
        for handler in client_handlers(parts):
            node.answer(self._guarded(handler))
        for part in (
            partial(self._send_heartbeats, lifecycle),
            partial(self._follow, parts, lifecycle, publisher, directories),
            directories.run,
            self._await_registration,
        ):
            nursery.start_soon(parts.run, part)

    def _identity(self, node: PluginNode) -> BrokerIdentity:
        protocol = node.config.security_protocol
        listeners = tuple(
            Listener(each.name, each.host, each.port, protocol(each.name))
            for each in node.config.advertise(node.broker_endpoints)
        )
        return BrokerIdentity(self.config.node_id, node.cluster_id, self.incarnation_id, listeners, self.config.rack)

    def _guarded(self, handler: RequestHandler) -> RequestHandler:
        """The same handler, which closes connections instead of answering while the logs are not open."""

        def respond(request: Any, context: RequestContext) -> Any:
            if self._is_open:
                return handler.respond(request, context)
            context.close()
            return None

        return handler._replace(respond=respond)

    async def _close(self) -> None:
        if self._parts is not None:
            self._parts.replicas.store_high_watermarks()
        if self._dirs is not None:
            close = partial(self._dirs.close, is_clean=self._is_leaving_in_order, broker_epoch=self.broker_epoch)
            await trio.to_thread.run_sync(close)

    # --- registration, heartbeats, the metadata log -------------------------------------------------------------------

    async def _send_heartbeats(self, lifecycle: Lifecycle) -> None:
        """Register, then send heartbeats until the controller lets the broker go."""
        told = Stage.STARTING
        while lifecycle.stage is not Stage.GONE:
            timeout_ms = max(self.config.session_ms // 2, 1)
            try:
                request = lifecycle.request(self._offset())
                answer = await self.parts.controllers.ask(request, timeout_ms, lane=HEARTBEATS)
            except NodeStoppedError:
                return
            delay_ms = lifecycle.answered(answer)
            if lifecycle.refusal is not None:
                broker = f"broker {self.config.node_id}"
                self._complain(lifecycle.refusal, f"{broker}: its controller answers {lifecycle.refusal}")
            if lifecycle.broker_epoch >= 0:
                self._registered.set()
            if lifecycle.is_caught_up and not self._caught_up.is_set():
                self._caught_up.set()
                self._news.set()
            self._tell_offset(lifecycle)
            if lifecycle.stage is not told:
                told = lifecycle.stage
                self._on_stage(told)
            if told is Stage.RUNNING:
                self._running.set()
            with trio.move_on_after(delay_ms / 1000):
                await self._heartbeat_due.wait()
            self._heartbeat_due = trio.Event()
        self._gone.set()

    async def _await_registration(self) -> None:
        with trio.move_on_after(self.config.registration_timeout_ms / 1000):
            await self._registered.wait()
            return
        refusal = None if self._lifecycle is None else self._lifecycle.refusal
        raise LocalError(
            f"broker {self.config.node_id} could not register within {self.config.registration_timeout_ms} ms "
            f"(initial.broker.registration.timeout.ms): {refusal or 'no controller answers'}"
        )

    async def _follow(
        self, parts: BrokerParts, lifecycle: Lifecycle, publisher: Publisher, directories: DirectoryAssignments
    ) -> None:
        """Wait until what was committed at the start is here, publish it, then each change that follows.

        The controller hears where replicas are before it is asked to unfence the broker: then it elects leaders, and
        passes over replicas in directories that the broker does not have, as after the loss of a disk, for good.
        """
        while not self._caught_up.is_set():
            self._tell_offset(lifecycle)
            await self._news.wait()
            self._news = trio.Event()
        await publisher.begin()
        with trio.move_on_after(_DIRECTORIES_S):
            await directories.wait_answered()
        parts.start()
        self._is_open = True
        lifecycle.is_ready = True
        self._is_loaded.set()
        self._heartbeat_due.set()
        while True:
            await self._news.wait()
            self._news = trio.Event()
            await publisher.publish()
            self._tell_offset(lifecycle)

    def _offset(self) -> int:
        """Offset of the last metadata record that took effect here; until the logs are open, of the last one known."""
        return self._committed.applied_offset if self._is_loaded.is_set() else self._committed.end_offset - 1

    def _tell_offset(self, lifecycle: Lifecycle) -> None:
        if lifecycle.is_awaited(self._offset()):
            self._heartbeat_due.set()

    def _committed_more(self) -> None:
        self._cache.show(self._committed.image)
        self._news.set()

    def _directory_failed(self, directory: Directory) -> None:
        self._heartbeat_due.set()

    def _image(self) -> Image:
        return self._committed.image

    def _describe_features(self, response: ApiVersionsResponse) -> None:
        if self._machine is not None and self._node is not None:
            # A broker tells the offset of the last record; a controller tells that of the last change of features.
            offset = max(self._committed.end_offset - 1, 0)
            describe_features(self._machine.levels, self._node.kraft_version, response, offset)


def _ids(directories: Sequence[Directory]) -> list[Uuid]:
    return [each.id for each in directories if each.id is not None]


def _active_controller(node: PluginNode) -> Address | None:
    """The address of the quorum's leader; this node's own listener if it leads; None: no leader is known."""
    found = node.leader_endpoint
    if node.leader_id == node.key.id and node.endpoints:
        found = node.config.advertise(node.endpoints)[0]
    return None if found is None else Address(found.host, found.port)
