"""IncrementalAlterConfigs, api key 44."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class IncrementalAlterConfigsRequest(
    Request, api_key=44, versions=(0, 1), flexible_from=1, listeners=("broker", "controller")
):
    """Change single configuration keys of resources (KIP-339)."""

    class AlterConfigsResource(Struct):
        """An element of ``resources``."""

        class AlterableConfig(Struct):
            """An element of ``configs``."""

            name: str = string()
            config_operation: int = int8()
            value: str | None = string(nullable="0+")

        resource_type: int = int8()
        resource_name: str = string()
        configs: list[AlterableConfig] = array(AlterableConfig)

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Response, api_key=44, versions=(0, 1), flexible_from=1):
    """Answer to IncrementalAlterConfigsRequest."""

    class AlterConfigsResourceResponse(Struct):
        """An element of ``responses``."""

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
