"""RegisterBrokerRecord, record type 0 of the metadata log."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import MetadataRecord, Struct, array, boolean, int16, int32, int64, string, uint16, uuid


class RegisterBrokerRecord(MetadataRecord, api_key=0, versions=(0, 4), flexible_from=0):
    """A broker joined with a new incarnation and broker epoch."""

    class BrokerEndpoint(Struct):
        """An element of ``end_points``."""

        name: str = string()
        host: str = string()
        port: int = uint16()
        security_protocol: int = int16()

    class BrokerFeature(Struct):
        """An element of ``features``."""

        name: str = string()
        min_supported_version: int = int16()
        max_supported_version: int = int16()

    broker_id: int = int32()
    is_migrating_zk_broker: bool = boolean("2+")
    incarnation_id: Uuid = uuid()
    broker_epoch: int = int64()
    end_points: list[BrokerEndpoint] = array(BrokerEndpoint)
    features: list[BrokerFeature] = array(BrokerFeature)
    rack: str | None = string(nullable="0+")
    fenced: bool = boolean(default=True)
    in_controlled_shutdown: bool = boolean("1+")
    log_dirs: list[Uuid] = array(uuid, "3+", tagged="3+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = array(uuid, "4+", nullable="4+", default=None, tagged="4+", tag=1)
