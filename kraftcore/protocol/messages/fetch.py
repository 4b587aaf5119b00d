"""Fetch, api key 1."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import (
    Records,
    Request,
    Response,
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct,
    uuid,
)


class FetchRequest(
    Request, api_key=1, versions=(4, 18), removed_versions=(0, 3), flexible_from=12, listeners=("broker", "controller")
):
    """Read record batches from partitions; followers of a KRaft quorum replicate with it (KIP-595)."""

    class ReplicaState(Struct):
        """The value of ``replica_state``."""

        replica_id: int = int32("15+", default=-1)
        replica_epoch: int = int64("15+", default=-1)

    class FetchTopic(Struct):
        """An element of ``topics``."""

        class FetchPartition(Struct):
            """An element of ``partitions``."""

            partition: int = int32()
            current_leader_epoch: int = int32("9+", default=-1, ignorable=True)
            fetch_offset: int = int64()
            last_fetched_epoch: int = int32("12+", default=-1)
            log_start_offset: int = int64("5+", default=-1, ignorable=True)
            partition_max_bytes: int = int32()
            replica_directory_id: Uuid = uuid("17+", tagged="17+", tag=0, ignorable=True)
            high_watermark: int = int64("18+", default=9223372036854775807, tagged="18+", tag=1, ignorable=True)

        topic: str = string("0-12", ignorable=True)
        topic_id: Uuid = uuid("13+", ignorable=True)
        partitions: list[FetchPartition] = array(FetchPartition)

    class ForgottenTopic(Struct):
        """An element of ``forgotten_topics_data``."""

        topic: str = string("7-12", ignorable=True)
        topic_id: Uuid = uuid("13+", ignorable=True)
        partitions: list[int] = array(int32, "7+")

    cluster_id: str | None = string("12+", nullable="12+", default=None, tagged="12+", tag=0, ignorable=True)
    replica_id: int = int32("0-14", default=-1)
    replica_state: ReplicaState = struct(ReplicaState, "15+", tagged="15+", tag=1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32("3+", default=2147483647, ignorable=True)
    isolation_level: int = int8("4+", ignorable=True)
    session_id: int = int32("7+", ignorable=True)
    session_epoch: int = int32("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+", ignorable=True)


class FetchResponse(Response, api_key=1, versions=(4, 18), removed_versions=(0, 3), flexible_from=12):
    """Answer to FetchRequest."""

    class FetchableTopicResponse(Struct):
        """An element of ``responses``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            class EpochEndOffset(Struct):
                """The value of ``diverging_epoch``."""

                epoch: int = int32("12+", default=-1)
                end_offset: int = int64("12+", default=-1)

            class LeaderIdAndEpoch(Struct):
                """The value of ``current_leader``."""

                leader_id: int = int32("12+", default=-1)
                leader_epoch: int = int32("12+", default=-1)

            class SnapshotId(Struct):
                """The value of ``snapshot_id``."""

                end_offset: int = int64(default=-1)
                epoch: int = int32(default=-1)

            class AbortedTransaction(Struct):
                """An element of ``aborted_transactions``."""

                producer_id: int = int64("4+")
                first_offset: int = int64("4+")

            partition_index: int = int32()
            error_code: int = int16()
            high_watermark: int = int64()
            last_stable_offset: int = int64("4+", default=-1, ignorable=True)
            log_start_offset: int = int64("5+", default=-1, ignorable=True)
            diverging_epoch: EpochEndOffset = struct(EpochEndOffset, "12+", tagged="12+", tag=0)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "12+", tagged="12+", tag=1)
            snapshot_id: SnapshotId = struct(SnapshotId, "12+", tagged="12+", tag=2)
            aborted_transactions: list[AbortedTransaction] | None = array(
                AbortedTransaction, "4+", nullable="4+", ignorable=True
            )
            preferred_read_replica: int = int32("11+", default=-1)
            records: Records | None = record_batches(nullable="0+")

        topic: str = string("0-12", ignorable=True)
        topic_id: Uuid = uuid("13+", ignorable=True)
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        """An element of ``node_endpoints``."""

        node_id: int = int32("16+")
        host: str = string("16+")
        port: int = int32("16+")
        rack: str | None = string("16+", nullable="16+", default=None)

    throttle_time_ms: int = int32("1+", ignorable=True)
    error_code: int = int16("7+", ignorable=True)
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tagged="16+", tag=0)
