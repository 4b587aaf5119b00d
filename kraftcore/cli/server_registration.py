"""How ``kraftcore server`` registers controllers, itself among them, as Kafka's do (KIP-919).

A Kafka controller that leads raises kraft.version only when every voter has registered; one that follows names to admin
clients only the controllers that the log names, the leader not excepted. So a server that leads writes registrations
into a log that Kafka can read (its metadata.version knows them), and one that follows registers with its leader.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import trio

from kraftcore.cli.server_state import MetadataRecords
from kraftcore.core.uuid import Uuid
from kraftcore.errors import LocalError, NodeStoppedError, NotLeaderError, OutcomeUnknownError
from kraftcore.node import Node
from kraftcore.node.plugin import Handler, Plugin
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.features import (
    FEATURES,
    LATEST_PRODUCTION_LEVEL,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
    MetadataVersion,
)
from kraftcore.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from kraftcore.protocol.metadata import encode_metadata_record
from kraftcore.protocol.records.register_controller_record import RegisterControllerRecord
from kraftcore.protocol.schema import Request
from kraftcore.transports.base import Origin

_LOOK_S = 0.5
_PLAINTEXT, _SSL = 0, 1  # Kafka's SecurityProtocol
_SECURITY = range(4)  # with SASL_PLAINTEXT and SASL_SSL


class Registration(Plugin):
    """Keeps this server registered, and registers others while it leads.

    Of features it claims all that Kafka 4.3.1 knows: it keeps records of any.
    """

    name = "registration"

    def __init__(self, state: MetadataRecords) -> None:
        self._state = state
        self._incarnation = Uuid.random(os.urandom)
        self._told: tuple[int, int, bool] | None = None
        self._node: Node | None = None

    @property
    def handlers(self) -> Mapping[type[Request], Handler]:
        """ControllerRegistration."""
        return {ControllerRegistrationRequest: self._on_register}

    async def run(self, node: Node) -> None:
        """Until the node stops."""
        self._node = node
        while True:
            await self._keep_registered(node)
            await trio.sleep(_LOOK_S)

    @property
    def _is_written(self) -> bool:
        return self._state.metadata_version >= MetadataVersion.V3_7_IV0

    async def _keep_registered(self, node: Node) -> None:
        leader_id = node.replica.leader_id
        if leader_id is None or self._state.incarnation(node.key.id) == self._incarnation:
            return
        if node.is_leader:
            await self._write(node, self._request(node))
            return
        told = (leader_id, node.replica.epoch, self._is_written)
        at = node.leader_endpoint
        if told == self._told or at is None:
            return
        answer = await node.ask(at.host, at.port, self._request(node), node.config.request_timeout_ms)
        if answer is Failure.UNSUPPORTED_VERSION or (
            isinstance(answer, ControllerRegistrationResponse) and answer.error_code == ErrorCode.NONE
        ):
            self._told = told

    async def _on_register(
        self, request: ControllerRegistrationRequest, version: int, origin: Origin
    ) -> ControllerRegistrationResponse:
        node = self._node
        unknown = [each.security_protocol for each in request.listeners if each.security_protocol not in _SECURITY]
        if unknown:  # Kafka refuses it, too, and cannot replay a record that has it
            text = f"Unknown security protocol {unknown[0]}"
            return ControllerRegistrationResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=text)
        try:
            if node is not None and node.is_leader and await self._write(node, request):
                node.administration.remember(request)
                return ControllerRegistrationResponse()
        except LocalError as refused:  # its record would be too large
            return ControllerRegistrationResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=str(refused))
        error = ErrorCode.NOT_CONTROLLER
        return ControllerRegistrationResponse(error_code=error, error_message=error.message)

    async def _write(self, node: Node, request: ControllerRegistrationRequest) -> bool:
        """Into the log, if it can hold it and does not yet; False if this node leads no more."""
        if not self._is_written or self._state.incarnation(request.controller_id) == request.incarnation_id:
            return True
        kind = RegisterControllerRecord
        record = kind(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            end_points=[
                kind.ControllerEndpoint(
                    name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
                )
                for each in request.listeners
            ],
            features=[
                kind.ControllerFeature(
                    name=each.name,
                    min_supported_version=each.min_supported_version,
                    max_supported_version=each.max_supported_version,
                )
                for each in request.features
            ],
        )
        try:
            await node.append(encode_metadata_record(record, 0))
        except (NotLeaderError, OutcomeUnknownError, NodeStoppedError):
            return False
        return True

    def _request(self, node: Node) -> ControllerRegistrationRequest:
        kind = ControllerRegistrationRequest
        ranges = {each.name: (0, each.max_level) for each in FEATURES}
        ranges[METADATA_VERSION] = (int(MINIMUM_METADATA_VERSION), LATEST_PRODUCTION_LEVEL)
        security = _PLAINTEXT if node.config.tls is None else _SSL
        return kind(
            controller_id=node.key.id,
            incarnation_id=self._incarnation,
            listeners=[
                kind.Listener(name=each.name, host=each.host, port=each.port, security_protocol=security)
                for each in node.config.advertise(node.endpoints)
            ],
            features=[
                kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in ranges.items()
            ],
        )
