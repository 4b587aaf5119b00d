"""OffsetCommit, api key 8."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class OffsetCommitRequest(Request, api_key=8, versions=(2, 10), flexible_from=8, listeners=("broker",)):
    """Store a consumer group's offsets."""

    class OffsetCommitRequestTopic(Struct):
        """An element of ``topics``."""

        class OffsetCommitRequestPartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
            committed_metadata: str | None = string(nullable="0+")

        name: str = string("0-9", ignorable=True)
        topic_id: Uuid = uuid("10+", ignorable=True)
        partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)

    group_id: str = string()
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


class OffsetCommitResponse(Response, api_key=8, versions=(2, 10), flexible_from=8):
    """Answer to OffsetCommitRequest."""

    class OffsetCommitResponseTopic(Struct):
        """An element of ``topics``."""

        class OffsetCommitResponsePartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()

        name: str = string("0-9", ignorable=True)
        topic_id: Uuid = uuid("10+", ignorable=True)
        partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)
