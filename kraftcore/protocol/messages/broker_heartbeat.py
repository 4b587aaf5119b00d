"""BrokerHeartbeat, api key 63."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, array, boolean, int16, int32, int64, uuid


class BrokerHeartbeatRequest(Request, api_key=63, versions=(0, 2), flexible_from=0, listeners=("controller",)):
    """Broker to controller: stay in the cluster, get fenced or unfenced (KIP-631)."""

    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    current_metadata_offset: int = int64()
    want_fence: bool = boolean()
    want_shut_down: bool = boolean()
    offline_log_dirs: list[Uuid] = array(uuid, "1+", tagged="1+", tag=0)
    cordoned_log_dirs: list[Uuid] | None = array(uuid, "2+", nullable="2+", default=None, tagged="2+", tag=1)


class BrokerHeartbeatResponse(Response, api_key=63, versions=(0, 2), flexible_from=0):
    """Answer to BrokerHeartbeatRequest."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    is_caught_up: bool = boolean()
    is_fenced: bool = boolean(default=True)
    should_shut_down: bool = boolean()
