"""CreateAcls, api key 30."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class CreateAclsRequest(Request, api_key=30, versions=(1, 3), flexible_from=2, listeners=("broker", "controller")):
    """Add access control entries."""

    class AclCreation(Struct):
        """An element of ``creations``."""

        resource_type: int = int8()
        resource_name: str = string()
        resource_pattern_type: int = int8("1+", default=3)
        principal: str = string()
        host: str = string()
        operation: int = int8()
        permission_type: int = int8()

    creations: list[AclCreation] = array(AclCreation)


class CreateAclsResponse(Response, api_key=30, versions=(1, 3), flexible_from=2):
    """Answer to CreateAclsRequest."""

    class AclCreationResult(Struct):
        """An element of ``results``."""

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)
