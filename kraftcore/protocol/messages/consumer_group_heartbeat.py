"""ConsumerGroupHeartbeat, api key 68."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string, struct, uuid


class ConsumerGroupHeartbeatRequest(Request, api_key=68, versions=(0, 1), flexible_from=0, listeners=("broker",)):
    """Join, stay in or leave a consumer group of the new protocol (KIP-848)."""

    class TopicPartitions(Struct):
        """An element of ``topic_partitions``."""

        topic_id: Uuid = uuid()
        partitions: list[int] = array(int32)

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+", default=None)
    rack_id: str | None = string(nullable="0+", default=None)
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = array(string, nullable="0+", default=None)
    subscribed_topic_regex: str | None = string("1+", nullable="1+", default=None)
    server_assignor: str | None = string(nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+", default=None)


class TopicPartitions(Struct):
    """Shared by several fields of ConsumerGroupHeartbeatResponse."""

    topic_id: Uuid = uuid()
    partitions: list[int] = array(int32)


class ConsumerGroupHeartbeatResponse(Response, api_key=68, versions=(0, 1), flexible_from=0):
    """Answer to ConsumerGroupHeartbeatRequest."""

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
