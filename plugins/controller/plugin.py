"""The controller as a plugin of a node: feeds a `Service` with requests, time and changes of leadership."""

from __future__ import annotations

import logging
import math
import os
import random
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self

import trio

from kraftcore.config.addresses import split_list
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, RefusedError
from kraftcore.metadata import Image, MetadataMachine
from kraftcore.node.authorization import Authorization
from kraftcore.node.clock import wall_clock
from kraftcore.node.events import LeadershipEnded, LeadershipReady, NodeEvent
from kraftcore.node.listeners import sasl_handlers
from kraftcore.node.plugin import Plugin
from kraftcore.node.plugin_node import PluginNode
from kraftcore.node.registry import Priority, RequestContext, RequestHandler, requester
from kraftcore.ownership import Owned
from kraftcore.plugins.controller import controllers, features
from kraftcore.plugins.controller.access import ACCESS, Gate, ImageAuthorizer
from kraftcore.plugins.controller.caller import Caller
from kraftcore.plugins.controller.credentials import LogCredentials
from kraftcore.plugins.controller.decision import Refusal
from kraftcore.plugins.controller.envelope import Refused, refusal, unpack
from kraftcore.plugins.controller.fast_fencing import Presence
from kraftcore.plugins.controller.fast_fencing_tasks import keep_watch
from kraftcore.plugins.controller.life import Life
from kraftcore.plugins.controller.registration import keep_registered
from kraftcore.plugins.controller.registry import APIS
from kraftcore.plugins.controller.requests import not_controller_text
from kraftcore.plugins.controller.service import Service
from kraftcore.plugins.controller.settings import EARLY_KEY, read_settings
from kraftcore.plugins.controller.tokens import SECRET_KEY
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.messages.api_versions import ApiVersionsResponse
from kraftcore.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.messages.envelope import EnvelopeRequest
from kraftcore.protocol.messages.list_offsets import ListOffsetsRequest
from kraftcore.protocol.messages.produce import ProduceRequest
from kraftcore.protocol.schema import Request
from kraftcore.security.authorizer import StandardAuthorizer
from kraftcore.security.sasl.credentials import Credentials

_logger = logging.getLogger("kraftcore.controller")
_LOOK_S = 0.05


