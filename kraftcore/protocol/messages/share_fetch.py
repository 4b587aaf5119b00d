"""ShareFetch, api key 78."""

from __future__ import annotations

from kraftcore.core.uuid import Uuid
from kraftcore.protocol.schema import (
    Records,
    Request,
    Response,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    record_batches,
    string,
    struct,
    uuid,
)


class ShareFetchRequest(Request, api_key=78, versions=(1, 2), flexible_from=0, listeners=("broker",)):
    """Read and acknowledge records as a member of a share group (KIP-932)."""

    class FetchTopic(Struct):
        """An element of ``topics``."""

        class FetchPartition(Struct):
            """An element of ``partitions``."""

            class AcknowledgementBatch(Struct):
                """An element of ``acknowledgement_batches``."""

                first_offset: int = int64()
                last_offset: int = int64()
                acknowledge_types: list[int] = array(int8)

            partition_index: int = int32()
            partition_max_bytes: int = int32("0")
            acknowledgement_batches: list[AcknowledgementBatch] = array(AcknowledgementBatch)

        topic_id: Uuid = uuid()
        partitions: list[FetchPartition] = array(FetchPartition)

    class ForgottenTopic(Struct):
        """An element of ``forgotten_topics_data``."""

        topic_id: Uuid = uuid()
        partitions: list[int] = array(int32)

    group_id: str | None = string(nullable="0+", default=None)
    member_id: str | None = string(nullable="0+")
    share_session_epoch: int = int32()
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    max_records: int = int32("1+")
    batch_size: int = int32("1+")
    share_acquire_mode: int = int8("2+", ignorable=True)
    is_renew_ack: bool = boolean("2+")
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic)


class ShareFetchResponse(Response, api_key=78, versions=(1, 2), flexible_from=0):
    """Answer to ShareFetchRequest."""

    class ShareFetchableTopicResponse(Struct):
        """An element of ``responses``."""

        class PartitionData(Struct):
            """An element of ``partitions``."""

            class LeaderIdAndEpoch(Struct):
                """The value of ``current_leader``."""

                leader_id: int = int32()
                leader_epoch: int = int32()

            class AcquiredRecords(Struct):
                """An element of ``acquired_records``."""

                first_offset: int = int64()
                last_offset: int = int64()
                delivery_count: int = int16()

            partition_index: int = int32()
            error_code: int = int16()
            error_message: str | None = string(nullable="0+", default=None)
            acknowledge_error_code: int = int16()
            acknowledge_error_message: str | None = string(nullable="0+", default=None)
            current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch)
            records: Records | None = record_batches(nullable="0")
            acquired_records: list[AcquiredRecords] = array(AcquiredRecords)

        topic_id: Uuid = uuid()
        partitions: list[PartitionData] = array(PartitionData)

    class NodeEndpoint(Struct):
        """An element of ``node_endpoints``."""

        node_id: int = int32()
        host: str = string()
        port: int = int32()
        rack: str | None = string(nullable="0+", default=None)

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = int32("1+")
    responses: list[ShareFetchableTopicResponse] = array(ShareFetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint)
