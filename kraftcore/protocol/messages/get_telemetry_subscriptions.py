"""GetTelemetrySubscriptions, api key 71."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, array, boolean, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Request, api_key=71, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Ask which client metrics the cluster wants (KIP-714)."""

    client_instance_id: Uuid = uuid()


class GetTelemetrySubscriptionsResponse(Response, api_key=71, versions=(0, 0), flexible_from=0):
    """Answer to GetTelemetrySubscriptionsRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: Uuid = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8)
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string)
