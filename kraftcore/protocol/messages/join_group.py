"""JoinGroup, api key 11."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, octets, string


class JoinGroupRequest(Request, api_key=11, versions=(0, 9), flexible_from=6, listeners=("broker",)):
    """Join a classic consumer group."""

    class JoinGroupRequestProtocol(Struct):
        """An element of ``protocols``."""

        name: str = string()
        metadata: bytes = octets()

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="5+", default=None)
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponse(Response, api_key=11, versions=(0, 9), flexible_from=6):
    """Answer to JoinGroupRequest."""

    class JoinGroupResponseMember(Struct):
        """An element of ``members``."""

        member_id: str = string()
        group_instance_id: str | None = string("5+", nullable="5+", default=None, ignorable=True)
        metadata: bytes = octets()

    throttle_time_ms: int = int32("2+", ignorable=True)
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)
