"""DescribeGroups, api key 15."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, octets, string


class DescribeGroupsRequest(Request, api_key=15, versions=(0, 6), flexible_from=5, listeners=("broker",)):
    """Describe classic consumer groups."""

    groups: list[str] = array(string)
    include_authorized_operations: bool = boolean("3+")


class DescribeGroupsResponse(Response, api_key=15, versions=(0, 6), flexible_from=5):
    """Answer to DescribeGroupsRequest."""

    class DescribedGroup(Struct):
        """An element of ``groups``."""

        class DescribedGroupMember(Struct):
            """An element of ``members``."""

            member_id: str = string()
            group_instance_id: str | None = string("4+", nullable="4+", default=None, ignorable=True)
            client_id: str = string()
            client_host: str = string()
            member_metadata: bytes = octets()
            member_assignment: bytes = octets()

        error_code: int = int16()
        error_message: str | None = string("6+", nullable="6+", default=None)
        group_id: str = string()
        group_state: str = string()
        protocol_type: str = string()
        protocol_data: str = string()
        members: list[DescribedGroupMember] = array(DescribedGroupMember)
        authorized_operations: int = int32("3+", default=-2147483648)

    throttle_time_ms: int = int32("1+", ignorable=True)
    groups: list[DescribedGroup] = array(DescribedGroup)
