"""ListConfigResources, api key 74."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, string


class ListConfigResourcesRequest(Request, api_key=74, versions=(0, 1), flexible_from=0, listeners=("broker",)):
    """List resources that have configuration (KIP-1142)."""

    resource_types: list[int] = array(int8, "1+")


class ListConfigResourcesResponse(Response, api_key=74, versions=(0, 1), flexible_from=0):
    """Answer to ListConfigResourcesRequest."""

    class ConfigResource(Struct):
        """An element of ``config_resources``."""

        resource_name: str = string()
        resource_type: int = int8("1+", default=16, ignorable=True)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)
