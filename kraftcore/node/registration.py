"""A plugin that registers a node with the leader as Kafka's controllers do (KIP-919).

A Kafka controller that leads raises kraft.version only when every voter has registered, and tells admin clients only of
controllers that have. ``kraftcore server`` runs it. A Kafka leader stores each registration in the metadata log.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import trio

from kraftcore.core.uuid import Uuid
from kraftcore.node.events import LeaderChanged
from kraftcore.node.plugin import Plugin
from kraftcore.protocol.error_codes import ErrorCode
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.features import (
    FEATURES,
    LATEST_PRODUCTION_LEVEL,
    METADATA_VERSION,
    MINIMUM_METADATA_VERSION,
)
from kraftcore.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

if TYPE_CHECKING:
    from kraftcore.node.node import Node

_RETRY_S = 0.5
_PLAINTEXT, _SSL = 0, 1  # Kafka's SecurityProtocol


class Registration(Plugin):
    """Registers with every new leader. It claims all features that Kafka 4.3.1 knows: a log keeps records of any."""

    name = "registration"

    def __init__(self) -> None:
        self._incarnation = Uuid.random(os.urandom)
        self._known_to: tuple[int, int] | None = None

    async def run(self, node: Node) -> None:
        """Until the node stops."""
        events = node.events(LeaderChanged)
        await self._register(node)
        async for _ in events:
            await self._register(node)

    async def _register(self, node: Node) -> None:
        """Ask until this leader knows, or does not want to, or leads no more."""
        while (leader_id := node.replica.leader_id) is not None and leader_id != node.key.id:
            leader = (leader_id, node.replica.epoch)
            if leader == self._known_to:
                return
            at = node.leader_endpoint
            if at is not None:
                answer = await node.ask(at.host, at.port, self._request(node), node.config.request_timeout_ms)
                if _is_settled(answer):
                    self._known_to = leader
                    return
            await trio.sleep(_RETRY_S)

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


def _is_settled(answer: object) -> bool:
    if isinstance(answer, ControllerRegistrationResponse):
        return answer.error_code == ErrorCode.NONE
    return answer is Failure.UNSUPPORTED_VERSION
