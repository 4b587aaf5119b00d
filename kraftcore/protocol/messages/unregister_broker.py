"""UnregisterBroker, api key 64."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, int16, int32, string


class UnregisterBrokerRequest(
    Request, api_key=64, versions=(0, 0), flexible_from=0, listeners=("broker", "controller")
):
    """Remove a broker's registration (KIP-631)."""

    broker_id: int = int32()


class UnregisterBrokerResponse(Response, api_key=64, versions=(0, 0), flexible_from=0):
    """Answer to UnregisterBrokerRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
