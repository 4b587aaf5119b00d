"""SyncGroup, api key 14."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, octets, string


class SyncGroupRequest(Request, api_key=14, versions=(0, 5), flexible_from=4, listeners=("broker",)):
    """Hand out or receive the assignment of a classic consumer group."""

    class SyncGroupRequestAssignment(Struct):
        """An element of ``assignments``."""

        member_id: str = string()
        assignment: bytes = octets()

    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Response, api_key=14, versions=(0, 5), flexible_from=4):
    """Answer to SyncGroupRequest."""

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = string("5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = octets()
