"""Fast fencing on trio: sends the probes of `Presence`."""

from __future__ import annotations

import logging

import trio

from kraftcore.errors import NodeStoppedError
from kraftcore.node.outbox import OTHERS
from kraftcore.node.plugin_node import PluginNode
from kraftcore.plugins.controller.fast_fencing import PROBE_TIMEOUT_MS, Presence, Probe
from kraftcore.plugins.controller.life import Life
from kraftcore.protocol.failure import Failure
from kraftcore.protocol.messages.api_versions import ApiVersionsRequest

_LOOKS = 8  # looks at the registered brokers within ``patience_ms``
_LOOK_MIN_MS = 10
_PAUSE_MIN_MS = 1

_logger = logging.getLogger("kraftcore.controller")


async def keep_watch(node: PluginNode, life: Life, presence: Presence, patience_ms: int) -> None:
    """Probe the brokers while this controller is active, and end the sessions of those that are gone; until cancelled.

    Args:
        node: of the controller.
        life: of the controller.
        presence: the watched brokers.
        patience_ms: see `Presence`.
    """
    async with trio.open_nursery() as nursery:
        while True:
            if life.is_active:
                presence.watch(life.present, node.now_ms())
                for probe in presence.due(node.now_ms()):
                    nursery.start_soon(_ask, node, life, presence, probe)
            else:
                presence.forget()
            await trio.sleep(_pause_s(presence, node.now_ms(), patience_ms))


def _pause_s(presence: Presence, now_ms: int, patience_ms: int) -> float:
    """Seconds until the next look at the registered brokers, or the next probe."""
    look_ms = max(patience_ms / _LOOKS, _LOOK_MIN_MS)
    due_ms = presence.due_ms
    return (look_ms if due_ms is None else min(look_ms, max(due_ms - now_ms, _PAUSE_MIN_MS))) / 1000


async def _ask(node: PluginNode, life: Life, presence: Presence, probe: Probe) -> None:
    try:
        # Each probe in a row has its own lane: a lane pauses after a refused connection.
        lane = OTHERS + probe.refusals
        answer = await node.ask(probe.host, probe.port, ApiVersionsRequest(), PROBE_TIMEOUT_MS, lane=lane)
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
