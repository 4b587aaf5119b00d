"""OffsetFetch, api key 9."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import Request, Response, Struct, array, boolean, int16, int32, int64, string, uuid


class OffsetFetchRequest(Request, api_key=9, versions=(1, 10), flexible_from=6, listeners=("broker",)):
    """Read a consumer group's stored offsets."""

    class OffsetFetchRequestTopic(Struct):
        """An element of ``topics``."""

        name: str = string("0-7")
        partition_indexes: list[int] = array(int32, "0-7")

    class OffsetFetchRequestGroup(Struct):
        """An element of ``groups``."""

        class OffsetFetchRequestTopics(Struct):
            """An element of ``topics``."""

            name: str = string("8-9", ignorable=True)
            topic_id: Uuid = uuid("10+", ignorable=True)
            partition_indexes: list[int] = array(int32, "8+")

        group_id: str = string("8+")
        member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
        member_epoch: int = int32("9+", default=-1, ignorable=True)
        topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")

    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")


class OffsetFetchResponse(Response, api_key=9, versions=(1, 10), flexible_from=6):
    """Answer to OffsetFetchRequest."""

    class OffsetFetchResponseTopic(Struct):
        """An element of ``topics``."""

        class OffsetFetchResponsePartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32("0-7")
            committed_offset: int = int64("0-7")
            committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
            metadata: str | None = string("0-7", nullable="0-7")
            error_code: int = int16("0-7")

        name: str = string("0-7")
        partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")

    class OffsetFetchResponseGroup(Struct):
        """An element of ``groups``."""

        class OffsetFetchResponseTopics(Struct):
            """An element of ``topics``."""

            class OffsetFetchResponsePartitions(Struct):
                """An element of ``partitions``."""

                partition_index: int = int32("8+")
                committed_offset: int = int64("8+")
                committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
                metadata: str | None = string("8+", nullable="8+")
                error_code: int = int16("8+")

            name: str = string("8-9", ignorable=True)
            topic_id: Uuid = uuid("10+", ignorable=True)
            partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")

        group_id: str = string("8+")
        topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
        error_code: int = int16("8+")

    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
