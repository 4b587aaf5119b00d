"""AlterShareGroupOffsets, api key 91."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class AlterShareGroupOffsetsRequest(Request, api_key=91, versions=(0, 0), flexible_from=0, listeners=("broker",)):
    """Change the start offsets of a share group (KIP-932)."""

    class AlterShareGroupOffsetsRequestTopic(Struct):
        """An element of ``topics``."""

        class AlterShareGroupOffsetsRequestPartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            start_offset: int = int64()

        topic_name: str = string()
        partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)

    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


class AlterShareGroupOffsetsResponse(Response, api_key=91, versions=(0, 0), flexible_from=0):
    """Answer to AlterShareGroupOffsetsRequest."""

    class AlterShareGroupOffsetsResponseTopic(Struct):
        """An element of ``responses``."""

        class AlterShareGroupOffsetsResponsePartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)

        topic_name: str = string()
        topic_id: Uuid = uuid()
        partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)
