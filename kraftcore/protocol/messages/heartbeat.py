"""Heartbeat, api key 12."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, int16, int32, string


class HeartbeatRequest(Request, api_key=12, versions=(0, 4), flexible_from=4, listeners=("broker",)):
    """Stay a member of a classic consumer group."""

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)


class HeartbeatResponse(Response, api_key=12, versions=(0, 4), flexible_from=4):
    """Answer to HeartbeatRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
