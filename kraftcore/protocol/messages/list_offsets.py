"""ListOffsets, api key 2."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int8, int16, int32, int64, string


class ListOffsetsRequest(
    Request, api_key=2, versions=(1, 11), removed_versions=(0, 0), flexible_from=6, listeners=("broker",)
):
    """Find offsets by timestamp, or the first and last ones."""

    class ListOffsetsTopic(Struct):
        """An element of ``topics``."""

        class ListOffsetsPartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
            timestamp: int = int64()
            max_num_offsets: int = int32("0", default=1)

        name: str = string()
        partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)

    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsResponse(Response, api_key=2, versions=(1, 11), removed_versions=(0, 0), flexible_from=6):
    """Answer to ListOffsetsRequest."""

    class ListOffsetsTopicResponse(Struct):
        """An element of ``topics``."""

        class ListOffsetsPartitionResponse(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()
            old_style_offsets: list[int] = array(int64, "0")
            timestamp: int = int64("1+", default=-1)
            offset: int = int64("1+", default=-1)
            leader_epoch: int = int32("4+", default=-1)

        name: str = string()
        partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
