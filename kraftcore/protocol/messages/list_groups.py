"""ListGroups, api key 16."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string


class ListGroupsRequest(Request, api_key=16, versions=(0, 5), flexible_from=3, listeners=("broker",)):
    """List the groups a broker coordinates."""

    states_filter: list[str] = array(string, "4+")
    types_filter: list[str] = array(string, "5+")


class ListGroupsResponse(Response, api_key=16, versions=(0, 5), flexible_from=3):
    """Answer to ListGroupsRequest."""

    class ListedGroup(Struct):
        """An element of ``groups``."""

        group_id: str = string()
        protocol_type: str = string()
        group_state: str = string("4+", ignorable=True)
        group_type: str = string("5+", ignorable=True)

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)
