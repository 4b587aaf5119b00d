"""PushTelemetry, api key 72."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, boolean, int8, int16, int32, octets, uuid


class PushTelemetryRequest(Request, api_key=72, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Send client metrics (KIP-714)."""

    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = octets()


class PushTelemetryResponse(Response, api_key=72, versions=(0, 0), flexible_from=0):
    """Answer to PushTelemetryRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
