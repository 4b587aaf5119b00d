"""OffsetForLeaderEpoch, api key 23."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class OffsetForLeaderEpochRequest(
    Request, api_key=23, versions=(2, 4), removed_versions=(0, 1), flexible_from=4, listeners=("broker",)
):
    """Find where a leader epoch ends in a partition's log (KIP-101)."""

    class OffsetForLeaderTopic(Struct):
        """An element of ``topics``."""

        class OffsetForLeaderPartition(Struct):
            """An element of ``partitions``."""

            partition: int = int32()
            current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
            leader_epoch: int = int32()

        topic: str = string()
        partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition)

    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic)


class OffsetForLeaderEpochResponse(Response, api_key=23, versions=(2, 4), removed_versions=(0, 1), flexible_from=4):
    """Answer to OffsetForLeaderEpochRequest."""

    class OffsetForLeaderTopicResult(Struct):
        """An element of ``topics``."""

        class EpochEndOffset(Struct):
            """An element of ``partitions``."""

            error_code: int = int16()
            partition: int = int32()
            leader_epoch: int = int32("1+", default=-1, ignorable=True)
            end_offset: int = int64(default=-1)

        topic: str = string()
        partitions: list[EpochEndOffset] = array(EpochEndOffset)

    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult)
