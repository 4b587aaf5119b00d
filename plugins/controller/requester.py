"""Checks the broker that sends a request by its broker epoch."""

from __future__ import annotations

from kraftcore.metadata import Broker
from kraftcore.plugins.controller.decision import Context, Refusal
from kraftcore.protocol.error_codes import ErrorCode


def check_epoch(context: Context, broker_id: int, broker_epoch: int) -> Broker:
    """Return the broker that sends a request.

    Raises:
        Refusal: STALE_BROKER_EPOCH: the broker is not registered, or registered with another epoch.
    """
    broker: Broker | None = context.image.brokers.get(broker_id)
    if broker is None:
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}")
    if broker.epoch != broker_epoch:
        text = f"Expected broker epoch {broker.epoch}, but got broker epoch {broker_epoch}"
        raise Refusal(ErrorCode.STALE_BROKER_EPOCH, text)
    return broker
