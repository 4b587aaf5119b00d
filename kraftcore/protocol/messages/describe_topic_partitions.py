"""DescribeTopicPartitions, api key 75."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, string, struct, uuid


class DescribeTopicPartitionsRequest(Request, api_key=75, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Describe partitions of topics page by page (KIP-966)."""

    class TopicRequest(Struct):
        """An element of ``topics``."""

        name: str = string()

    class Cursor(Struct):
        """The value of ``cursor``."""

        topic_name: str = string()
        partition_index: int = int32()

    topics: list[TopicRequest] = array(TopicRequest)
    response_partition_limit: int = int32(default=2000)
    cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)


class DescribeTopicPartitionsResponse(Response, api_key=75, versions=(0, 0), flexible_from=0):
    """Answer to DescribeTopicPartitionsRequest."""

    class DescribeTopicPartitionsResponseTopic(Struct):
        """An element of ``topics``."""

        class DescribeTopicPartitionsResponsePartition(Struct):
            """An element of ``partitions``."""

            error_code: int = int16()
            partition_index: int = int32()
            leader_id: int = int32()
            leader_epoch: int = int32(default=-1, ignorable=True)
            replica_nodes: list[int] = array(int32)
            isr_nodes: list[int] = array(int32)
            eligible_leader_replicas: list[int] | None = array(int32, nullable="0+", default=None)
            last_known_elr: list[int] | None = array(int32, nullable="0+", default=None)
            offline_replicas: list[int] = array(int32, ignorable=True)

        error_code: int = int16()
        name: str | None = string(nullable="0+")
        topic_id: Uuid = uuid(ignorable=True)
        is_internal: bool = boolean(ignorable=True)
        partitions: list[DescribeTopicPartitionsResponsePartition] = array(DescribeTopicPartitionsResponsePartition)
        topic_authorized_operations: int = int32(default=-2147483648)

    class Cursor(Struct):
        """The value of ``next_cursor``."""

        topic_name: str = string()
        partition_index: int = int32()

    throttle_time_ms: int = int32(ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = array(DescribeTopicPartitionsResponseTopic)
    next_cursor: Cursor | None = struct(Cursor, nullable="0+", default=None)
