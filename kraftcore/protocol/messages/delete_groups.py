"""DeleteGroups, api key 42."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string


class DeleteGroupsRequest(Request, api_key=42, versions=(0, 2), flexible_from=2, listeners=("broker",)):
    """Delete consumer groups."""

    groups_names: list[str] = array(string)


class DeleteGroupsResponse(Response, api_key=42, versions=(0, 2), flexible_from=2):
    """Answer to DeleteGroupsRequest."""

    class DeletableGroupResult(Struct):
        """An element of ``results``."""

        group_id: str = string()
        error_code: int = int16()

    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
