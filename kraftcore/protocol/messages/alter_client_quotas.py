"""AlterClientQuotas, api key 49."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, float64, int16, int32, string


class AlterClientQuotasRequest(
    Request, api_key=49, versions=(0, 1), flexible_from=1, listeners=("broker", "controller")
):
    """Change client quotas (KIP-546)."""

    class EntryData(Struct):
        """An element of ``entries``."""

        class EntityData(Struct):
            """An element of ``entity``."""

            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        class OpData(Struct):
            """An element of ``ops``."""

            key: str = string()
            value: float = float64()
            remove: bool = boolean()

        entity: list[EntityData] = array(EntityData)
        ops: list[OpData] = array(OpData)

    entries: list[EntryData] = array(EntryData)
    validate_only: bool = boolean()


class AlterClientQuotasResponse(Response, api_key=49, versions=(0, 1), flexible_from=1):
    """Answer to AlterClientQuotasRequest."""

    class EntryData(Struct):
        """An element of ``entries``."""

        class EntityData(Struct):
            """An element of ``entity``."""

            entity_type: str = string()
            entity_name: str | None = string(nullable="0+")

        error_code: int = int16()
        error_message: str | None = string(nullable="0+")
        entity: list[EntityData] = array(EntityData)

    throttle_time_ms: int = int32()
    entries: list[EntryData] = array(EntryData)
