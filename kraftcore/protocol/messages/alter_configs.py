"""AlterConfigs, api key 33."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class AlterConfigsRequest(Request, api_key=33, versions=(0, 2), flexible_from=2, listeners=("broker", "controller")):
    """Replace configuration of resources."""

    class AlterConfigsResource(Struct):
        """An element of ``resources``."""

        class AlterableConfig(Struct):
            """An element of ``configs``."""

            name: str = string()
            value: str | None = string(nullable="0+")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[AlterableConfig] = array(AlterableConfig)

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResponse(Response, api_key=33, versions=(0, 2), flexible_from=2):
    """Answer to AlterConfigsRequest."""

    class AlterConfigsResourceResponse(Struct):
        """An element of ``responses``."""

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
