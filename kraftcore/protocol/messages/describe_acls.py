"""DescribeAcls, api key 29."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class DescribeAclsRequest(Request, api_key=29, versions=(1, 3), flexible_from=2, listeners=("broker", "controller")):
    """List access control entries."""

    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8("1+", default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


class DescribeAclsResponse(Response, api_key=29, versions=(1, 3), flexible_from=2):
    """Answer to DescribeAclsRequest."""

    class DescribeAclsResource(Struct):
        """An element of ``resources``."""

        class AclDescription(Struct):
            """An element of ``acls``."""

            principal: str = string()
            host: str = string()
            operation: int = int8()
            permission_type: int = int8()

        resource_type: int = int8()
        resource_name: str = string()
        pattern_type: int = int8("1+", default=3)
        acls: list[AclDescription] = array(AclDescription)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)
