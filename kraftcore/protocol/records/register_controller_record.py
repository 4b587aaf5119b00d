"""RegisterControllerRecord, record type 27 of the metadata log."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import MetadataRecord, Struct, array, boolean, int16, int32, string, uint16, uuid


class RegisterControllerRecord(MetadataRecord, api_key=27, versions=(0, 0), flexible_from=0):
    """A controller registered its endpoints and features (KIP-919)."""

    class ControllerEndpoint(Struct):
        """An element of ``end_points``."""

        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class ControllerFeature(Struct):
        """An element of ``features``."""

        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    controller_id: int = int32()
    incarnation_id: Uuid = uuid()
    zk_migration_ready: bool = boolean()
    end_points: list[ControllerEndpoint] = array(ControllerEndpoint)
    features: list[ControllerFeature] = array(ControllerFeature)
