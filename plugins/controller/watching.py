"""Fast fencing on trio: sends the probes of `Presence`."""

from __future__ import annotations

import logging

import trio

from kraftcore.errors import NodeStoppedError
from kraftcore.node import Node
from kraftcore.plugins.controller.life import Life
from kraftcore.plugins.controller.presence import Presence, Probe
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest

_TIMEOUT_MS = 2_000
_LOOKS = 8  # at who is registered, in the time that a broker must refuse
_LOOK_MIN_S = 0.01

_logger = logging.getLogger("kraftcore.controller")


async def keep_watch(node: Node, life: Life, patience_ms: int) -> None:
    """Ask the brokers while this controller is active, and end the sessions of those that are gone; until cancelled.

    Args:
        node: of the controller.
        life: the controller.
        patience_ms: see `Presence`.
    """
    presence = Presence(patience_ms)
    async with trio.open_nursery() as nursery:
        while True:
            if life.is_active:
                presence.watch(life.machine.image.brokers.values(), node.now_ms())
                for probe in presence.due(node.now_ms()):
                    nursery.start_soon(_ask, node, life, presence, probe)
            else:
                presence.forget()
            await trio.sleep(max(patience_ms / 1000 / _LOOKS, _LOOK_MIN_S))


async def _ask(node: Node, life: Life, presence: Presence, probe: Probe) -> None:
    try:
        answer = await node.ask(probe.host, probe.port, ApiVersionsRequest(), _TIMEOUT_MS)
    except NodeStoppedError:
        return
    failure = answer if isinstance(answer, Failure) else None
    if presence.answered(probe, failure, node.now_ms()):
        _logger.warning(
            "broker %d does not listen at %s:%d any more: its session ends",
            probe.whom.broker_id,
            probe.host,
            probe.port,
        )
        life.end_session(*probe.whom)
