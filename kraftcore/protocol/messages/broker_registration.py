"""BrokerRegistration, api key 62."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class BrokerRegistrationRequest(Request, api_key=62, versions=(0, 4), flexible_from=0, listeners=("controller",)):
    """Broker to controller: join the cluster (KIP-631)."""

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

    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = string(nullable="0+")
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[Uuid] = array(uuid, "2+", ignorable=True)
    previous_broker_epoch: int = int64("3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Response, api_key=62, versions=(0, 4), flexible_from=0):
    """Answer to BrokerRegistrationRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)
