"""TxnOffsetCommit, api key 28."""

from __future__ import annotations

from kraftcore.protocol.schema import Request, Response, Struct, array, int16, int32, int64, string


class TxnOffsetCommitRequest(Request, api_key=28, versions=(0, 5), flexible_from=3, listeners=("broker",)):
    """Store a group's offsets as part of a transaction."""

    class TxnOffsetCommitRequestTopic(Struct):
        """An element of ``topics``."""

        class TxnOffsetCommitRequestPartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            committed_offset: int = int64()
            committed_leader_epoch: int = int32("2+", default=-1, ignorable=True)
            committed_metadata: str | None = string(nullable="0+")

        name: str = string()
        partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)

    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


class TxnOffsetCommitResponse(Response, api_key=28, versions=(0, 5), flexible_from=3):
    """Answer to TxnOffsetCommitRequest."""

    class TxnOffsetCommitResponseTopic(Struct):
        """An element of ``topics``."""

        class TxnOffsetCommitResponsePartition(Struct):
            """An element of ``partitions``."""

            partition_index: int = int32()
            error_code: int = int16()

        name: str = string()
        partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)

    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)
