"""DeleteAcls, api key 31."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class DeleteAclsRequest(Request, api_key=31, versions=(1, 3), flexible_from=2, listeners=("broker", "controller")):
    """Remove access control entries."""

    class DeleteAclsFilter(Struct):
        """An element of ``filters``."""

        resource_type_filter: int = int8()
        resource_name_filter: str | None = string(nullable="0+")
        pattern_type_filter: int = int8("1+", default=3)
        principal_filter: str | None = string(nullable="0+")
        host_filter: str | None = string(nullable="0+")
        operation: int = int8()
        permission_type: int = int8()

    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


class DeleteAclsResponse(Response, api_key=31, versions=(1, 3), flexible_from=2):
    """Answer to DeleteAclsRequest."""

    class DeleteAclsFilterResult(Struct):
        """An element of ``filter_results``."""

        class DeleteAclsMatchingAcl(Struct):
            """An element of ``matching_acls``."""

            error_code: int = int16()
            error_message: str | None = string(nullable="0+")
            resource_type: int = int8()
            resource_name: str = string()
            pattern_type: int = int8("1+", default=3)
            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)

    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)
