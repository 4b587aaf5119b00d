"""ApiVersions, api key 18."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string


class ApiVersionsRequest(Request, api_key=18, versions=(0, 4), flexible_from=3, listeners=("broker", "controller")):
    """Learn which apis, versions and features a node supports (KIP-35, KIP-511, KIP-584)."""

    client_software_name: str = string("3+", ignorable=True)
    client_software_version: str = string("3+", ignorable=True)


class ApiVersionsResponse(Response, api_key=18, versions=(0, 4), flexible_from=3, header_versions=0):
    """Answer to ApiVersionsRequest."""

    class ApiVersion(Struct):
        """An element of ``api_keys``."""

        api_key: int = int16()
        min_version: int = int16()
        max_version: int = int16()

    class SupportedFeatureKey(Struct):
        """An element of ``supported_features``."""

        name: str = string("3+")
        min_version: int = int16("3+")
        max_version: int = int16("3+")

    class FinalizedFeatureKey(Struct):
        """An element of ``finalized_features``."""

        name: str = string("3+")
        max_version_level: int = int16("3+")
        min_version_level: int = int16("3+")

    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tagged="3+", tag=0, ignorable=True)
    finalized_features_epoch: int = int64("3+", default=-1, tagged="3+", tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tagged="3+", tag=2, ignorable=True)
    zk_migration_ready: bool = boolean("3+", tagged="3+", tag=3, ignorable=True)