class Controller(Owned, Plugin):
    """Makes a node a controller of a KRaft cluster, and the leader the active one.

    The node's state machine must be a `MetadataMachine`, and nobody else appends to its log.

    Args:
        properties: of Kafka's server file, texts by key: ``broker.session.timeout.ms``, ``num.partitions``, ...
        offers_log: answer Produce and ListOffsets, by which other nodes forward appends and barriers, and which Kafka's
            controllers do not answer. A client that the authorizer lets write could then append a value that is no
            metadata record, after which no controller can lead the log. If False, ``Node.append`` and
            ``Node.read_barrier`` get no answer from another node.

    Raises:
        LocalError: ``authorizer.class.name`` is not StandardAuthorizer, or is set beside ``NodeConfig.authorizer``; or
            a super user has no type.
    """

    name: ClassVar[str] = "controller"
    interests: ClassVar[frozenset[type]] = frozenset({LeadershipReady, LeadershipEnded})
    participates: ClassVar[bool] = True

    def __init__(self, properties: Mapping[str, str] | None = None, *, offers_log: bool = False) -> None:
        self._offers_log = offers_log
        self._properties = dict(properties or {})
        standard = StandardAuthorizer.from_properties(self._properties)
        own = None if standard is None else Authorization(ImageAuthorizer(standard, self._image))
        self._authorization = own
        self._gate = Gate(own)
        self._credentials = LogCredentials(self._properties.get(SECRET_KEY, "").strip())
        self._incarnation = Uuid.random(os.urandom)
        self._node: PluginNode | None = None
        self._presence: Presence | None = None
        self._service: Service | None = None
        self._timers = trio.Event()

    @classmethod
    def configured(cls, settings: Mapping[str, str]) -> Self:
        """Make the plugin from Kafka's properties, set as ``kraftcore.plugin.controller.KEY``."""
        return cls(settings)

    @property
    def handlers(self) -> Iterable[RequestHandler]:
        """Handlers of all requests that a controller of Kafka 4.3.1 offers, except those of the consensus."""
        for kind, api in APIS.items():
            priority = Priority.CONTROL if kind is BrokerHeartbeatRequest else Priority.DATA
            yield RequestHandler(
                kind, self._on_request, ACCESS.get(kind), priority, refuse=api.refuse, authorizes_itself=True
            )
        yield from sasl_handlers()
        yield RequestHandler(
            DescribeClusterRequest,
            self._on_describe_cluster,
            ACCESS[DescribeClusterRequest],
            Priority.CONTROL,
            authorizes_itself=True,
        )
        yield RequestHandler(EnvelopeRequest, self._on_envelope, ACCESS[EnvelopeRequest], authorizes_itself=True)

    @property
    def withdrawn(self) -> Iterable[type[Request]]:
        """Produce and ListOffsets, unless ``offers_log`` is set."""
        return () if self._offers_log else (ProduceRequest, ListOffsetsRequest)

    @property
    def authorization(self) -> Authorization | None:
        """Authorization by the entries in the log; None without an authorizer in the properties."""
        return self._authorization

    @property
    def early_listeners(self) -> frozenset[str] | None:
        """``early.start.listeners``; all others wait for the log's entries. None without the key or an authorizer."""
        text = self._properties.get(EARLY_KEY)
        if text is None or self._authorization is None:
            return None
        return frozenset(name.upper() for name in split_list(text) if name)

    async def loaded(self) -> None:
        """Wait until the entries of the log are known, see `ImageAuthorizer`."""
        while (image := self._image()) is None or image.features.metadata_version is None:
            await trio.sleep(_LOOK_S)

    def _image(self) -> Image | None:
        # As in Kafka, part of the log does not decide what is allowed: a later record may deny it.
        if self._service is None or self._node is None or not self._node.is_caught_up:
            return None
        return self._service.life.machine.image

    @property
    def presence(self) -> Presence | None:
        """The brokers that are watched while this controller is active; None: fast fencing is off."""
        return self._presence

    @property
    def credentials(self) -> Credentials:
        """The SCRAM users and tokens of the metadata log."""
        return self._credentials

    # --- a life -------------------------------------------------------------------------------------------------------

    async def run(self, node: PluginNode) -> None:
        """Run the controller until the node stops.

        Raises:
            LocalError: the state machine is not a `MetadataMachine`, or a property has a value that Kafka refuses.
        """
        machine = node.state_machine
        if not isinstance(machine, MetadataMachine):
            raise LocalError(f"a controller needs a MetadataMachine as its state machine, not {machine!r}")
        self._credentials.begin(node, machine)
        if self._gate.is_open:  # False with an authorizer of the application's
            self._gate = Gate(node.authorization)
        settings, periods = read_settings(self._properties, node.cluster_id, node.key.id)
        draw = random.Random(int.from_bytes(os.urandom(16)))
        life = Life(
            machine,
            settings,
            periods,
            draw,
            node.read_bootstrap,
            lambda: node.kraft_version,
            node.config.max_batch_bytes,
            wall_clock(),
        )
        life.on_timers = self._timers_changed
        self._node = node
        self._service = service = Service(life, self._gate, _NodeSeat(node))
        node.describe_features_by(self._describe_features)
        if node.leading_epoch is not None:
            service.lead(node.leading_epoch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(keep_registered, node, machine, self._incarnation)
            if periods.fast_fencing_ms:
                self._presence = Presence(periods.fast_fencing_ms)
                nursery.start_soon(keep_watch, node, life, self._presence, periods.fast_fencing_ms)
            await self._run_timers(node, service)

    def on_event(self, event: NodeEvent) -> None:
        """Take a change of leadership; ``run`` looks at changes that came before it."""
        if self._service is None:
            return
        if isinstance(event, LeadershipReady):
            self._service.lead(event.epoch)
        else:
            self._service.follow()

    async def _run_timers(self, node: PluginNode, service: Service) -> None:
        while True:
            self._timers = trio.Event()
            due_ms, now_ms = service.life.due_ms, node.now_ms()
            wait_s = math.inf if due_ms is None else max(due_ms - now_ms, 0) / 1000
            if wait_s > 0:
                with trio.move_on_after(wait_s):
                    await self._timers.wait()
            else:
                await trio.lowlevel.checkpoint()
            service.pass_time()

    def _timers_changed(self) -> None:
        self._timers.set()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _on_request(self, request: Request, context: RequestContext) -> None:
        if self._service is None:
            error = ErrorCode.NOT_CONTROLLER
            context.answer(APIS[type(request)].refuse(request, context.version, error, not_controller_text(None)))
        else:
            self._service.ask(request, context)

    def _on_describe_cluster(self, request: DescribeClusterRequest, context: RequestContext) -> Any:
        node, service = self._node, self._service
        if node is None or service is None:
            context.close()
            return None
        life = service.life
        try:
            self._gate.check(request, context)
        except Refusal as refused:
            return DescribeClusterResponse(error_code=refused.code, error_message=refused.text)
        asker = self._gate.asker(requester(request, context))
        caller = Caller(str(context.asker.principal), context.asker.security_protocol)
        looked_at = life.context(life.machine.offset, caller, asker)
        return controllers.describe_cluster(looked_at, request, context.version, context.asker.listener, node.leader_id)

    def _on_envelope(self, envelope: EnvelopeRequest, context: RequestContext) -> None:
        node, service = self._node, self._service
        try:
            if service is None or node is None:
                raise Refused(ErrorCode.NOT_CONTROLLER)
            life = service.life
            self._gate.check(envelope, context)
            request, inner = unpack(envelope, context)
            if not life.is_active:
                raise Refused(ErrorCode.NOT_CONTROLLER)
            node.serve(request, inner)
        except Refused as refused:
            context.answer(refusal(refused.error))
        except Refusal as refused:
            context.answer(refusal(refused.code))
        except RefusedError:
            context.answer(refusal(ErrorCode.UNSUPPORTED_VERSION))

    def _describe_features(self, response: ApiVersionsResponse) -> None:
        node, service = self._node, self._service
        if node is not None and service is not None:
            machine = service.life.machine
            features.describe(machine.levels, node.kraft_version, response, max(machine.features_offset, 0))


class _NodeSeat:
    """The `Seat` that a node gives its controller."""

    def __init__(self, node: PluginNode) -> None:
        self._node = node
        self.decide = node.decide
        self.now_ms = node.now_ms
        self.resign = node.resign
        self.raise_kraft_version = node.raise_kraft_version

    @property
    def other_leader_id(self) -> int | None:
        """See `Seat`."""
        node = self._node
        return None if node.leader_id == node.key.id else node.leader_id
