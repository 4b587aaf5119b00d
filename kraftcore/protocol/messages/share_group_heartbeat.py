"""ShareGroupHeartbeat, api key 76."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string, struct, uuid


class ShareGroupHeartbeatRequest(Request, api_key=76, versions=(1, 1), flexible_from=0, listeners=("broker",)):
    """Join, stay in or leave a share group (KIP-932)."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = string(nullable="0+", default=None)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)


class TopicPartitions(Struct):
    """Shared by several fields of ShareGroupHeartbeatResponse."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ShareGroupHeartbeatResponse(Response, api_key=76, versions=(1, 1), flexible_from=0):
    """Answer to ShareGroupHeartbeatRequest."""

    class Assignment(Struct):
        """The value of ``assignment``."""

        topic_partitions: list[TopicPartitions] = array(TopicPartitions)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+", default=None)
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = struct(Assignment, nullable="0+", default=None)
