"""DescribeShareGroupOffsets, api key 90."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class DescribeShareGroupOffsetsRequest(Request, api_key=90, versions=(0, 1), flexible_from=0, listeners=("broker",)):
    """Read the start offsets of a share group (KIP-932)."""

    class DescribeShareGroupOffsetsRequestGroup(Struct):
        """An element of ``groups``."""

        class DescribeShareGroupOffsetsRequestTopic(Struct):
            """An element of ``topics``."""

            topic_name: str = string()
            partitions: list[int] = array(int32)

        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsRequestTopic] | None = array(
            DescribeShareGroupOffsetsRequestTopic, nullable="0+"
        )

    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


class DescribeShareGroupOffsetsResponse(Response, api_key=90, versions=(0, 1), flexible_from=0):
    """Answer to DescribeShareGroupOffsetsRequest."""

    class DescribeShareGroupOffsetsResponseGroup(Struct):
        """An element of ``groups``."""

        class DescribeShareGroupOffsetsResponseTopic(Struct):
            """An element of ``topics``."""

            class DescribeShareGroupOffsetsResponsePartition(Struct):
                """An element of ``partitions``."""

                partition_index: int = int32()
                start_offset: int = int64()
                leader_epoch: int = int32()
                lag: int = int64("1+", default=-1, ignorable=True)
                error_code: int = int16()
                error_message: str | None = string(nullable="0+", default=None)

            topic_name: str = string()
            topic_id: Uuid = uuid()
            partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
                DescribeShareGroupOffsetsResponsePartition
            )

        group_id: str = string()
        topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
        error_code: int = int16()
        error_message: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)
