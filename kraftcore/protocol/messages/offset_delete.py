"""OffsetDelete, api key 47."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, string


class OffsetDeleteRequest(Request, api_key=47, versions=(0, 0), listeners=("broker",)):
    """Delete a consumer group's offsets."""

    class OffsetDeleteRequestTopic(Struct):
        """An element of ``topics``."""

        class OffsetDeleteRequestPartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()

        name: str = string()
        partitions: list[OffsetDeleteRequestPartition] = array(OffsetDeleteRequestPartition)

    group_id: str = string()
    topics: list[OffsetDeleteRequestTopic] = array(OffsetDeleteRequestTopic)


class OffsetDeleteResponse(Response, api_key=47, versions=(0, 0)):
    """Answer to OffsetDeleteRequest."""

    class OffsetDeleteResponseTopic(Struct):
        """An element of ``topics``."""

        class OffsetDeleteResponsePartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: list[OffsetDeleteResponsePartition] = array(OffsetDeleteResponsePartition)

    error_code: int = int16()
    throttle_time_ms: int = int32(ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = array(OffsetDeleteResponseTopic)
