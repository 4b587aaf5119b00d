"""Decisions about the controllers themselves (KIP-919): ControllerRegistration and DescribeCluster."""

from __future__ import annotations

from typing import Final

from kraftcore.plugins.controller.decision import Api, Context, ControllerResult, Refusal
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import MetadataVersion
from kraftcore.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from kraftcore.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftcore.protocol.records.register_controller_record import RegisterControllerRecord
from kraftcore.protocol.schema import Request
from kraftcore.security.acl import CLUSTER_NAME, OPERATIONS, Operation, ResourceType
from kraftcore.security.audit import Action

BROKERS, CONTROLLERS = 1, 2
"""Endpoint types of DescribeCluster."""
_ENDPOINTS: Final = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}
_SECURITY_PROTOCOLS: Final = range(4)


def register(context: Context, request: ControllerRegistrationRequest, version: int) -> ControllerResult:
    """Register a controller's endpoints and features. Each registration is written, even without a change."""
    if context.image.features.metadata_version_or_minimum < MetadataVersion.V3_7_IV0:
        text = "The current MetadataVersion is too old to support controller registrations."
        raise Refusal(ErrorCode.UNSUPPORTED_VERSION, text)
    for listener in request.listeners:
        if listener.security_protocol not in _SECURITY_PROTOCOLS:
            # Kafka answers UNKNOWN_SERVER_ERROR.
            text = f"Unknown security protocol {listener.security_protocol}"
            raise Refusal(ErrorCode.INVALID_REQUEST, text)
        if not listener.host or listener.port == 0:  # UNKNOWN_SERVER_ERROR in Kafka, too
            raise Refusal(ErrorCode.INVALID_REQUEST, f"Listener {listener.name} names no host, or port 0")
    return ControllerResult(ControllerRegistrationResponse(), [(registration_record(request), 0)])


def registration_record(request: ControllerRegistrationRequest) -> RegisterControllerRecord:
    """The record of a registration; of several listeners with one name the last is kept."""
    kind = RegisterControllerRecord
    listeners = {listener.name: listener for listener in request.listeners}
    return kind(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[
            kind.ControllerEndpoint(
                name=each.name, host=each.host, port=each.port, security_protocol=each.security_protocol
            )
            for each in listeners.values()
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


def describe_cluster(
    context: Context, request: DescribeClusterRequest, version: int, listener: str, leader_id: int | None
) -> DescribeClusterResponse:
    """List the controllers. Any controller answers, active or not.

    Args:
        context: with the image at the time of the answer.
        request: its body.
        version: of the request.
        listener: name of the listener that the request came in on; controllers' endpoints of that name are listed.
        leader_id: id of the active controller, None if none is known.
    """
    wanted = request.endpoint_type if version >= 1 else BROKERS
    if wanted not in _ENDPOINTS:
        return _not_described(version, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {wanted}")
    if wanted != CONTROLLERS:
        text = (
            "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type "
            f"{_ENDPOINTS[wanted]}"
        )
        return _not_described(version, ErrorCode.MISMATCHED_ENDPOINT_TYPE, text)
    entry = DescribeClusterResponse.DescribeClusterBroker
    answer = DescribeClusterResponse(cluster_id=context.settings.cluster_id, endpoint_type=CONTROLLERS)
    for controller in sorted(context.image.controllers.values(), key=lambda each: each.id):
        for at in controller.listeners:
            if at.name == listener:
                answer.brokers.append(entry(broker_id=controller.id, host=at.host, port=at.port))
                break
    if any(each.broker_id == leader_id for each in answer.brokers):
        answer.controller_id = -1 if leader_id is None else leader_id
    if request.include_cluster_authorized_operations:
        answer.cluster_authorized_operations = allowed_operations(context)
    return answer


def allowed_operations(context: Context) -> int:
    """The operations on the cluster that the caller may do, as bits; 0 if it may not even describe the cluster."""

    def may(operation: Operation) -> bool:
        action = Action(operation, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False, log_if_allowed=False)
        return context.is_allowed(action)

    if not may(Operation.DESCRIBE):
        return 0
    return sum(1 << operation for operation in OPERATIONS[ResourceType.CLUSTER] if may(operation))


def _not_described(version: int, error: ErrorCode, text: str) -> DescribeClusterResponse:
    if version == 0:
        error = ErrorCode.INVALID_REQUEST
    return DescribeClusterResponse(error_code=error, error_message=text)


def _refuse(
    request: ControllerRegistrationRequest, version: int, error: ErrorCode, message: str | None
) -> ControllerRegistrationResponse:
    """Refuse with the general text of the error, as Kafka does, in place of the message."""
    return ControllerRegistrationResponse(error_code=error, error_message=error.message)


APIS: dict[type[Request], Api] = {ControllerRegistrationRequest: Api(register, _refuse)}
