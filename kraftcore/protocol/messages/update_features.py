"""UpdateFeatures, api key 57."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int8, int16, int32, string


class UpdateFeaturesRequest(Request, api_key=57, versions=(0, 2), flexible_from=0, listeners=("broker", "controller")):
    """Raise or lower finalized feature levels (KIP-584)."""

    class FeatureUpdateKey(Struct):
        """An element of ``feature_updates``."""

        feature: str = string()
        max_version_level: int = int16()
        allow_downgrade: bool = boolean("0")
        upgrade_type: int = int8("1+", default=1)

    timeout_ms: int = int32(default=60000, kafka="timeoutMs")
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdateFeaturesResponse(Response, api_key=57, versions=(0, 2), flexible_from=0):
    """Answer to UpdateFeaturesRequest."""

    class UpdatableFeatureResult(Struct):
        """An element of ``results``."""

        feature: str = string()
        error_code: int = int16()
        error_message: str | None = string(nullable="0+")

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
