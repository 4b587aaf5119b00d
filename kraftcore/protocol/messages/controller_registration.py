"""ControllerRegistration, api key 70."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string, uint16, uuid


class ControllerRegistrationRequest(Request, api_key=70, versions=(0, 0), flexible_from=0, listeners=("controller",)):
    """Controller to active controller: endpoints and features (KIP-919)."""

    class Listener(Struct):
        """An element of ``listeners``."""

        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class Feature(Struct):
        """An element of ``features``."""

        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    controller_id: int = int32()
    incarnation_id: Uuid = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


class ControllerRegistrationResponse(Response, api_key=70, versions=(0, 0), flexible_from=0):
    """Answer to ControllerRegistrationRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
