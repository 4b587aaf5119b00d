"""UpdateRaftVoter, api key 82."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string, struct, uint16, uuid


class UpdateRaftVoterRequest(Request, api_key=82, versions=(0, 0), flexible_from=0, listeners=("controller",)):
    """A voter updates its endpoints and supported kraft.version (KIP-853)."""

    class Listener(Struct):
        """An element of ``listeners``."""

        name: str = string()
        host: str = string()
        port: int = uint16()

    class KRaftVersionFeature(Struct):
        """The value of ``kraft_version_feature``."""

        min_supported_version: int = int16()
        max_supported_version: int = int16()

    cluster_id: str | None = string(nullable="0+")
    current_leader_epoch: int = int32()
    voter_id: int = int32()
    voter_directory_id: Uuid = uuid()
    listeners: list[Listener] = array(Listener)
    kraft_version_feature: KRaftVersionFeature = struct(KRaftVersionFeature, kafka="KRaftVersionFeature")


class UpdateRaftVoterResponse(Response, api_key=82, versions=(0, 0), flexible_from=0):
    """Answer to UpdateRaftVoterRequest."""

    class CurrentLeader(Struct):
        """The value of ``current_leader``."""

        leader_id: int = int32(default=-1)
        leader_epoch: int = int32(default=-1)
        host: str = string()
        port: int = int32()

    throttle_time_ms: int = int32()
    error_code: int = int16()
    current_leader: CurrentLeader = struct(CurrentLeader, tagged="0+", tag=0)
