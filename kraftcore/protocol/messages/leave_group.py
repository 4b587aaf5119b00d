"""LeaveGroup, api key 13."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string


class LeaveGroupRequest(Request, api_key=13, versions=(0, 5), flexible_from=4, listeners=("broker",)):
    """Leave a classic consumer group."""

    class MemberIdentity(Struct):
        """An element of ``members``."""

        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+", default=None)
        reason: str | None = string("5+", nullable="5+", default=None, ignorable=True)

    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class LeaveGroupResponse(Response, api_key=13, versions=(0, 5), flexible_from=4):
    """Answer to LeaveGroupRequest."""

    class MemberResponse(Struct):
        """An element of ``members``."""

        member_id: str = string("3+")
        group_instance_id: str | None = string("3+", nullable="3+")
        error_code: int = int16("3+")

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
