"""DescribeConfigs, api key 32."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class DescribeConfigsRequest(Request, api_key=32, versions=(1, 4), flexible_from=4, listeners=("broker", "controller")):
    """Read configuration of brokers, topics and other resources."""

    class DescribeConfigsResource(Struct):
        """An element of ``resources``."""

        resource_type: int = int8()
        resource_name: str = string()
        configuration_keys: list[str] | None = array(string, nullable="0+")

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean("1+")
    include_documentation: bool = boolean("3+")


class DescribeConfigsResponse(Response, api_key=32, versions=(1, 4), flexible_from=4):
    """Answer to DescribeConfigsRequest."""

    class DescribeConfigsResult(Struct):
        """An element of ``results``."""

        class DescribeConfigsResourceResult(Struct):
            """An element of ``configs``."""

            class DescribeConfigsSynonym(Struct):
                """An element of ``synonyms``."""

                name: str = string("1+")
                value: str | None = string("1+", nullable="0+")
                source: int = int8("1+")

            name: str = string()
            value: str | None = string(nullable="0+")
            read_only: bool = boolean()
            config_source: int = int8("1+", default=-1, ignorable=True)
            is_sensitive: bool = boolean()
            synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym, "1+", ignorable=True)
            config_type: int = int8("3+", ignorable=True)
            documentation: str | None = string("3+", nullable="0+", ignorable=True)

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        resource_type: int = int8()
        resource_name: str = string()
        configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)
