"""DescribeClientQuotas, api key 48."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, float64, int8, int16, int32, string


class DescribeClientQuotasRequest(Request, api_key=48, versions=(0, 1), flexible_from=1, listeners=("broker",)):
    """List client quotas (KIP-546)."""

    class ComponentData(Struct):
        """An element of ``components``."""

        entity_type: str = string()
        match_type: int = int8()
        match: str | None = string(nullable="0+")

    components: list[ComponentData] = array(ComponentData)
    strict: bool = boolean()


class DescribeClientQuotasResponse(Response, api_key=48, versions=(0, 1), flexible_from=1):
    """Answer to DescribeClientQuotasRequest."""

    class EntryData(Struct):
        """An element of ``entries``."""

        class EntityData(Struct):
            """An element of ``entity``."""

            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        class ValueData(Struct):
            """An element of ``values``."""

            key: str = string()
            value: float = float64()

        entity: list[EntityData] = array(EntityData)
        values: list[ValueData] = array(ValueData)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[EntryData] | None = array(EntryData, nullable="0+")
