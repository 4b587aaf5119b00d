"""Registers this controller with the active controller, also if that is this one (KIP-919)."""

from __future__ import annotations

import trio

from kraftcore.core.uuid import Uuid
from kraftcore.errors import NodeStoppedError
from kraftcore.metadata import MetadataMachine
from kraftcore.node.plugin_node import PluginNode
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.features import METADATA_VERSION, MetadataVersion, supported_levels
from kraftcore.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

_LOOK_S = 0.05
_REST_S = 0.5  # pause while there is nothing to do
_SENT_S = 5.0  # how long an accepted registration may take to arrive in the log


async def keep_registered(node: PluginNode, machine: MetadataMachine, incarnation: Uuid) -> None:
    """Register this process, once for each time the log does not have it; until cancelled.

    Below metadata.version 3.7-IV0 the log has no place for controllers, and nothing is sent.
    """
    while True:
        image = machine.image
        known = image.controllers.get(node.key.id)
        if known is not None and known.incarnation_id == incarnation:
            await trio.sleep(_REST_S)
        elif machine.levels.get(METADATA_VERSION, 0) < MetadataVersion.V3_7_IV0 or not await _register(
            node, incarnation
        ):
            await trio.sleep(_LOOK_S)
        else:
            with trio.move_on_after(_SENT_S):
                await _wait_known(machine, node.key.id, incarnation)


async def _wait_known(machine: MetadataMachine, node_id: int, incarnation: Uuid) -> None:
    while (known := machine.image.controllers.get(node_id)) is None or known.incarnation_id != incarnation:
        await trio.sleep(_LOOK_S)


async def _register(node: PluginNode, incarnation: Uuid) -> bool:
    at = node.leader_endpoint
    if node.leading_epoch is not None and node.endpoints:
        at = node.config.advertise(node.endpoints)[0]  # certificates name this host, not a wildcard
    if at is None:
        return False
    request = registration(node, incarnation)
    try:
        answer = await node.ask(at.host, at.port, request, node.config.request_timeout_ms)
    except NodeStoppedError:
        return False  # the node stops, and cancels this task soon
    return isinstance(answer, ControllerRegistrationResponse) and answer.error_code == ErrorCode.NONE


def registration(node: PluginNode, incarnation: Uuid) -> ControllerRegistrationRequest:
    """The registration of a node, which claims support of all features of Kafka 4.3.1."""
    kind = ControllerRegistrationRequest
    protocol = node.config.security_protocol
    return kind(
        controller_id=node.key.id,
        incarnation_id=incarnation,
        listeners=[
            kind.Listener(name=each.name, host=each.host, port=each.port, security_protocol=protocol(each.name))
            for each in node.config.advertise(node.endpoints)
        ],
        features=[
            kind.Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in supported_levels().items()
        ],
    )
